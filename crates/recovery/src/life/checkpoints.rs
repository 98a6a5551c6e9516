//! The checkpoint machine of an open database, stepped by one caller at a time.

use std::sync::Arc;

use parking_lot::Mutex;
use perdura_base::Result;
use perdura_wal::{EpochEnds, Wal};

use crate::checkpoint::{CheckpointProgress, CheckpointStats, Checkpointer, Pin};
use crate::flush::flush_all;
use crate::sweep_digest::SweepDigest;

/// The checkpoint machine, stepped by one caller at a time.
pub struct Checkpoints {
    wal: Arc<Wal>,
    /// A step holds this lock while it holds one latch or performs one I/O.
    machine: Mutex<Checkpointer>,
    figures: Arc<Mutex<CheckpointStats>>,
    newest: Arc<Mutex<Option<Arc<SweepDigest>>>>,
    chain_is_long: bool,
}

impl Checkpoints {
    /// Wraps the machine of a new life. `chain_is_long`: the anchor's chain should be shortened by checkpoints.
    pub(super) fn new(wal: Arc<Wal>, machine: Checkpointer, chain_is_long: bool) -> Checkpoints {
        Checkpoints {
            wal,
            figures: machine.published(),
            newest: machine.newest_digest(),
            machine: Mutex::new(machine),
            chain_is_long,
        }
    }

    /// Begins a checkpoint unless one is running.
    ///
    /// # Errors
    /// See [`Checkpointer::begin`].
    pub fn begin(&self) -> Result<()> {
        self.machine.lock().begin()
    }

    /// Pins the newest image, so that no checkpoint overwrites it; see [`Checkpointer::pin_newest`].
    #[must_use]
    pub fn pin_newest(&self) -> Option<Pin> {
        self.machine.lock().pin_newest()
    }

    /// Returns whether a pin holds the image that the next checkpoint is to overwrite.
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.machine.lock().is_held()
    }

    /// Takes one step of the running checkpoint.
    ///
    /// # Errors
    /// See [`Checkpointer::step`].
    pub fn step(&self) -> Result<CheckpointProgress> {
        self.machine.lock().step()
    }

    /// Removes files that the last checkpoint could not remove; see [`Checkpointer::clear_away`]. Does nothing while
    /// another caller uses the machine.
    ///
    /// # Errors
    /// The disk's; the caller tries again later.
    pub fn clear_away(&self) -> Result<()> {
        match self.machine.try_lock() {
            Some(mut machine) => machine.clear_away(),
            None => Ok(()),
        }
    }

    /// Notes up to where an archive holds the log; no checkpoint cuts the log beyond that. See
    /// [`AnchorCell::set_archived`](crate::AnchorCell::set_archived).
    ///
    /// # Errors
    /// As [`AnchorCell::set_archived`](crate::AnchorCell::set_archived).
    pub fn set_archived(&self, end: &EpochEnds) -> Result<()> {
        self.machine.lock().set_archived(end)
    }

    /// Gives up the running checkpoint, unless the anchor may name its image already. Returns whether a checkpoint was
    /// given up.
    pub fn abandon(&self) -> bool {
        self.machine.lock().abandon()
    }

    /// Gives up a running fuzzy sweep; later checkpoints are cuts. To be called after the first key-addressed table is
    /// attached and before the table's first ordered frame is logged.
    pub fn require_cuts(&self) {
        self.machine.lock().require_cuts();
    }

    /// Returns whether a checkpoint is running.
    #[must_use]
    pub fn is_running(&self) -> bool {
        self.machine.lock().is_running()
    }

    /// Runs one whole checkpoint, and flushes the log as needed. For callers without threads.
    ///
    /// # Errors
    /// See [`step`](Self::step).
    pub fn now(&self) -> Result<()> {
        self.begin()?;
        loop {
            match self.step()? {
                CheckpointProgress::Idle | CheckpointProgress::Done => return Ok(()),
                CheckpointProgress::Working(_) => {}
                CheckpointProgress::Waiting => flush_all(&self.wal)?,
            }
        }
    }

    /// If the anchor's chain has grown long, takes two checkpoints. After them neither image needs the log of the old
    /// incarnations. Called after a restart, before the database takes work. If a disk's error cancels a checkpoint,
    /// the database serves all the same, and the next restart tries again.
    ///
    /// # Errors
    /// The log has stopped.
    pub fn shorten_chain(&self) -> Result<()> {
        if self.chain_is_long {
            let _cancelled = self.now().and_then(|()| self.now());
            self.wal.check()?;
        }
        Ok(())
    }

    /// Returns the digest of the newest image. `None`: it is not known yet. Never waits for a step.
    #[must_use]
    pub fn newest_digest(&self) -> Option<Arc<SweepDigest>> {
        self.newest.lock().clone()
    }

    /// Returns the statistics. Never waits for a step.
    #[must_use]
    pub fn stats(&self) -> CheckpointStats {
        *self.figures.lock()
    }
}

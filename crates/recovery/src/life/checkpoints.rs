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
    /// A step holds it for one latch or one I/O.
    machine: Mutex<Checkpointer>,
    figures: Arc<Mutex<CheckpointStats>>,
    newest: Arc<Mutex<Option<Arc<SweepDigest>>>>,
    chain_is_long: bool,
}

impl Checkpoints {
    /// Makes a machine that begins after a restart, whose anchor may have a long chain.
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

    /// Holds the newest image, so that no checkpoint overwrites it; see [`Checkpointer::pin_newest`].
    #[must_use]
    pub fn pin_newest(&self) -> Option<Pin> {
        self.machine.lock().pin_newest()
    }

    /// Returns whether the image that the next checkpoint is to overwrite is held.
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

    /// Removes what the last checkpoint could not; see [`Checkpointer::clear_away`].
    ///
    /// # Errors
    /// The disk's; the caller tries again later.
    pub fn clear_away(&self) -> Result<()> {
        match self.machine.try_lock() {
            Some(mut machine) => machine.clear_away(),
            None => Ok(()),
        }
    }

    /// Notes the end of the log in an archive: no checkpoint cuts the log beyond it. See
    /// [`AnchorCell::set_archived`](crate::AnchorCell::set_archived).
    ///
    /// # Errors
    /// As [`AnchorCell::set_archived`](crate::AnchorCell::set_archived).
    pub fn set_archived(&self, end: &EpochEnds) -> Result<()> {
        self.machine.lock().set_archived(end)
    }

    /// Gives up the running checkpoint, unless its image is being named already. Returns whether
    /// one was given up.
    pub fn abandon(&self) -> bool {
        self.machine.lock().abandon()
    }

    /// Gives up a running fuzzy sweep. Later checkpoints are cuts. The caller calls this after the first key-addressed
    /// table is attached and before its first ordered frame is logged.
    pub fn require_cuts(&self) {
        self.machine.lock().require_cuts();
    }

    /// Returns whether a checkpoint is running.
    #[must_use]
    pub fn is_running(&self) -> bool {
        self.machine.lock().is_running()
    }

    /// Runs one whole checkpoint, flushing as it goes: for callers without threads.
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

    /// Takes two checkpoints if the anchor's chain has grown long, so that both images, and with them the log, leave
    /// the old incarnations behind. Called after a restart, before work is taken. A checkpoint that a disk cancels does
    /// not prevent service: the next restart tries again.
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

    /// Returns the digest of the newest image. `None`: it is not known yet. Reading it never waits for a step.
    #[must_use]
    pub fn newest_digest(&self) -> Option<Arc<SweepDigest>> {
        self.newest.lock().clone()
    }

    /// Returns figures; reading them never waits for a step.
    #[must_use]
    pub fn stats(&self) -> CheckpointStats {
        *self.figures.lock()
    }
}

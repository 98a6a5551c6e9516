//! The checkpoint machine of an open database: the state machine that takes checkpoints. One caller steps it at a time.

use std::sync::Arc;

use parking_lot::Mutex;
use perdura_base::Result;
use perdura_wal::{EpochEnds, Wal};

use crate::checkpoint::{CheckpointProgress, CheckpointStats, Checkpointer, Pin};
use crate::demand::Loading;
use crate::flush::flush_all;
use crate::sweep_digest::SweepDigest;

/// The checkpoint machine with a lock, so that one caller at a time steps the machine.
pub struct Checkpoints {
    wal: Arc<Wal>,
    /// The machine. A step holds this lock only for as long as it holds one latch or does one I/O.
    machine: Mutex<Checkpointer>,
    figures: Arc<Mutex<CheckpointStats>>,
    newest: Arc<Mutex<Option<Arc<SweepDigest>>>>,
    chain_is_long: bool,
    /// The partitions that the restart has left absent. No checkpoint begins before all are loaded.
    loading: Option<Arc<Loading>>,
}

impl Checkpoints {
    /// Wraps the machine of a new life. `chain_is_long` says whether checkpoints should shorten the anchor's chain of
    /// closed lives.
    pub(super) fn new(
        wal: Arc<Wal>,
        machine: Checkpointer,
        chain_is_long: bool,
        loading: Option<Arc<Loading>>,
    ) -> Checkpoints {
        Checkpoints {
            wal,
            figures: machine.published(),
            newest: machine.newest_digest(),
            machine: Mutex::new(machine),
            chain_is_long,
            loading,
        }
    }

    /// Begins a checkpoint unless one is running. Loads first what the restart has left absent.
    ///
    /// # Errors
    /// See [`Checkpointer::begin`] and [`Loading::load`].
    pub fn begin(&self) -> Result<()> {
        if let Some(loading) = &self.loading {
            loading.load_all()?;
        }
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
    /// Errors of the disk. The caller tries again later.
    pub fn clear_away(&self) -> Result<()> {
        match self.machine.try_lock() {
            Some(mut machine) => machine.clear_away(),
            None => Ok(()),
        }
    }

    /// Stores the end of the archived log. Every checkpoint keeps the log after that end. See
    /// [`AnchorCell::set_archived`](crate::AnchorCell::set_archived).
    ///
    /// # Errors
    /// As [`AnchorCell::set_archived`](crate::AnchorCell::set_archived).
    pub fn set_archived(&self, end: &EpochEnds) -> Result<()> {
        self.machine.lock().set_archived(end)
    }

    /// Gives up the running checkpoint, unless the anchor may already name the checkpoint's image. Returns whether a
    /// checkpoint was given up.
    pub fn abandon(&self) -> bool {
        self.machine.lock().abandon()
    }

    /// Gives up a running fuzzy sweep. From then on, each checkpoint is a consistent cut: it copies all pages as of one
    /// instant. Must be called after the first key-addressed table is attached, and before that table's first ordered
    /// frame is logged.
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
                CheckpointProgress::Idle | CheckpointProgress::Done => {
                    assert!(!self.is_running(), "the checkpoint has ended");
                    return Ok(());
                }
                CheckpointProgress::Working(_) => {}
                CheckpointProgress::Waiting => flush_all(&self.wal)?,
            }
        }
    }

    /// Takes two checkpoints if the anchor's chain of closed lives is long. After these checkpoints, no image needs the
    /// log of the closed lives. Called after a restart, before the database accepts transactions. An error of a disk
    /// cancels the checkpoint and is ignored: the next restart tries again.
    ///
    /// # Errors
    /// The log has stopped.
    pub fn shorten_chain(&self) -> Result<()> {
        let is_loaded = self
            .loading
            .as_ref()
            .is_none_or(|loading| loading.is_done());
        if self.chain_is_long && is_loaded {
            let _cancelled = self.now().and_then(|()| self.now());
            self.wal.check()?;
        }
        Ok(())
    }

    /// Returns the digest of the newest image, without waiting for a step. `None`: the digest is not known yet.
    #[must_use]
    pub fn newest_digest(&self) -> Option<Arc<SweepDigest>> {
        self.newest.lock().clone()
    }

    /// Returns the statistics, without waiting for a step.
    #[must_use]
    pub fn stats(&self) -> CheckpointStats {
        *self.figures.lock()
    }
}

//! What an open database has beneath its transactions, whatever these are made of: its log, its anchor, its checkpoint
//! machine, and the report of the restart that it came from.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crossbeam_utils::CachePadded;
use perdura_base::{Epoch, Incarnation, Result, StreamId, TxnId};
use perdura_heap::Heap;
use perdura_recovery::restart::{RestartOptions, Restarted};
use perdura_recovery::resume::{Checkpoints, LogMemory, flush_all, resume};
use perdura_recovery::tree::RestartedTree;
use perdura_recovery::vouch::mark_clean;
use perdura_recovery::{AnchorCell, CheckpointProgress, CheckpointStats, RestartReport, vouch};
use perdura_wal::{FlushProgress, Rung, Scheme, Wal};

use crate::options::Route;
use crate::streams::Streams;
use crate::txn::Routed;

/// Numbers of transactions and of physical changes begin, in each incarnation, at the incarnation
/// shifted by this: none is used twice, and a restart need not search for the highest. A life has room
/// for 2^32 of each.
const NUMBER_SHIFT: u32 = 32;

/// The first number of an incarnation.
pub(crate) fn first_number(incarnation: Incarnation) -> CachePadded<AtomicU64> {
    CachePadded::new(AtomicU64::new(u64::from(incarnation.0) << NUMBER_SHIFT))
}

/// A database that has been restarted and takes work. It has no threads: its caller closes epochs, flushes blocks and takes
/// checkpoints in steps.
pub struct Running {
    pub(crate) scheme: Scheme,
    pub(crate) wal: Arc<Wal>,
    pub(crate) streams: Arc<Streams>,
    pub(crate) report: RestartReport,
    next_txn: CachePadded<AtomicU64>,
    anchor: Arc<AnchorCell>,
    checkpoints: Checkpoints,
}

impl Running {
    /// Opens the log of the new life. The pages are the caller's: the heap, and the tree if there is one.
    pub(crate) fn resume(
        restarted: Restarted,
        options: &RestartOptions<'_>,
        memory: LogMemory,
    ) -> Result<(Running, Arc<Heap>, Option<RestartedTree>)> {
        let record = &restarted.record;
        let (scheme, next_txn) = (record.scheme, first_number(record.incarnation));
        let streams = Arc::new(Streams::new(record.streams));
        let resumed = resume(restarted, options, memory, streams.clone())?;
        let running = Running {
            scheme,
            wal: resumed.wal,
            streams,
            report: resumed.report,
            next_txn,
            anchor: resumed.anchor,
            checkpoints: resumed.checkpoints,
        };
        running.check_resumed();
        Ok((running, resumed.heap, resumed.tree))
    }

    /// What holds between the parts of a database that was opened just now.
    fn check_resumed(&self) {
        assert_eq!(
            usize::from(self.wal.streams()),
            self.streams.count(),
            "each stream of the log has its active list"
        );
        let (kept, durable) = (Epoch(self.report.durable_epoch), self.durable());
        assert!(
            kept <= durable && durable < self.wal.current(),
            "a log goes on behind the epoch {kept} that its restart kept"
        );
    }

    /// Numbers a new transaction and routes it to a stream.
    pub(crate) fn route(&self, route: Route) -> Routed {
        let id = TxnId(self.next_txn.fetch_add(1, Ordering::Relaxed));
        let stream = route.stream(&self.wal, id);
        Routed { id, stream }
    }

    /// The log.
    #[must_use]
    pub fn wal(&self) -> &Arc<Wal> {
        &self.wal
    }

    /// The anchor.
    #[must_use]
    pub fn anchor(&self) -> &Arc<AnchorCell> {
        &self.anchor
    }

    /// What the restart did.
    #[must_use]
    pub fn report(&self) -> &RestartReport {
        &self.report
    }

    /// The logging scheme, as the anchor has it.
    #[must_use]
    pub fn scheme(&self) -> Scheme {
        self.scheme
    }

    /// Every transaction up to this epoch survives a crash.
    #[must_use]
    pub fn durable(&self) -> Epoch {
        self.wal.durable(Rung::Disk)
    }

    /// Closes the open epoch, if it has anything.
    pub fn close_epoch(&self) -> Option<Epoch> {
        self.wal.close_epoch()
    }

    /// The first half of closing an epoch; see [`Wal::close_begin`].
    pub fn close_begin(&self) -> Option<Epoch> {
        self.wal.close_begin()
    }

    /// Visits one stream of a closing that was begun; see [`Wal::close_visit`].
    pub fn close_visit(&self, stream: StreamId) {
        self.wal.close_visit(stream);
    }

    /// One step of a stream's flusher.
    ///
    /// # Errors
    /// See [`Wal::flush_step`].
    pub fn flush_step(&self, stream: StreamId) -> Result<FlushProgress> {
        self.wal.flush_step(stream)
    }

    /// Closes the open epoch and flushes until everything is durable.
    ///
    /// # Errors
    /// See [`Wal::flush_step`].
    pub fn flush_all(&self) -> Result<()> {
        flush_all(&self.wal)
    }

    /// Makes the anchor vouch for what is durable now.
    ///
    /// # Errors
    /// See [`vouch()`].
    pub fn vouch(&self) -> Result<bool> {
        vouch(&self.anchor, &self.wal)
    }

    /// The checkpoint machine.
    #[must_use]
    pub fn checkpoints(&self) -> &Checkpoints {
        &self.checkpoints
    }

    /// Begins a checkpoint unless one is running.
    ///
    /// # Errors
    /// See [`Checkpoints::begin`]. Any but a full disk stops the database.
    pub fn checkpoint_begin(&self) -> Result<()> {
        self.checkpoints.begin()
    }

    /// One step of the running checkpoint.
    ///
    /// # Errors
    /// See [`Checkpoints::step`]. Any but a full disk stops the database.
    pub fn checkpoint_step(&self) -> Result<CheckpointProgress> {
        self.checkpoints.step()
    }

    /// Gives the running checkpoint up, unless its image is being named already. Returns whether
    /// one was given up.
    pub fn checkpoint_cancel(&self) -> bool {
        self.checkpoints.abandon()
    }

    /// Whether a checkpoint is running.
    #[must_use]
    pub fn checkpoint_is_running(&self) -> bool {
        self.checkpoints.is_running()
    }

    /// Runs one whole checkpoint, flushing as it goes.
    ///
    /// # Errors
    /// See [`checkpoint_step`](Self::checkpoint_step).
    pub fn checkpoint_now(&self) -> Result<()> {
        self.checkpoints.now()
    }

    /// Ends the database with a checkpoint and an anchor that is marked clean. No transaction runs.
    ///
    /// # Errors
    /// See [`checkpoint_step`](Self::checkpoint_step) and [`mark_clean`].
    pub fn close(&self) -> Result<()> {
        self.checkpoint_now()?;
        self.flush_all()?;
        mark_clean(&self.anchor, &self.wal)
    }

    /// Figures of the checkpointer.
    #[must_use]
    pub fn checkpoint_stats(&self) -> CheckpointStats {
        self.checkpoints.stats()
    }
}

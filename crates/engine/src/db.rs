//! The database with threads, which programs open.
//!
//! | thread | does |
//! |---|---|
//! | one flusher for each stream | writes, syncs, wakes waiting callers; the first stream's flusher also closes epochs |
//! | checkpointer | begins a checkpoint when the log has grown or a caller asks; paces its writes |
//! | voucher | reports to the anchor every second how far the log is durable |
//! | two archivers | write runs of the log into the archive, if one is configured: one thread while a core is idle, the other while all are busy |
//! | backup | copies images into the archive on request; makes the first backup without a request |
//! | two mergers | merge the archive's runs, divided in the same way, unless an archive agent does that |
//! | housekeeper | prepares segments, removes expired rows, frees pages |
//!
//! Transactions run in their caller's thread. All threads end when the last handle is dropped.
//!
//! # Locks
//! `LogWriter::turn` is taken before any lock of the log, and held while the first stream is flushed. `Ground::waiting`
//! protects only the wait on its condition variable. No other lock is taken while it is held.

use std::sync::Arc;

use perdura_base::{Epoch, PartitionId, PartitionSet, Result, TableId};
use perdura_heap::MemoryAccount;
use perdura_recovery::RestartReport;
use perdura_recovery::component::Take;
use perdura_recovery::verify::Findings;
use perdura_txn::Tx;
use perdura_wal::{Reached, Rung};

use crate::core::{ExpiredListener, Flushed};
use crate::delays::Delayed;
use crate::digest::Summary;
use crate::named::Renewal;
use crate::options::Options;
use crate::shared::{Exposure, Shared};
use crate::stats::Stats;

mod archive;
mod log;
mod open;
mod threads;

use threads::Threads;

/// A handle to an open database; clones share it.
#[derive(Clone)]
pub struct Db {
    pub(crate) shared: Arc<Shared>,
    threads: Arc<Threads>,
}

impl Db {
    /// Returns the partition of a key.
    #[must_use]
    pub fn partition_of(&self, key: &[u8]) -> PartitionId {
        self.shared.core().partition_of(key)
    }

    /// Prefetches the memory that transactions on keys of a table will need, all keys at once instead of one after the
    /// other. It is a hint for a caller that knows several keys in advance. It changes nothing, waits for no latch and
    /// does nothing for a single key.
    pub fn look_ahead<'k>(&self, table: TableId, keys: impl Iterator<Item = &'k [u8]>) {
        self.shared.core().look_ahead(table, keys);
    }

    /// Returns all partitions.
    #[must_use]
    pub fn all_partitions(&self) -> PartitionSet {
        self.shared.core().all_partitions()
    }

    /// Returns the table of a name that the database was opened with; `None` for other names. Emptying a table gives
    /// its name another table, so call this inside the transaction.
    #[must_use]
    pub fn table(&self, name: &str) -> Option<TableId> {
        self.shared.core().table(name)
    }

    /// Publishes a flush. This must be the last step of its transaction.
    ///
    /// # Errors
    /// The caller must return any error, so that the transaction is undone.
    pub fn finish_flush(&self, tx: &mut Tx<'_>, flush: &Renewal) -> Result<Flushed> {
        self.shared.core().finish_flush(tx, flush)
    }

    /// Hands the tables that a flush detached to the purge. Call it after the transaction.
    pub fn reclaim_flushed(&self, flushed: Flushed) {
        self.shared.core().reclaim_flushed(flushed);
    }

    /// Starts or stops recording when keys are used; see [`Core::note_accesses`](crate::Core::note_accesses).
    pub fn note_accesses(&self, on: bool) {
        self.shared.core().note_accesses(on);
    }

    /// Returns the durable epoch of the log's disks. Transactions of this epoch and earlier ones
    /// survive a crash.
    #[must_use]
    pub fn durable(&self) -> Epoch {
        self.shared.core().wal().durable(Rung::Disk)
    }

    /// Returns the durable epoch of every rung.
    #[must_use]
    pub fn reached(&self) -> Reached {
        self.shared.core().wal().reached()
    }

    /// Returns the reason why the database has stopped acknowledging. `None`: it has not stopped.
    #[must_use]
    pub fn is_stopped(&self) -> Option<String> {
        self.shared.core().wal().failure()
    }

    /// Checks that the database acknowledges writes.
    ///
    /// # Errors
    /// [`Error::Stopped`](perdura_base::Error::Stopped) after a failure, [`Error::Fenced`](perdura_base::Error::Fenced)
    /// if another process owns the log.
    pub fn check(&self) -> Result<()> {
        self.shared.core().wal().check()
    }

    /// Returns the work that failed because of a disk and is being retried. The list is usually empty. Delayed work
    /// takes up space, and in the end writes are refused for lack of room. It never loses acknowledged data.
    #[must_use]
    pub fn delayed(&self) -> Vec<Delayed> {
        self.shared.ground.delays.list()
    }

    /// Sets the listener for keys that the purge removes because they are past their expiry. The listener gets the
    /// epoch of the removal. It should report the removal to others only when that epoch is durable. Call this once.
    pub fn on_expired(&self, f: ExpiredListener) {
        self.shared.core().on_expired(f);
    }

    /// Stops the purge or lets it continue; see [`Core::hold_purge`](crate::Core::hold_purge). Expired keys stay
    /// hidden.
    pub fn hold_purge(&self, held: bool) {
        self.shared.core().hold_purge(held);
    }

    /// Returns whether a writer of about `bytes` should wait. A writer should wait if the log is behind. It should also
    /// wait if too many old versions of changed pages are kept for a checkpoint or a snapshot.
    /// [`transact`](Self::transact) delays its caller somewhat later than this.
    #[must_use]
    pub fn is_behind(&self, bytes: usize) -> bool {
        let (wal, heap) = (self.shared.core().wal(), self.shared.core().heap());
        if heap.kept_over_bound() && wal.failure().is_none() {
            heap.make_room();
            return heap.kept_over_bound();
        }
        wal.is_behind(bytes) && !wal.is_stuck() && wal.failure().is_none()
    }

    /// Returns the distance of the log's disks behind the current epoch.
    #[must_use]
    pub fn exposure(&self) -> Exposure {
        self.shared.exposure()
    }

    /// Asks for a checkpoint in the background. Returns `false`, and asks for none, if a checkpoint
    /// is running.
    ///
    /// # Errors
    /// [`Error::Stopped`](perdura_base::Error::Stopped).
    pub fn begin_checkpoint(&self) -> Result<bool> {
        self.shared.core().wal().check()?;
        Ok(self.shared.checkpoints.want())
    }

    /// Takes a checkpoint and waits for it.
    ///
    /// # Errors
    /// The error that cancelled the checkpoint, or
    /// [`Error::Stopped`](perdura_base::Error::Stopped).
    pub fn checkpoint(&self) -> Result<()> {
        self.shared.checkpoints.checkpoint()
    }

    /// Returns the figures.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.shared.stats()
    }

    /// Returns the report of the restart.
    #[must_use]
    pub fn report(&self) -> RestartReport {
        self.shared.core().report().clone()
    }

    /// Returns the account of memory.
    #[must_use]
    pub fn memory(&self) -> Arc<MemoryAccount> {
        Arc::clone(self.shared.core().heap().memory())
    }

    /// Returns the settings it was opened with.
    #[must_use]
    pub fn options(&self) -> &Options {
        &self.shared.ground.options
    }

    /// Returns the logical digest of all rows; see [`crate::core::Core::digest`].
    ///
    /// # Errors
    /// [`perdura_base::Error::Corrupt`] for a row that cannot be read.
    pub fn digest(&self) -> Result<u64> {
        self.shared.core().digest()
    }

    /// Checks that each row can be read. For trees, also checks that every page is reached from its parent, with the
    /// keys and the level that the parent expects. `perdura verify` checks the files of a stopped database.
    ///
    /// # Errors
    /// [`perdura_base::Error::Corrupt`] for the first row or page that is wrong.
    pub fn verify(&self) -> Result<Findings> {
        let mut found = Findings::default();
        self.shared.core().data().check(&mut found)?;
        self.summary()?;
        Ok(found)
    }

    /// Passes every key of every table to `take`, with its table and the content that a client reads. Keys in memory
    /// come first, as of one moment, then those of trees.
    ///
    /// # Errors
    /// The first error of `take`; [`perdura_base::Error::Corrupt`] for a row that cannot be read.
    pub fn export(&self, take: &mut Take<'_>) -> Result<()> {
        self.shared.core().data().contents(take)
    }

    /// Reads the whole database: its digest, and the number of rows in its trees.
    ///
    /// # Errors
    /// As [`digest`](Self::digest).
    pub fn summary(&self) -> Result<Summary> {
        self.shared.core().summary()
    }

    /// Closes cleanly: takes a last checkpoint, then marks the log after it as empty. Other handles then see a stopped
    /// database.
    ///
    /// # Errors
    /// The reason why the database did not end cleanly. No acknowledged data is lost.
    pub fn close(self) -> Result<()> {
        self.shared.checkpoints.hurry();
        let checkpoint = self.checkpoint();
        self.threads.stop();
        let ended = checkpoint.and_then(|()| {
            self.shared.core().flush_all()?;
            self.shared.archive.archive_rest();
            self.shared.mirror.end()?;
            self.shared.core().mark_clean()
        });
        self.shared.end();
        ended
    }

    /// Ends the threads without a checkpoint. Acknowledged data is in the log, and the anchor vouches for it unless the
    /// database has stopped.
    pub fn abandon(self) {
        self.threads.stop();
        drop(self.shared.core().vouch_last());
        self.shared.end();
    }
}

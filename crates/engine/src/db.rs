//! The database that programs open: a core, and threads that take its steps.
//!
//! | thread | does |
//! |---|---|
//! | one flusher for each stream | writes, syncs, wakes waiting callers; the first stream's flusher also closes epochs |
//! | checkpointer | begins a checkpoint when the log has grown or a caller asks; paces its writes |
//! | voucher | reports to the anchor every second how far the log is durable |
//! | two archivers | write the log into the archive, if one is configured; one thread works while a CPU core is idle, the other while all CPU cores are busy |
//! | backup | copies images into the archive on request; makes the first backup without a request |
//! | two mergers | merge the archive's runs, unless an archive agent does; one thread works while a CPU core is idle, the other while all CPU cores are busy |
//! | housekeeper | prepares segments, removes expired rows, frees pages |
//!
//! Transactions run in their caller's thread. All threads end when the last handle is dropped.
//!
//! # Locks
//! `LogWriter::turn` is taken before any lock of the log, and held while the first stream is flushed. A thread that
//! writes in place releases it when its write has begun. `Ground::waiting` protects only the wait on its condition
//! variable. A thread that holds `Ground::waiting` takes no other lock.

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
mod restore;
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

    /// Prefetches the memory that transactions on these keys of a table will need. The call is a hint for a caller that
    /// knows several keys in advance. It changes no data and waits for no latch. For a single key it does nothing.
    pub fn look_ahead<'k>(&self, table: TableId, keys: impl Iterator<Item = &'k [u8]>) {
        self.shared.core().look_ahead(table, keys);
    }

    /// Returns all partitions.
    #[must_use]
    pub fn all_partitions(&self) -> PartitionSet {
        self.shared.core().all_partitions()
    }

    /// Returns the table of `name`; `None` if the options of the open do not list this name. Call this inside the
    /// transaction, because emptying a table replaces it with a new table of the same name.
    #[must_use]
    pub fn table(&self, name: &str) -> Option<TableId> {
        self.shared.core().table(name)
    }

    /// Shows other transactions the new tables of emptied or swapped databases. This must be the last step of the
    /// transaction that emptied or swapped them.
    ///
    /// # Errors
    /// The caller must return any error, so that the transaction is undone.
    pub fn finish_flush(&self, tx: &mut Tx<'_>, flush: &Renewal) -> Result<Flushed> {
        self.shared.core().finish_flush(tx, flush)
    }

    /// Passes detached tables to the purge, which frees their pages. `flushed` lists the tables that a transaction has
    /// emptied or dropped. Call this after that transaction.
    pub fn reclaim_flushed(&self, flushed: Flushed) {
        self.shared.core().reclaim_flushed(flushed);
    }

    /// Starts or stops recording each key's time of last use; see [`Core::note_accesses`](crate::Core::note_accesses).
    pub fn note_accesses(&self, on: bool) {
        self.shared.core().note_accesses(on);
    }

    /// Returns the durable epoch of the log's disks. Transactions up to this epoch survive a crash.
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
    /// [`Error::Stopped`](perdura_base::Error::Stopped) after a failure. [`Error::Fenced`](perdura_base::Error::Fenced)
    /// if a different process owns the log.
    pub fn check(&self) -> Result<()> {
        self.shared.core().wal().check()
    }

    /// Returns the work that failed because of a disk and is being retried. The list is usually empty. Delayed work
    /// takes up space, and in the end writes are refused for lack of room. A delay never loses acknowledged data.
    #[must_use]
    pub fn delayed(&self) -> Vec<Delayed> {
        self.shared.ground.delays.list()
    }

    /// Sets the listener for expired keys that the purge removes. The listener gets the
    /// epoch of the removal. It should report the removal to others only when that epoch is durable. Call this once.
    pub fn on_expired(&self, f: ExpiredListener) {
        self.shared.core().on_expired(f);
    }

    /// Stops the purge or lets it continue; see [`Core::hold_purge`](crate::Core::hold_purge). Expired keys stay
    /// hidden.
    pub fn hold_purge(&self, held: bool) {
        self.shared.core().hold_purge(held);
    }

    /// Returns the partitions that the restart has not loaded yet.
    #[must_use]
    pub fn absent_partitions(&self) -> PartitionSet {
        let loading = self.shared.core().loading.as_ref();
        loading.map_or_else(PartitionSet::empty, |loading| loading.absent())
    }

    /// Returns how often the loading of a partition has ended since the restart, well or with an error. A transaction
    /// that met an absent partition is worth another try when this number has changed.
    #[must_use]
    pub fn loadings_ended(&self) -> u64 {
        let loading = self.shared.core().loading.as_ref();
        loading.map_or(0, |loading| loading.ended())
    }

    /// Returns whether a writer of about `bytes` should wait. A writer should wait if the log's disks lag. It should
    /// also wait if too many old versions of changed pages are kept for a checkpoint or a snapshot.
    /// [`transact`](Self::transact) itself delays a caller only at a larger lag of the log.
    #[must_use]
    pub fn is_behind(&self, bytes: usize) -> bool {
        let (wal, heap) = (self.shared.core().wal(), self.shared.core().heap());
        if heap.kept_over_bound() && wal.failure().is_none() {
            heap.make_room();
            return heap.kept_over_bound();
        }
        wal.is_behind(bytes) && !wal.is_stuck() && wal.failure().is_none()
    }

    /// Returns the distance from the durable log to the current epoch.
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

    /// Returns all figures of the database.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.shared.stats()
    }

    /// Returns the report of the restart.
    #[must_use]
    pub fn report(&self) -> RestartReport {
        self.shared.core().report().clone()
    }

    /// Returns the account of the memory that the database uses.
    #[must_use]
    pub fn memory(&self) -> Arc<MemoryAccount> {
        Arc::clone(self.shared.core().heap().memory())
    }

    /// Returns the settings that the database was opened with.
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

    /// Checks that each row can be read. For trees, also checks each page against its parent: the reference to the
    /// page, the keys and the level. `perdura verify` checks the files of a stopped database.
    ///
    /// # Errors
    /// [`perdura_base::Error::Corrupt`] for the first row or page that is wrong.
    pub fn verify(&self) -> Result<Findings> {
        let mut found = Findings::default();
        self.shared.core().load_all()?;
        self.shared.core().data().check(&mut found)?;
        self.summary()?;
        Ok(found)
    }

    /// Passes every key of every table to `take`, with the table and the visible content. Keys in memory come first.
    /// Their contents are from one moment. Keys of trees follow.
    ///
    /// # Errors
    /// The first error of `take`; [`perdura_base::Error::Corrupt`] for a row that cannot be read.
    pub fn export(&self, take: &mut Take<'_>) -> Result<()> {
        self.shared.core().load_all()?;
        self.shared.core().data().contents(take)
    }

    /// Reads the whole database. Returns the digest and the number of rows in trees.
    ///
    /// # Errors
    /// As [`digest`](Self::digest).
    pub fn summary(&self) -> Result<Summary> {
        self.shared.core().summary()
    }

    /// Closes cleanly: takes a last checkpoint, then notes in the anchor that the new image has the whole database.
    /// Other handles then see a stopped database.
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

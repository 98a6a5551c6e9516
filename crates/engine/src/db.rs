//! The database with threads: what users open.
//!
//! | thread | does |
//! |---|---|
//! | one flusher a stream | closes epochs (the first of them), writes, syncs, wakes waiting callers |
//! | checkpointer | begins a checkpoint when the log has grown or a caller asks; paces its writes |
//! | voucher | tells the anchor every second how far the log is durable |
//! | two of the archiver | write runs of the log into the archive, if one is configured: one of them while a core is idle, the other while none is |
//! | backup | copies images into the archive when it is asked to, the first one by itself |
//! | two of the merger | merge them in the same way, unless that is left to an archive agent |
//! | housekeeper | prepares segments, removes expired rows, frees pages |
//!
//! Transactions run in their caller's thread. All threads end when the last handle is dropped.
//!
//! # Locks
//! `LogWriter::turn` is taken before any lock of the log, and held while the first stream is flushed.
//! `Ground::waiting` protects nothing but the wait itself; no other lock is taken under it.

use std::sync::Arc;

use perdura_base::{Epoch, PartitionId, PartitionSet, Result, TableId};
use perdura_heap::MemoryAccount;
use perdura_recovery::RestartReport;
use perdura_txn::Tx;
use perdura_wal::{Reached, Rung};

use crate::core::{ExpiredListener, Flushed};
use crate::delays::Delayed;
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
    /// The partition of a key.
    #[must_use]
    pub fn partition_of(&self, key: &[u8]) -> PartitionId {
        self.shared.core().partition_of(key)
    }

    /// Touches the memory that transactions on keys of a table will need, so that it comes from
    /// memory at once and not key after key. A hint for a caller that knows several keys
    /// beforehand: it changes nothing, waits for no latch and does nothing for a lone key.
    pub fn look_ahead<'k>(&self, table: TableId, keys: impl Iterator<Item = &'k [u8]>) {
        self.shared.core().look_ahead(table, keys);
    }

    /// Every partition.
    #[must_use]
    pub fn all_partitions(&self) -> PartitionSet {
        self.shared.core().all_partitions()
    }

    /// The table of a name that the database was opened with. It changes when the table is emptied:
    /// call it inside the transaction.
    #[must_use]
    pub fn table(&self, name: &str) -> Option<TableId> {
        self.shared.core().table(name)
    }

    /// Publishes a flush, last in its transaction.
    ///
    /// # Errors
    /// An error, to be handed on.
    pub fn finish_flush(&self, tx: &mut Tx<'_>, flush: &Renewal) -> Result<Flushed> {
        self.shared.core().finish_flush(tx, flush)
    }

    /// After the transaction of a flush.
    pub fn reclaim_flushed(&self, flushed: Flushed) {
        self.shared.core().reclaim_flushed(flushed);
    }

    /// Notes when keys are used from now on, or stops doing so; see [`Core::note_accesses`](crate::Core::note_accesses).
    pub fn note_accesses(&self, on: bool) {
        self.shared.core().note_accesses(on);
    }

    /// The durable epoch of the log's disks: transactions up to it survive.
    #[must_use]
    pub fn durable(&self) -> Epoch {
        self.shared.core().wal().durable(Rung::Disk)
    }

    /// The durable epoch of every rung.
    #[must_use]
    pub fn reached(&self) -> Reached {
        self.shared.core().wal().reached()
    }

    /// Why the database has stopped acknowledging, if it has.
    #[must_use]
    pub fn is_stopped(&self) -> Option<String> {
        self.shared.core().wal().failure()
    }

    /// Whether the database acknowledges writes.
    ///
    /// # Errors
    /// [`Error::Stopped`](perdura_base::Error::Stopped) after a failure, [`Error::Fenced`](perdura_base::Error::Fenced) if another process owns the log.
    pub fn check(&self) -> Result<()> {
        self.shared.core().wal().check()
    }

    /// Work that a failing disk delays and that is tried again; usually none. It costs space, or
    /// in the end room for writes, and never what was acknowledged.
    #[must_use]
    pub fn delayed(&self) -> Vec<Delayed> {
        self.shared.ground.delays.list()
    }

    /// Sets the listener for keys that the purge removes because they are past their expiry. It gets
    /// the epoch of the removal, and may tell others when that is durable. Called once.
    pub fn on_expired(&self, f: ExpiredListener) {
        self.shared.core().on_expired(f);
    }

    /// Stops the purge or lets it continue; see [`Core::hold_purge`](crate::Core::hold_purge). Expired keys stay hidden.
    pub fn hold_purge(&self, held: bool) {
        self.shared.core().hold_purge(held);
    }

    /// Whether a writer of about `bytes` should wait because the log is behind, or the checkpoint, for which what
    /// has changed since its cut is kept.
    /// [`transact`](Self::transact) holds its caller back somewhat later than this.
    #[must_use]
    pub fn is_behind(&self, bytes: usize) -> bool {
        let (wal, heap) = (self.shared.core().wal(), self.shared.core().heap());
        if heap.kept_over_bound() && wal.failure().is_none() {
            heap.make_room();
            return heap.kept_over_bound();
        }
        wal.is_behind(bytes) && !wal.is_stuck() && wal.failure().is_none()
    }

    /// How far behind the durable epoch is.
    #[must_use]
    pub fn exposure(&self) -> Exposure {
        self.shared.exposure()
    }

    /// Asks for a checkpoint in the background; `false` if one is running.
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
    /// The error that cancelled it, or [`Error::Stopped`](perdura_base::Error::Stopped).
    pub fn checkpoint(&self) -> Result<()> {
        self.shared.checkpoints.checkpoint()
    }

    /// Figures.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.shared.stats()
    }

    /// What the restart did.
    #[must_use]
    pub fn report(&self) -> RestartReport {
        self.shared.core().report().clone()
    }

    /// The account of memory.
    #[must_use]
    pub fn memory(&self) -> Arc<MemoryAccount> {
        Arc::clone(self.shared.core().heap().memory())
    }

    /// The settings it was opened with.
    #[must_use]
    pub fn options(&self) -> &Options {
        &self.shared.ground.options
    }

    /// The logical digest of all rows; see [`crate::core::Core::digest`].
    ///
    /// # Errors
    /// [`perdura_base::Error::Corrupt`] for a row that cannot be read.
    pub fn digest(&self) -> Result<u64> {
        self.shared.core().digest()
    }

    /// Closes cleanly: a last checkpoint, then a mark that the log behind it is empty. Other
    /// handles see a stopped database.
    ///
    /// # Errors
    /// What kept it from ending cleanly; nothing acknowledged is lost by it.
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

    /// Ends the threads without a checkpoint; what is acknowledged is in the log, and the anchor
    /// vouches for it unless the database has stopped.
    pub fn abandon(self) {
        self.threads.stop();
        drop(self.shared.core().vouch_last());
        self.shared.end();
    }
}

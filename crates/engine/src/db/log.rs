//! The calls with which a program's threads begin writes of the log and wait for these writes.

use std::os::fd::BorrowedFd;

use perdura_base::{Epoch, Result, StreamId};
use perdura_device::LogWayReport;
use perdura_mirror::Status;
use perdura_txn::Ticket;
use perdura_wal::{Collected, Wait};

use super::Db;
use crate::durability::Durability;

impl Db {
    /// Waits until a ticket has the durability that the database's options name. The default is `disk`.
    ///
    /// # Errors
    /// [`Error::Stopped`](perdura_base::Error::Stopped) if the database stops first. It is then not
    /// known whether the transaction survives.
    pub fn wait(&self, ticket: Ticket) -> Result<()> {
        self.wait_at(self.options().durability, ticket)
    }

    /// Waits until a ticket has the given durability. At `mem` this waits only if
    /// [`is_mem_in_time`](Self::is_mem_in_time) returns false.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// use perdura::Durability;
    /// let db = perdura::Db::builder(dir.path()).open()?;
    /// let (_, ticket) = db.write_later(|tx| tx.put(db.database(0), b"key", b"value", None))?;
    /// db.wait_at(Durability::Disk, ticket)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`wait`](Self::wait).
    pub fn wait_at(&self, durability: Durability, ticket: Ticket) -> Result<()> {
        if durability.is_firm() {
            self.shared.wait(durability.rung(), ticket.epoch)
        } else {
            self.shared.wait_for_bound(ticket.epoch)
        }
    }

    /// Returns whether a caller with durability `mem` may continue without waiting. The caller must wait while a write
    /// older than 10 ms has not reached the next rung, `mirror`.
    #[must_use]
    pub fn is_mem_in_time(&self) -> bool {
        self.shared.is_mem_in_time()
    }

    /// Makes the flusher call `f` whenever the durable epoch has advanced, and when the database stops. `f` must return
    /// quickly.
    pub fn on_durable(&self, f: Box<dyn Fn(Epoch) + Send + Sync>) {
        self.shared.ground.listen(f);
    }

    /// Reports that a caller waits for a flush, and wakes the flusher.
    pub fn nudge(&self) {
        self.shared.ground.wishes.nudge();
    }

    /// Asks the flusher to make appended frames durable, for a caller that continues with other work. While all callers
    /// are busy, the flusher gathers more frames before the flush.
    pub fn want_durable(&self) {
        self.shared.want_durable();
    }

    /// Begins to write the appended frames, without waiting for the write to complete. Returns whether a write began.
    /// If the last write is still in flight and began only recently, the call begins no write, so that more frames
    /// gather. If the log's writes do not complete by themselves (see [`completions`](Self::completions)), the call
    /// wakes the flusher instead.
    pub fn begin_log_write(&self) -> bool {
        self.shared.log.begin_log_write()
    }

    /// Collects writes of the log that have completed, without waiting. Returns whether the durable epoch
    /// may have advanced.
    pub fn collect(&self) -> bool {
        self.shared.log.collect(Wait::No) == Collected::Advanced
    }

    /// Returns a descriptor that is readable while [`collect`](Self::collect) has something to do. `None`: the log's
    /// writes do not complete by themselves, so a thread has to wait for each write.
    #[must_use]
    pub fn completions(&self) -> Option<BorrowedFd<'_>> {
        let wal = self.shared.core().wal();
        self.shared
            .ground
            .rings
            .then(|| wal.completions(StreamId(0)))?
    }

    /// Returns each log stream's method for durable writes, and the reason for the choice. Streams without a known
    /// method are left out.
    #[must_use]
    pub fn log_ways(&self) -> Vec<LogWayReport> {
        self.shared.core().log_ways()
    }

    /// Flushes in the calling thread, if that is quicker than waking the flusher. Returns whether it flushed. If not,
    /// call [`nudge`](Db::nudge) and wait. Use this in a thread that would otherwise only wait.
    #[must_use]
    pub fn flush_here(&self) -> bool {
        self.shared.log.flush_here()
    }

    /// Returns whether accepted writes wait for a log that cannot be written, because its disk is full or fails.
    #[must_use]
    pub fn is_stuck(&self) -> bool {
        self.shared.core().wal().is_stuck()
    }

    /// Returns whether the log's disk was full when the log was last written or extended.
    #[must_use]
    pub fn is_disk_full(&self) -> bool {
        self.shared.core().wal().is_disk_full()
    }
}

impl Db {
    /// Returns whether acknowledgements at the mirror rung currently rely on the nodes' memories.
    #[must_use]
    pub fn is_mirrored(&self) -> bool {
        self.shared.mirror.is_mirrored()
    }

    /// Hands the appended frames to the nodes and collects their replies, without waiting. Returns whether the mirror's
    /// durable epoch has advanced. Without nodes it does nothing.
    pub fn ship(&self) -> bool {
        self.shared.mirror.ship()
    }

    /// Like [`ship`](Self::ship), for a thread that would otherwise only wait: it spins briefly until the replies
    /// arrive. Returns whether the nodes have acknowledged all appended frames.
    pub fn ship_here(&self) -> bool {
        self.shared.mirror.ship_here()
    }

    /// Returns the number of the current view, and the state of each node. A *view* says which nodes hold the newest
    /// log. `None`: the database has no nodes.
    #[must_use]
    pub fn mirror(&self) -> Option<Status> {
        self.shared.mirror.status()
    }

    /// Returns a line for each change of view since the last call.
    #[must_use]
    pub fn take_views(&self) -> Vec<String> {
        self.shared.mirror.take_views()
    }
}

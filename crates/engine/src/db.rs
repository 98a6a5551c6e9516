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
//! `Shared::turn` is taken before any lock of the log, and held while the first stream is flushed.
//! `Shared::waiting` protects nothing but the wait itself; no other lock is taken under it.

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::{Condvar, Mutex, RwLock};
use perdura_base::{Epoch, Error, PartitionId, PartitionSet, Result, StreamId, TableId};
use perdura_device::{Clock, Disk, FileDisk, LogWayReport, SystemClock};
use perdura_heap::MemoryAccount;
use perdura_recovery::disks::{Disks, Locks, lock_new_anchor};
use perdura_recovery::{Progress, RestartReport, read_anchor};
use perdura_txn::Tx;
use perdura_wal::{Collected, EpochEnds, Reached, Rung, Wait};

use perdura_archive::MergerOptions;
use perdura_archive::backup::BackupSummary;

use crate::archive::Archiving;
use crate::archive::backlog::BacklogOptions;
use crate::backing_up::{BackupState, ListedBackup};
use crate::behind::Worst;
use crate::core::{Core, Env, ExpiredListener, Flushed};
use crate::delays::{Delayed, Delays};
use crate::files;
use crate::merging::Merging;
use crate::mirroring::AtNodes;
use crate::named::Renewal;
use crate::options::Options;
use crate::pace::{FlushPacer, Workers};
use crate::shared::{Checkpoints, Exposure, Shared};
use crate::stats::Stats;
use crate::yielding::Side;

/// The threads end when this is dropped.
struct Threads {
    shared: Arc<Shared>,
    handles: Mutex<Vec<JoinHandle<()>>>,
    _locks: Vec<Box<dyn std::any::Any + Send + Sync>>,
}

/// A handle to an open database; clones share it.
#[derive(Clone)]
pub struct Db {
    pub(crate) shared: Arc<Shared>,
    threads: Arc<Threads>,
}

impl Db {
    /// Opens the database in a directory, making it if there is none. Blocks until it is back.
    ///
    /// # Errors
    /// See [`crate::core::Core::open`]; [`Error::Locked`] if it is open elsewhere.
    pub fn open(options: Options) -> Result<Db> {
        Db::open_with_progress(options, Arc::new(Progress::default()))
    }

    /// The same, saying how far it is.
    ///
    /// # Errors
    /// As [`Db::open`].
    pub fn open_with_progress(options: Options, progress: Arc<Progress>) -> Result<Db> {
        if options.typed.effects_bytes_max.is_some() {
            return Err(Error::Usage(
                "effects_bytes_max makes a log that cannot be replayed; it is for measuring on disks in \
                 memory"
                    .into(),
            ));
        }
        let (disks, locks) = files::open(&options)?;
        Db::open_locked(options, disks, locks, progress)
    }

    /// The same with the disks and locks that [`files::open`] has returned for these options.
    ///
    /// # Errors
    /// As [`Db::open`].
    pub fn open_locked(
        options: Options,
        disks: Disks,
        locks: Locks,
        progress: Arc<Progress>,
    ) -> Result<Db> {
        let archive = match &options.archive {
            Some(dir) if is_archived(&disks)? => Some(Arc::new(FileDisk::at(dir)) as Arc<dyn Disk>),
            Some(dir) => Some(Arc::new(FileDisk::new(dir)?) as Arc<dyn Disk>),
            None => None,
        };
        Db::open_archived(options, disks, locks, progress, archive)
    }

    /// The same on disks that the caller supplies: what `options` says of directories is not
    /// looked at.
    ///
    /// # Errors
    /// As [`Db::open`].
    pub fn open_on(
        options: Options,
        disks: Disks,
        locks: Locks,
        progress: Arc<Progress>,
    ) -> Result<Db> {
        Db::open_archived(options, disks, locks, progress, None)
    }

    /// The same, archived: the log goes into the archive on this disk, which is made if there is none.
    ///
    /// # Errors
    /// As [`Db::open`]; [`Error::LostLog`] if the archive holds epochs that the log has not, and [`Error::Corrupt`] if it
    /// lacks some that the log was cut for. An archive that cannot be read is no error: see [`delayed`](Self::delayed).
    pub fn open_archived(
        options: Options,
        disks: Disks,
        mut locks: Locks,
        progress: Arc<Progress>,
        archive: Option<Arc<dyn Disk>>,
    ) -> Result<Db> {
        let mut core_options = options.core()?;
        let clock = Arc::new(SystemClock::new());
        let row = options.archive_generation;
        let backlog = options.archive_backlog.map(|bytes_max| {
            let clock = Arc::clone(&clock);
            let policy = options
                .archive_retention
                .policy(Arc::new(move || clock.wall_us()));
            BacklogOptions { bytes_max, policy }
        });
        let archiving = archive.map(|disk| {
            let archiving = Archiving::new(disk, seed(clock.as_ref())).by(row);
            match backlog {
                Some(backlog) => archiving.with_backlog(backlog),
                None => archiving,
            }
        });
        if let Some(archiving) = &archiving {
            core_options.archived = archived_end(archiving, &disks)?;
        }
        let env = Env {
            disks,
            clock: Arc::clone(&clock) as Arc<dyn Clock>,
            seed: seed(clock.as_ref()),
            nodes: options.nodes.clone(),
            accept_loss: options.node_settings.accept_loss,
        };
        let disks = env.disks.clone();
        let core = Core::open(env, core_options, progress)?;
        lock_new_anchor(&disks, &mut locks)?;
        core.vouch_for_life()?;
        let streams = core.wal().streams();
        let way = core.log_ways().into_iter().next();
        let cost = way.as_ref().map_or(Duration::ZERO, |way| way.cost);
        let latency = way.and_then(|way| way.latency()).unwrap_or_default();
        let nanos = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let pacer = FlushPacer::new(nanos(cost), options.flush_every);
        let opened_ns = clock.mono_ns();
        let shared = Arc::new(Shared {
            opened_ns,
            rings: streams == 1 && core.wal().completes_by_itself(StreamId(0)),
            write_cost_ns: nanos(cost),
            write_latency_ns: nanos(latency),
            core,
            options,
            clock,
            stopping: AtomicBool::new(false),
            flushers: RwLock::new(Vec::new()),
            wanted: AtomicBool::new(true),
            awaited: AtomicBool::new(false),
            at_nodes: AtNodes::default(),
            views: Mutex::default(),
            workers: Workers::default(),
            turn: Mutex::new(pacer),
            waiting: Mutex::new(0),
            progressed: Condvar::new(),
            listeners: RwLock::new(Vec::new()),
            checkpoints: Mutex::new(Checkpoints::default()),
            checkpoint_ended: Condvar::new(),
            hurry: AtomicBool::new(false),
            flush_cpu_ns: AtomicU64::new(0),
            spaced: AtomicBool::new(false),
            worst: Worst::default(),
            delays: Delays::default(),
            archives: archiving.is_some(),
            lent: archiving.as_ref().map(Archiving::lent).unwrap_or_default(),
            archiving: Mutex::new(archiving),
            archive_to: AtomicU64::new(0),
            archived: Mutex::default(),
            lag: Mutex::default(),
            caught_up_ns: AtomicU64::new(opened_ns),
            backups: Mutex::default(),
            backup_ended: Condvar::new(),
            give_up_copy: AtomicBool::new(false),
        });
        // From here on an early return stops the threads that have started.
        let threads = Arc::new(Threads {
            shared: Arc::clone(&shared),
            handles: Mutex::new(Vec::new()),
            _locks: locks,
        });
        for stream in (0..streams).map(StreamId) {
            let handle = spawn(&shared, &format!("flush-{stream}"), move |s| {
                s.flusher(stream)
            })?;
            shared.flushers.write().push(handle.thread().clone());
            threads.handles.lock().push(handle);
        }
        assert_eq!(
            shared.flushers.read().len(),
            usize::from(streams),
            "a flusher for each stream"
        );
        let checkpointer = spawn(&shared, "checkpoint", |shared| shared.checkpointer())?;
        threads.handles.lock().push(checkpointer);
        let housekeeper = spawn(&shared, "housekeep", |shared| shared.housekeeper())?;
        let thread = housekeeper.thread().clone();
        shared.core.wal().prepare_by(move || thread.unpark());
        threads.handles.lock().push(housekeeper);
        if shared.core.nodes().is_some() {
            let mirror = spawn(&shared, "mirror", |shared| shared.mirror())?;
            shared.at_nodes.set_collector(mirror.thread().clone());
            threads.handles.lock().push(mirror);
        }
        let voucher = spawn(&shared, "vouch", |shared| shared.voucher())?;
        threads.handles.lock().push(voucher);
        if shared.archives {
            let high = spawn(&shared, "archive", |shared| shared.archiver(Side::High))?;
            let low = spawn(&shared, "archive-low", |shared| shared.archiver(Side::Low))?;
            let backer = spawn(&shared, "backup", |shared| shared.backer())?;
            threads.handles.lock().extend([high, low, backer]);
        }
        if shared.archives && shared.options.archive_merge {
            let retention = shared.options.archive_retention.clone();
            let clock = Arc::clone(&shared.clock);
            let options = MergerOptions {
                policy: retention.policy(Arc::new(move || clock.wall_us())),
                ..MergerOptions::default()
            };
            let merging = Merging::new(shared.lent.clone(), options, retention);
            let merging = Arc::new(Mutex::new(merging));
            for (name, side) in [("merge", Side::High), ("merge-low", Side::Low)] {
                let merging = Arc::clone(&merging);
                let merger = spawn(&shared, name, move |shared| shared.merger(&merging, side))?;
                threads.handles.lock().push(merger);
            }
        }
        Ok(Db { shared, threads })
    }

    /// The partition of a key.
    #[must_use]
    pub fn partition_of(&self, key: &[u8]) -> PartitionId {
        self.shared.core.partition_of(key)
    }

    /// Touches the memory that transactions on keys of a table will need, so that it comes from
    /// memory at once and not key after key. A hint for a caller that knows several keys
    /// beforehand: it changes nothing, waits for no latch and does nothing for a lone key.
    pub fn look_ahead<'k>(&self, table: TableId, keys: impl Iterator<Item = &'k [u8]>) {
        self.shared.core.look_ahead(table, keys);
    }

    /// Every partition.
    #[must_use]
    pub fn all_partitions(&self) -> PartitionSet {
        self.shared.core.all_partitions()
    }

    /// The table of a name that the database was opened with. It changes when the table is emptied:
    /// call it inside the transaction.
    #[must_use]
    pub fn table(&self, name: &str) -> Option<TableId> {
        self.shared.core.table(name)
    }

    /// Publishes a flush, last in its transaction.
    ///
    /// # Errors
    /// An error, to be handed on.
    pub fn finish_flush(&self, tx: &mut Tx<'_>, flush: &Renewal) -> Result<Flushed> {
        self.shared.core.finish_flush(tx, flush)
    }

    /// After the transaction of a flush.
    pub fn reclaim_flushed(&self, flushed: Flushed) {
        self.shared.core.reclaim_flushed(flushed);
    }

    /// Notes when keys are used from now on, or stops doing so; see [`Core::note_accesses`].
    pub fn note_accesses(&self, on: bool) {
        self.shared.core.note_accesses(on);
    }

    /// The durable epoch of the log's disks: transactions up to it survive.
    #[must_use]
    pub fn durable(&self) -> Epoch {
        self.shared.core.wal().durable(Rung::Disk)
    }

    /// The durable epoch of every rung.
    #[must_use]
    pub fn reached(&self) -> Reached {
        self.shared.core.wal().reached()
    }

    /// Why the database has stopped acknowledging, if it has.
    #[must_use]
    pub fn is_stopped(&self) -> Option<String> {
        self.shared.core.wal().failure()
    }

    /// Whether the database acknowledges writes.
    ///
    /// # Errors
    /// [`Error::Stopped`] after a failure, [`Error::Fenced`] if another process owns the log.
    pub fn check(&self) -> Result<()> {
        self.shared.core.wal().check()
    }

    /// Work that a failing disk delays and that is tried again; usually none. It costs space, or
    /// in the end room for writes, and never what was acknowledged.
    #[must_use]
    pub fn delayed(&self) -> Vec<Delayed> {
        self.shared.delays.list()
    }

    /// Sets the listener for keys that the purge removes because they are past their expiry. It gets
    /// the epoch of the removal, and may tell others when that is durable. Called once.
    pub fn on_expired(&self, f: ExpiredListener) {
        self.shared.core.on_expired(f);
    }

    /// Stops the purge or lets it continue; see [`Core::hold_purge`]. Expired keys stay hidden.
    pub fn hold_purge(&self, held: bool) {
        self.shared.core.hold_purge(held);
    }

    /// Has `f` called by the flusher whenever the durable epoch has advanced, and when the
    /// database stops. Keep it tiny.
    pub fn on_durable(&self, f: Box<dyn Fn(Epoch) + Send + Sync>) {
        self.shared.listeners.write().push(f);
    }

    /// Says that a caller waits: the flusher starts at once.
    pub fn nudge(&self) {
        self.shared.nudge();
    }

    /// Says that what was appended is to become durable while the calling thread goes on with other work.
    /// While such threads never idle, the flusher gathers more before it starts.
    pub fn want_durable(&self) {
        self.shared.want_durable();
    }

    /// Has what was appended written without waiting for it, where writes of the log complete by
    /// themselves, and else wakes the flusher; see [`completions`](Self::completions). Returns whether it
    /// began a write: while others are in flight, it pauses between two.
    pub fn begin_log_write(&self) -> bool {
        self.shared.begin_log_write()
    }

    /// Collects writes of the log that have completed, without waiting. Returns whether the durable epoch
    /// may have advanced.
    pub fn collect(&self) -> bool {
        self.shared.collect(Wait::No) == Collected::Advanced
    }

    /// A descriptor that is readable while there is something to [`collect`](Self::collect). `None`: the
    /// log's writes do not complete by themselves, so a thread has to wait for them.
    #[must_use]
    pub fn completions(&self) -> Option<BorrowedFd<'_>> {
        let wal = self.shared.core.wal();
        self.shared.rings.then(|| wal.completions(StreamId(0)))?
    }

    /// How the log's writes become durable and why so, for each stream; empty where that is not known.
    #[must_use]
    pub fn log_ways(&self) -> Vec<LogWayReport> {
        self.shared.core.log_ways()
    }

    /// Flushes in this thread if that is the quicker way, for a thread that has nothing left to do
    /// but wait. `false`: it is not; [`nudge`](Db::nudge) and wait.
    #[must_use]
    pub fn flush_here(&self) -> bool {
        self.shared.flush_here()
    }

    /// Whether a writer of about `bytes` should wait because the log is behind, or the checkpoint, for which what
    /// has changed since its cut is kept.
    /// [`transact`](Self::transact) holds its caller back somewhat later than this.
    #[must_use]
    pub fn is_behind(&self, bytes: usize) -> bool {
        let (wal, heap) = (self.shared.core.wal(), self.shared.core.heap());
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
    /// [`Error::Stopped`].
    pub fn begin_checkpoint(&self) -> Result<bool> {
        self.shared.core.wal().check()?;
        let mut book = self.shared.checkpoints.lock();
        assert!(book.ended <= book.started, "what ended was begun");
        let running = book.started > book.ended;
        book.wanted |= !running;
        Ok(!running)
    }

    /// Takes a checkpoint and waits for it.
    ///
    /// # Errors
    /// What cancelled it, or [`Error::Stopped`].
    pub fn checkpoint(&self) -> Result<()> {
        self.shared.checkpoint()
    }

    /// Figures.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.shared.stats()
    }

    /// What the restart did.
    #[must_use]
    pub fn report(&self) -> RestartReport {
        self.shared.core.report().clone()
    }

    /// The account of memory.
    #[must_use]
    pub fn memory(&self) -> Arc<MemoryAccount> {
        Arc::clone(self.shared.core.heap().memory())
    }

    /// The settings it was opened with.
    #[must_use]
    pub fn options(&self) -> &Options {
        &self.shared.options
    }

    /// The logical digest of all rows; see [`crate::core::Core::digest`].
    ///
    /// # Errors
    /// [`perdura_base::Error::Corrupt`] for a row that cannot be read.
    pub fn digest(&self) -> Result<u64> {
        self.shared.core.digest()
    }

    /// What is wrong with the archive: what the last proof failed with, until one holds, or that no image was proven for some
    /// checkpoints. `None` if nothing is known to be, or there is no archive.
    #[must_use]
    pub fn alarm(&self) -> Option<String> {
        self.shared.archive_alarm()
    }

    /// Takes a checkpoint and copies its image to the archive while writers go on. On return the archive has the backup, and
    /// the log up to its end, durable.
    ///
    /// # Errors
    /// [`Error::Usage`] if the database has no archive or it cannot be written; damage of the image; the disks'.
    pub fn back_up(&self) -> Result<BackupSummary> {
        self.shared.back_up()
    }

    /// Asks for a backup and does not wait. Returns its number: it has ended when [`BackupState::ended`] is that high. One that is
    /// being made already may lack what was written since it began, so another one follows it.
    ///
    /// # Errors
    /// [`Error::Usage`] if the database has no archive.
    pub fn begin_backup(&self) -> Result<u64> {
        self.shared.want_backup()
    }

    /// The backups that the archive has, by their ends; none while it is not open.
    #[must_use]
    pub fn backups(&self) -> Vec<ListedBackup> {
        self.shared.backups()
    }

    /// Whether a backup is being made, how far, and what became of the last one.
    #[must_use]
    pub fn backup_state(&self) -> BackupState {
        self.shared.backup_state()
    }

    /// Closes cleanly: a last checkpoint, then a mark that the log behind it is empty. Other
    /// handles see a stopped database.
    ///
    /// # Errors
    /// What kept it from ending cleanly; nothing acknowledged is lost by it.
    pub fn close(self) -> Result<()> {
        self.shared.hurry.store(true, Ordering::SeqCst);
        let checkpoint = self.checkpoint();
        self.threads.stop();
        let ended = checkpoint.and_then(|()| {
            self.shared.core.flush_all()?;
            self.shared.archive_rest();
            self.shared.end_mirror()?;
            self.shared.core.mark_clean()
        });
        self.shared.end();
        ended
    }

    /// Ends the threads without a checkpoint; what is acknowledged is in the log, and the anchor
    /// vouches for it unless the database has stopped.
    pub fn abandon(self) {
        self.threads.stop();
        drop(self.shared.core.vouch_last());
        self.shared.end();
    }
}

/// Whether a database has been archived: then its archive may be away for now.
fn is_archived(disks: &Disks) -> Result<bool> {
    let anchor = read_anchor(disks.data.as_ref())?;
    Ok(anchor.is_some_and(|anchor| anchor.archived.is_some()))
}

/// Where the archive ends of a database that says that it has one, as far as the archive can be read. If it cannot, the archiver
/// will say so, and goes on trying.
fn archived_end(archiving: &Archiving, disks: &Disks) -> Result<Option<EpochEnds>> {
    let anchor = read_anchor(disks.data.as_ref())?;
    let archived = anchor.filter(|anchor| anchor.archived.is_some());
    Ok(archived.and_then(|anchor| archiving.end_of(&anchor.uuid, &disks.logs).ok().flatten()))
}

fn spawn(
    shared: &Arc<Shared>,
    name: &str,
    run: impl FnOnce(&Shared) + Send + 'static,
) -> Result<JoinHandle<()>> {
    let theirs = Arc::clone(shared);
    let thread = std::thread::Builder::new()
        .name(name.to_owned())
        .spawn(move || {
            let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| run(&theirs)));
            if outcome.is_err() {
                theirs.core.wal().fail("a background thread panicked");
                theirs.announce();
            }
        });
    thread.map_err(|error| Error::io("start thread", name, error))
}

fn seed(clock: &SystemClock) -> u64 {
    use std::hash::{BuildHasher, Hasher};
    let mut hasher = std::hash::RandomState::new().build_hasher();
    hasher.write_u64(clock.wall_us());
    hasher.write_u32(std::process::id());
    hasher.finish()
}

impl Threads {
    fn stop(&self) {
        self.shared.stopping.store(true, Ordering::SeqCst);
        for flusher in self.shared.flushers.read().iter() {
            flusher.unpark();
        }
        for handle in self.handles.lock().drain(..) {
            // A panic was turned into a stopped database where it happened.
            drop(handle.join());
        }
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        self.stop();
    }
}

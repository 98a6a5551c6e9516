//! The database with threads: what users open.
//!
//! | thread | does |
//! |---|---|
//! | one flusher a stream | closes epochs (the first of them), writes, syncs, wakes who waits |
//! | checkpointer | begins a checkpoint when the log has grown or somebody asks; paces its writes |
//! | housekeeper | prepares segments, removes expired rows, frees pages |
//!
//! Transactions run in their caller's thread. All threads end when the last handle is dropped.
//!
//! # Locks
//! `Shared::waiting` protects nothing but the wait itself; it is taken with no other lock held.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{JoinHandle, Thread};
use std::time::Duration;

use parking_lot::{Condvar, Mutex, RwLock};
use perdura_base::{Epoch, Error, PartitionId, PartitionSet, Result, StreamId, TableId};
use perdura_device::{Clock, SystemClock};
use perdura_recovery::{CheckpointProgress, Progress, RestartReport};
use perdura_store::{MemoryAccount, MemoryUse};
use perdura_txn::{Abort, Ticket, Tx};
use perdura_wal::FlushProgress;

use crate::core::{Core, Env};
use crate::files;
use crate::options::Options;
use crate::pace::{FlushPacer, ImagePacer, thread_cpu_ns};
use crate::stats::{LogStats, MemoryStats, Stats};

/// An idle flusher looks up this often: the beacon's bound.
const BEACON_EVERY: Duration = Duration::from_millis(15);
/// The housekeeper's and checkpointer's rhythm.
const TICK: Duration = Duration::from_millis(20);
/// Expired rows are looked for every so many ticks.
const PURGE_TICKS: u64 = 5;
/// How often a flusher tries again on a full disk.
const FULL_RETRY: Duration = Duration::from_millis(100);

/// How long after a cancelled checkpoint the next one begins by itself, nanoseconds.
const CANCELLED_PAUSE_NS: u64 = 5_000_000_000;

type Listener = Box<dyn Fn(Epoch) + Send + Sync>;

/// How far behind the durable epoch is.
#[derive(Debug, Clone, Copy)]
pub struct Exposure {
    /// The oldest commit epoch that is not durable yet.
    pub oldest_unsynced: Option<Epoch>,
    /// How long ago it began, microseconds.
    pub age_us: u64,
    /// The durable epoch.
    pub durable: Epoch,
    /// The current epoch.
    pub current: Epoch,
}

struct Shared {
    core: Core,
    options: Options,
    clock: Arc<SystemClock>,
    opened_ns: u64,
    stopping: AtomicBool,
    /// Flusher threads, to be unparked.
    flushers: RwLock<Vec<Thread>>,
    /// Set when somebody wants a flush; cleared by the flusher that starts one.
    wanted: AtomicBool,
    /// When the oldest epoch that is not durable began, nanoseconds; 0: nothing is open.
    unsynced_since_ns: AtomicU64,
    waiting: Mutex<usize>,
    progressed: Condvar,
    listeners: RwLock<Vec<Listener>>,
    checkpoint_wanted: AtomicBool,
    checkpoints_ended: AtomicU64,
    last_checkpoint_error: Mutex<Option<String>>,
    flush_cpu_ns: AtomicU64,
    spaced: AtomicBool,
}

/// The threads end when this is dropped.
struct Threads {
    shared: Arc<Shared>,
    handles: Mutex<Vec<JoinHandle<()>>>,
    _locks: Vec<Box<dyn std::any::Any + Send + Sync>>,
}

/// A handle to an open database; clones share it.
#[derive(Clone)]
pub struct Db {
    shared: Arc<Shared>,
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
        let core_options = options.core()?;
        let clock = Arc::new(SystemClock::new());
        let files = files::open(&options)?;
        let env = Env {
            data: files.data,
            logs: files.logs,
            clock: Arc::clone(&clock) as Arc<dyn Clock>,
            seed: seed(clock.as_ref()),
        };
        let core = Core::open(env, core_options, progress)?;
        let streams = core.wal().streams();
        let shared = Arc::new(Shared {
            opened_ns: clock.mono_ns(),
            core,
            options,
            clock,
            stopping: AtomicBool::new(false),
            flushers: RwLock::new(Vec::new()),
            wanted: AtomicBool::new(true),
            unsynced_since_ns: AtomicU64::new(0),
            waiting: Mutex::new(0),
            progressed: Condvar::new(),
            listeners: RwLock::new(Vec::new()),
            checkpoint_wanted: AtomicBool::new(false),
            checkpoints_ended: AtomicU64::new(0),
            last_checkpoint_error: Mutex::new(None),
            flush_cpu_ns: AtomicU64::new(0),
            spaced: AtomicBool::new(false),
        });
        let mut handles = Vec::new();
        for stream in (0..streams).map(StreamId) {
            let handle = spawn(&shared, &format!("flush-{stream}"), move |s| {
                s.flusher(stream)
            })?;
            shared.flushers.write().push(handle.thread().clone());
            handles.push(handle);
        }
        handles.push(spawn(&shared, "checkpoint", |shared| {
            shared.checkpointer()
        })?);
        handles.push(spawn(&shared, "housekeep", |shared| shared.housekeeper())?);
        let threads = Threads {
            shared: Arc::clone(&shared),
            handles: Mutex::new(handles),
            _locks: files.locks,
        };
        Ok(Db {
            shared,
            threads: Arc::new(threads),
        })
    }

    /// The partition of a key.
    #[must_use]
    pub fn partition_of(&self, key: &[u8]) -> PartitionId {
        self.shared.core.partition_of(key)
    }

    /// Every partition.
    #[must_use]
    pub fn all_partitions(&self) -> PartitionSet {
        self.shared.core.all_partitions()
    }

    /// Runs `f` as one serial transaction over the declared partitions, in this thread. It is
    /// visible to others on return, and durable when the ticket's epoch is: see [`Db::wait`].
    ///
    /// # Errors
    /// What `f` fails with; [`Error::LogFull`] while the disk is full, [`Error::Stopped`] after a
    /// failure of the disk.
    pub fn transact<R>(
        &self,
        parts: &PartitionSet,
        mut f: impl FnMut(&mut Tx<'_>) -> Result<R, Abort>,
    ) -> Result<(R, Ticket)> {
        loop {
            match self.shared.core.transact(parts, &mut f) {
                // Writes come faster than the disk takes them: hold this one back a little.
                Err(Error::LogFull(_)) if !self.shared.core.wal().is_disk_full() => {
                    self.nudge();
                    std::thread::sleep(Duration::from_micros(100));
                }
                done => return done,
            }
        }
    }

    /// The table of a Redis database, 0 to 15. It changes by a flush: call it inside the
    /// transaction.
    #[must_use]
    pub fn database(&self, index: u8) -> TableId {
        self.shared.core.database(index)
    }

    /// Empties one database, or all.
    ///
    /// # Errors
    /// As [`Db::transact`].
    pub fn flush_database(&self, index: Option<u8>) -> Result<Ticket> {
        self.shared.core.flush_database(index)
    }

    /// The durable epoch: transactions up to it survive.
    #[must_use]
    pub fn durable(&self) -> Epoch {
        self.shared.core.wal().durable()
    }

    /// Why the database has stopped acknowledging, if it has.
    #[must_use]
    pub fn is_stopped(&self) -> Option<String> {
        self.shared.core.wal().failure()
    }

    /// Has `f` called by the flusher whenever the durable epoch has advanced, and when the
    /// database stops. Keep it tiny.
    pub fn on_durable(&self, f: Box<dyn Fn(Epoch) + Send + Sync>) {
        self.shared.listeners.write().push(f);
    }

    /// Says that somebody waits: the flusher starts at once.
    pub fn nudge(&self) {
        self.shared.nudge();
    }

    /// Waits until a ticket is durable.
    ///
    /// # Errors
    /// [`Error::Stopped`] if the database stops first: whether the transaction survives is then
    /// not known.
    pub fn wait(&self, ticket: Ticket) -> Result<()> {
        self.shared.wait(ticket.epoch)
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
        let running = self.shared.core.checkpoint_stats().running;
        self.shared.checkpoint_wanted.store(true, Ordering::SeqCst);
        Ok(!running)
    }

    /// Takes a checkpoint and waits for it.
    ///
    /// # Errors
    /// What cancelled it, or [`Error::Stopped`].
    pub fn checkpoint(&self) -> Result<()> {
        let shared = &self.shared;
        // One that is running began before this call; wait for the next.
        let running = u64::from(shared.core.checkpoint_stats().running);
        let target = shared.checkpoints_ended.load(Ordering::SeqCst) + 1 + running;
        *shared.last_checkpoint_error.lock() = None;
        while shared.checkpoints_ended.load(Ordering::SeqCst) < target {
            shared.core.wal().check()?;
            if !shared.core.checkpoint_stats().running {
                shared.checkpoint_wanted.store(true, Ordering::SeqCst);
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        match shared.last_checkpoint_error.lock().take() {
            Some(error) => Err(Error::Stopped(format!(
                "the checkpoint was cancelled: {error}"
            ))),
            None => Ok(()),
        }
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

    /// Rows of a Redis database, and how many of them have an expiry.
    ///
    /// # Errors
    /// As [`Db::transact`].
    pub fn rows(&self, index: u8) -> Result<(u64, u64)> {
        let all = self.all_partitions();
        let (rows, _) = self.transact(&all, |tx| {
            let table = self.database(index);
            Ok((tx.len(table)?, tx.expiring(table)?))
        })?;
        Ok(rows)
    }

    /// The logical digest of all rows; see [`crate::core::Core::digest`].
    #[must_use]
    pub fn digest(&self) -> u64 {
        self.shared.core.digest()
    }

    /// Closes cleanly: a last checkpoint, then a mark that the log behind it is empty. Other
    /// handles see a stopped database.
    ///
    /// # Errors
    /// What kept it from ending cleanly; nothing acknowledged is lost by it.
    pub fn close(self) -> Result<()> {
        self.checkpoint()?;
        self.threads.stop();
        self.shared.core.flush_all()?;
        self.shared.core.mark_clean()?;
        self.shared.core.wal().fail("it was closed");
        Ok(())
    }

    /// Ends the threads without a checkpoint; what is acknowledged is in the log.
    pub fn abandon(self) {
        self.threads.stop();
    }
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

impl Shared {
    fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::SeqCst)
    }

    fn nudge(&self) {
        if !self.wanted.swap(true, Ordering::SeqCst) {
            let now = self.clock.mono_ns().max(1);
            self.unsynced_since_ns
                .fetch_update(Ordering::SeqCst, Ordering::Relaxed, |since| {
                    (since == 0).then_some(now)
                })
                .ok();
            if let Some(first) = self.flushers.read().first() {
                first.unpark();
            }
        }
    }

    fn wait(&self, epoch: Epoch) -> Result<()> {
        let wal = self.core.wal();
        if wal.durable() >= epoch {
            return Ok(());
        }
        self.nudge();
        let mut waiting = self.waiting.lock();
        *waiting += 1;
        let result = loop {
            if wal.durable() >= epoch {
                break Ok(());
            }
            if let Err(stopped) = wal.check() {
                break Err(stopped);
            }
            self.progressed
                .wait_for(&mut waiting, Duration::from_millis(50));
        };
        *waiting -= 1;
        result
    }

    fn exposure(&self) -> Exposure {
        let wal = self.core.wal();
        let (durable, current) = (wal.durable(), wal.current());
        let since = self.unsynced_since_ns.load(Ordering::SeqCst);
        let idle = wal.is_idle();
        let age_us = if idle || since == 0 {
            0
        } else {
            self.clock.mono_ns().saturating_sub(since) / 1000
        };
        let oldest_unsynced = (!idle).then_some(Epoch(durable.0 + 1));
        Exposure {
            oldest_unsynced,
            age_us,
            durable,
            current,
        }
    }

    /// Tells everyone that D has advanced or the database has stopped.
    fn announce(&self) {
        if *self.waiting.lock() > 0 {
            self.progressed.notify_all();
        }
        let durable = self.core.wal().durable();
        for listener in self.listeners.read().iter() {
            listener(durable);
        }
    }

    /// A stream's flusher. The first one closes epochs and beacons; the others write what the
    /// closing left them.
    fn flusher(&self, stream: StreamId) {
        let first = stream == StreamId(0);
        let mut pacer = FlushPacer::default();
        while !self.is_stopping() {
            if self.core.wal().failure().is_some() {
                self.announce();
                std::thread::park_timeout(FULL_RETRY);
                continue;
            }
            if first {
                self.start_epoch_end(&mut pacer);
            }
            let start_ns = self.clock.mono_ns();
            let cpu = thread_cpu_ns();
            match self.flush(stream) {
                Ok(true) => {
                    pacer.note(start_ns, thread_cpu_ns().saturating_sub(cpu));
                    if first {
                        self.flush_cpu_ns.store(pacer.cost_ns(), Ordering::Relaxed);
                        self.spaced.store(pacer.is_saturated(), Ordering::Relaxed);
                    }
                }
                Ok(false) if first && self.wanted.load(Ordering::SeqCst) => {}
                Ok(false) => {
                    std::thread::park_timeout(BEACON_EVERY);
                    if first && self.core.wal().append_beacon() {
                        self.wanted.store(true, Ordering::SeqCst);
                    }
                }
                Err(error) if error.is_disk_full() => std::thread::park_timeout(FULL_RETRY),
                Err(_) => self.announce(),
            }
        }
    }

    /// Closes the epoch if somebody wants it, after the pause that the CPU budget asks for.
    fn start_epoch_end(&self, pacer: &mut FlushPacer) {
        let open = self.core.wal().has_open_frames();
        if !self.wanted.load(Ordering::SeqCst) && !open {
            return;
        }
        let delay = pacer.delay_ns(self.clock.mono_ns());
        if delay > 0 {
            std::thread::sleep(Duration::from_nanos(delay));
        }
        self.wanted.store(false, Ordering::SeqCst);
        let now = self.clock.mono_ns().max(1);
        if self.core.close_epoch().is_some() {
            let since = self.unsynced_since_ns.swap(now, Ordering::SeqCst);
            if since != 0 {
                self.unsynced_since_ns.fetch_min(since, Ordering::SeqCst);
            }
            for other in self.flushers.read().iter().skip(1) {
                other.unpark();
            }
        }
    }

    /// Steps a stream's flusher until it is idle; whether it made anything durable.
    fn flush(&self, stream: StreamId) -> Result<bool> {
        let mut synced = false;
        loop {
            match self.core.flush_step(stream)? {
                FlushProgress::Idle => return Ok(synced),
                FlushProgress::Wrote => {}
                FlushProgress::Synced => {
                    synced = true;
                    if self.core.wal().is_idle() {
                        self.unsynced_since_ns.store(0, Ordering::SeqCst);
                    } else {
                        self.unsynced_since_ns
                            .store(self.clock.mono_ns(), Ordering::SeqCst);
                    }
                    self.announce();
                }
            }
        }
    }

    fn checkpointer(&self) {
        // After a cancelled checkpoint nobody hurries: each attempt writes marks to the log.
        let mut not_before_ns = 0;
        while !self.is_stopping() {
            std::thread::park_timeout(TICK);
            if self.core.wal().failure().is_some() {
                continue;
            }
            let asked = self.checkpoint_wanted.swap(false, Ordering::SeqCst);
            let due = self.clock.mono_ns() >= not_before_ns && self.core.checkpoint_is_due();
            if !asked && !due {
                continue;
            }
            let outcome = self.run_checkpoint();
            if let Err(error) = &outcome {
                *self.last_checkpoint_error.lock() = Some(error.to_string());
            }
            self.checkpoints_ended.fetch_add(1, Ordering::SeqCst);
            if outcome.is_err() {
                not_before_ns = self.clock.mono_ns() + CANCELLED_PAUSE_NS;
            }
        }
    }

    fn run_checkpoint(&self) -> Result<()> {
        self.core.checkpoint_begin()?;
        let pages = self.core.heap().memory().get(MemoryUse::Pages);
        let seconds = self.options.checkpoint_seconds_max;
        let mut pacer = ImagePacer::new(pages, seconds, self.clock.mono_ns());
        loop {
            match self.core.checkpoint_step()? {
                CheckpointProgress::Idle | CheckpointProgress::Done => return Ok(()),
                CheckpointProgress::Working(bytes) => {
                    let wait = pacer.wait_after(bytes, self.clock.mono_ns());
                    if bytes > 0 && !wait.is_zero() && !self.is_stopping() {
                        std::thread::sleep(wait);
                    }
                }
                CheckpointProgress::Waiting => {
                    if self.is_stopping() {
                        return Err(Error::Stopped("the database is being closed".into()));
                    }
                    self.nudge();
                    std::thread::sleep(Duration::from_micros(200));
                }
            }
        }
    }

    fn housekeeper(&self) {
        let mut log_bytes = 0;
        let mut tick = 0u64;
        while !self.is_stopping() {
            std::thread::park_timeout(TICK);
            if self.core.wal().failure().is_some() {
                continue;
            }
            for stream in (0..self.core.wal().streams()).map(StreamId) {
                if let Err(error) = self.core.wal().prepare_segment(stream)
                    && !error.is_disk_full()
                {
                    self.core
                        .wal()
                        .fail(&format!("log stream {stream}: {error}"));
                }
            }
            tick += 1;
            if tick.is_multiple_of(PURGE_TICKS) {
                self.purge();
            }
            let queued = self.core.wal().stats().queued_bytes;
            self.core.heap().memory().change(MemoryUse::Log, log_bytes, queued);
            log_bytes = queued;
        }
    }

    /// One step for every partition.
    fn purge(&self) {
            for _ in 0..self.core.heap().geometry().partitions {
                // A full log or a stopped database: expired rows are hidden anyway, and removing
                // them can wait.
                if self.core.purge_step().is_err() {
                    break;
                }
            }
            let queued = self.core.wal().stats().queued_bytes;
            self.core
                .heap()
                .memory()
                .change(MemoryUse::Log, log_bytes, queued);
            log_bytes = queued;
        }
    }

    fn stats(&self) -> Stats {
        let memory = self.core.heap().memory();
        let wal = self.core.wal();
        let log = wal.stats();
        Stats {
            memory: MemoryStats {
                used: memory.used(),
                limit: memory.limit(),
                pages: memory.get(MemoryUse::Pages),
                indexes: memory.get(MemoryUse::Indexes),
                undo: memory.get(MemoryUse::Undo),
                staging: memory.get(MemoryUse::Staging),
                log: memory.get(MemoryUse::Log),
                output: memory.get(MemoryUse::Output),
            },
            log: LogStats {
                streams: wal.streams(),
                log_bytes: log.log_bytes,
                log_device_bytes: log.device_bytes,
                blocks: log.blocks,
                syncs: log.syncs,
                file_bytes: log.file_bytes,
                epoch: wal.current().0,
                durable_epoch: wal.durable().0,
                durable_lag_us: self.exposure().age_us,
                flush_cpu_us: self.flush_cpu_ns.load(Ordering::Relaxed) / 1000,
                spaced: self.spaced.load(Ordering::Relaxed),
                disk_full: wal.is_disk_full(),
                stopped: wal.failure(),
            },
            checkpoint: self.core.checkpoint_stats(),
            uptime_us: self.clock.mono_ns().saturating_sub(self.opened_ns) / 1000,
            uuid: self.core.anchor().get().uuid.to_string(),
        }
    }
}

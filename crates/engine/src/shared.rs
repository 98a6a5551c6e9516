//! The state that the handles and the threads of an open database share.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::Thread;
use std::time::Duration;

use parking_lot::{Condvar, Mutex, RwLock};
use perdura_base::{Epoch, Error, Result, StreamId};
use perdura_device::{Clock, SystemClock};
use perdura_heap::MemoryUse;
use perdura_wal::{Collected, Rung, Wait};

use crate::archive::Archiving;
use crate::backing_up::Backups;
use crate::behind::Worst;
use crate::core::Core;
use crate::delays::Delays;
use crate::durability::Durability;
use crate::flusher::FIRST;
use crate::merging::Lent;
use crate::mirror_stats::MirrorStats;
use crate::mirroring::AtNodes;
use crate::options::Options;
use crate::pace::{FlushPacer, Workers};
use crate::stats::{ArchiveStats, LogIoStats, LogStats, MemoryStats, Stats};
use crate::yielding::Lag;

/// No caller that waits for no rung goes on while a write older than this is missing on the next one,
/// microseconds.
const MEM_AGE_US_MAX: u64 = 10_000;
/// From this age on the flusher is told that such callers may soon have to wait, microseconds.
const MEM_AGE_US_NUDGE: u64 = 2_000;

const _: () = assert!(
    MEM_AGE_US_NUDGE < MEM_AGE_US_MAX,
    "the log is written before callers have to wait for it"
);

pub(crate) type Listener = Box<dyn Fn(Epoch) + Send + Sync>;

/// How far behind the durable epoch is.
#[derive(Debug, Clone, Copy)]
pub struct Exposure {
    /// The oldest commit epoch that is not durable yet.
    pub oldest_unsynced: Option<Epoch>,
    /// How long ago its first write was made, microseconds; 0 if there is none.
    pub age_us: u64,
    /// Bytes of the log that are not on its disks.
    pub bytes: u64,
    /// The durable epoch.
    pub durable: Epoch,
    /// The current epoch.
    pub current: Epoch,
}

/// The checkpointer's book: runs are numbered from 1.
#[derive(Debug, Default)]
pub(crate) struct Checkpoints {
    pub wanted: bool,
    pub started: u64,
    pub ended: u64,
    /// What cancelled the run that ended last.
    pub error: Option<String>,
}

pub(crate) struct Shared {
    pub core: Core,
    pub options: Options,
    pub clock: Arc<SystemClock>,
    pub opened_ns: u64,
    pub stopping: AtomicBool,
    /// Flusher threads, to be unparked.
    pub flushers: RwLock<Vec<Thread>>,
    /// Set when a thread wants a flush; cleared by the flusher that starts one.
    pub wanted: AtomicBool,
    /// Set when a thread that wants a flush waits for it; cleared likewise.
    pub awaited: AtomicBool,
    /// Who waits for the replies of nodes.
    pub at_nodes: AtNodes,
    /// Changes of view that were not told yet.
    pub views: Mutex<Vec<String>>,
    /// How busy the threads are that want flushes and do not wait.
    pub workers: Workers,
    /// There is one stream, and its writes complete by themselves.
    pub rings: bool,
    /// What a durable write costs the machine, as measured when the log was opened, nanoseconds.
    pub write_cost_ns: u64,
    /// How long a durable write took then, nanoseconds.
    pub write_latency_ns: u64,
    /// Held by the thread that ends epochs and flushes the first stream.
    pub turn: Mutex<FlushPacer>,
    pub waiting: Mutex<usize>,
    pub progressed: Condvar,
    pub listeners: RwLock<Vec<Listener>>,
    /// Requests for checkpoints, and how the last one ended; `checkpoint_ended` tells of changes.
    pub checkpoints: Mutex<Checkpoints>,
    pub checkpoint_ended: Condvar,
    /// Checkpoints need not leave time to transactions: the database is being closed.
    pub hurry: AtomicBool,
    pub flush_cpu_ns: AtomicU64,
    pub spaced: AtomicBool,
    /// The most that the log's disks were behind.
    pub worst: Worst,
    /// Work that a failing disk delays.
    pub delays: Delays,
    /// An archive is configured.
    pub archives: bool,
    /// The archive, if one is configured. Locked while a step is taken, with its I/O.
    pub archiving: Mutex<Option<Archiving>>,
    /// The archive while it is open.
    pub lent: Lent,
    /// Runs are asked for up to this epoch.
    pub archive_to: AtomicU64,
    /// What was archived since the database was opened.
    pub archived: Mutex<ArchiveStats>,
    /// How far the archive is behind.
    pub lag: Mutex<Lag>,
    /// When the archiver last had all that was durable.
    pub caught_up_ns: AtomicU64,
    /// Requests for backups, and how the last one ended; `backup_ended` tells of changes.
    pub backups: Mutex<Backups>,
    pub backup_ended: Condvar,
    /// The image that is being copied is needed for a checkpoint.
    pub give_up_copy: AtomicBool,
}

impl Shared {
    /// After the threads have ended: other handles see a stopped database, and no caller waits for good.
    pub fn end(&self) {
        self.core.wal().fail("it was closed");
        self.announce();
    }

    pub fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::SeqCst)
    }

    /// Has what was appended made durable for a caller that waits.
    pub fn nudge(&self) {
        let is_held = !self.awaited.swap(true, Ordering::SeqCst);
        if !self.wanted.swap(true, Ordering::SeqCst) || is_held {
            self.wake_first();
        }
    }

    /// Has what was appended made durable while the calling thread goes on.
    pub fn want_durable(&self) {
        // The mirror's thread ships by itself what no caller waits for.
        if self.is_mirrored() {
            return;
        }
        if !self.wanted.load(Ordering::SeqCst) && !self.wanted.swap(true, Ordering::SeqCst) {
            self.workers.tell(self.clock.mono_ns());
            self.wake_first();
        }
    }

    fn wake_first(&self) {
        if let Some(first) = self.flushers.read().first() {
            first.unpark();
        }
    }

    fn check_ticket(&self, epoch: Epoch) -> Result<()> {
        let current = self.core.wal().current();
        if epoch > current {
            return Err(Error::Usage(format!(
                "a ticket of epoch {epoch}, and this database is in epoch {current}: the ticket is of \
                 another database"
            )));
        }
        Ok(())
    }

    /// Returns at once while the log keeps the bound of `mem`; else waits until the epoch is durable on the
    /// next rung.
    pub fn wait_for_bound(&self, epoch: Epoch) -> Result<()> {
        self.check_ticket(epoch)?;
        match self.is_mem_in_time() {
            true => Ok(()),
            false => self.wait(Durability::Mem.rung(), epoch),
        }
    }

    /// Whether nothing that the rung above `mem` lacks is older than the bound.
    pub fn is_mem_in_time(&self) -> bool {
        let age_us = self.core.age_ns(Durability::Mem.rung()) / 1000;
        if age_us > MEM_AGE_US_NUDGE && !self.is_mirrored() {
            self.nudge();
        }
        age_us <= MEM_AGE_US_MAX
    }

    /// Waits until what is acknowledged on a rung has an epoch.
    pub fn wait(&self, rung: Rung, epoch: Epoch) -> Result<()> {
        self.check_ticket(epoch)?;
        self.wait_on(rung, epoch)?;
        // As `Wal::reached` has it: the disk of a writer that was replaced says nothing.
        if rung == Rung::Disk && self.core.nodes().is_some() {
            self.wait_on(Rung::Mirror, epoch)?;
        }
        Ok(())
    }

    fn wait_on(&self, rung: Rung, epoch: Epoch) -> Result<()> {
        let wal = self.core.wal();
        if rung == Rung::Mirror {
            self.wait_for_nodes(epoch)?;
            if wal.durable(rung) < epoch {
                // Where one node is left, it has the epoch while the disk takes it.
                self.ship();
            }
        }
        if wal.durable(rung) >= epoch {
            return Ok(());
        }
        if self.rings {
            return self.wait_for_ring(rung, epoch);
        }
        if self.flush_here() && wal.durable(rung) >= epoch {
            return Ok(());
        }
        self.nudge();
        self.wait_until(rung, epoch, || true)
    }

    /// Waits for writes that complete by themselves: one of the threads that wait collects for all.
    fn wait_for_ring(&self, rung: Rung, epoch: Epoch) -> Result<()> {
        let wal = self.core.wal();
        while wal.durable(rung) < epoch {
            wal.check()?;
            let is_idle = wal.in_flight(FIRST) == 0;
            if !self.begin_log_write() && is_idle {
                self.nudge();
            }
            if wal.in_flight(FIRST) > 0 && self.collect(Wait::ForOne) != Collected::Elsewhere {
                continue;
            }
            // Whoever collects lets go of the stream first and announces then, so that a thread that
            // finds it collecting here is woken.
            self.wait_until(rung, epoch, || {
                wal.in_flight(FIRST) == 0 || wal.is_collecting(FIRST)
            })?;
        }
        Ok(())
    }

    /// Waits until an epoch is durable, or `holds` no longer holds when the thread would sleep, or it was
    /// woken.
    pub fn wait_until(&self, rung: Rung, epoch: Epoch, holds: impl Fn() -> bool) -> Result<()> {
        let wal = self.core.wal();
        let mut waiting = self.waiting.lock();
        *waiting += 1;
        let result = loop {
            if wal.durable(rung) >= epoch {
                break Ok(());
            }
            if let Err(stopped) = wal.check() {
                break Err(stopped);
            }
            if !holds() {
                break Ok(());
            }
            self.progressed
                .wait_for(&mut waiting, Duration::from_millis(50));
            if self.rings {
                break Ok(());
            }
        };
        assert!(*waiting > 0, "each caller that waits is counted");
        *waiting -= 1;
        result
    }

    pub fn exposure(&self) -> Exposure {
        let wal = self.core.wal();
        let (durable, current) = (wal.durable(Rung::Disk), wal.current());
        debug_assert!(durable <= current, "an epoch is durable when it has ended");
        let oldest_unsynced = (!wal.is_idle()).then_some(Epoch(durable.0 + 1));
        Exposure {
            oldest_unsynced,
            age_us: self.core.age_ns(Rung::Disk) / 1000,
            bytes: self.unsynced_bytes(),
            durable,
            current,
        }
    }

    /// Tells waiting callers and listeners that D has advanced or the database has stopped.
    pub fn announce(&self) {
        if *self.waiting.lock() > 0 {
            self.progressed.notify_all();
        }
        let durable = self.core.wal().durable(Rung::Disk);
        for listener in self.listeners.read().iter() {
            listener(durable);
        }
    }

    pub fn stats(&self) -> Stats {
        let memory = self.core.heap().memory();
        let wal = self.core.wal();
        self.note_behind();
        let log = wal.stats();
        let exposure = self.exposure();
        let ways = self.core.log_ways();
        let streams = (0..wal.streams()).map(StreamId);
        assert!(
            ways.is_empty() || ways.len() == streams.len(),
            "{} of {} log directories say how they are written",
            ways.len(),
            streams.len()
        );
        let vouched = self.core.anchor().get().vouched.epoch;
        assert!(
            vouched <= wal.durable(Rung::Disk),
            "I13: the anchor vouches for at most D"
        );
        Stats {
            memory: MemoryStats {
                used: memory.used(),
                limit: memory.limit(),
                pages: memory.get(MemoryUse::Pages),
                indexes: memory.get(MemoryUse::Indexes),
                undo: memory.get(MemoryUse::Undo),
                staging: memory.get(MemoryUse::Staging),
                log: memory.get(MemoryUse::Log),
                clients: memory.get(MemoryUse::Clients),
                kept: memory.get(MemoryUse::Kept),
                passwords: memory.get(MemoryUse::Passwords),
            },
            log: LogStats {
                streams: wal.streams(),
                log_bytes: log.log_bytes,
                log_device_bytes: log.device_bytes,
                blocks: log.blocks,
                syncs: log.syncs,
                in_flight: streams.map(|stream| wal.in_flight(stream)).sum(),
                io: ways.iter().map(LogIoStats::of).collect(),
                file_bytes: log.file_bytes,
                epoch: wal.current().0,
                durable_epoch: wal.durable(Rung::Disk).0,
                vouched_epoch: vouched.0,
                durable_lag_us: exposure.age_us,
                durable_lag_max_us: self.worst.age_us(),
                mirror_lag_us: self.core.age_ns(Rung::Mirror) / 1000,
                mirror: self.mirror_status().as_ref().map(MirrorStats::of),
                unsynced_bytes: exposure.bytes,
                unsynced_max_bytes: self.worst.bytes(),
                flush_cpu_us: self.flush_cpu_ns.load(Ordering::Relaxed) / 1000,
                spaced: self.spaced.load(Ordering::Relaxed),
                disk_full: wal.is_disk_full(),
                stopped: wal.failure(),
            },
            checkpoint: self.core.checkpoint_stats(),
            archive: self.archive_stats(),
            uptime_us: self.clock.mono_ns().saturating_sub(self.opened_ns) / 1000,
            uuid: self.core.anchor().get().uuid.to_string(),
        }
    }
}

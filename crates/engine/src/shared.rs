//! The parts of an open database, which its handles and threads share.

use std::sync::Arc;

use perdura_base::{Epoch, Error, Result, StreamId};
use perdura_heap::MemoryUse;
use perdura_wal::{Collected, Rung, Wait};

use crate::archive::Archiving;
use crate::archiver::AtArchive;
use crate::backing_up::Backer;
use crate::behind::unsynced_bytes;
use crate::checkpointer::Checkpointer;
use crate::core::Core;
use crate::durability::Durability;
use crate::flusher::{FIRST, LogWriter};
use crate::ground::Ground;
use crate::mirror_stats::MirrorStats;
use crate::mirroring::Mirror;
use crate::stats::{LogIoStats, LogStats, MemoryStats, Stats};

/// An age in microseconds. While a write older than this is not yet on the rung above `mem`, even callers with
/// durability `mem` have to wait.
const MEM_AGE_US_MAX: u64 = 10_000;
/// An age in microseconds. If a write older than this is not yet on the rung above `mem`, the flusher is woken, because
/// callers with durability `mem` may soon have to wait.
const MEM_AGE_US_NUDGE: u64 = 2_000;
/// The most writes in flight beside which a waiting thread makes another one. The log's queue has room for one more.
const BESIDE_MAX: u64 = 3;

const _: () = assert!(
    MEM_AGE_US_NUDGE < MEM_AGE_US_MAX,
    "the log is written before callers have to wait for it"
);

/// The distance from the durable log to the current epoch.
#[derive(Debug, Clone, Copy)]
pub struct Exposure {
    /// The oldest commit epoch that is not durable yet. `None`: all epochs are durable.
    pub oldest_unsynced: Option<Epoch>,
    /// The age of the first write of epoch `oldest_unsynced`, in microseconds. 0 if all epochs are durable.
    pub age_us: u64,
    /// Bytes of the log that are not on its disks.
    pub bytes: u64,
    /// The durable epoch.
    pub durable: Epoch,
    /// The current epoch.
    pub current: Epoch,
}

/// An open database: the state that its parts share, and each part.
pub(crate) struct Shared {
    /// The state that all parts share.
    pub ground: Arc<Ground>,
    /// The writer of the database's log.
    pub log: LogWriter,
    /// The use of the database's nodes, if it has nodes.
    pub mirror: Arc<Mirror>,
    /// The database's checkpoints.
    pub checkpoints: Arc<Checkpointer>,
    /// The database's archive, if it has one.
    pub archive: Arc<AtArchive>,
    /// The database's backups.
    pub backups: Backer,
}

impl Shared {
    /// Returns a database with all its parts. No thread has been started yet.
    pub fn new(ground: Ground, archiving: Option<Archiving>) -> Shared {
        let ground = Arc::new(ground);
        let mirror = Arc::new(Mirror::new(&ground));
        let archive = Arc::new(AtArchive::new(&ground, archiving));
        let checkpoints = Arc::new(Checkpointer::new(&ground, &archive));
        Shared {
            log: LogWriter::new(&ground, &mirror),
            backups: Backer::new(&ground, &archive, &checkpoints),
            ground,
            mirror,
            checkpoints,
            archive,
        }
    }

    /// Returns the core.
    #[inline]
    pub fn core(&self) -> &Core {
        &self.ground.core
    }

    /// Marks the database as stopped, after its threads have ended. All remaining handles then get errors, and no
    /// caller waits for ever.
    pub fn end(&self) {
        self.core().wal().fail("it was closed");
        self.ground.announce();
    }

    /// Asks for appended frames to be made durable while the calling thread continues.
    pub fn want_durable(&self) {
        // The mirror's thread ships frames that no caller waits for.
        if self.mirror.is_mirrored() {
            return;
        }
        self.ground.wishes.want(|| self.ground.now_ns());
    }

    fn check_ticket(&self, epoch: Epoch) -> Result<()> {
        let current = self.core().wal().current();
        if epoch > current {
            return Err(Error::Usage(format!(
                "the ticket is of another database: it is of epoch {epoch}, and this database is \
                 in epoch {current}"
            )));
        }
        Ok(())
    }

    /// Returns at once if [`is_mem_in_time`](Self::is_mem_in_time). Otherwise waits until the epoch is durable on the
    /// rung above `mem`.
    pub fn wait_for_bound(&self, epoch: Epoch) -> Result<()> {
        self.check_ticket(epoch)?;
        match self.is_mem_in_time() {
            true => Ok(()),
            false => self.wait(Durability::Mem.rung(), epoch),
        }
    }

    /// Returns whether every write that is not yet on the rung above `mem` is at most
    /// [`MEM_AGE_US_MAX`] old.
    pub fn is_mem_in_time(&self) -> bool {
        let age_us = self.core().age_ns(Durability::Mem.rung()) / 1000;
        if age_us > MEM_AGE_US_NUDGE && !self.mirror.is_mirrored() {
            self.ground.wishes.nudge();
        }
        age_us <= MEM_AGE_US_MAX
    }

    /// Waits until an epoch is durable on a rung.
    pub fn wait(&self, rung: Rung, epoch: Epoch) -> Result<()> {
        self.check_ticket(epoch)?;
        self.wait_on(rung, epoch)?;
        // With nodes, the disk alone is not enough: a writer that was replaced by another one can still write its own
        // disk. `Wal::reached` has the same rule.
        if rung == Rung::Disk && self.core().nodes().is_some() {
            self.wait_on(Rung::Mirror, epoch)?;
        }
        Ok(())
    }

    fn wait_on(&self, rung: Rung, epoch: Epoch) -> Result<()> {
        let wal = self.core().wal();
        if rung == Rung::Mirror {
            self.mirror.wait_for_nodes(epoch)?;
            if wal.durable(rung) < epoch {
                // Send the epoch now. Then, if only one node is left, that node receives the epoch while the disk
                // writes it.
                self.mirror.ship();
            }
        }
        if wal.durable(rung) >= epoch {
            return Ok(());
        }
        if self.ground.rings {
            return self.wait_for_ring(rung, epoch);
        }
        if self.log.flush_here() && wal.durable(rung) >= epoch {
            return Ok(());
        }
        self.ground.wishes.nudge();
        self.ground.wait_until(rung, epoch, || true)
    }

    /// Like `wait_on`, for a log with writes that complete by themselves. One of the waiting threads collects the
    /// completed writes for all of them.
    fn wait_for_ring(&self, rung: Rung, epoch: Epoch) -> Result<()> {
        let wal = self.core().wal();
        while wal.durable(rung) < epoch {
            wal.check()?;
            // A thread whose epoch has ended does not write for others: its own write may end sooner.
            let is_open = epoch >= wal.current();
            let written = is_open.then(|| self.log.flush_beside(BESIDE_MAX)).flatten();
            if written == Some(Collected::Advanced) {
                continue;
            }
            let is_idle = wal.in_flight(FIRST) == 0;
            let is_asked = written.is_none() && !self.log.begin_log_write() && is_idle;
            if is_asked {
                self.ground.wishes.nudge();
            }
            if wal.in_flight(FIRST) > 0 && self.log.collect(Wait::ForOne) != Collected::Elsewhere {
                continue;
            }
            // A collecting thread first releases the stream and then announces. So if this thread sleeps because
            // another thread is collecting, that thread's announcement wakes it.
            self.ground
                .wait_until(rung, epoch, || match wal.in_flight(FIRST) {
                    0 => is_asked,
                    _ => wal.is_attended(FIRST),
                })?;
        }
        Ok(())
    }

    /// Returns the distance from the durable log to the current epoch.
    pub fn exposure(&self) -> Exposure {
        let wal = self.core().wal();
        let (durable, current) = (wal.durable(Rung::Disk), wal.current());
        debug_assert!(durable <= current, "an epoch is durable when it has ended");
        let oldest_unsynced = (!wal.is_idle()).then_some(Epoch(durable.0 + 1));
        Exposure {
            oldest_unsynced,
            age_us: self.core().age_ns(Rung::Disk) / 1000,
            bytes: unsynced_bytes(self.core()),
            durable,
            current,
        }
    }

    /// Returns all figures.
    pub fn stats(&self) -> Stats {
        let memory = self.core().heap().memory();
        let wal = self.core().wal();
        self.log.worst.note(self.core());
        let log = wal.stats();
        let exposure = self.exposure();
        let ways = self.core().log_ways();
        let streams = (0..wal.streams()).map(StreamId);
        assert!(
            ways.is_empty() || ways.len() == streams.len(),
            "{} of {} log directories say how they are written",
            ways.len(),
            streams.len()
        );
        let vouched = self.core().anchor().get().vouched.epoch;
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
                durable_lag_max_us: self.log.worst.age_us(),
                mirror_lag_us: self.core().age_ns(Rung::Mirror) / 1000,
                mirror: self.mirror.status().as_ref().map(MirrorStats::of),
                unsynced_bytes: exposure.bytes,
                unsynced_max_bytes: self.log.worst.bytes(),
                flush_cpu_us: self.log.flush_cpu_us(),
                spaced: self.log.is_spaced(),
                disk_full: wal.is_disk_full(),
                stopped: wal.failure(),
            },
            checkpoint: self.core().checkpoint_stats(),
            archive: self.archive.figures(self.backups.state()),
            uptime_us: self.ground.now_ns().saturating_sub(self.ground.opened_ns) / 1000,
            uuid: self.core().anchor().get().uuid.to_string(),
        }
    }
}

//! The database: creating it, opening it, and everything around its transactions. It has no threads: its
//! caller closes epochs, flushes blocks and takes checkpoints in steps.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crossbeam_utils::CachePadded;
use parking_lot::Mutex;
use perdura_base::checksum::mix64;
use perdura_base::flaw::{Flaw, armed};
use perdura_base::{Epoch, Error, PartitionId, Result, StreamId, Uuid};
use perdura_heap::{Geometry, Heap, MemoryAccount};
use perdura_page::SlotClass;
use perdura_recovery::indexing::NoTables;
use perdura_recovery::read_anchor;
use perdura_recovery::restart::{NewDatabase, RestartOptions, create, restart};
use perdura_recovery::resume::{Checkpoints, LogMemory, flush_all, resume};
use perdura_recovery::{
    AnchorCell, CheckpointProgress, CheckpointStats, Method, Progress, RestartReport, vouch,
};
use perdura_wal::{FlushProgress, Mode, Rung, Scheme, SegmentSizes, Wal};

use crate::options::{StealEnv, StealOptions};
use crate::space::{SlotKey, Space};
use crate::streams::Streams;
use crate::txn::{Buffers, Committed, Place};

/// Numbers of transactions and of physical changes begin, in each incarnation, at the incarnation
/// shifted by this: none is used twice, and a restart need not search for the highest. A life has room
/// for 2^32 of each.
pub(crate) const NUMBER_SHIFT: u32 = 32;

/// Figures since the database was opened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StealStats {
    /// Transactions committed.
    pub commits: u64,
    /// Transactions rolled back.
    pub aborts: u64,
    /// Of these, those whose undo was logged.
    pub aborts_compensated: u64,
    /// Changes made, compensation not included.
    pub updates: u64,
    /// Bytes of their records, with frame heads.
    pub update_bytes: u64,
    /// Compensation records.
    pub compensations: u64,
    /// Their bytes, with frame heads.
    pub compensation_bytes: u64,
}

#[derive(Default)]
pub(crate) struct Counters {
    pub commits: AtomicU64,
    pub aborts: AtomicU64,
    pub aborts_compensated: AtomicU64,
    pub updates: AtomicU64,
    pub update_bytes: AtomicU64,
    pub compensations: AtomicU64,
    pub compensation_bytes: AtomicU64,
}

/// An open database of interleaved transactions. All methods take `&self`; a [`Txn`](crate::Txn)
/// belongs to one thread at a time.
pub struct Steal {
    pub(crate) options: StealOptions,
    pub(crate) scheme: Scheme,
    pub(crate) class: SlotClass,
    pub(crate) heap: Arc<Heap>,
    pub(crate) wal: Arc<Wal>,
    pub(crate) streams: Arc<Streams>,
    pub(crate) spaces: Box<[CachePadded<Mutex<Space>>]>,
    /// Free slots in all partitions.
    pub(crate) free: CachePadded<AtomicU64>,
    pub(crate) next_txn: CachePadded<AtomicU64>,
    pub(crate) next_gseq: CachePadded<AtomicU64>,
    pub(crate) next_partition: CachePadded<AtomicU64>,
    pub(crate) pool: Mutex<Vec<Buffers>>,
    pub(crate) counters: CachePadded<Counters>,
    anchor: Arc<AnchorCell>,
    checkpoints: Checkpoints,
    report: RestartReport,
}

impl Steal {
    /// Makes an empty database and opens it.
    ///
    /// # Errors
    /// [`Error::Usage`] if there is a database already or an option is out of its range; the
    /// disks'.
    pub fn create(env: StealEnv, options: StealOptions) -> Result<Steal> {
        options.check(&env)?;
        if read_anchor(env.disks.data.as_ref())?.is_some() {
            return Err(Error::Usage(format!(
                "there is a database in {} already",
                env.disks.data.name()
            )));
        }
        let new = NewDatabase {
            uuid: new_uuid(env.seed),
            geometry: Geometry {
                partitions: options.partitions,
                chunk_pages: options.chunk_pages,
                hash_seed: 0,
            },
            streams: u8::try_from(env.disks.logs.len()).expect("at most 16 streams"),
            segments: SegmentSizes::fixed(options.segment_bytes),
            scheme: options.scheme,
        };
        create(&env.disks, env.clock.as_ref(), &new)?;
        let opened = Steal::open(env, options)?;
        Ok(opened.expect("the database was made just now"))
    }

    /// Brings the database on these disks back; `Ok(None)` if there is none.
    /// [`report`](Self::report) says what was done.
    ///
    /// # Errors
    /// See [`restart`]; nothing was changed if it fails before the anchor is updated.
    pub fn open(env: StealEnv, options: StealOptions) -> Result<Option<Steal>> {
        let Some(found) = read_anchor(env.disks.data.as_ref())? else {
            return Ok(None);
        };
        if found.scheme.mode() != Mode::Steal {
            return Err(Error::Usage(format!(
                "the database in {} is of the logging scheme {}: open it with the product's engine",
                env.disks.data.name(),
                found.scheme.name()
            )));
        }
        let class = options.check_open()?;
        let method = Method::by_name(options.method, found.scheme).map_err(Error::Usage)?;
        let restart_options = RestartOptions {
            disks: env.disks.clone(),
            clock: Arc::clone(&env.clock),
            schedule: options.schedule,
            method,
            supplied: &[],
            ordered: None,
            archived: None,
            dry_run: false,
            memory: Arc::new(MemoryAccount::new(options.memory_limit)),
            catalog: Arc::new(NoTables),
            progress: Arc::new(Progress::default()),
        };
        let restarted = restart(&restart_options)?.expect("its anchor was read just now");
        let incarnation = restarted.record.incarnation;
        let streams = Arc::new(Streams::new(restarted.record.streams));
        let log_memory = LogMemory {
            block_bytes_max: options.block_bytes_max,
            queue_bytes_max: options.queue_bytes_max,
        };
        let (spaces, free) = survey(&restarted.heap, class)?;
        let resumed = resume(restarted, &restart_options, log_memory, streams.clone())?;
        let first_number = u64::from(incarnation.0) << NUMBER_SHIFT;
        let steal = Steal {
            scheme: found.scheme,
            class,
            spaces,
            free: CachePadded::new(AtomicU64::new(free)),
            next_txn: CachePadded::new(AtomicU64::new(first_number)),
            next_gseq: CachePadded::new(AtomicU64::new(first_number)),
            next_partition: CachePadded::default(),
            pool: Mutex::new(Vec::new()),
            counters: CachePadded::default(),
            heap: resumed.heap,
            wal: resumed.wal,
            anchor: resumed.anchor,
            checkpoints: resumed.checkpoints,
            report: resumed.report,
            options,
            streams,
        };
        steal.check_opened();
        steal.checkpoints.shorten_chain()?;
        Ok(Some(steal))
    }

    /// What holds between the parts of a database that was opened just now.
    fn check_opened(&self) {
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
        assert_eq!(
            self.spaces.len(),
            usize::from(self.heap.geometry().partitions),
            "each partition has its locks and free slots"
        );
    }

    /// The log.
    #[must_use]
    pub fn wal(&self) -> &Arc<Wal> {
        &self.wal
    }

    /// The pages.
    #[must_use]
    pub fn heap(&self) -> &Arc<Heap> {
        &self.heap
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

    /// The settings it was opened with.
    #[must_use]
    pub fn options(&self) -> &StealOptions {
        &self.options
    }

    /// Free slots in all partitions.
    #[must_use]
    pub fn free_slots(&self) -> u64 {
        self.free.load(Ordering::Relaxed)
    }

    /// Figures since it was opened.
    #[must_use]
    pub fn stats(&self) -> StealStats {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let counters = &self.counters;
        StealStats {
            commits: load(&counters.commits),
            aborts: load(&counters.aborts),
            aborts_compensated: load(&counters.aborts_compensated),
            updates: load(&counters.updates),
            update_bytes: load(&counters.update_bytes),
            compensations: load(&counters.compensations),
            compensation_bytes: load(&counters.compensation_bytes),
        }
    }

    /// Every transaction up to this epoch survives a crash.
    #[must_use]
    pub fn durable(&self) -> Epoch {
        self.wal.durable(Rung::Disk)
    }

    /// Whether a commit may be acknowledged.
    #[must_use]
    pub fn is_acked(&self, committed: &Committed) -> bool {
        if armed(Flaw::NoEpochs) {
            return self.wal.synced(committed.stream) > committed.pos;
        }
        debug_assert!(
            committed.epoch <= self.wal.current(),
            "no commit is of an epoch that has not begun"
        );
        self.durable() >= committed.epoch
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

    /// Begins a checkpoint unless one is running.
    ///
    /// # Errors
    /// Any but a full disk stops the database.
    pub fn checkpoint_begin(&self) -> Result<()> {
        self.checkpoints.begin()
    }

    /// One step of the running checkpoint.
    ///
    /// # Errors
    /// Any but a full disk stops the database.
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

    /// Figures of the checkpointer.
    #[must_use]
    pub fn checkpoint_stats(&self) -> CheckpointStats {
        self.checkpoints.stats()
    }

    /// The taken places of a partition, in order.
    #[must_use]
    pub fn places(&self, partition: PartitionId) -> Vec<Place> {
        let geometry = self.heap.geometry();
        let part = self.heap.lock(partition);
        let mut places = Vec::new();
        for local in 0..part.pages() {
            let (Some(class), Some(page)) = (part.slotted(local), part.page_bytes(local)) else {
                continue;
            };
            let id = geometry
                .page_id(partition, local)
                .expect("a page there is has an id");
            let taken = perdura_page::layout::taken(page, class);
            places.extend(taken.filter_map(|slot| {
                let slot = u16::try_from(slot).ok()?;
                Some(Place { page: id, slot })
            }));
        }
        places
    }

    /// What the database holds, in one number; see [`digest`](fn@crate::digest).
    #[must_use]
    pub fn digest(&self) -> String {
        crate::digest(&self.heap)
    }
}

/// The uuid that a seed gives a new database.
pub(crate) fn new_uuid(seed: u64) -> Uuid {
    let mut uuid = [0; 16];
    uuid[..8].copy_from_slice(&mix64(seed).to_le_bytes());
    uuid[8..].copy_from_slice(&mix64(seed ^ 0x9e37_79b9_7f4a_7c15).to_le_bytes());
    Uuid(uuid)
}

/// Spaces and the number of free slots they list.
type Spaces = (Box<[CachePadded<Mutex<Space>>]>, u64);

/// Reads the free slots from the bitmaps. The lowest is handed out first.
fn survey(heap: &Heap, class: SlotClass) -> Result<Spaces> {
    let mut free = 0u64;
    let mut spaces = Vec::new();
    for id in (0..heap.geometry().partitions).map(PartitionId) {
        let mut part = heap.lock(id);
        let mut space = Space::default();
        for local in (0..part.pages()).rev() {
            let Some(found) = part.check_slots(local)? else {
                continue;
            };
            if found != class {
                return Err(Error::Usage(format!(
                    "the database has slots of {} bytes, not of {}",
                    found.bytes(),
                    class.bytes()
                )));
            }
            let page = part.page_bytes(local).unwrap_or_default();
            let slots = (0..class.slots())
                .rev()
                .filter(|slot| !perdura_page::layout::is_taken(page, *slot));
            space.add_free(slots.filter_map(|slot| {
                let slot = u16::try_from(slot).ok()?;
                Some(SlotKey::new(local, slot))
            }));
        }
        free += perdura_base::num::to_u64(space.free_len());
        spaces.push(CachePadded::new(Mutex::new(space)));
    }
    Ok((spaces.into(), free))
}

//! The database of slots: creation and opening, pages of slots, and statistics.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crossbeam_utils::CachePadded;
use parking_lot::Mutex;
use perdura_base::flaw::{Flaw, armed};
use perdura_base::{Error, PartitionId, Result};
use perdura_heap::{Geometry, Heap, MemoryAccount};
use perdura_page::SlotClass;
use perdura_recovery::read_anchor;
use perdura_recovery::restart::{RestartOptions, create_or_resume, restart};
use perdura_recovery::{Life, LogMemory};
use perdura_wal::{Mode, Scheme};

use crate::env::StealEnv;
use crate::numbers::Numbers;
use crate::options::StealOptions;
use crate::space::{SlotKey, Space};
use crate::streams::Streams;
use crate::txn::{Buffers, Committed, Place};

/// Statistics since the database was opened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StealStats {
    /// Transactions committed.
    pub commits: u64,
    /// Transactions rolled back.
    pub aborts: u64,
    /// Rollbacks with logged undo. These rollbacks also count in `aborts`.
    pub aborts_compensated: u64,
    /// Changes made, not counting compensations.
    pub updates: u64,
    /// Bytes of the changes' records, including the frames' heads.
    pub update_bytes: u64,
    /// Compensation records written.
    pub compensations: u64,
    /// Bytes of the compensation records, including the frames' heads.
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
    pub(crate) class: SlotClass,
    pub(crate) spaces: Box<[CachePadded<Mutex<Space>>]>,
    /// The number of free slots in all partitions.
    pub(crate) free: CachePadded<AtomicU64>,
    pub(crate) scheme: Scheme,
    pub(crate) streams: Arc<Streams>,
    pub(crate) gseqs: Numbers,
    pub(crate) txns: Numbers,
    pub(crate) next_partition: CachePadded<AtomicU64>,
    pub(crate) pool: Mutex<Vec<Buffers>>,
    pub(crate) counters: CachePadded<Counters>,
    life: Life,
}

impl Deref for Steal {
    type Target = Life;

    fn deref(&self) -> &Life {
        &self.life
    }
}

impl Steal {
    /// Makes an empty database and opens it.
    ///
    /// # Errors
    /// [`Error::Usage`] if the disks already have a database, or an option is out of its range; errors of the disks.
    pub fn create(env: StealEnv, options: StealOptions) -> Result<Steal> {
        options.check(&env)?;
        let geometry = Geometry {
            partitions: options.partitions,
            chunk_pages: options.chunk_pages,
            hash_seed: 0,
        };
        let is_there = read_anchor(env.disks.data.as_ref())?.is_some();
        let logged = (options.scheme, options.segment_bytes);
        let new = env.new_database(is_there, geometry, logged)?;
        create_or_resume(&env.disks, env.clock.as_ref(), &new, None)?;
        let opened = Steal::open(env, options)?;
        Ok(opened.expect("the database was made just now"))
    }

    /// Restarts the database on these disks. `Ok(None)`: the disks have no database. [`report`](Life::report)
    /// describes the restart.
    ///
    /// # Errors
    /// Errors of [`restart`]. A restart that fails before it updates the anchor has changed nothing.
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
        let memory = Arc::new(MemoryAccount::new(options.memory_limit));
        let restart_options = RestartOptions {
            memory,
            ..env.restart_options(options.schedule, options.method)?
        };
        let restarted = restart(&restart_options)?.expect("its anchor was read just now");
        let incarnation = restarted.record.incarnation;
        let log_memory = LogMemory {
            block_bytes_max: options.block_bytes_max,
            queue_bytes_max: options.queue_bytes_max,
            lanes: 1,
            mirror: None,
        };
        let (spaces, free) = survey(&restarted.heap, class)?;
        let scheme = restarted.record.scheme;
        let streams = Arc::new(Streams::new(restarted.record.streams));
        let life = Life::begin(restarted, &restart_options, log_memory, streams.clone())?;
        assert!(life.trees.is_empty(), "slots are in pages in memory");
        assert_eq!(
            spaces.len(),
            usize::from(life.heap.geometry().partitions),
            "each partition has its locks and free slots"
        );
        let steal = Steal {
            options,
            class,
            spaces,
            free: CachePadded::new(AtomicU64::new(free)),
            scheme,
            streams,
            gseqs: Numbers::of(incarnation),
            txns: Numbers::of(incarnation),
            next_partition: CachePadded::default(),
            pool: Mutex::new(Vec::new()),
            counters: CachePadded::default(),
            life,
        };
        steal.checkpoints().shorten_chain()?;
        Ok(Some(steal))
    }

    /// Returns the object that runs transactions: the database itself.
    #[must_use]
    pub fn txns(&self) -> &Steal {
        self
    }

    /// Returns the database's settings.
    #[must_use]
    pub fn options(&self) -> &StealOptions {
        &self.options
    }

    /// Returns the number of free slots in all partitions.
    #[must_use]
    pub fn free_slots(&self) -> u64 {
        self.free.load(Ordering::Relaxed)
    }

    /// Returns statistics since the database was opened.
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

    /// Returns whether a commit may be acknowledged.
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

    /// Returns the places of all taken slots in a partition, in ascending order.
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

    /// Returns a digest of the database's contents; see [`digest`](fn@crate::digest).
    #[must_use]
    pub fn digest(&self) -> String {
        crate::digest(&self.heap)
    }
}

/// The partitions' slot spaces, and the total number of free slots.
type Spaces = (Box<[CachePadded<Mutex<Space>>]>, u64);

/// Finds the free slots in the pages' bitmaps. The lowest free slot is handed out first.
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

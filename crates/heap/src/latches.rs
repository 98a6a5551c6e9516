//! The latches and the checkpoint epoch.
//!
//! The only locks are mutexes, one for each partition. A transaction takes its latches in ascending order, and holds
//! all latches until its group is in the log. A fuzzy checkpoint takes one latch at a time, between transactions. A cut
//! takes all latches. The sweep that begins a checkpoint epoch publishes the epoch once, as `G`. `G` is read only when
//! a page is born (taken into use), under that page's latch.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use crossbeam_utils::CachePadded;
use parking_lot::{Mutex, MutexGuard};
use perdura_base::{CkptEpoch, PartitionId, TableId};
use perdura_page::Home;

use crate::cuts::CutState;
use crate::geometry::Geometry;
use crate::memory::MemoryAccount;
use crate::pages::Pages;
use crate::partition::Partition;

/// A latched partition.
pub type PartitionGuard<'a> = MutexGuard<'a, Partition>;

/// A partition with its latch.
struct Latched {
    /// True while a restart has not loaded the partition. It becomes false once.
    is_absent: AtomicBool,
    latch: Mutex<Partition>,
}

impl Latched {
    fn new(partition: Partition) -> Latched {
        Latched {
            is_absent: AtomicBool::new(false),
            latch: Mutex::new(partition),
        }
    }
}

/// All rows of a database, in memory.
pub struct Heap {
    geometry: Geometry,
    memory: Arc<MemoryAccount>,
    ckpt_epoch: Arc<AtomicU64>,
    parts: Box<[CachePadded<Latched>]>,
    pub(crate) cuts: Arc<CutState>,
    /// The drafts dropped while their partition was latched.
    pub(crate) abandoned: Mutex<Vec<(TableId, Home)>>,
}

impl Heap {
    /// Returns an empty heap: every page is zeros, no table is attached. `G` is 0.
    #[must_use]
    pub fn new(geometry: Geometry, memory: Arc<MemoryAccount>) -> Heap {
        geometry.assert_sound();
        let ckpt_epoch = Arc::new(AtomicU64::new(0));
        let cuts = Arc::<CutState>::default();
        let parts = (0..geometry.partitions)
            .map(PartitionId)
            .map(|id| Pages::new(id, geometry, memory.clone(), ckpt_epoch.clone()))
            .map(|pages| Partition::new(pages, cuts.clone()))
            .map(|part| CachePadded::new(Latched::new(part)))
            .collect();
        Heap {
            geometry,
            memory,
            ckpt_epoch,
            parts,
            cuts,
            abandoned: Mutex::default(),
        }
    }

    /// Returns the properties fixed at the creation of the database.
    #[must_use]
    pub fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// Returns the ids of all partitions, in ascending order.
    pub fn ids(&self) -> impl Iterator<Item = PartitionId> + use<> {
        (0..self.geometry.partitions).map(PartitionId)
    }

    /// Returns the memory account of the pages and indexes.
    #[must_use]
    pub fn memory(&self) -> &Arc<MemoryAccount> {
        &self.memory
    }

    /// Takes a partition's latch. A caller that needs several latches takes the latches in ascending order of the
    /// partitions.
    pub fn lock(&self, partition: PartitionId) -> PartitionGuard<'_> {
        self.parts[usize::from(partition.0)].latch.lock()
    }

    /// Takes a partition's latch if it is free.
    pub fn try_lock(&self, partition: PartitionId) -> Option<PartitionGuard<'_>> {
        self.parts[usize::from(partition.0)].latch.try_lock()
    }

    /// Takes a partition's latch if it becomes free within this time.
    pub fn lock_for(&self, partition: PartitionId, time: Duration) -> Option<PartitionGuard<'_>> {
        self.parts[usize::from(partition.0)]
            .latch
            .try_lock_for(time)
    }

    /// Returns whether a restart has not loaded a partition yet. Its rows must not be read or changed before. A partition
    /// that is loaded stays so.
    #[must_use]
    #[inline]
    pub fn is_absent(&self, partition: PartitionId) -> bool {
        let part = &self.parts[usize::from(partition.0)];
        part.is_absent.load(Ordering::Acquire)
    }

    /// Sets whether a partition waits for a restart that loads it.
    pub fn set_absent(&self, partition: PartitionId, is_absent: bool) {
        let part = &self.parts[usize::from(partition.0)];
        let before = part.is_absent.swap(is_absent, Ordering::AcqRel);
        assert_ne!(before, is_absent, "partition {partition} is loaded once");
    }

    /// Returns the current checkpoint epoch, `G`.
    #[must_use]
    pub fn ckpt_epoch(&self) -> CkptEpoch {
        CkptEpoch(self.ckpt_epoch.load(Ordering::SeqCst))
    }

    /// Publishes a checkpoint epoch. At the start of a sweep it is the sweep's epoch, and at a restart it is the
    /// image's epoch.
    pub fn set_ckpt_epoch(&self, epoch: CkptEpoch) {
        let before = self.ckpt_epoch.swap(epoch.0, Ordering::SeqCst);
        assert!(before <= epoch.0, "G went back from {before} to {epoch}");
    }
}

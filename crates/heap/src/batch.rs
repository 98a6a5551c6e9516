//! Playing many records at once. The records are sorted by partition, each latch is taken once, and the cache misses
//! overlap.
//!
//! The records of one unit of log change random pages, and a page in memory is seldom in the cache. A record played
//! alone pays for a latch, which is a full barrier, and then for one cache miss after another. A batch is played
//! partition by partition. Within a partition a few records at a time are first *fetched*. They are applied when their
//! cache lines are in the cache. To fetch a record is to read one byte of each cache line that it will change. A
//! processor overlaps these reads, since no read waits for an earlier read. The sort is a stable counting sort: the
//! records of one page stay in the order of their pushes. Records that assign bytes rely on this order.
//!
//! Batches on several threads begin with different partitions. A batch skips a partition whose latch is held, and
//! returns to that partition later. The holder may be loading an image page into the partition.

use std::hint::black_box;

use perdura_base::{PageId, PartitionId, Result};
use perdura_page::layout::{HEADER_BYTES, PAGE_BYTES};
use perdura_page::{Change, PageRecord};

use crate::geometry::Geometry;
use crate::latches::Heap;
use crate::pages::index;
use crate::partition::Partition;
use crate::touch::Touch;

/// The number of records to fetch before the first of them is applied. A core can wait for about this number of cache
/// misses at once.
const FETCHED: usize = 8;
/// The size of a cache line in bytes.
const LINE_BYTES: usize = 64;
/// The maximum number of bytes to fetch of one run. In longer runs the processor itself reads ahead.
const FETCH_BYTES: usize = 1024;

/// A run of bytes in a page: the offset of the first byte, and the number of bytes.
pub type Run = (usize, usize);

/// A record that a batch can play.
pub trait Replayed {
    /// Returns the page that the record changes.
    fn page(&self) -> PageId;
    /// Returns the first two runs of bytes that the record changes. If the record changes fewer runs, the others are
    /// empty. The runs are only a hint for fetching.
    fn runs(&self) -> [Run; 2];
    /// Applies the record to the page at this local index of `partition`. The page is already marked as changed.
    fn play(&self, partition: &mut Partition, local: u32);
}

impl Replayed for PageRecord<'_> {
    fn page(&self) -> PageId {
        self.page
    }

    fn runs(&self) -> [Run; 2] {
        first_two(self.fragments().map(|f| (f.offset, f.bytes.len())))
    }

    fn play(&self, partition: &mut Partition, local: u32) {
        partition.apply_admitted(self, local);
    }
}

/// A change of an interleaved transaction, to be made or undone.
#[derive(Debug, Clone)]
pub struct SlotChange<'a> {
    /// The page.
    pub page: PageId,
    /// The change.
    pub change: Change<'a>,
    /// True to undo the change, false to make the change.
    pub undo: bool,
}

impl Replayed for SlotChange<'_> {
    fn page(&self) -> PageId {
        self.page
    }

    fn runs(&self) -> [Run; 2] {
        match &self.change {
            Change::Xor(delta) => first_two(delta.fragments().map(|f| (f.offset, f.bytes.len()))),
            Change::Assign(images) => {
                let bit = HEADER_BYTES + usize::from(images.slot) / 8;
                let mut pieces = images.pieces().map(|p| (p.offset, p.after.len()));
                [(bit, 1), pieces.next().unwrap_or_default()]
            }
        }
    }

    fn play(&self, partition: &mut Partition, local: u32) {
        partition.change_admitted(local, &self.change, !self.undo);
    }
}

fn first_two(mut runs: impl Iterator<Item = Run>) -> [Run; 2] {
    [0, 1].map(|_| runs.next().unwrap_or_default())
}

/// The page and bytes that a record changes, computed while the record's bytes are in the cache.
#[derive(Clone, Copy, Default)]
struct Target {
    record: u32,
    local: u32,
    partition: u16,
    runs: [(u16, u16); 2],
}

/// Records of one unit of log, to be played together.
pub struct Batch<R> {
    records: Vec<R>,
    targets: Vec<Target>,
    sorted: Vec<Target>,
    /// Partitions skipped because another thread held the latch.
    busy: Vec<u16>,
}

impl<R> Default for Batch<R> {
    fn default() -> Self {
        Batch {
            records: Vec::new(),
            targets: Vec::new(),
            sorted: Vec::new(),
            busy: Vec::new(),
        }
    }
}

impl<R: Replayed> Batch<R> {
    /// Returns an empty batch.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a record.
    ///
    /// # Panics
    /// Panics beyond 2^32 records.
    pub fn push(&mut self, geometry: &Geometry, record: R) {
        let narrow = |n: usize| u16::try_from(n).unwrap_or(u16::MAX);
        debug_assert_eq!(
            self.targets.len(),
            self.records.len(),
            "each record has its target"
        );
        let runs = record.runs();
        self.targets.push(Target {
            record: u32::try_from(self.records.len()).expect("records of one unit"),
            local: geometry.local_index(record.page()),
            partition: geometry.partition_of_page(record.page()).0,
            runs: runs.map(|(offset, len)| (narrow(offset), narrow(len.min(FETCH_BYTES)))),
        });
        self.records.push(record);
    }

    /// Returns the number of records that wait to be played.
    #[must_use]
    pub fn len(&self) -> usize {
        self.records.len()
    }

    /// Returns whether no record waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// Returns the records that wait to be played, in the order of their pushes.
    #[must_use]
    pub fn records(&self) -> &[R] {
        &self.records
    }

    /// Plays and discards all records. The records of one page are played in the order of their pushes.
    ///
    /// # Errors
    /// Fails with `Corrupt` at the first record with a page outside this heap. Other records may have been played.
    pub fn play(&mut self, heap: &Heap) -> Result<()> {
        let ends = self.sort(heap);
        let Some(begin) = self.targets.first().map(|t| t.partition) else {
            return Ok(());
        };
        let count = heap.geometry().partitions;
        self.busy.clear();
        for partition in (begin..count).chain(0..begin) {
            let mine = share(&self.sorted, &ends, partition);
            if mine.is_empty() {
                continue;
            }
            match heap.try_lock(PartitionId(partition)) {
                Some(mut latched) => play_partition(&mut latched, &self.records, mine)?,
                None => self.busy.push(partition),
            }
        }
        for partition in &self.busy {
            let mine = share(&self.sorted, &ends, *partition);
            play_partition(&mut heap.lock(PartitionId(*partition)), &self.records, mine)?;
        }
        self.records.clear();
        self.targets.clear();
        Ok(())
    }

    /// Sorts the targets by partition, stably, into `sorted`. Returns for each partition the index in `sorted` just
    /// after the partition's last target.
    fn sort(&mut self, heap: &Heap) -> Vec<usize> {
        let mut at = vec![0; usize::from(heap.geometry().partitions)];
        for target in &self.targets {
            at[usize::from(target.partition)] += 1;
        }
        let mut sum = 0;
        for share in &mut at {
            sum += std::mem::replace(share, sum);
        }
        self.sorted.resize(self.targets.len(), Target::default());
        for target in &self.targets {
            let next = &mut at[usize::from(target.partition)];
            self.sorted[*next] = *target;
            *next += 1;
        }
        debug_assert_eq!(
            at.last(),
            Some(&self.targets.len()),
            "the shares are all targets"
        );
        at
    }
}

/// Returns a partition's part of the sorted targets.
fn share<'a>(sorted: &'a [Target], ends: &[usize], partition: u16) -> &'a [Target] {
    let p = usize::from(partition);
    let from = if p == 0 { 0 } else { ends[p - 1] };
    &sorted[from..ends[p]]
}

fn play_partition<R: Replayed>(
    partition: &mut Partition,
    records: &[R],
    targets: &[Target],
) -> Result<()> {
    let record = |t: &Target| &records[usize::try_from(t.record).expect("an index")];
    for target in targets {
        partition.admit(record(target).page())?;
    }
    for few in targets.chunks(FETCHED) {
        let mut sum = 0;
        for target in few {
            sum ^= partition.fetch(target);
        }
        black_box(sum);
        for target in few {
            record(target).play(partition, target.local);
        }
    }
    Ok(())
}

impl Partition {
    /// Reads a byte of each cache line that a record will change. The result does not matter; the caller keeps it from
    /// being optimised away.
    #[inline]
    fn fetch(&self, target: &Target) -> u8 {
        let page = self.pages.page(target.local);
        let touched = self.touched.get(index(target.local));
        let mark = self.marks.fetch(target.local);
        let mut sum = touched.map_or(0, Touch::fetch) ^ u8::from(mark == 0);
        for (offset, len) in target.runs {
            let mut at = usize::from(offset);
            let end = (at + usize::from(len)).min(PAGE_BYTES);
            if at < end {
                sum ^= page[end - 1];
            }
            while at < end {
                sum ^= page[at];
                at += LINE_BYTES;
            }
        }
        sum
    }
}

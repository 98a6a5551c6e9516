//! The records behind an image, sorted by partition.

use std::collections::BTreeMap;

use parking_lot::Mutex;
use perdura_base::cursor::{Reader, Writer};
use perdura_base::num::{to_u64, to_usize};
use perdura_base::{Error, PageId, PartitionId, Result};
use perdura_heap::{Batch, Geometry, Heap, PageRecord, for_each_record};
use perdura_page::record::{RecordHead, encode_group_head, encode_record_head};
use perdura_wal::Direction;

use crate::judge::{Group, Passed, Play, Scene};
use crate::plan::ImagePlan;
use crate::route::{Route, Routes, foreign};
use crate::source::{Frames, LogEnd, LogSource, Raw};
use crate::stats::ReplayStats;

/// The bytes of a page's header that say which table the page belongs to, and of which kind it is.
const IDENTITY: std::ops::Range<usize> = 16..24;
/// The number of records that are played together.
const BATCH_RECORDS: usize = 1 << 14;

/// The XOR of all changes of a page's identity.
pub(super) type IdentityChange = [u8; IDENTITY.end - IDENTITY.start];

/// The records that a restart applies to its image, sorted by partition.
pub(super) struct SortedTail {
    /// The records of each partition: for each, its length and a group with this one record.
    parts: Vec<Mutex<Vec<u8>>>,
    /// The pages whose identity is changed by a record.
    identities: BTreeMap<PageId, IdentityChange>,
    /// The head of the record that is being added.
    head: Vec<u8>,
    /// The counts of records.
    pub stats: ReplayStats,
}

impl SortedTail {
    /// Reads the log up to its end, and keeps the records that the rule applies to `image`.
    ///
    /// # Errors
    /// Errors of the disk, and damage in the log.
    pub fn sort<S: LogSource>(
        image: &ImagePlan,
        log: &S,
        end: &LogEnd,
        routes: &Routes,
        geometry: &Geometry,
    ) -> Result<SortedTail> {
        let mut tail = SortedTail {
            parts: (0..geometry.partitions).map(|_| Mutex::default()).collect(),
            identities: BTreeMap::new(),
            head: Vec::new(),
            stats: ReplayStats::default(),
        };
        for (part, units) in end.units.iter().enumerate() {
            for unit in 0..*units {
                let scene = Scene {
                    geometry,
                    image,
                    target: end.epoch,
                    unit,
                };
                tail.add_unit(&scene, routes, &log.read(part, unit)?.open()?)?;
            }
        }
        Ok(tail)
    }

    fn add_unit(
        &mut self,
        scene: &Scene<'_, ImagePlan>,
        routes: &Routes,
        opened: &impl Frames,
    ) -> Result<()> {
        let mut passed = Passed::default();
        opened.for_each(Direction::Forward, |frame, origin| {
            match routes.of(frame.kind) {
                Some(Route::Records) => Group.frame(scene, frame, origin, &mut passed),
                Some(Route::Later) | None => Err(foreign(frame, origin)),
            }
        })?;
        passed.stats.bytes += to_u64(opened.joined().len());
        for record in passed.batch.records() {
            self.add(scene.geometry, record);
        }
        assert_eq!(
            passed.stats.applied,
            to_u64(passed.batch.len()),
            "what the rule applies is sorted"
        );
        self.stats.merge(passed.stats);
        Ok(())
    }

    fn add(&mut self, geometry: &Geometry, record: &PageRecord<'_>) {
        let (fragments, bytes) = record.encoded_fragments();
        self.head.clear();
        encode_group_head(&mut self.head, record.tag, 1);
        let fields = RecordHead {
            page: record.page,
            useq: record.useq,
            tag: record.tag,
            fragments: u32::try_from(fragments).expect("a page has fewer bytes"),
        };
        encode_record_head(&mut self.head, record.tag, &fields);
        let partition = geometry.partition_of_page(record.page);
        let out = self.parts[usize::from(partition.0)].get_mut();
        out.put_varint(to_u64(self.head.len() + bytes.len()));
        out.put(&self.head);
        out.put(bytes);
        self.note_identity(record);
    }

    /// Notes the record's change of its page's identity, if it has one.
    fn note_identity(&mut self, record: &PageRecord<'_>) {
        let fragments = record.fragments();
        for fragment in fragments.take_while(|fragment| fragment.offset < IDENTITY.end) {
            for (at, byte) in (fragment.offset..).zip(fragment.bytes) {
                if IDENTITY.contains(&at) {
                    let change = self.identities.entry(record.page).or_default();
                    change[at - IDENTITY.start] ^= byte;
                }
            }
        }
    }

    /// Returns the pages whose identity is changed by records, each with the XOR of these changes.
    pub fn identities(&self) -> impl Iterator<Item = (PageId, IdentityChange)> + '_ {
        self.identities
            .iter()
            .map(|(page, change)| (*page, *change))
    }

    /// Plays the records of a partition that `is_wanted` selects, and keeps all records.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if a record names a page that the heap cannot have.
    pub fn play_some(
        &self,
        heap: &Heap,
        partition: PartitionId,
        is_wanted: impl Fn(PageId) -> bool,
    ) -> Result<()> {
        let records = self.parts[usize::from(partition.0)].lock();
        play(heap, partition, &records, is_wanted)
    }

    /// Plays all records of a partition, and frees their memory.
    ///
    /// # Errors
    /// As [`play_some`](Self::play_some).
    pub fn play(&self, heap: &Heap, partition: PartitionId) -> Result<()> {
        let records = std::mem::take(&mut *self.parts[usize::from(partition.0)].lock());
        play(heap, partition, &records, |_| true)
    }
}

fn play(
    heap: &Heap,
    partition: PartitionId,
    records: &[u8],
    is_wanted: impl Fn(PageId) -> bool,
) -> Result<()> {
    let (mut reader, mut batch) = (Reader::new(records), Batch::new());
    while reader.remaining() > 0 {
        let record = reader.varint().and_then(|len| reader.bytes(to_usize(len)));
        let read = record.and_then(|bytes| {
            for_each_record(bytes, |record| {
                let owner = heap.geometry().partition_of_page(record.page);
                debug_assert_eq!(owner, partition, "the records are sorted");
                if is_wanted(record.page) {
                    batch.push(heap.geometry(), record);
                }
            })
        });
        if read.is_none() {
            return Err(Error::Stopped(format!(
                "the sorted records of partition {partition} cannot be read"
            )));
        }
        if batch.len() == BATCH_RECORDS {
            batch.play(heap)?;
        }
    }
    batch.play(heap)
}

//! The log records of one transaction, laid out as a group.
//!
//! Records are collected partition by partition; their tags are written relative to the highest,
//! which is known at the end. The layout is in `docs/formats/record.md`.

use perdura_base::num::to_u64;
use perdura_base::{CkptEpoch, PartitionId, PartitionSet};
use perdura_page::diff::FragmentWriter;
use perdura_page::record::{RecordHead, encode_group_head, encode_record_head};

/// Collects the records of one transaction and lays them out as a group payload.
#[derive(Default)]
pub struct GroupBuilder {
    /// Each record's head and where its fragments end in `body`.
    records: Vec<(RecordHead, usize)>,
    body: Vec<u8>,
    out: Vec<u8>,
    partitions: PartitionSet,
    tag_max: CkptEpoch,
    /// Buffers of the encoder, kept for their capacity.
    pub(crate) order: Vec<usize>,
    pub(crate) before: Vec<u8>,
}

impl GroupBuilder {
    /// An empty builder.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Forgets everything and keeps the buffers.
    pub fn clear(&mut self) {
        self.records.clear();
        self.body.clear();
        self.out.clear();
        self.partitions = PartitionSet::empty();
        self.tag_max = CkptEpoch(0);
    }

    /// Lays out the payload; empty if no page changed.
    pub fn finish(&mut self) -> &[u8] {
        self.out.clear();
        if self.records.is_empty() {
            return &self.out;
        }
        encode_group_head(&mut self.out, self.tag_max, self.records.len());
        let mut start = 0;
        for (head, end) in &self.records {
            encode_record_head(&mut self.out, self.tag_max, head);
            self.out.extend_from_slice(&self.body[start..*end]);
            start = *end;
        }
        &self.out
    }

    /// Bytes of buffers held.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        to_u64(self.body.capacity() + self.out.capacity())
    }

    /// Whether no page changed so far.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// The partitions with a record.
    #[must_use]
    pub fn partitions(&self) -> PartitionSet {
        self.partitions
    }

    /// The highest tag; 0 when empty.
    #[must_use]
    pub fn tag_max(&self) -> CkptEpoch {
        self.tag_max
    }

    pub(crate) fn fragments(&mut self) -> FragmentWriter<'_> {
        FragmentWriter::new(&mut self.body)
    }

    pub(crate) fn push(&mut self, partition: PartitionId, head: RecordHead) {
        self.partitions.insert(partition);
        self.tag_max = self.tag_max.max(head.tag);
        self.records.push((head, self.body.len()));
    }
}

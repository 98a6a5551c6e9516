//! The log records of one transaction, laid out as a group.
//!
//! Records are collected partition by partition. The tag (checkpoint epoch) of each record is written relative to the
//! highest tag, so the layout waits until all records are known. The layout is in `docs/formats/record.md`.

use perdura_base::num::to_u64;
use perdura_base::{CkptEpoch, PartitionId, PartitionSet};
use perdura_page::diff::FragmentWriter;
use perdura_page::record::{RecordHead, encode_group_head, encode_record_head};

/// The size of a group's records, in bytes, above which a list of parts is cheaper than a copy of the records.
const LARGE_BYTES: usize = 64 * 1024;

/// A builder that collects the records of one transaction and lays them out as a group payload.
#[derive(Default)]
pub struct GroupBuilder {
    /// The head of each record, and the offset in `body` at which the record's fragments end.
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
    /// Returns an empty builder.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Discards everything and keeps the buffers.
    pub fn clear(&mut self) {
        self.records.clear();
        self.body.clear();
        self.out.clear();
        self.partitions = PartitionSet::empty();
        self.tag_max = CkptEpoch(0);
    }

    /// Lays out the payload and returns it; it is empty if no page changed.
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
        debug_assert_eq!(start, self.body.len(), "each fragment is a record's");
        &self.out
    }

    /// Returns whether the payload is so large that the caller should use [`parts`](Self::parts) and not
    /// [`finish`](Self::finish).
    #[must_use]
    pub fn is_large(&self) -> bool {
        self.body.len() > LARGE_BYTES
    }

    /// Like [`finish`](Self::finish), for a large group: returns the payload in parts and does not copy the records.
    pub fn parts(&mut self) -> Vec<&[u8]> {
        self.out.clear();
        encode_group_head(&mut self.out, self.tag_max, self.records.len());
        let mut ends = Vec::with_capacity(self.records.len());
        for (head, _) in &self.records {
            encode_record_head(&mut self.out, self.tag_max, head);
            ends.push(self.out.len());
        }
        let mut parts = Vec::with_capacity(2 * ends.len());
        let (mut head_from, mut body_from) = (0, 0);
        for ((_, body_end), head_end) in self.records.iter().zip(ends) {
            parts.push(&self.out[head_from..head_end]);
            parts.push(&self.body[body_from..*body_end]);
            (head_from, body_from) = (head_end, *body_end);
        }
        assert_eq!(
            (head_from, body_from),
            (self.out.len(), self.body.len()),
            "each fragment is a record's"
        );
        parts
    }

    /// Returns the capacity of the builder's buffers, bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        to_u64(self.body.capacity() + self.out.capacity())
    }

    /// Returns whether the group has no record yet.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// Returns the partitions that have a record in the group.
    #[must_use]
    pub fn partitions(&self) -> PartitionSet {
        self.partitions
    }

    /// Returns the highest tag of the group's records; 0 if there is no record.
    #[must_use]
    pub fn tag_max(&self) -> CkptEpoch {
        self.tag_max
    }

    pub(crate) fn fragments(&mut self) -> FragmentWriter<'_> {
        FragmentWriter::new(&mut self.body)
    }

    pub(crate) fn push(&mut self, partition: PartitionId, head: RecordHead) {
        let before = self.records.last().map_or(0, |(_, end)| *end);
        debug_assert!(before < self.body.len(), "a record has fragments");
        self.partitions.insert(partition);
        self.tag_max = self.tag_max.max(head.tag);
        self.records.push((head, self.body.len()));
    }
}

#[cfg(test)]
mod tests {
    use perdura_base::{PageId, Useq};

    use super::*;

    #[test]
    fn the_parts_of_a_payload_are_the_payload() {
        let mut group = GroupBuilder::new();
        let mut rng = fastrand::Rng::with_seed(7);
        for page in 0..9 {
            let now: Vec<u8> = (0..9000).map(|_| rng.u8(..)).collect();
            let mut fragments = group.fragments();
            fragments.range(64, &vec![0; now.len()], &now);
            let fragments = fragments.count();
            let head = RecordHead {
                page: PageId(page),
                useq: Useq(5),
                tag: CkptEpoch(u64::from(page % 3)),
                fragments,
            };
            group.push(PartitionId(1), head);
        }
        assert!(group.is_large());
        let parts = group.parts().concat();
        assert_eq!(parts, group.finish());
    }
}

//! The log records of a change, a begin, a commit and an abort.
//!
//! XOR records need no order and are encoded under the partition's latch alone. Physical records are numbered and
//! appended under the lock of their stream's active list. So the physical records of a stream are in the order of their
//! numbers.
//!
//! # Source
//! *Differential Logging* (000), section 3.1: the differential record. Section 5, PL2P: the physical record, with the
//! bytes before and after the change.

#[cfg(feature = "flaws")]
mod seeded;

use perdura_base::{CkptEpoch, PageId, PartitionId, PartitionSet, StreamId};
use perdura_page::layout::HEADER_BYTES;
use perdura_page::txn_record::{
    Range, SlotChange, UpdateHead, encode_begin, encode_images, encode_xor,
};
use perdura_recovery::active::Active;
use perdura_wal::{ActiveTxn, Appended, FrameKind, Guard};

use crate::engine::Steal;
use crate::txn::{Recorder, Routed, Slotted};

/// A change to be logged.
pub(crate) struct Change<'a> {
    pub at: Slotted,
    pub page: PageId,
    /// The offset of the changed bytes in the page.
    pub offset: usize,
    pub tag: CkptEpoch,
    pub before: &'a [u8],
    pub after: &'a [u8],
    pub taken: (bool, bool),
    pub compensation: bool,
    /// True if the record also has the bytes that the change does not alter.
    pub whole: bool,
}

impl Steal {
    /// Encodes and appends the record of a change, under the partition's latch. Returns the size of the record in the
    /// log in bytes, or 0 if no byte differed and nothing was recorded.
    pub(crate) fn record(&self, to: &mut Recorder<'_>, change: &Change<'_>) -> u64 {
        let head = UpdateHead {
            txn: to.id,
            compensation: change.compensation,
            page: change.page,
            tag: change.tag,
        };
        let row = Range {
            offset: change.offset,
            before: change.before,
            after: change.after,
            whole: change.whole,
        };
        to.record.clear();
        let (was, is) = change.taken;
        let slot = usize::from(change.at.slot);
        match self.scheme.guard() {
            Guard::CheckpointEpoch => {
                let flip = [1 << (slot % 8)];
                let bit = Range {
                    offset: HEADER_BYTES + slot / 8,
                    before: &[0],
                    after: &flip,
                    whole: true,
                };
                let both = [bit, row];
                let ranges = if was == is { &both[1..] } else { &both[..] };
                if !encode_xor(to.record, &head, ranges, to.scratch) {
                    return 0;
                }
                if to.first.is_none() {
                    let mut active = self.streams.active(to.stream).lock();
                    self.append_begin(to, &mut active);
                }
                self.append_change(to, change);
            }
            Guard::Assignment => {
                let mut active = self.streams.active(to.stream).lock();
                let number = SlotChange {
                    gseq: self.gseqs.next(),
                    slot: change.at.slot,
                    taken: change.taken,
                };
                if !encode_images(to.record, &head, &number, &[row], to.scratch) {
                    return 0;
                }
                if to.first.is_none() {
                    self.append_begin(to, &mut active);
                }
                self.append_change(to, change);
            }
            Guard::PartitionSequence | Guard::NoRecords | Guard::PageNumber => {
                unreachable!("transactions interleave in no scheme of this guard")
            }
        }
        framed(to.record.len())
    }

    /// Appends a transaction's begin record and adds the transaction to its stream's active list. The caller holds
    /// the list's lock.
    fn append_begin(&self, to: &mut Recorder<'_>, active: &mut Active) {
        let none = PartitionSet::empty();
        to.scratch.clear();
        encode_begin(to.scratch, to.id);
        let kind = FrameKind::Record;
        let appended = self
            .wal
            .append(to.stream, kind, to.scratch, &none, CkptEpoch(0));
        let (txn, first) = (to.id, appended.pos);
        debug_assert!(
            active.iter().all(|entry| entry.txn != txn),
            "a transaction without a record is on no list"
        );
        active.push(ActiveTxn { txn, first });
        *to.first = Some(first);
    }

    fn append_change(&self, to: &mut Recorder<'_>, change: &Change<'_>) {
        let (partition, tag) = (change.at.partition, change.tag);
        #[cfg(feature = "flaws")]
        if seeded::defer_append(to, change) {
            return;
        }
        let appended = self.append_record(to.stream, to.record, partition, tag);
        assert!(
            to.first.is_some_and(|first| first <= appended.pos),
            "a change's record lies behind its transaction's begin"
        );
    }

    pub(crate) fn append_record(
        &self,
        stream: StreamId,
        record: &[u8],
        partition: PartitionId,
        tag: CkptEpoch,
    ) -> Appended {
        let mut partitions = PartitionSet::empty();
        partitions.insert(partition);
        self.wal
            .append(stream, FrameKind::Record, record, &partitions, tag)
    }

    /// Appends a commit or abort record, and removes the transaction from the active list of its stream. Holds the
    /// list's lock during both steps.
    pub(crate) fn append_end(&self, txn: &Routed, record: &[u8]) -> Appended {
        let none = PartitionSet::empty();
        self.streams.end(txn, || {
            self.wal
                .append(txn.stream, FrameKind::Record, record, &none, CkptEpoch(0))
        })
    }
}

/// Returns the number of bytes that a record takes in the log, including the head of its frame.
fn framed(record_bytes: usize) -> u64 {
    let bytes = perdura_base::num::to_u64(record_bytes);
    let head = 1 + perdura_base::cursor::varint_len(bytes);
    bytes + perdura_base::num::to_u64(head)
}

//! The index of a run: an entry for each block.

use perdura_base::cursor::{Reader, Writer};
use perdura_base::num::{to_u32, to_u64};
use perdura_base::{CkptEpoch, Epoch, PartitionId};

use super::BLOCK_BYTES_MAX;
use super::block::{self, HEAD_BYTES};
use super::header::{HEADER_BYTES, RunHeader};
use crate::record::PageAt;

/// The size of an entry, bytes.
const ENTRY_BYTES: usize = 54;

/// The entry of a block in the index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockEntry {
    /// The page of the block's first record.
    pub first: PageAt,
    /// The offset of the block in the file.
    pub offset: u64,
    /// The size of the block with its head, bytes.
    pub bytes: u32,
    /// The number of records in the block.
    pub records: u32,
    /// The lowest and the highest tag in the block.
    pub tags: (CkptEpoch, CkptEpoch),
    /// The lowest and the highest epoch in the block.
    pub epochs: (Epoch, Epoch),
}

impl BlockEntry {
    /// Returns the end of the block in the file.
    #[must_use]
    pub fn end(&self) -> u64 {
        block::end(self.offset, self.bytes)
    }
}

/// Appends the encoded index to `out`.
pub(crate) fn encode(out: &mut Vec<u8>, entries: &[BlockEntry]) {
    out.put_u32(to_u32(entries.len()));
    let from = out.len();
    for entry in entries {
        out.put_u16(entry.first.partition.0);
        out.put_u32(entry.first.local);
        out.put_u64(entry.offset);
        out.put_u32(entry.bytes);
        out.put_u32(entry.records);
        out.put_u64(entry.tags.0.0);
        out.put_u64(entry.tags.1.0);
        out.put_u64(entry.epochs.0.0);
        out.put_u64(entry.epochs.1.0);
    }
    assert_eq!(
        out.len() - from,
        entries.len() * ENTRY_BYTES,
        "an entry has the length by which it is read"
    );
}

/// Decodes the index of a run. The blocks of the run end at offset `end`. `None`: the index is malformed, or the blocks
/// leave a gap or are not in the order of their pages.
pub(crate) fn decode(bytes: &[u8], header: &RunHeader, end: u64) -> Option<Vec<BlockEntry>> {
    let mut r = Reader::new(bytes);
    let count = r.u32()?;
    if to_u64(r.remaining()) != u64::from(count) * to_u64(ENTRY_BYTES) {
        return None;
    }
    let mut entries: Vec<BlockEntry> = Vec::with_capacity(r.remaining() / ENTRY_BYTES);
    let mut offset = to_u64(HEADER_BYTES);
    for _ in 0..count {
        let entry = entry(&mut r)?;
        let follows = entries.last().is_none_or(|last| last.first <= entry.first);
        let (epoch_min, epoch_max) = entry.epochs;
        let is_sound = follows
            && entry.offset == offset
            && (HEAD_BYTES + 1..=BLOCK_BYTES_MAX).contains(&usize::try_from(entry.bytes).ok()?)
            && entry.records > 0
            && entry.first.partition.0 < header.chunks.partitions
            && entry.tags.0 <= entry.tags.1
            && epoch_min <= epoch_max
            && header.id.epochs.contains(epoch_min)
            && header.id.epochs.contains(epoch_max);
        if !is_sound {
            return None;
        }
        offset = offset.checked_add(u64::from(entry.bytes))?;
        entries.push(entry);
    }
    (offset == end).then_some(entries)
}

fn entry(r: &mut Reader<'_>) -> Option<BlockEntry> {
    Some(BlockEntry {
        first: PageAt {
            partition: PartitionId(r.u16()?),
            local: r.u32()?,
        },
        offset: r.u64()?,
        bytes: r.u32()?,
        records: r.u32()?,
        tags: (CkptEpoch(r.u64()?), CkptEpoch(r.u64()?)),
        epochs: (Epoch(r.u64()?), Epoch(r.u64()?)),
    })
}

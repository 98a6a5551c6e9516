//! The ordered frames in a run: the entries of a frame block, and the part that describes the frame blocks.
//!
//! A frame names partitions, and has a number in each of them. A run stores the frame in the entry of the lowest
//! partition. The entries of the other partitions refer to that entry. So the entries of one partition have all numbers
//! of the run, without a gap.

use std::collections::BTreeMap;

use perdura_base::checksum::{crc32c, mix64};
use perdura_base::cursor::{Reader, Writer, varint_len};
use perdura_base::num::{to_u32, to_u64};
use perdura_base::{CkptEpoch, Epoch, PartitionId};
use perdura_wal::FrameKind;

use super::BLOCK_BYTES_MAX;
use super::block::{self, BlockHead, HEAD_BYTES, RAW_BYTES_MAX};
use super::header::{HEADER_BYTES, RunHeader};
use crate::record::PageAt;

/// The size of a block's entry in the part, bytes.
const ENTRY_BYTES: usize = 42;
/// The size of a partition's numbers in the part, bytes.
const NUMBERS_BYTES: usize = 26;

const REFERENCE: u64 = 0;
const EFFECTS: u64 = 1;
const COMMAND: u64 = 2;

/// A frame's place in the order of a run: a partition, and the frame's number in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FrameAt {
    /// The partition.
    pub partition: PartitionId,
    /// The frame's number in the partition, at least 1.
    pub number: u64,
}

/// The content of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FrameOrPlace<'a> {
    /// The frame. The entry is of the frame's lowest partition.
    Frame {
        /// The frame's kind: effects or command.
        kind: FrameKind,
        /// The frame's payload, as in the log.
        payload: &'a [u8],
    },
    /// The frame is in the entry of a lower partition.
    Elsewhere(FrameAt),
}

/// An entry of a frame block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FrameEntry<'a> {
    /// The place of the entry.
    pub at: FrameAt,
    /// The commit epoch of the frame.
    pub epoch: Epoch,
    /// The content.
    pub carried: FrameOrPlace<'a>,
}

impl FrameEntry<'_> {
    /// Returns the entry's part of the digest of its partition. It is 0 for a reference.
    pub(crate) fn digest(&self) -> u64 {
        match self.carried {
            FrameOrPlace::Frame { payload, .. } => {
                mix64(mix64(self.at.number) ^ u64::from(crc32c(payload)))
            }
            FrameOrPlace::Elsewhere(_) => 0,
        }
    }

    fn encode(&self, out: &mut Vec<u8>, before: FrameAt, begin: Epoch) {
        let step = self.at.partition.0 - before.partition.0;
        out.put_varint(u64::from(step));
        if step > 0 {
            out.put_varint(self.at.number);
        }
        out.put_varint(self.epoch.0 - begin.0);
        match self.carried {
            FrameOrPlace::Elsewhere(home) => {
                out.put_varint(REFERENCE);
                out.put_varint(u64::from(home.partition.0));
                out.put_varint(home.number);
            }
            FrameOrPlace::Frame { kind, payload } => {
                out.put_varint(match kind {
                    FrameKind::Command => COMMAND,
                    _ => EFFECTS,
                });
                out.put_varint(to_u64(payload.len()));
                out.put(payload);
            }
        }
    }

    /// Returns the most bytes that the encoded entry takes.
    fn bytes_max(&self, begin: Epoch) -> usize {
        let place = 3 + varint_len(self.at.number) + varint_len(self.epoch.0 - begin.0) + 1;
        place
            + match self.carried {
                FrameOrPlace::Elsewhere(home) => 3 + varint_len(home.number),
                FrameOrPlace::Frame { payload, .. } => {
                    varint_len(to_u64(payload.len())) + payload.len()
                }
            }
    }
}

/// A decoded entry. The payload of its frame stays in the block's bytes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DecodedFrame {
    pub(crate) at: FrameAt,
    pub(crate) epoch: Epoch,
    what: What,
    /// The offset of the next entry in the block's bytes.
    pub(crate) end: usize,
}

#[derive(Debug, Clone, Copy)]
enum What {
    Elsewhere(FrameAt),
    Frame { kind: FrameKind, from: usize },
}

impl DecodedFrame {
    /// Decodes the entry at offset `from` of a block's bytes. `before` is the place of the previous entry, and `None`
    /// for the first entry of the block, which is at `first`. `begin` is the first epoch of the run. `None`: the entry
    /// is malformed.
    pub(crate) fn read(
        raw: &[u8],
        from: usize,
        first: FrameAt,
        before: Option<FrameAt>,
        begin: Epoch,
    ) -> Option<DecodedFrame> {
        let mut r = Reader::new(raw.get(from..)?);
        let step = u16::try_from(r.varint()?).ok()?;
        let at = match (before, step) {
            (None, 0) => first,
            (None, _) => return None,
            (Some(last), 0) => FrameAt {
                number: last.number.checked_add(1)?,
                ..last
            },
            (Some(last), step) => FrameAt {
                partition: PartitionId(last.partition.0.checked_add(step)?),
                number: r.varint()?,
            },
        };
        let epoch = Epoch(begin.0.checked_add(r.varint()?)?);
        let what = match r.varint()? {
            REFERENCE => {
                let home = FrameAt {
                    partition: PartitionId(u16::try_from(r.varint()?).ok()?),
                    number: r.varint()?,
                };
                if home.partition >= at.partition || home.number == 0 {
                    return None;
                }
                What::Elsewhere(home)
            }
            shape @ (EFFECTS | COMMAND) => {
                let len = r.varint_usize()?;
                let start = from + r.at();
                r.bytes(len)?;
                let kind = match shape {
                    COMMAND => FrameKind::Command,
                    _ => FrameKind::Effects,
                };
                What::Frame { kind, from: start }
            }
            _ => return None,
        };
        debug_assert!(from + r.at() <= raw.len(), "an entry ends in its block");
        (at.number > 0).then_some(DecodedFrame {
            at,
            epoch,
            what,
            end: from + r.at(),
        })
    }

    /// Returns the entry. `raw` are the block's bytes.
    pub(crate) fn entry<'a>(&self, raw: &'a [u8]) -> FrameEntry<'a> {
        let carried = match self.what {
            What::Elsewhere(home) => FrameOrPlace::Elsewhere(home),
            What::Frame { kind, from } => FrameOrPlace::Frame {
                kind,
                payload: &raw[from..self.end],
            },
        };
        FrameEntry {
            at: self.at,
            epoch: self.epoch,
            carried,
        }
    }
}

/// A collector of the entries of a frame block.
#[derive(Default)]
pub(crate) struct FrameBody {
    pub(crate) raw: Vec<u8>,
    first: Option<FrameAt>,
    last: Option<FrameAt>,
    entries: u32,
    epochs: Option<(Epoch, Epoch)>,
}

impl FrameBody {
    pub(crate) fn is_empty(&self) -> bool {
        self.entries == 0
    }

    /// Adds an entry, which must sort after the earlier entries. Returns `false`, without adding the entry, if the block
    /// has no room. An empty block has room for every entry.
    pub(crate) fn add(&mut self, entry: &FrameEntry<'_>, begin: Epoch) -> bool {
        let bytes_max = entry.bytes_max(begin);
        let has_room = self.raw.len() + bytes_max <= RAW_BYTES_MAX;
        if !has_room && !self.is_empty() {
            return false;
        }
        let before = self.last.unwrap_or(entry.at);
        assert!(
            self.last.is_none_or(|last| last < entry.at),
            "entries are sorted by partition and number"
        );
        let from = self.raw.len();
        entry.encode(&mut self.raw, before, begin);
        debug_assert!(self.raw.len() - from <= bytes_max, "as long as was counted");
        self.first.get_or_insert(entry.at);
        self.last = Some(entry.at);
        self.entries += 1;
        let (low, high) = self.epochs.unwrap_or((entry.epoch, entry.epoch));
        self.epochs = Some((low.min(entry.epoch), high.max(entry.epoch)));
        true
    }

    /// Ends the block and empties the collector, except for `raw`. Returns the block's head and highest epoch.
    pub(crate) fn finish(&mut self) -> (BlockHead, Epoch) {
        let (first, epochs) = self.first.zip(self.epochs).expect("a block has an entry");
        let head = BlockHead {
            first: PageAt {
                partition: first.partition,
                local: 0,
            },
            records: self.entries,
            tag_min: CkptEpoch(first.number),
            epoch_min: epochs.0,
        };
        (self.first, self.last, self.epochs, self.entries) = (None, None, None, 0);
        (head, epochs.1)
    }
}

/// The description of a frame block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FrameBlock {
    /// The place of the first entry.
    pub first: FrameAt,
    /// The offset of the block in the file.
    pub offset: u64,
    /// The size of the block with its head, bytes.
    pub bytes: u32,
    /// The number of entries in the block.
    pub entries: u32,
    /// The lowest and the highest epoch in the block.
    pub epochs: (Epoch, Epoch),
}

impl FrameBlock {
    /// Returns the end of the block in the file.
    #[must_use]
    pub fn end(&self) -> u64 {
        block::end(self.offset, self.bytes)
    }
}

/// The numbers of one partition in a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Numbers {
    /// The first number.
    pub first: u64,
    /// The count of numbers. They follow each other.
    pub count: u64,
    /// The digest of the frames whose lowest partition it is.
    pub digest: u64,
}

impl Numbers {
    /// Returns the last number.
    #[must_use]
    pub fn last(&self) -> u64 {
        assert!(self.count > 0, "a listed partition has a number");
        self.first + (self.count - 1)
    }
}

/// The ordered frames of a run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Frames {
    /// The number of frames.
    pub count: u64,
    /// The frame blocks, in the order of the file.
    pub blocks: Vec<FrameBlock>,
    /// The numbers of each partition that a frame names.
    pub numbers: BTreeMap<PartitionId, Numbers>,
}

impl Frames {
    /// Adds an entry to the counts. Returns `false`, without adding it, if the entry does not follow the partition's
    /// last number.
    pub(crate) fn note(&mut self, entry: &FrameEntry<'_>) -> bool {
        let numbers = self.numbers.entry(entry.at.partition).or_insert(Numbers {
            first: entry.at.number,
            count: 0,
            digest: 0,
        });
        if numbers.first.checked_add(numbers.count) != Some(entry.at.number) {
            return false;
        }
        numbers.count += 1;
        numbers.digest = numbers.digest.wrapping_add(entry.digest());
        self.count += u64::from(matches!(entry.carried, FrameOrPlace::Frame { .. }));
        true
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        out.put_u64(self.count);
        out.put_u32(to_u32(self.blocks.len()));
        for block in &self.blocks {
            out.put_u16(block.first.partition.0);
            out.put_u64(block.first.number);
            out.put_u64(block.offset);
            out.put_u32(block.bytes);
            out.put_u32(block.entries);
            out.put_u64(block.epochs.0.0);
            out.put_u64(block.epochs.1.0);
        }
        out.put_u16(u16::try_from(self.numbers.len()).unwrap_or(u16::MAX));
        for (partition, numbers) in &self.numbers {
            out.put_u16(partition.0);
            out.put_u64(numbers.first);
            out.put_u64(numbers.count);
            out.put_u64(numbers.digest);
        }
    }

    /// Decodes the part. The frame blocks end at offset `end`. `None`: the part is malformed, or the blocks leave a gap
    /// or are out of order.
    pub(crate) fn decode(bytes: &[u8], header: &RunHeader, end: u64) -> Option<Frames> {
        let mut r = Reader::new(bytes);
        let count = r.u64()?;
        let mut frames = Frames {
            count,
            blocks: {
                let count = r.u32()?;
                list(&mut r, count, ENTRY_BYTES, block)?
            },
            numbers: BTreeMap::new(),
        };
        let partitions = header.chunks.partitions;
        let listed = u32::from(r.u16()?);
        for (partition, numbers) in list(&mut r, listed, NUMBERS_BYTES, of)? {
            let ascends = frames.numbers.last_key_value();
            let ascends = ascends.is_none_or(|(last, _)| *last < partition);
            let last = numbers.first.checked_add(numbers.count)?;
            if !ascends || partition.0 >= partitions || numbers.first == 0 || last == numbers.first
            {
                return None;
            }
            frames.numbers.insert(partition, numbers);
        }
        (r.remaining() == 0 && frames.is_sound(header, end)).then_some(frames)
    }

    /// Returns whether the blocks follow each other up to `end`, and have as many entries as the partitions have
    /// numbers.
    fn is_sound(&self, header: &RunHeader, end: u64) -> bool {
        let epochs = header.id.epochs;
        let first_fits = self
            .blocks
            .first()
            .is_none_or(|block| block.offset >= to_u64(HEADER_BYTES) && block.offset <= end);
        let each = self.blocks.iter().all(|block| {
            block.entries > 0
                && block.first.number > 0
                && block.first.partition.0 < header.chunks.partitions
                && u64::from(block.bytes) > to_u64(HEAD_BYTES)
                && (block.entries == 1 || to_u64(BLOCK_BYTES_MAX) >= u64::from(block.bytes))
                && block.epochs.0 <= block.epochs.1
                && epochs.contains(block.epochs.0)
                && epochs.contains(block.epochs.1)
        });
        let in_order = self.blocks.windows(2).all(|pair| {
            pair[0].first < pair[1].first
                && pair[0].offset.checked_add(u64::from(pair[0].bytes)) == Some(pair[1].offset)
        });
        let ends = self
            .blocks
            .last()
            .is_none_or(|last| last.offset.checked_add(u64::from(last.bytes)) == Some(end));
        let entries = self.blocks.iter().map(|block| u64::from(block.entries));
        let entries: u64 = entries.sum();
        let numbers = self.numbers.values().map(|numbers| numbers.count);
        let numbers = numbers.fold(0, u64::saturating_add);
        first_fits && each && in_order && ends && entries == numbers && self.count <= entries
    }

    /// Returns the offset at which the frame blocks begin. `end` is the offset at which they end.
    pub(crate) fn begin(&self, end: u64) -> u64 {
        self.blocks.first().map_or(end, |block| block.offset)
    }
}

/// Reads `count` items of `bytes` bytes each. `None`: the input is too short, or an item malformed.
fn list<T>(
    r: &mut Reader<'_>,
    count: u32,
    bytes: usize,
    item: impl Fn(&mut Reader<'_>) -> Option<T>,
) -> Option<Vec<T>> {
    if u64::from(count) * to_u64(bytes) > to_u64(r.remaining()) {
        return None;
    }
    (0..count).map(|_| item(r)).collect()
}

fn block(r: &mut Reader<'_>) -> Option<FrameBlock> {
    Some(FrameBlock {
        first: FrameAt {
            partition: PartitionId(r.u16()?),
            number: r.u64()?,
        },
        offset: r.u64()?,
        bytes: r.u32()?,
        entries: r.u32()?,
        epochs: (Epoch(r.u64()?), Epoch(r.u64()?)),
    })
}

fn of(r: &mut Reader<'_>) -> Option<(PartitionId, Numbers)> {
    let partition = PartitionId(r.u16()?);
    let numbers = Numbers {
        first: r.u64()?,
        count: r.u64()?,
        digest: r.u64()?,
    };
    Some((partition, numbers))
}

//! Reading the ordered frames of a run: in the order of the run, or epoch by epoch.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use perdura_base::checksum::mix64;
use perdura_base::num::to_u64;
use perdura_base::{Epoch, PartitionId, Result};
use perdura_formats::OrderedPayload;

use super::{Run, read};
use crate::run::block::{self, BlockPlace, Content, Unpacker};
use crate::run::frames::DecodedFrame;
use crate::run::{FrameAt, FrameBlock, FrameEntry, FrameOrPlace, Frames, damage};
use crate::writer::gap;

/// A cursor over the entries of a run's frame blocks.
pub struct FrameCursor {
    run: Arc<Run>,
    /// The blocks that have not been opened, as a range of indexes.
    blocks: Range<usize>,
    /// The open block. `None`: no block is open.
    open: Option<FrameBlock>,
    raw: Vec<u8>,
    unpacker: Unpacker,
    left: u32,
    next: usize,
    /// The last entry of the open block that was decoded.
    last: Option<FrameAt>,
    current: Option<DecodedFrame>,
    /// The last epoch of each partition.
    newest: BTreeMap<PartitionId, Epoch>,
    reads: u64,
}

impl FrameCursor {
    fn new(run: Arc<Run>, blocks: Range<usize>) -> FrameCursor {
        FrameCursor {
            run,
            blocks,
            open: None,
            raw: Vec::new(),
            unpacker: Unpacker::default(),
            left: 0,
            next: 0,
            last: None,
            current: None,
            newest: BTreeMap::new(),
            reads: 0,
        }
    }

    /// Returns the number of reads made so far.
    #[must_use]
    pub fn reads(&self) -> u64 {
        self.reads
    }

    /// Moves to the next entry. Returns `false` if no entry is left. Makes at most one read.
    ///
    /// # Errors
    /// [`perdura_base::Error::Corrupt`]; errors of the disk. The cursor cannot be used after an error.
    pub fn advance(&mut self) -> Result<bool> {
        self.current = None;
        if self.left == 0 && !self.open_block()? {
            return Ok(false);
        }
        let block = self.open.as_ref().expect("a block is open");
        let begin = self.run.header.id.epochs.begin;
        let decoded = DecodedFrame::read(&self.raw, self.next, block.first, self.last, begin);
        let partitions = self.run.header.chunks.partitions;
        let decoded = decoded.filter(|entry| {
            entry.at.partition.0 < partitions
                && block.epochs.0 <= entry.epoch
                && entry.epoch <= block.epochs.1
        });
        let Some(decoded) = decoded else {
            return Err(self.misplaced("an entry of an ordered frame, as this build writes it"));
        };
        let newest = self.newest.insert(decoded.at.partition, decoded.epoch);
        if newest.is_some_and(|newest| decoded.epoch < newest) {
            return Err(self.misplaced("epochs that do not descend in a partition"));
        }
        (self.last, self.next) = (Some(decoded.at), decoded.end);
        self.left -= 1;
        if self.left == 0 && self.next != self.raw.len() {
            return Err(self.misplaced("the end of the block behind its last entry"));
        }
        self.current = Some(decoded);
        Ok(true)
    }

    /// Returns the current entry. `None`: the cursor is at the end, or [`advance`](Self::advance) was not called.
    #[must_use]
    pub fn entry(&self) -> Option<FrameEntry<'_>> {
        self.current.as_ref().map(|frame| frame.entry(&self.raw))
    }

    #[cold]
    fn misplaced(&self, expected: &str) -> perdura_base::Error {
        let offset = self.open.as_ref().map_or(0, |block| block.offset);
        let found = format!("other bytes at byte {} of the block's entries", self.next);
        damage(self.run.file.path(), offset, expected, found)
    }

    /// Reads, checks and opens the next block. Returns `false` if no block is left.
    fn open_block(&mut self) -> Result<bool> {
        let Some(i) = self.blocks.next() else {
            return Ok(false);
        };
        let run = Arc::clone(&self.run);
        let block = run.frames.as_ref().expect("a run with frame blocks").blocks[i];
        let bytes = read(run.file.as_ref(), block.offset, block.end())?;
        self.reads += 1;
        let place = BlockPlace {
            content: Content::Frames,
            header_crc: run.header_crc,
            offset: block.offset,
        };
        self.raw.clear();
        let path = run.file.path();
        let head = block::open(path, &bytes, place, &mut self.unpacker, &mut self.raw)?;
        let says = (block.first, block.entries, block.epochs.0);
        if says != (head.frame(), head.records, head.epoch_min) || head.first.local != 0 {
            let found = format!("another head, {head:?}");
            return Err(damage(
                path,
                block.offset,
                "the block that the index describes",
                found,
            ));
        }
        assert!(head.records > 0, "a block has an entry");
        (self.open, self.last) = (Some(block), None);
        (self.left, self.next) = (head.records, 0);
        Ok(true)
    }
}

impl Run {
    /// Returns the description of the ordered frames. `None`: the run carries no frames.
    #[must_use]
    pub fn frames(&self) -> Option<&Frames> {
        self.frames.as_ref()
    }

    /// Returns the entries of the ordered frames, sorted by partition and number.
    #[must_use]
    pub fn frame_cursor(self: &Arc<Run>) -> FrameCursor {
        let blocks = self.frames.as_ref().map_or(0, |frames| frames.blocks.len());
        FrameCursor::new(Arc::clone(self), 0..blocks)
    }

    /// Returns the entries of one frame block.
    pub(crate) fn block_of_frames(self: &Arc<Run>, block: usize) -> FrameCursor {
        FrameCursor::new(Arc::clone(self), block..block + 1)
    }

    /// Reads every frame block and checks it: checksums, order, numbers, digests. Each frame must have exactly one entry
    /// in each of its partitions.
    pub(super) fn verify_frames(self: &Arc<Run>) -> Result<()> {
        let Some(frames) = &self.frames else {
            return Ok(());
        };
        let path = self.file.path();
        let mut found = Frames {
            blocks: frames.blocks.clone(),
            ..Frames::default()
        };
        let mut parts = PartSums::default();
        let mut cursor = self.frame_cursor();
        while cursor.advance()? {
            let Some(entry) = cursor.entry() else { break };
            if !found.note(&entry) {
                let numbers = &found.numbers[&entry.at.partition];
                return Err(gap(path, numbers.last() + 1, &entry));
            }
            if !parts.note(&entry) {
                return Err(cursor.misplaced("a frame whose lowest partition has the entry"));
            }
        }
        if found != *frames || parts.sum != 0 {
            let expected = format!("{} ordered frames with the listed numbers", frames.count);
            let other = format!("{} with others", found.count);
            return Err(damage(path, frames.begin(self.len), expected, other));
        }
        Ok(())
    }
}

/// The check that each frame has one entry in each of its partitions.
#[derive(Default)]
struct PartSums {
    /// The sum over the entries that the frames need, minus the sum over the entries that refer to frames. Each entry
    /// counts with a hash of its two places.
    sum: u64,
}

impl PartSums {
    /// Adds an entry. Returns `false` if a frame is not the frame of this entry.
    fn note(&mut self, entry: &FrameEntry<'_>) -> bool {
        let link = |home: FrameAt, at: FrameAt| {
            let part = |of: FrameAt| mix64(mix64(u64::from(of.partition.0)) ^ of.number);
            mix64(part(home).rotate_left(1) ^ part(at))
        };
        let payload = match entry.carried {
            FrameOrPlace::Elsewhere(home) => {
                self.sum = self.sum.wrapping_sub(link(home, entry.at));
                return true;
            }
            FrameOrPlace::Frame { payload, .. } => payload,
        };
        let Ok(payload) = OrderedPayload::decode(payload) else {
            return false;
        };
        let mut places = payload.head.parts.iter().map(|part| FrameAt {
            partition: part.0,
            number: part.1,
        });
        if places.next() != Some(entry.at) {
            return false;
        }
        for at in places {
            self.sum = self.sum.wrapping_add(link(entry.at, at));
        }
        true
    }
}

/// Returns the bytes of memory that the entries of a block take, approximately: a compressed block may grow.
pub(crate) fn weight(block: &FrameBlock) -> u64 {
    const GROWS: u64 = 4;
    let weight = u64::from(block.bytes).saturating_mul(GROWS);
    debug_assert!(weight >= to_u64(block::HEAD_BYTES), "a block has a head");
    weight
}

//! The tail of a stream: sealed blocks that wait to be written. Sealing adds blocks and the flusher takes blocks.
//!
//! Without a mirror, the limit for bytes in flight also limits the size of the tail. With a mirror, sealing may be
//! ahead of the disk, up to the limit in [`TailOptions`](crate::TailOptions). The limit for bytes in flight then
//! applies only to the writes to disk.
//!
//! # Invariants
//! * Blocks enter and leave the tail in the order of their positions and without a gap.
//! * The flusher takes a block only if the block ends within [`IN_FLIGHT_BYTES_MAX`] bytes of the stream's durable
//!   end. So a restart finds the end of the log, in whatever order the writes complete.
//! * There are at most `bytes_max` bytes between the stream's durable end and the end of the tail.

use std::collections::VecDeque;

use perdura_base::limits::IN_FLIGHT_BYTES_MAX;
use perdura_base::num::to_u64;
use perdura_base::{Epoch, Pos, StreamId};
use perdura_device::{AlignedBuf, Part};

/// A block with its header and checksums.
pub(crate) struct SealedBlock {
    buf: AlignedBuf,
    len: usize,
    pub pos: Pos,
    /// The durable epoch in the block's header.
    pub names: Epoch,
}

impl SealedBlock {
    /// Returns the block at `pos` that consists of the first `len` bytes of `buf`.
    pub fn new(buf: AlignedBuf, len: usize, pos: Pos, names: Epoch) -> SealedBlock {
        SealedBlock {
            buf,
            len,
            pos,
            names,
        }
    }

    pub fn bytes(&self) -> &[u8] {
        &self.buf[..self.len]
    }

    pub fn end(&self) -> Pos {
        Pos(self.pos.0 + to_u64(self.len))
    }

    /// Returns the block as a part of a durable write.
    pub fn into_part(self) -> Part {
        Part {
            buf: self.buf,
            len: self.len,
        }
    }
}

/// The sealed blocks of a stream that have not been written, in order.
pub(crate) struct Tail {
    blocks: VecDeque<SealedBlock>,
    bytes_max: u64,
    /// The stream's durable end.
    durable: Pos,
    /// The end of the last sealed block.
    end: Pos,
}

impl Tail {
    /// Returns the tail of a stream that starts at `start`.
    pub fn new(start: Pos, bytes_max: u64) -> Tail {
        Tail {
            blocks: VecDeque::new(),
            bytes_max,
            durable: start,
            end: start,
        }
    }

    /// Returns the next block to write; `None` if the tail is empty or the block ends too far from the durable end.
    pub fn next_to_write(&self) -> Option<&SealedBlock> {
        let first = self.blocks.front()?;
        debug_assert!(
            self.durable <= first.pos,
            "what is durable has left the tail"
        );
        (first.end().0 - self.durable.0 <= IN_FLIGHT_BYTES_MAX).then_some(first)
    }

    pub fn has_room(&self, bytes: u64) -> bool {
        self.end.0 - self.durable.0 + bytes <= self.bytes_max
    }

    pub fn push(&mut self, block: SealedBlock) {
        assert_eq!(block.pos, self.end, "blocks are sealed without a gap");
        assert!(
            self.has_room(to_u64(block.len)),
            "{} bytes from {} on, durable up to {}, are more than the tail holds",
            block.len,
            block.pos,
            self.durable
        );
        self.end = block.end();
        self.blocks.push_back(block);
    }

    pub fn pop(&mut self) -> Option<SealedBlock> {
        let block = self.blocks.pop_front()?;
        let left = self.blocks.front().map_or(self.end, |next| next.pos);
        assert_eq!(block.end(), left, "blocks leave the tail without a gap");
        Some(block)
    }

    /// Notes the stream's durable end.
    pub fn note_durable(&mut self, end: Pos) {
        let next = self.blocks.front().map_or(self.end, |next| next.pos);
        assert!(
            self.durable <= end && end <= next,
            "{end} is durable after {}, and the tail begins at {next}",
            self.durable
        );
        self.durable = end;
    }
}

/// A sealed block, as it is passed to the device that copies the log to other machines.
#[derive(Debug, Clone, Copy)]
pub struct Sealed<'a> {
    /// The stream.
    pub stream: StreamId,
    /// The block's position in the stream.
    pub pos: Pos,
    /// The block's commit epoch.
    pub epoch: Epoch,
    /// The block's header, body and padding, exactly as the segment will have them at this position.
    pub bytes: &'a [u8],
}

/// A function that receives sealed blocks.
pub(crate) type Ship = Box<dyn Fn(Sealed<'_>) + Send + Sync>;

//! Sealing: the machine that completes blocks, between the appends and the flusher.
//!
//! ```text
//! open ──full, or its epoch is closed──► filled ──its epoch's ends are known──► sealed ──► tail
//! ```
//! A sealed block has its header and checksums. Its bytes never change again, and every medium that holds
//! the log holds the same bytes. The block waits in the *tail* of its stream until the flusher writes it. The tail is
//! bounded by half of what may be in flight, so that a restart finds the end of the log. A device that
//! copies the log elsewhere ([`Wal::ship_by`]) receives each block when it enters the tail.
//!
//! # Invariants
//! * Blocks enter the tail in the order of their positions and without a gap.
//! * A block enters the tail once. A repeated write writes the same bytes.
//! * A sealed block names a D that was reached before it was sealed.

use std::collections::VecDeque;

use perdura_base::flaw::{Flaw, armed};
use perdura_base::num::{to_u64, to_usize};
use perdura_base::{Epoch, Pos, StreamId};
use perdura_device::AlignedBuf;

use crate::block::{self, BlockHeader};
use crate::log::{Stream, Wal};
use crate::rung::Rung;
use crate::stream::FilledBlock;

/// A block with its header and checksums.
pub(crate) struct SealedBlock {
    buf: AlignedBuf,
    len: usize,
    pub pos: Pos,
    /// The durable epoch that its header names.
    pub names: Epoch,
}

impl SealedBlock {
    pub fn bytes(&self) -> &[u8] {
        &self.buf[..self.len]
    }

    pub fn end(&self) -> Pos {
        Pos(self.pos.0 + to_u64(self.len))
    }

    /// Returns the buffer for reuse.
    pub fn into_buf(self) -> AlignedBuf {
        self.buf
    }
}

/// The sealed blocks of a stream that are not written yet, in order.
pub(crate) struct Tail {
    blocks: VecDeque<SealedBlock>,
    bytes: u64,
    bytes_max: u64,
    /// Where the last sealed block ends.
    end: Pos,
}

impl Tail {
    /// The tail of a stream that starts at `start`.
    pub fn new(start: Pos, bytes_max: u64) -> Tail {
        Tail {
            blocks: VecDeque::new(),
            bytes: 0,
            bytes_max,
            end: start,
        }
    }

    pub fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }

    pub fn front(&self) -> Option<&SealedBlock> {
        self.blocks.front()
    }

    fn has_room(&self, bytes: u64) -> bool {
        self.bytes + bytes <= self.bytes_max
    }

    fn push(&mut self, block: SealedBlock) {
        assert_eq!(block.pos, self.end, "blocks are sealed without a gap");
        self.end = block.end();
        self.bytes += to_u64(block.len);
        assert!(
            self.bytes <= self.bytes_max,
            "a tail of {} bytes exceeds its bound of {}",
            self.bytes,
            self.bytes_max
        );
        self.blocks.push_back(block);
    }

    pub fn pop(&mut self) -> Option<SealedBlock> {
        let block = self.blocks.pop_front()?;
        self.bytes -= to_u64(block.len);
        let left = self.blocks.front().map_or(self.end, |next| next.pos);
        assert_eq!(block.end(), left, "blocks leave the tail without a gap");
        Some(block)
    }
}

/// A sealed block as passed to the device that copies the log elsewhere.
#[derive(Debug, Clone, Copy)]
pub struct Sealed<'a> {
    /// The stream.
    pub stream: StreamId,
    /// Where the block stands in it.
    pub pos: Pos,
    /// The block's commit epoch.
    pub epoch: Epoch,
    /// Header, body and padding: what the segment will hold at this position.
    pub bytes: &'a [u8],
}

/// Receives sealed blocks.
pub(crate) type Ship = Box<dyn Fn(Sealed<'_>) + Send + Sync>;

impl Wal {
    /// Names the device that receives each sealed block before the block is written, those of a stream
    /// in order. The stream's flusher calls it, holding only the lock of its state. Only the first
    /// call has an effect.
    pub fn ship_by(&self, ship: impl Fn(Sealed<'_>) + Send + Sync + 'static) {
        let _named_already = self.ship.set(Box::new(ship));
    }

    /// Seals blocks of a stream as far as the tail has room and the ends of their epochs are known.
    /// Only the last block of an epoch needs them: they are known once the epoch's closing has visited
    /// every stream.
    pub(crate) fn seal_step(&self, stream: StreamId, s: &Stream, tail: &mut Tail) {
        while let Some(filled) = self.take_filled(s, tail) {
            let epoch = filled.epoch;
            let block = self.seal(stream, filled);
            if let Some(ship) = self.ship.get() {
                ship(Sealed {
                    stream,
                    pos: block.pos,
                    epoch,
                    bytes: block.bytes(),
                });
            }
            tail.push(block);
        }
    }

    fn take_filled(&self, s: &Stream, tail: &Tail) -> Option<FilledBlock> {
        let mut inner = s.inner.lock();
        let front = inner.filled.front()?;
        let is_known = || {
            let closed = self.ends.lock().closed.back().map(|newest| newest.epoch);
            front.epoch <= self.durable(Rung::Disk).max(closed.unwrap_or_default())
        };
        let ready = tail.has_room(front.block_len()) && (!front.last || is_known());
        if ready {
            inner.filled.pop_front()
        } else {
            None
        }
    }

    fn seal(&self, stream: StreamId, filled: FilledBlock) -> SealedBlock {
        let names = self.durable(Rung::Disk);
        let header = self.header_of(stream, &filled, names);
        let (pos, len) = (filled.pos, to_usize(filled.block_len()));
        let mut buf = filled.buf;
        block::seal(&header, &mut buf[..len]);
        SealedBlock {
            buf,
            len,
            pos,
            names,
        }
    }

    fn header_of(&self, stream: StreamId, block: &FilledBlock, durable: Epoch) -> BlockHeader {
        assert!(
            durable < block.epoch || armed(Flaw::OneStreamSuffices),
            "epoch {durable} is durable before block {} of epoch {} is written",
            block.pos,
            block.epoch
        );
        let ends = block.last.then(|| {
            let ends = self.ends.lock();
            let of_epoch = ends.closed.iter().find(|e| e.epoch == block.epoch);
            of_epoch
                .expect("an epoch's ends stay until every rung has passed it")
                .ends
                .clone()
        });
        BlockHeader {
            stream,
            database: self.uuid.short(),
            incarnation: self.incarnation,
            pos: block.pos,
            prev_pos: block.prev_pos,
            epoch: block.epoch,
            durable,
            wall_us: self.stamp(),
            ckpt_epoch: block.ckpt_epoch,
            body_len: block.body_len,
            first_frame: block.first_frame,
            streams: self.streams(),
            partitions: block.partitions,
            ends,
        }
    }
}

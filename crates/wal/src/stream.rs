//! The append side of a stream: the open block, and the queue of filled blocks that have not been sealed.
//!
//! Callers of these functions hold the stream's lock. The position of a block is computed when the block is opened. A
//! block ends at the latest where its segment ends. So segments are filled to the last sector, and no block lies in two
//! files.

use std::collections::VecDeque;

use perdura_base::flaw::{Flaw, armed};
use perdura_base::limits::SECTOR_BYTES;
use perdura_base::num::{to_u32, to_u64, to_usize};
use perdura_base::{CkptEpoch, Epoch, PartitionSet, Pos};
use perdura_device::AlignedBuf;

use crate::block::{self, HEADER_BYTES, Holds};
use crate::frame::{FrameKind, put_frame_head};
use crate::sizes::SegmentSizes;

/// The number of buffers kept for the next blocks: one for each short block in flight, and a few more.
const SPARE_BUFS_MAX: usize = 6;
/// The number of one-sector buffers that are kept. They are for blocks that the mirror has and the disk lacks. If each
/// commit fills one sector, the buffers suffice for 2 MiB of commits.
const SPARE_SECTORS_MAX: usize = 512;

/// A block that can still take frames.
struct OpenBlock {
    epoch: Epoch,
    buf: AlignedBuf,
    /// The bytes of the body that are in use.
    len: usize,
    /// The capacity of the body, bytes.
    room: usize,
    first_frame: Option<usize>,
    partitions: PartitionSet,
    holds: Holds,
    ckpt_epoch: CkptEpoch,
}

/// A block that takes no more frames and has no header yet; see [`seal`](crate::seal).
pub(crate) struct FilledBlock {
    pub buf: AlignedBuf,
    pub body_len: u32,
    pub first_frame: u32,
    pub pos: Pos,
    pub prev_pos: Pos,
    pub epoch: Epoch,
    pub partitions: PartitionSet,
    pub holds: Holds,
    pub ckpt_epoch: CkptEpoch,
    /// True for the last block of its epoch in this stream. Its header must contain the epoch's ends.
    pub last: bool,
}

impl FilledBlock {
    pub fn block_len(&self) -> u64 {
        block::block_len(to_usize(u64::from(self.body_len)))
    }

    pub fn end(&self) -> Pos {
        Pos(self.pos.0 + self.block_len())
    }
}

/// The facts about frames that the headers of their blocks record.
#[derive(Clone, Copy)]
pub(crate) struct FrameMeta<'a> {
    pub partitions: &'a PartitionSet,
    pub ckpt_epoch: CkptEpoch,
}

/// Frames, one after the other.
#[derive(Default)]
pub(crate) struct Frames {
    pub bytes: Vec<u8>,
    /// The offset of each frame in `bytes`.
    pub starts: Vec<usize>,
}

/// Bytes of frames that enter blocks together.
#[derive(Clone, Copy)]
struct Run<'a> {
    bytes: &'a [u8],
    /// The offset in `bytes` of each frame that begins there.
    starts: &'a [usize],
    holds: Holds,
}

pub(crate) struct StreamInner {
    /// The start of this incarnation's first segment.
    start: Pos,
    sizes: SegmentSizes,
    block_bytes_max: usize,
    /// The position of the open block, or of the next block if none is open.
    next_pos: Pos,
    prev_pos: Pos,
    open: Option<OpenBlock>,
    pub filled: VecDeque<FilledBlock>,
    /// The bytes of all frames that have entered blocks.
    pub frame_bytes: u64,
    /// The newest epoch that has a block in this stream.
    newest_epoch: Epoch,
    /// The position of the first block of `newest_epoch`.
    newest_start: Pos,
    spare_bufs: Vec<AlignedBuf>,
    spare_sectors: Vec<AlignedBuf>,
    head: Vec<u8>,
}

impl StreamInner {
    pub fn new(start: Pos, sizes: SegmentSizes, block_bytes_max: usize) -> Self {
        StreamInner {
            start,
            sizes,
            block_bytes_max,
            next_pos: start,
            prev_pos: start,
            open: None,
            filled: VecDeque::new(),
            frame_bytes: 0,
            newest_epoch: Epoch(0),
            newest_start: start,
            spare_bufs: Vec::new(),
            spare_sectors: Vec::new(),
            head: Vec::new(),
        }
    }

    /// Returns the position where the open block would end if it took no more frames. If no block is open, returns the
    /// end of the last filled block.
    pub fn end(&self) -> Pos {
        let open = self
            .open
            .as_ref()
            .map_or(0, |open| block::block_len(open.len));
        Pos(self.next_pos.0 + open)
    }

    /// Returns the end of the last filled block; `None` if no filled block waits to be sealed.
    pub fn filled_end(&self) -> Option<Pos> {
        let end = self.filled.back()?.end();
        debug_assert_eq!(
            end, self.next_pos,
            "the open block follows the last filled one"
        );
        Some(end)
    }

    /// Appends one frame to blocks of epoch `epoch`. The frame's payload comes in parts. First ends an open block of an
    /// older epoch. Returns the position of the frame's first block.
    pub fn append(
        &mut self,
        epoch: Epoch,
        kind: FrameKind,
        payload: &[&[u8]],
        meta: FrameMeta<'_>,
    ) -> Pos {
        self.end_older(epoch);
        let mut head = std::mem::take(&mut self.head);
        head.clear();
        let bytes: usize = payload.iter().map(|part| part.len()).sum();
        put_frame_head(kind, to_u64(bytes), &mut head);
        self.open_block(epoch);
        let pos = self.next_pos;
        let holds = Holds::of(kind);
        let run = |bytes, starts| Run {
            bytes,
            starts,
            holds,
        };
        self.put(epoch, run(&head, &[0]), meta);
        for part in payload {
            self.put(epoch, run(part, &[]), meta);
        }
        self.head = head;
        pos
    }

    /// Appends groups to blocks of epoch `epoch`. First ends an open block of an older epoch.
    pub fn append_groups(&mut self, epoch: Epoch, groups: &Frames, meta: FrameMeta<'_>) {
        assert_eq!(groups.starts.first(), Some(&0), "whole frames");
        self.end_older(epoch);
        let run = Run {
            bytes: &groups.bytes,
            starts: &groups.starts,
            holds: Holds::of(FrameKind::Group),
        };
        self.put(epoch, run, meta);
    }

    /// Ends an open block of an epoch before `epoch`, so that each block has frames of one epoch only.
    fn end_older(&mut self, epoch: Epoch) {
        assert!(
            self.newest_epoch <= epoch,
            "epochs go back in a stream from {} to {epoch}",
            self.newest_epoch
        );
        let older = self.open.as_ref().is_some_and(|open| open.epoch != epoch);
        if older && !armed(Flaw::ImpureBlocks) {
            self.fill(true);
        }
    }

    /// Returns the newest epoch that has a block in this stream.
    pub fn newest_epoch(&self) -> Epoch {
        self.newest_epoch
    }

    fn put(&mut self, epoch: Epoch, run: Run<'_>, meta: FrameMeta<'_>) {
        let Run {
            bytes,
            mut starts,
            holds,
        } = run;
        self.frame_bytes += to_u64(bytes.len());
        let mut done = 0;
        while done < bytes.len() {
            let open = self.open_block(epoch);
            debug_assert_eq!(open.epoch, epoch, "a block is of one epoch");
            let end = bytes.len().min(done + open.room - open.len);
            if let Some(first) = starts.first().filter(|first| **first < end) {
                open.first_frame.get_or_insert(open.len + first - done);
            }
            let at = HEADER_BYTES + open.len;
            open.buf[at..at + end - done].copy_from_slice(&bytes[done..end]);
            open.len += end - done;
            open.partitions.union(meta.partitions);
            open.holds.add(holds);
            open.ckpt_epoch = open.ckpt_epoch.max(meta.ckpt_epoch);
            starts = &starts[starts.partition_point(|start| *start < end)..];
            done = end;
        }
    }

    /// Returns a block with room: the open one, or a new one after it.
    fn open_block(&mut self, epoch: Epoch) -> &mut OpenBlock {
        if self.open.as_ref().is_some_and(|open| open.len == open.room) {
            self.fill(false);
        }
        if self.open.is_none() {
            let span = self.sizes.span_at(self.start, self.next_pos);
            let left = to_usize(span.end().0 - self.next_pos.0);
            assert!(left > HEADER_BYTES, "segments are whole sectors");
            let room = left.min(self.block_bytes_max) - HEADER_BYTES;
            if self.newest_epoch != epoch {
                self.newest_epoch = epoch;
                self.newest_start = self.next_pos;
            }
            let buf = self
                .spare_bufs
                .pop()
                .unwrap_or_else(|| AlignedBuf::zeroed(self.block_bytes_max));
            self.open = Some(OpenBlock {
                epoch,
                buf,
                len: 0,
                room,
                first_frame: None,
                partitions: PartitionSet::empty(),
                holds: Holds::default(),
                ckpt_epoch: CkptEpoch(0),
            });
        }
        self.open.as_mut().expect("it was opened just above")
    }

    /// Ends the open block. `last` is true if no further block of its epoch will follow in this stream.
    pub fn fill(&mut self, last: bool) {
        let Some(mut open) = self.open.take() else {
            return;
        };
        let block_len = block::block_len(open.len);
        assert!(
            open.len <= open.room && block_len <= to_u64(self.block_bytes_max),
            "a block of {block_len} bytes at {} outgrows its buffer",
            self.next_pos
        );
        assert!(
            self.newest_start <= self.next_pos && self.prev_pos <= self.next_pos,
            "blocks of a stream are filled in order"
        );
        open.buf[HEADER_BYTES + open.len..to_usize(block_len)].fill(0);
        self.filled.push_back(FilledBlock {
            buf: open.buf,
            body_len: to_u32(open.len),
            first_frame: to_u32(open.first_frame.unwrap_or(open.len)),
            pos: self.next_pos,
            prev_pos: self.prev_pos,
            epoch: open.epoch,
            partitions: open.partitions,
            holds: open.holds,
            ckpt_epoch: open.ckpt_epoch,
            last,
        });
        self.prev_pos = self.next_pos;
        self.next_pos = Pos(self.next_pos.0 + block_len);
        debug_assert_eq!(self.next_pos.0 % to_u64(SECTOR_BYTES), 0);
    }

    /// Ends epoch `epoch` in this stream. Returns the epoch's end in this stream.
    pub fn close(&mut self, epoch: Epoch) -> Pos {
        if self.open.as_ref().is_some_and(|open| open.epoch <= epoch) {
            self.fill(true);
        }
        let end = if self.newest_epoch > epoch {
            self.newest_start
        } else {
            self.next_pos
        };
        let filled = self.filled.iter().rev().find(|block| block.epoch <= epoch);
        assert!(
            filled.is_none_or(|block| block.end() <= end),
            "epoch {epoch} ends at {end}, before its last block"
        );
        end
    }

    /// Ends the open block, so that the next frame begins in a new block at the returned position. The caller then
    /// appends a frame in `epoch` immediately. So the ended block is the last block of its epoch only if that epoch
    /// is older than `epoch`.
    pub fn split(&mut self, epoch: Epoch) -> Pos {
        let last = self.open.as_ref().is_some_and(|open| open.epoch != epoch);
        self.fill(last);
        self.next_pos
    }

    /// Returns a buffer of `len` bytes, which must be whole sectors. Its contents are arbitrary.
    pub fn short_buf(&mut self, len: usize) -> AlignedBuf {
        assert!(
            len.is_multiple_of(SECTOR_BYTES),
            "a block has whole sectors"
        );
        let spare = (len == SECTOR_BYTES).then(|| self.spare_sectors.pop());
        spare.flatten().unwrap_or_else(|| AlignedBuf::zeroed(len))
    }

    /// Keeps a free buffer for later blocks, if it has the size of the longest or of the shortest block.
    pub fn recycle(&mut self, buf: AlignedBuf) {
        assert!(buf.len() <= self.block_bytes_max, "the buffer of a block");
        let (spares, max) = match buf.len() {
            len if len == self.block_bytes_max => (&mut self.spare_bufs, SPARE_BUFS_MAX),
            SECTOR_BYTES => (&mut self.spare_sectors, SPARE_SECTORS_MAX),
            _ => return,
        };
        if spares.len() < max {
            spares.push(buf);
        }
    }
}

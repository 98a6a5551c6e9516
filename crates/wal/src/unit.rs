//! Reading a scanned stream in units. A unit consists of consecutive blocks and begins with the start of a frame.
//!
//! Reading and opening a unit are separate, so that a restart can do them on different threads.
//! [`StreamScan::read_raw`] waits for the disk. [`RawUnit::open`] checks the checksums and joins the bodies. An opened
//! unit has the origin of each of its frames, so a replay of the unit needs no scan.

use perdura_base::num::{to_u64, to_usize};
use perdura_base::{Epoch, Error, Incarnation, Pos, Result, StreamId};

use crate::block::{self, HEADER_BYTES, Holds};
use crate::frame::{Direction, Frame, for_each_frame};
use crate::reads::UnitReads;
use crate::scan::{BlockRef, StreamScan};
use crate::segment::{SEGMENT_HEADER_BYTES, SegmentId};

/// The origin of a frame: the stream, the life, and the frame's first block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Origin {
    /// The stream.
    pub stream: StreamId,
    /// The life of the database that wrote the frame.
    pub life: Incarnation,
    /// The position of the frame's first block.
    pub pos: Pos,
    /// The epoch of that block.
    pub epoch: Epoch,
}

/// The blocks of a unit as the disk returned them, unchecked.
pub struct RawUnit {
    stream: StreamId,
    blocks: Vec<BlockRef>,
    /// The segment of each block, for use in error messages.
    segments: Vec<SegmentId>,
    raw: Vec<u8>,
}

/// The frames of a unit, independent of the scan that found its blocks.
pub struct Unit {
    /// For each block, the origin of the frames that begin in it.
    origins: Vec<Origin>,
    /// The bodies of all blocks, joined.
    joined: Vec<u8>,
    /// The offset of each block's body in `joined`.
    starts: Vec<usize>,
    /// The number of bytes before the first frame. They are the rest of a frame that began in an older block.
    skip: usize,
}

impl StreamScan {
    /// Returns the number of units read so far, and the number of bytes read.
    #[must_use]
    pub fn unit_reads(&self) -> UnitReads {
        self.unit_reads.so_far()
    }

    /// Returns the units of the scan as ranges of blocks. A frame starts at the beginning of each unit. A frame also
    /// starts right after each unit except the last. The blocks of a unit are of one incarnation. Each unit can be read
    /// independently and has about `bytes` bytes.
    #[must_use]
    pub fn units(&self, bytes: u64) -> Vec<std::ops::Range<usize>> {
        let mut units = Vec::new();
        let mut from = 0;
        for (i, block) in self.blocks.iter().enumerate().skip(1) {
            let first = &self.blocks[from];
            let long_enough = block.pos.0 - first.pos.0 >= bytes;
            let starts_a_frame = block.first_frame == 0 && block.body_len > 0;
            let other_life = block.incarnation != first.incarnation;
            if starts_a_frame && (long_enough || other_life) {
                units.push(from..i);
                from = i;
            }
        }
        if from < self.blocks.len() {
            units.push(from..self.blocks.len());
        }
        units
    }

    /// Returns the kinds of frames in a range of blocks.
    #[must_use]
    pub fn holds(&self, blocks: &std::ops::Range<usize>) -> Holds {
        let mut holds = Holds::default();
        let blocks = &self.blocks[blocks.clone()];
        blocks.iter().for_each(|block| holds.add(block.holds));
        assert!(
            blocks.is_empty() || !holds.is_empty(),
            "each block of stream {} holds frames",
            self.stream
        );
        holds
    }

    /// Advises the disk to read the blocks of a unit.
    pub fn will_read(&self, unit: std::ops::Range<usize>) {
        for block in &self.blocks[unit] {
            let segment = &self.segments[block.segment];
            let offset = SEGMENT_HEADER_BYTES + (block.pos.0 - segment.id.start.0);
            segment.file.will_read(offset, block.end().0 - block.pos.0);
        }
    }

    /// Reads the blocks of one unit. Contiguous blocks are read together.
    ///
    /// # Errors
    /// Fails with an I/O error, or with [`Error::Corrupt`] if a segment is shorter than when it was scanned.
    pub fn read_raw(&self, unit: std::ops::Range<usize>) -> Result<RawUnit> {
        let mut raw = Vec::new();
        let mut at = unit.start;
        while at < unit.end {
            let first = &self.blocks[at];
            let mut end = at + 1;
            while end < unit.end
                && self.blocks[end].segment == first.segment
                && self.blocks[end].pos == self.blocks[end - 1].end()
            {
                end += 1;
            }
            let segment = &self.segments[first.segment];
            let offset = SEGMENT_HEADER_BYTES + (first.pos.0 - segment.id.start.0);
            let from = raw.len();
            raw.resize(
                from + to_usize(self.blocks[end - 1].end().0 - first.pos.0),
                0,
            );
            perdura_device::read_exact_at(segment.file.as_ref(), offset, &mut raw[from..])?;
            at = end;
        }
        let blocks = self.blocks[unit].to_vec();
        let life = blocks.first().map(|block| block.incarnation);
        assert!(
            blocks.iter().all(|block| Some(block.incarnation) == life),
            "a unit belongs to one life"
        );
        self.unit_reads.note(to_u64(raw.len()));
        let segment_of = |block: &BlockRef| self.segments[block.segment].id;
        Ok(RawUnit {
            stream: self.stream,
            segments: blocks.iter().map(segment_of).collect(),
            blocks,
            raw,
        })
    }

    pub(crate) fn damaged_block(&self, block: &BlockRef) -> Error {
        damaged_block(block, self.segments[block.segment].id)
    }

    /// Reads one unit, and passes each frame and its origin to `each`. Returns the size of the frames in bytes.
    ///
    /// # Errors
    /// Fails with an error that `each` returns, or with [`Error::Corrupt`] if the bytes have changed since the scan or
    /// are not frames.
    pub fn read_unit(
        &self,
        unit: std::ops::Range<usize>,
        direction: Direction,
        mut each: impl FnMut(Frame<'_>, &Origin) -> Result<()>,
    ) -> Result<u64> {
        let unit = self.read_raw(unit)?.open()?;
        unit.for_each(direction, &mut each)?;
        Ok(unit.bytes())
    }
}

impl RawUnit {
    /// Returns the number of bytes that were read.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        to_u64(self.raw.len())
    }

    /// Returns the life of the database that wrote the unit.
    #[must_use]
    pub fn life(&self) -> Incarnation {
        self.blocks
            .first()
            .map_or(Incarnation(0), |block| block.incarnation)
    }

    /// Checks the blocks, and joins their bodies.
    ///
    /// # Errors
    /// Fails with [`Error::Corrupt`] if a block's checksum is wrong.
    pub fn open(self) -> Result<Unit> {
        let RawUnit {
            stream,
            blocks,
            segments,
            mut raw,
        } = self;
        let mut starts = Vec::with_capacity(blocks.len());
        let (mut from, mut joined) = (0, 0);
        for (block, segment) in blocks.iter().zip(segments) {
            let len = to_usize(block.end().0 - block.pos.0);
            let body = to_usize(u64::from(block.body_len));
            let whole = block::decode(&raw[from..from + len]);
            if whole.is_none_or(|header| header.epoch != block.epoch || header.pos != block.pos) {
                return Err(damaged_block(block, segment));
            }
            starts.push(joined);
            let body_at = from + HEADER_BYTES;
            raw.copy_within(body_at..body_at + body, joined);
            joined += body;
            from += len;
        }
        assert_eq!(from, raw.len(), "a unit is as long as its blocks");
        raw.truncate(joined);
        let first_frame = blocks.first().map_or(0, |b| b.first_frame);
        let origin = |block: &BlockRef| Origin {
            stream,
            life: block.incarnation,
            pos: block.pos,
            epoch: block.epoch,
        };
        Ok(Unit {
            origins: blocks.iter().map(origin).collect(),
            skip: to_usize(u64::from(first_frame)).min(joined),
            joined: raw,
            starts,
        })
    }
}

fn damaged_block(block: &BlockRef, segment: SegmentId) -> Error {
    Error::corrupt(
        segment.path(),
        SEGMENT_HEADER_BYTES + (block.pos.0 - segment.start.0),
        format!(
            "the block of epoch {}, which was durable according to a later block or the anchor",
            block.epoch
        ),
        "a block whose checksum does not match",
        "Acknowledged transactions in it are damaged. Restore the file from a backup.",
    )
}

impl Unit {
    /// Returns the bytes of the unit's frames.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        to_u64(self.joined.len())
    }

    /// Returns the joined bodies of the unit's blocks. All payloads lie in them.
    #[must_use]
    pub fn joined(&self) -> &[u8] {
        &self.joined
    }

    /// Passes each frame to `each`, with its origin.
    ///
    /// # Errors
    /// Fails with an error that `each` returns, or with [`Error::Corrupt`] if the bytes are not frames.
    pub fn for_each<'a>(
        &'a self,
        direction: Direction,
        mut each: impl FnMut(Frame<'a>, &'a Origin) -> Result<()>,
    ) -> Result<()> {
        let base = self.joined.as_ptr().addr();
        let whole = for_each_frame(&self.joined[self.skip..], direction, |frame: Frame<'a>| {
            let at = frame.payload.as_ptr().addr() - base - frame.head_bytes();
            let index = self.starts.partition_point(|start| *start <= at).max(1) - 1;
            each(frame, &self.origins[index])
        })?;
        if self.skip + whole == self.joined.len() {
            return Ok(());
        }
        let last = self.origins.last();
        Err(Error::corrupt(
            format!(
                "log stream {}",
                last.map_or(StreamId(0), |origin| origin.stream)
            ),
            last.map_or(0, |origin| origin.pos.0),
            "whole frames up to the end of the block",
            format!(
                "{} bytes that are not a frame",
                self.joined.len() - self.skip - whole
            ),
            "The checksums match, so this is a bug in Perdura. Copy the files and report the bug.",
        ))
    }
}

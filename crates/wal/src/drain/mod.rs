//! The drain: a takeover writes the blocks that other nodes have kept in memory.
//!
//! A log with a mirror may acknowledge transactions that its disk does not have. If its writer fails, a takeover
//! collects the *tails* of a life's streams that nodes have kept. It writes the blocks that the disk lacks to the
//! segments of that life. Then comes the ordinary restart, which knows no nodes: to it the log looks as if its flusher
//! had written these blocks. `docs/formats/segment.md` has the rules, under *What a takeover writes*.
//!
//! ```text
//! tails ──longest valid prefix──► kept ──compared with each other and with the disk──► chain ──► durable writes
//! ```
//! The *chain* has the life's blocks from the vouched position on, without a gap; each comes from the disk or from a
//! tail. It is complete before the first write. Then all blocks from the first one that the disk lacks are written, in
//! order.
//!
//! # Invariants
//! * Nothing is written before all tails agree with each other and with the disk.
//! * Each write is durable before the next one begins, and no block is written beyond the range that may be in flight.
//!   So an interrupted drain leaves a state that a crash of a flusher could also leave.
//! * A drain changes no byte of a block that is whole on disk. So it works after any number of interrupted drains.
//!
//! # Deviations
//! A block that is whole on disk may have been in flight when the writer stopped. Reading it does not prove that it is
//! durable. If later blocks are to be written, that block is first written again with the same bytes. Otherwise a power
//! failure could lose it and keep blocks so far behind it that a restart would report the hole as damage. At most the
//! bytes that may be in flight are written twice.

mod chain;
mod kept;
mod write;

use std::sync::Arc;

use perdura_base::{Error, Incarnation, Pos, Result, StreamId, Uuid};
use perdura_device::Disk;

use crate::anchor::History;
use crate::lives::Lives;
use crate::placing::Placement;
use crate::scan::{OpenSegment, open_segments};
use crate::segment::is_foreign;
use crate::sizes::SegmentSizes;
use chain::Chain;
use kept::Kept;
use write::Writer;

/// One stream of the life that is drained, as the anchor describes it.
#[derive(Debug, Clone)]
pub struct DrainLife {
    /// The uuid of the database.
    pub uuid: Uuid,
    /// The life whose blocks are drained.
    pub incarnation: Incarnation,
    /// The stream.
    pub stream: StreamId,
    /// The number of streams of the database.
    pub streams: u8,
    /// The sizes of the database's segments.
    pub sizes: SegmentSizes,
    /// The position at which the life starts in this stream.
    pub start: Pos,
    /// The position up to which the anchor vouches for the stream, or the life's start if that is farther. Nothing
    /// before it is compared or written.
    pub vouched: Pos,
}

impl History {
    /// Returns the facts from the history that a drain of the newest life needs for one stream.
    ///
    /// # Panics
    /// Panics if there is no such stream.
    #[must_use]
    pub fn drain_life(&self, stream: StreamId) -> DrainLife {
        let s = usize::from(stream.0);
        let start = self.open_start()[s];
        assert!(stream.0 < self.streams, "a stream of the log");
        DrainLife {
            uuid: self.uuid,
            incarnation: self.incarnation,
            stream,
            streams: self.streams,
            sizes: self.segments,
            start,
            vouched: self.vouched.ends[s].max(start),
        }
    }
}

/// The part of a stream that one node has kept in memory: blocks that begin at position `from`.
#[derive(Debug, Clone)]
pub struct KeptTail<'a> {
    /// The name of the node, for errors and notes.
    pub holder: String,
    /// The position of the first byte.
    pub from: Pos,
    /// The bytes. Only the prefix of whole valid blocks is used.
    pub bytes: &'a [u8],
}

/// The result of a drain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Drained {
    /// The first position that was written; `end` if nothing was written.
    pub from: Pos,
    /// The end of the stream's valid blocks after the drain.
    pub end: Pos,
    /// The number of blocks written.
    pub blocks: u64,
    /// The bytes of the blocks written.
    pub bytes_written: u64,
    /// Describes the parts of the tails that were not valid, and why.
    pub notes: Vec<String>,
}

impl DrainLife {
    pub(crate) fn placement(&self) -> Placement {
        Placement {
            uuid: self.uuid,
            stream: self.stream,
            incarnation: self.incarnation,
        }
    }

    /// Opens the existing segments of this life.
    fn segments(&self, disk: &dyn Disk) -> Result<Vec<OpenSegment>> {
        let lives = Lives {
            uuid: self.uuid,
            segments: self.sizes,
            closed: &[],
            open: self.incarnation,
            open_start: vec![self.start; usize::from(self.streams)],
            vouched: perdura_base::Epoch(0),
        };
        let mut segments = open_segments(disk, &lives, self.stream)?;
        for segment in &mut segments {
            // The fault is an error here, because the drain may have to write to this segment.
            if let Some(fault) = segment.size_fault.take() {
                return Err(fault);
            }
            if let Some(fault) = segment.header_fault.as_ref().filter(|why| is_foreign(why)) {
                return Err(Error::Foreign {
                    file: segment.id.path(),
                    why: format!("{fault}. Nothing was changed"),
                });
            }
        }
        Ok(segments)
    }
}

/// Writes the blocks of a life that `tails` have and the stream's disk lacks.
///
/// # Errors
/// [`Error::Corrupt`] if two places have different blocks at one position, or if blocks are missing before a tail. In
/// these cases nothing was written. [`Error::Stopped`] if a write or sync failed. [`Error::Fenced`] if another process
/// owns the disk. The disk's error if it has no space: a later drain with the same tails completes the work.
///
/// # Panics
/// Panics if the database does not have the stream, or if the vouched position is before the life's start.
pub fn drain(disk: &Arc<dyn Disk>, life: &DrainLife, tails: &[KeptTail<'_>]) -> Result<Drained> {
    assert!(life.stream < StreamId(life.streams), "a stream of the log");
    assert!(
        life.start <= life.vouched,
        "{} is vouched for, and the life starts at {}",
        life.vouched,
        life.start
    );
    let kept = tails.iter().map(|tail| Kept::read(life, tail));
    let kept: Vec<Kept<'_>> = kept.collect::<Result<_>>()?;
    kept::compare(life, &kept)?;
    let segments = life.segments(disk.as_ref())?;
    let chain = Chain::gather(life, &segments, &kept)?;
    let missing = chain.to_write();
    let mut writer = Writer::new(disk, life, segments);
    for run in chain.runs(missing) {
        writer.write(run)?;
    }
    let written: u64 = missing.iter().map(|link| link.end.0 - link.pos.0).sum();
    assert!(
        missing.is_empty() || missing.last().map(|link| link.end) == Some(chain.end),
        "a drain writes to the end"
    );
    Ok(Drained {
        from: missing.first().map_or(chain.end, |first| first.pos),
        end: chain.end,
        blocks: perdura_base::num::to_u64(missing.len()),
        bytes_written: written,
        notes: kept.iter().filter_map(Kept::note).collect(),
    })
}

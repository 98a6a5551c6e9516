//! The drain: the step in which a takeover writes the blocks that other memories kept.
//!
//! A log with a mirror acknowledges transactions that its disk may not have. When its writer is gone, a takeover
//! collects the *tails* that nodes kept of a life's streams. It writes the blocks that the disk lacks into the segments
//! of that life. The ordinary restart follows, which knows no nodes: to it the log looks as if its flusher had come
//! that far. `docs/formats/segment.md` has the rules, under *What a takeover writes*.
//!
//! ```text
//! tails ──longest valid prefix──► kept ──compared with each other and with the disk──► chain ──► durable writes
//! ```
//! The *chain* holds the life's blocks from the vouched position on, without a gap: each from the disk or from a tail.
//! It is complete before the first write. Then everything from the first block that is missing on disk is written, in
//! order.
//!
//! # Invariants
//! * Nothing is written before all tails agree with each other and with the disk.
//! * Each write is durable before the next one begins, and no block leaves the range that may be in flight. So an
//!   interrupted drain leaves a state that a crash of a flusher may leave.
//! * A drain changes no byte of a block that is whole on disk, so any number of interrupted drains may precede it.
//!
//! # Deviations
//! A whole block on disk may have been in flight when the writer stopped; reading it does not prove that it is durable.
//! If blocks behind it are to be written, it is written again with the same bytes. Otherwise a power failure could lose
//! it and keep blocks so far behind it that a restart would take the hole for damage. At most the bytes that may be in
//! flight are written twice.

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
    /// The database.
    pub uuid: Uuid,
    /// The life whose tails are written.
    pub incarnation: Incarnation,
    /// The stream.
    pub stream: StreamId,
    /// Number of streams of the database.
    pub streams: u8,
    /// Sizes of its segments.
    pub sizes: SegmentSizes,
    /// The position at which the life starts in this stream.
    pub start: Pos,
    /// The position up to which the anchor vouches for the stream, or to which the log was cut if that is farther.
    /// Nothing before it is compared or written.
    pub vouched: Pos,
}

impl History {
    /// Returns the part of the history that a drain of the newest life needs for a stream.
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

/// The part of a stream that one memory kept: bytes of blocks, the first of which is at `from`.
#[derive(Debug, Clone)]
pub struct KeptTail<'a> {
    /// The name of the keeper, for errors and notes.
    pub holder: String,
    /// The position of the first byte.
    pub from: Pos,
    /// The bytes. Only whole valid blocks from the beginning on count.
    pub bytes: &'a [u8],
}

/// The result of a drain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Drained {
    /// The first position that was written; `end` if nothing was.
    pub from: Pos,
    /// The end of the stream's valid blocks now.
    pub end: Pos,
    /// The number of blocks written.
    pub blocks: u64,
    /// The bytes of these blocks.
    pub bytes_written: u64,
    /// The parts of the tails that did not count, and the reasons.
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

    /// Opens the segments of this life that exist.
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
            // A drain may have to write into it.
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

/// Writes the blocks of a life that `tails` hold and the disk of the stream lacks.
///
/// # Errors
/// [`Error::Corrupt`] if two places hold different blocks at one position, or a tail begins behind everything else:
/// nothing was written. [`Error::Stopped`] if a write or sync failed. [`Error::Fenced`] if another process owns the
/// disk. The disk's error for want of space: another drain with the same tails completes it.
///
/// # Panics
/// Panics if the database does not have the stream, or if the anchor vouches for less than the life's start.
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

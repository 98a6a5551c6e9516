//! The drain: a takeover writes the blocks that other nodes have kept in memory.
//!
//! A log with a mirror may acknowledge transactions that its disk does not have. If the log's writer fails, a takeover
//! follows. For each stream of the writer's life, the takeover collects the *tails* that nodes have kept. The takeover
//! writes the missing blocks to the life's segments. Then an ordinary restart runs. The restart does not use the nodes,
//! and finds the log as if the flusher had written these blocks. `docs/formats/segment.md` has the rules, under *What a
//! takeover writes*.
//!
//! ```text
//! tails ──longest valid prefix──► kept ──compared, also with the disk──► chain ──► durable writes
//! ```
//! The *chain* contains the life's blocks from the vouched position on, without a gap. Each block comes from the disk
//! or from a tail. The chain is complete before the first write. Then the drain writes, in order, the first block that
//! the disk lacks and all blocks after it.
//!
//! # Invariants
//! * Nothing is written before all tails and the disk agree.
//! * Each write is durable before the next one begins, and no block is written beyond the range that may be in flight.
//!   So an interrupted drain leaves a state that a crash of a flusher could also leave.
//! * A drain changes no byte of a block that is whole on disk. So it works after any number of interrupted drains.
//!
//! # Deviations
//! A block that is whole on disk may have been in flight when the writer stopped. Reading it does not prove that it is
//! durable. Before the drain writes later blocks, it writes this block again, unchanged. Otherwise a power failure
//! could lose this block but keep later blocks. If the later blocks were far from the hole, a restart would report
//! damage. The limit for bytes in flight also limits the bytes that the drain writes again.

mod chain;
mod kept;
mod write;

use std::sync::Arc;

use perdura_base::{Error, Incarnation, Pos, Result, StreamId, Uuid};
use perdura_device::Disk;

use crate::anchor::History;
use crate::lineage::Lineage;
use crate::lives::Lives;
use crate::placing::Placement;
use crate::scan::{OpenSegment, open_segments};
use crate::segment::is_foreign;
use crate::sizes::SegmentSizes;
use chain::Chain;
use kept::Kept;
use write::Writer;

/// The facts from the anchor about one stream of the life to drain.
#[derive(Debug, Clone)]
pub struct DrainLife {
    /// The uuid of the database.
    pub uuid: Uuid,
    /// The life to drain.
    pub incarnation: Incarnation,
    /// The stream.
    pub stream: StreamId,
    /// The number of streams of the database.
    pub streams: u8,
    /// The sizes of the database's segments.
    pub sizes: SegmentSizes,
    /// The life's start in this stream.
    pub start: Pos,
    /// The later of two positions: the position that the anchor vouches for, and the life's start. The drain neither
    /// compares nor writes blocks before this position.
    pub vouched: Pos,
    /// The life and the ones before it, by their random numbers.
    pub lives: Lineage,
}

impl History {
    /// Returns the facts that a drain of one stream needs about the newest life.
    ///
    /// # Panics
    /// Panics if the stream does not exist.
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
            lives: self.lineage.bounded(),
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
    /// The number of bytes in the blocks written.
    pub bytes_written: u64,
    /// Descriptions of the invalid parts of the tails. Each description says why the part is not valid.
    pub notes: Vec<String>,
}

impl DrainLife {
    pub(crate) fn placement(&self) -> Placement<'_> {
        Placement {
            uuid: self.uuid,
            stream: self.stream,
            incarnation: self.incarnation,
            lives: &self.lives,
        }
    }

    /// Opens the existing segments of the stream in this life.
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
            // A wrong file size is an error here, because the drain may have to write to this segment.
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

/// Completes the stream of `life` on disk: writes the missing blocks from `tails`.
///
/// # Errors
/// [`Error::Corrupt`] if two tails, or a tail and the disk, have different blocks at one position. [`Error::Corrupt`]
/// also if blocks before a tail are missing. In these cases nothing was written. [`Error::Stopped`] if a write or sync
/// failed. [`Error::Fenced`] if another process owns the disk. The disk's error if the disk has no space. A later drain
/// with these tails completes the work.
///
/// # Panics
/// Panics if the stream does not exist or the vouched position is before the life's start.
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

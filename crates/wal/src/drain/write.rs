//! The writes of a drain, each durable before the next one begins.

use std::sync::Arc;

use perdura_base::num::to_usize;
use perdura_base::{Error, Pos, Result};
use perdura_device::{Access, AlignedBuf, Disk, Through, read_exact_at};

use super::DrainLife;
use super::chain::Link;
use crate::block;
use crate::failure::Failure;
use crate::flusher::Segment;
use crate::placing::Chained;
use crate::scan::OpenSegment;
use crate::segment::{SEGMENT_HEADER_BYTES, SegmentId};
use crate::shelf::{SegmentShelf, StreamLife};
use crate::sizes::Span;

/// Writes blocks to the segments of a life, and creates missing segments.
pub(super) struct Writer<'a> {
    disk: &'a Arc<dyn Disk>,
    life: &'a DrainLife,
    /// The segments that already existed.
    found: Vec<OpenSegment>,
    /// The stream's files on the disk. The shelf is opened only if a segment must be created.
    shelf: Option<SegmentShelf>,
    current: Option<Segment>,
}

/// Turns the error of a write into the drain's error. A write that found no space may be repeated. After any other
/// failure the disk's contents are unknown.
fn stopping(error: Error) -> Error {
    match Failure::of_write(error) {
        Failure::Delay(error) => error,
        Failure::Final(error) => error.stopping("the log"),
    }
}

impl<'a> Writer<'a> {
    pub fn new(disk: &'a Arc<dyn Disk>, life: &'a DrainLife, found: Vec<OpenSegment>) -> Self {
        Writer {
            disk,
            life,
            found,
            shelf: None,
            current: None,
        }
    }

    /// Writes contiguous blocks of one segment. They are durable on return.
    pub fn write(&mut self, run: &[Link<'_>]) -> Result<()> {
        let (first, last) = (run.first().expect("a run"), run.last().expect("a run"));
        let span = first.span;
        assert!(
            span.start <= first.pos && last.end <= span.end(),
            "a write from {} to {} lies in one segment",
            first.pos,
            last.end
        );
        let segment = self.enter(span)?;
        let mut bytes = AlignedBuf::zeroed(to_usize(last.end.0 - first.pos.0));
        for link in run {
            let at = |pos: Pos| to_usize(pos.0 - first.pos.0);
            let into = &mut bytes[at(link.pos)..at(link.end)];
            match link.kept {
                Some(kept) => into.copy_from_slice(kept),
                None => read_again(&segment, link, into)?,
            }
        }
        let offset = SEGMENT_HEADER_BYTES + (first.pos.0 - span.start.0);
        let written = segment
            .file
            .write_durable(offset, &[&bytes], Through::WriteAndSync);
        written.map_err(stopping)
    }

    /// Returns the segment with this span, and creates it if it does not exist. On return the segment's header is
    /// durable. So is the mark *followed* in the preceding segment, which says that a next segment exists.
    fn enter(&mut self, span: Span) -> Result<Segment> {
        if let Some(current) = self.current.as_ref().filter(|current| current.span == span) {
            return Ok(current.clone());
        }
        let found = self.found.iter().find(|segment| segment.span == span);
        let followed = found.is_some_and(|segment| segment.followed);
        let id = self.life.placement().id(span);
        if found.is_none() {
            self.make(id, span)?;
        }
        let next = self.open(span)?;
        let ends_here = |of: &&OpenSegment| of.span.end() == span.start;
        let before = match self.current.take() {
            Some(current) if current.span.end() == span.start => Some(current),
            _ => match self.found.iter().find(ends_here).map(|of| of.span) {
                Some(before) => Some(self.open(before)?),
                None => None,
            },
        };
        let placement = self.life.placement();
        let chained = Chained {
            next: &next,
            followed,
            before: before.as_ref(),
        };
        let settled = placement.settle(self.disk.as_ref(), chained, |file, header, _| {
            file.write_durable(0, &[header], Through::WriteAndSync)
        });
        settled.map_err(stopping)?;
        assert!(
            before.is_none_or(|before| before.span.end() == span.start),
            "segments are entered in order"
        );
        self.current = Some(next.clone());
        Ok(next)
    }

    fn open(&self, span: Span) -> Result<Segment> {
        let path = self.life.placement().id(span).path();
        let file = self.disk.open(&path, Access::Direct)?;
        Ok(Segment { span, file })
    }

    /// Gives a prepared file the name of a segment. Prepares a file first if none is prepared.
    fn make(&mut self, id: SegmentId, span: Span) -> Result<()> {
        let shelf = match &mut self.shelf {
            Some(shelf) => shelf,
            none => {
                let owner = StreamLife {
                    stream: self.life.stream,
                    uuid: self.life.uuid,
                    sizes: self.life.sizes,
                    incarnation: self.life.incarnation,
                    life: self.life.start,
                    has_deposed: true,
                };
                // Every segment counts as live here, because only the restart decides which segments are void.
                none.insert(SegmentShelf::open(Arc::clone(self.disk), owner, |_| true)?)
            }
        };
        assert!(
            self.life.sizes.contain(span.bytes) && id.start == span.start,
            "no segment of this life has {} bytes",
            span.bytes
        );
        shelf.skip_to(span.start);
        while !shelf.has_spare(span.bytes) {
            match shelf.plan_spare(span.bytes).prepare(&|| {}) {
                Ok(spare) => shelf.add_spare(spare),
                Err(error) if error.is_disk_full() && shelf.give_up_spare()? => {}
                Err(error) => return Err(error),
            }
        }
        shelf.place(id, span)
    }
}

/// Reads a block from the disk again, because no tail has it.
fn read_again(segment: &Segment, link: &Link<'_>, into: &mut [u8]) -> Result<()> {
    let offset = SEGMENT_HEADER_BYTES + (link.pos.0 - segment.span.start.0);
    read_exact_at(segment.file.as_ref(), offset, into)?;
    match block::decode(into).filter(|header| header.pos == link.pos) {
        Some(_) => Ok(()),
        None => Err(Error::corrupt(
            segment.file.path(),
            offset,
            format!(
                "the whole block at position {} that was read before",
                link.pos
            ),
            "other bytes",
            "The disk now returns other bytes than a moment ago. Replace the disk and restore \
             the file from a backup.",
        )),
    }
}

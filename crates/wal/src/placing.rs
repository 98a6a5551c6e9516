//! Placing a segment: a prepared file gets a name and a header, and the preceding segment gets a mark.
//!
//! All of this is durable before the first block of the segment is written. So a durable write of blocks has to make
//! only the blocks durable. The thread that prepares files places the next segment while the current one is being
//! written. If a flusher reaches the current segment's end before that, the flusher places the next segment.
//!
//! # Invariants
//! * A segment gets its name first. Then the preceding segment is marked as *followed*. So if a restart finds the mark
//!   but no next segment, the next segment was lost.
//! * At most one segment is placed ahead of the segment that is being written.

use std::sync::Arc;

use perdura_base::flaw::{Flaw, armed};
use perdura_base::{Error, Incarnation, Result, StreamId, Uuid};
use perdura_device::{Access, AlignedBuf, Disk, File, Through};

use crate::failure::Failure;
use crate::flusher::Segment;
use crate::lineage::Lineage;
use crate::log::{Stream, Wal};
use crate::segment::{SegmentId, encode_header};
use crate::shelf::sync_log_dir;
use crate::sizes::Span;
use crate::trouble::Trouble;

/// The owner of the segments that are being placed.
pub(crate) struct Placement<'a> {
    pub uuid: Uuid,
    pub stream: StreamId,
    pub incarnation: Incarnation,
    /// The incarnation and the ones before it, by their random numbers.
    pub lives: &'a Lineage,
}

/// A file that will become a stream's next segment.
#[derive(Clone, Copy)]
pub(crate) struct Chained<'a> {
    pub next: &'a Segment,
    /// True if the segment's header gets the mark *followed*.
    pub followed: bool,
    /// The preceding segment, to be marked as followed.
    pub before: Option<&'a Segment>,
}

impl Placement<'_> {
    /// Returns the id of the segment that has this span. The segment's name is made from the id.
    pub fn id(&self, span: Span) -> SegmentId {
        SegmentId {
            stream: self.stream,
            start: span.start,
            incarnation: self.incarnation,
        }
    }

    /// Turns a file that already has a segment's name into the next segment of the stream. It writes the file's header,
    /// makes the name durable, and then marks the preceding segment as followed. Each step is durable before the next
    /// one, and each may be repeated. `write` writes a header durably, except with a seeded bug.
    pub fn settle<E: From<Error>>(
        &self,
        disk: &dyn Disk,
        chained: Chained<'_>,
        write: impl Fn(&dyn File, &[u8], Flaw) -> Result<(), E>,
    ) -> Result<(), E> {
        let Chained {
            next,
            followed,
            before,
        } = chained;
        let header = |span: Span, followed| {
            let id = self.id(span);
            let bytes = encode_header(id, &self.uuid, span.bytes, followed, self.lives);
            AlignedBuf::copy_of(&bytes)
        };
        let own = header(next.span, followed);
        write(next.file.as_ref(), &own, Flaw::HeaderNotDurable)?;
        sync_log_dir(disk)?;
        let Some(before) = before else {
            return Ok(());
        };
        assert_eq!(
            before.span.end(),
            next.span.start,
            "segments follow each other without a gap"
        );
        let mark = header(before.span, true);
        write(before.file.as_ref(), &mark, Flaw::MarkNotDurable)
    }
}

impl Wal {
    /// Places the next segment of a stream, unless it is already placed or no file is prepared for it. Returns whether
    /// a segment was placed.
    ///
    /// # Errors
    /// Fails like [`flush_begin`](Self::flush_begin).
    pub fn place_ahead(&self, stream: StreamId) -> Result<bool> {
        let s = &self.streams[usize::from(stream.0)];
        let Some(mut half) = s.placing.try_lock() else {
            return Ok(false);
        };
        let Some(span) = self.next_to_place(stream) else {
            return Ok(false);
        };
        // Until the first block is written there is no current segment, so nothing is placed ahead of it.
        let has_current = s.flush.lock().segment.is_some();
        if !has_current || (half.is_none() && !s.shelf.lock().has_spare(span.bytes)) {
            return Ok(false);
        }
        self.place_step(stream, s, span, &mut half)?;
        Ok(true)
    }

    /// Places the next segment, unless it is already placed.
    pub(crate) fn place_now(&self, stream: StreamId) -> Result<()> {
        let s = &self.streams[usize::from(stream.0)];
        let mut half = s.placing.lock();
        match self.next_to_place(stream) {
            Some(span) => self.place_step(stream, s, span, &mut half),
            None => Ok(()),
        }
    }

    /// Returns whether the next segment is placed. A flusher that reaches it can then continue at once.
    #[must_use]
    pub fn is_placed_ahead(&self, stream: StreamId) -> bool {
        let s = &self.streams[usize::from(stream.0)];
        s.flush.lock().placed.is_some()
    }

    /// Returns the span of the next segment to place; `None` if that segment is placed or the log has failed. The
    /// caller holds `placing`.
    fn next_to_place(&self, stream: StreamId) -> Option<Span> {
        let s = &self.streams[usize::from(stream.0)];
        let state = s.flush.lock();
        if state.placed.is_some() || state.has_failed {
            return None;
        }
        let life = self.start[usize::from(stream.0)];
        let last = state.segment.as_ref();
        let start = last.map_or(life, |last| last.span.end());
        Some(self.options.segments.span_at(life, start))
    }

    fn place_step(
        &self,
        stream: StreamId,
        s: &Stream,
        span: Span,
        half: &mut Option<Segment>,
    ) -> Result<()> {
        match self.make_segment(stream, s, span, half) {
            Ok(segment) => {
                assert_eq!(segment.span, span, "the segment that was to be placed");
                let mut state = s.flush.lock();
                assert!(state.placed.is_none(), "one thread places at a time");
                state.placed = Some(segment);
                self.troubles.clear(Trouble::Unplaced, stream);
                // The header has been written, so the disk no longer refuses it. The trouble must be cleared here:
                // while a header is refused, no block is written, so no written block can clear it.
                if !state.flights.has_refused() {
                    self.troubles.clear(Trouble::Refused, stream);
                }
                Ok(())
            }
            Err(failure) => {
                let failure = failure.of_lost_name();
                if let Failure::Delay(error) = &failure
                    && error.is_shortage()
                {
                    self.troubles.set(Trouble::Unplaced, stream);
                }
                Err(self.note_failure(stream, &mut s.flush.lock(), failure))
            }
        }
    }

    /// Creates and places the segment. After a delay it may be called again: each step is taken only once or is
    /// idempotent.
    fn make_segment(
        &self,
        stream: StreamId,
        s: &Stream,
        span: Span,
        half: &mut Option<Segment>,
    ) -> Result<Segment, Failure> {
        let placement = Placement {
            uuid: self.uuid,
            stream,
            incarnation: self.incarnation,
            lives: &self.lives,
        };
        let id = placement.id(span);
        let disk = Arc::clone(&s.shelf.lock().disk);
        let next = match half.take() {
            Some(named) => named,
            None => {
                // The file already has its name if an earlier call could not open it for want of a descriptor.
                if !s.shelf.lock().is_placed(id) {
                    self.name_file(s, id, span).map_err(Failure::of_placing)?;
                }
                let file = disk.open(&id.path(), Access::Direct)?;
                Segment { span, file }
            }
        };
        let next = half.insert(next);
        let before = s.flush.lock().segment.clone();
        let chained = Chained {
            next,
            followed: false,
            before: before.as_ref(),
        };
        placement.settle(disk.as_ref(), chained, |file, header, lost| {
            self.write_header(stream, file, header, lost)
        })?;
        half.take()
            .ok_or_else(|| Failure::Final(Error::Stopped("a segment was placed twice".into())))
    }

    fn write_header(
        &self,
        stream: StreamId,
        file: &dyn File,
        header: &[u8],
        lost: Flaw,
    ) -> Result<(), Failure> {
        let written = match armed(lost) {
            true => file.write_at(0, header),
            false => file.write_durable(0, &[header], Through::WriteAndSync),
        };
        written.map_err(|error| self.note_refused(stream, error))
    }

    /// Gives a prepared file the name of a segment. Prepares a file first if none is prepared.
    fn name_file(&self, s: &Stream, id: SegmentId, span: Span) -> Result<()> {
        self.ensure_spare(id.stream, span.bytes)?;
        let mut shelf = s.shelf.lock();
        let placed = shelf.place(id, span);
        s.note_room(&shelf);
        match &placed {
            Ok(()) => self.troubles.clear(Trouble::Unplaced, id.stream),
            Err(_) => self.troubles.set(Trouble::Unplaced, id.stream),
        }
        // Preparing the next file takes longer than filling this one, so begin at once.
        self.wake_preparer();
        placed
    }
}

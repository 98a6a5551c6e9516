//! Placing segments: a prepared file gets its name, its header, and the mark in the segment before it.
//!
//! All of this is durable before the first block of the segment is written. So a durable write of a block needs nothing
//! else: it makes its own range durable and no other. The thread that prepares files places the next segment while the
//! one before it is written. A flusher that comes to the end of a segment first does it itself.
//!
//! # Invariants
//! * A segment has its name before the one before it is marked as followed: a restart that misses it knows that it was
//!   lost.
//! * At most one segment is placed ahead of the one that is written.

use std::sync::Arc;

use perdura_base::flaw::{Flaw, armed};
use perdura_base::{Error, Incarnation, Result, StreamId, Uuid};
use perdura_device::{Access, AlignedBuf, Disk, File, Through};

use crate::failure::Failure;
use crate::flusher::Segment;
use crate::log::{Stream, Wal};
use crate::segment::{SegmentId, encode_header};
use crate::shelf::sync_log_dir;
use crate::sizes::Span;
use crate::trouble::Trouble;

/// The owner of the segments that are placed.
pub(crate) struct Placement {
    pub uuid: Uuid,
    pub stream: StreamId,
    pub incarnation: Incarnation,
}

/// A segment that is to be the next one of its stream.
#[derive(Clone, Copy)]
pub(crate) struct Chained<'a> {
    pub next: &'a Segment,
    /// True once its header says that another one follows.
    pub followed: bool,
    /// The segment before it, whose header must say so too.
    pub before: Option<&'a Segment>,
}

impl Placement {
    /// Returns the contents of the name of a segment.
    pub fn id(&self, span: Span) -> SegmentId {
        SegmentId {
            stream: self.stream,
            start: span.start,
            incarnation: self.incarnation,
        }
    }

    /// Makes a file that has a segment's name the stream's next segment. It writes its header, then its name for good,
    /// then the mark in the segment before it. Each step is durable before the next one, and all may be repeated.
    /// `write` writes a header durably, but not with a seeded bug.
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
            AlignedBuf::copy_of(&encode_header(id, &self.uuid, span.bytes, followed))
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
    /// Places the next segment of a stream if a file for it is prepared and it is not placed yet. Returns
    /// whether it placed one.
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
        // Before the first block is written, there is no segment that this one would be ahead of.
        let has_current = s.flush.lock().segment.is_some();
        if !has_current || (half.is_none() && !s.shelf.lock().has_spare(span.bytes)) {
            return Ok(false);
        }
        self.place_step(stream, s, span, &mut half)?;
        Ok(true)
    }

    /// Places the next segment, if it is not placed.
    pub(crate) fn place_now(&self, stream: StreamId) -> Result<()> {
        let s = &self.streams[usize::from(stream.0)];
        let mut half = s.placing.lock();
        match self.next_to_place(stream) {
            Some(span) => self.place_step(stream, s, span, &mut half),
            None => Ok(()),
        }
    }

    /// Returns whether the next segment is placed, so that a flusher that comes to it continues at once.
    #[must_use]
    pub fn is_placed_ahead(&self, stream: StreamId) -> bool {
        let s = &self.streams[usize::from(stream.0)];
        s.flush.lock().placed.is_some()
    }

    /// Returns the segment behind the one that is written. The caller holds `placing`.
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
                // A header that was refused is written now. While writes are refused for it, no other write would show
                // that there is space again.
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

    /// Makes the segment. May be repeated after a delay: each part is done once or is idempotent.
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
        };
        let id = placement.id(span);
        let disk = Arc::clone(&s.shelf.lock().disk);
        let next = match half.take() {
            Some(named) => named,
            None => {
                // A file that could not be opened for want of a descriptor has its name.
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

    /// Gives a prepared file the name of a segment. Makes the file now if none is prepared.
    fn name_file(&self, s: &Stream, id: SegmentId, span: Span) -> Result<()> {
        self.ensure_spare(id.stream, span.bytes)?;
        let mut shelf = s.shelf.lock();
        let placed = shelf.place(id, span);
        s.note_room(&shelf);
        match &placed {
            Ok(()) => self.troubles.clear(Trouble::Unplaced, id.stream),
            Err(_) => self.troubles.set(Trouble::Unplaced, id.stream),
        }
        // Making the next file takes longer than filling this one, so start at once.
        self.wake_preparer();
        placed
    }
}

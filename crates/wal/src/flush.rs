//! The flusher of one stream: a machine that writes and syncs sealed blocks, one I/O per step.
//!
//! ```text
//! Idle ──the tail has blocks──► Writing ──the tail is empty──► Syncing ──synced──► Idle, D advances
//! ```
//! While the flusher is idle, the sealing machine (`seal`) fills the tail. The engine calls the steps
//! from a thread, the simulator in an order that its seed chooses.
//!
//! # Failures
//! A failed write or sync stops the log and is never repeated. [`Error::Fenced`], with which a device
//! reports that another process owns the log, stops it too. Two failures only delay the step, which is
//! then repeated: a segment cannot be prepared, or a *write* is refused for want of space, which
//! copy-on-write file systems do even within a file's length. No byte of a refused write counts: its block
//! stays at the head of the tail, and no later block is written before it. A *sync* that fails for want of
//! space is final like any other failed sync.

use std::sync::Arc;

use perdura_base::flaw::{Flaw, armed};
use perdura_base::limits::{IN_FLIGHT_BYTES_MAX, SECTOR_BYTES};
use perdura_base::{Error, Pos, Result, StreamId};
use perdura_device::{Access, AlignedBuf, File};

use crate::failure::Failure;
use crate::flusher::{FlushState, Segment};
use crate::log::{Stream, Wal};
use crate::rung::Rung;
use crate::segment::{SEGMENT_HEADER_BYTES, SegmentId, encode_header};
use crate::shelf::sync_log_dir;
use crate::sizes::Span;
use crate::sync::Ordering;
use crate::trouble::Trouble;

#[cfg(feature = "flaws")]
mod seeded;

/// What a step did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FlushProgress {
    /// There was nothing to write.
    Idle,
    /// A block was written; more steps follow.
    Wrote,
    /// Everything taken is synced; D may have advanced.
    Synced,
}

impl Wal {
    /// Takes one step of a stream's flusher.
    ///
    /// # Errors
    /// The error that delays the step, which may be repeated; if [`Wal::failure`] returns a reason, the
    /// error that stopped the log.
    pub fn flush_step(&self, stream: StreamId) -> Result<FlushProgress> {
        let s = &self.streams[usize::from(stream.0)];
        let mut state = s.flush.lock();
        let state = &mut *state;
        // Behind the lock: another thread's step of this stream may just have failed.
        self.check()?;
        assert!(
            !state.has_failed,
            "stream {stream} is written after a failure that is final"
        );
        #[cfg(feature = "flaws")]
        state.write_late()?;
        if state.tail.is_empty() && state.written_end.is_none() {
            self.seal_step(stream, s, &mut state.tail);
            if state.tail.is_empty() {
                return Ok(FlushProgress::Idle);
            }
        }
        let syncs = state.tail.is_empty() || (state.delayed && state.written_end.is_some());
        let step = if syncs {
            self.sync_batch(s, state)
        } else {
            self.write_block(stream, s, state)
        };
        match step {
            Ok(progress) => Ok(progress),
            Err(Failure::Delay(error)) => {
                state.delayed = true;
                Err(error)
            }
            Err(Failure::Final(error)) => {
                state.has_failed = true;
                self.stop(&format!("log stream {stream}"), &error);
                Err(error)
            }
        }
    }

    fn write_block(
        &self,
        stream: StreamId,
        s: &Stream,
        state: &mut FlushState,
    ) -> Result<FlushProgress, Failure> {
        let Some(next) = state.tail.front() else {
            return Ok(FlushProgress::Idle);
        };
        let (pos, end) = (next.pos, next.end());
        if state
            .segment
            .as_ref()
            .is_none_or(|segment| pos >= segment.span.end())
        {
            self.next_segment(stream, s, state, pos)?;
        }
        let (Some(segment), Some(block)) = (&state.segment, state.tail.front()) else {
            return Ok(FlushProgress::Idle);
        };
        assert!(
            segment.span.start <= pos && end <= segment.span.end(),
            "a block lies in one segment"
        );
        let synced = s.reached[Rung::Disk].load(Ordering::Relaxed);
        assert!(
            end.0 - synced <= IN_FLIGHT_BYTES_MAX,
            "too much is in flight"
        );
        let (bytes, names) = (block.bytes(), block.names);
        let at = SEGMENT_HEADER_BYTES + (pos.0 - segment.span.start.0);
        let written = segment.file.write_at(at, bytes);
        let written = written.map_err(|error| self.note_refused(stream, error));
        #[cfg(feature = "flaws")]
        let written = seeded::count_refused(&mut state.late, written, &segment.file, at, bytes);
        written?;
        assert!(
            state.written_end.is_none_or(|written| written == pos),
            "the block at {pos} does not follow what is written"
        );
        self.troubles.clear(Trouble::Refused, stream);
        state.delayed = false;
        state.written_end = Some(end);
        state.names_durable = state.names_durable.max(names);
        self.counters.blocks.fetch_add(1, Ordering::Relaxed);
        self.counters
            .device_bytes
            .fetch_add(end.0 - pos.0, Ordering::Relaxed);
        if let Some(block) = state.tail.pop() {
            s.inner.lock().recycle(block.into_buf());
        }
        Ok(FlushProgress::Wrote)
    }

    /// Opens the segment that holds `pos`. May be repeated after a delay: each part is
    /// done once or is idempotent.
    fn next_segment(
        &self,
        stream: StreamId,
        s: &Stream,
        state: &mut FlushState,
        pos: Pos,
    ) -> Result<(), Failure> {
        let life = self.start[usize::from(stream.0)];
        let span = self.options.segments.span_at(life, pos);
        assert_eq!(span.start, pos, "a segment begins with a block");
        assert_eq!(
            state.segment.as_ref().map_or(life, |last| last.span.end()),
            span.start,
            "segments follow each other without a gap"
        );
        let id = |span: Span| SegmentId {
            stream,
            start: span.start,
            incarnation: self.incarnation,
        };
        let next = match state.placed.take() {
            Some(placed) => placed,
            None => {
                self.place(s, id(span), span).map_err(Failure::of_placing)?;
                let disk = Arc::clone(&s.shelf.lock().disk);
                let file = disk.open(&id(span).path(), Access::Direct)?;
                Segment { span, file }
            }
        };
        let next = state.placed.insert(next);
        let header = |span: Span, followed| {
            let mut buf = AlignedBuf::zeroed(SECTOR_BYTES);
            buf.copy_from_slice(&encode_header(id(span), &self.uuid, span.bytes, followed));
            buf
        };
        let opening = next.file.write_at(0, &header(span, false));
        opening.map_err(|error| self.note_refused(stream, error))?;
        // The name first: then the segment before it may say that this one exists, and a restart
        // that misses it knows that it was lost.
        let disk = Arc::clone(&s.shelf.lock().disk);
        sync_log_dir(disk.as_ref())?;
        if let Some(old) = &state.segment {
            let closing = old.file.write_at(0, &header(old.span, true));
            closing.map_err(|error| self.note_refused(stream, error))?;
        }
        if let Some(old) = std::mem::replace(&mut state.segment, state.placed.take()) {
            // To be synced with this batch whatever happens next: it holds blocks of it.
            state.unsynced.push(old.file);
        }
        Ok(())
    }

    /// Gives a prepared file, made now if there is none, the name of a segment.
    fn place(&self, s: &Stream, id: SegmentId, span: Span) -> Result<()> {
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

    /// Remembers a write that the disk refused.
    fn note_refused(&self, stream: StreamId, error: Error) -> Failure {
        let failure = Failure::of_write(error);
        if matches!(failure, Failure::Delay(_)) {
            self.troubles.set(Trouble::Refused, stream);
        }
        failure
    }

    fn sync_batch(&self, s: &Stream, state: &mut FlushState) -> Result<FlushProgress, Failure> {
        for file in &state.unsynced {
            self.sync_file(file.as_ref())?;
        }
        state.unsynced.clear();
        if let Some(segment) = &state.segment {
            self.sync_file(segment.file.as_ref())?;
        }
        let end = state.written_end.take();
        let end = end.expect("a flusher that has written nothing since its last sync is idle");
        if let Some(next) = state.tail.front() {
            assert_eq!(
                end, next.pos,
                "what is synced reaches up to what is not written"
            );
        }
        let filled_end = s.filled_end.load(Ordering::SeqCst);
        assert!(
            end.0 <= filled_end,
            "{end} is synced, and blocks are filled up to {filled_end}"
        );
        assert!(
            state.names_durable <= self.durable(Rung::Disk),
            "a synced block names an epoch that was durable"
        );
        self.evidenced
            .fetch_max(state.names_durable.0, Ordering::SeqCst);
        self.pass(Rung::Disk, s, end);
        Ok(FlushProgress::Synced)
    }

    fn sync_file(&self, file: &dyn File) -> Result<()> {
        self.counters.syncs.fetch_add(1, Ordering::Relaxed);
        let first = file.sync();
        if first.is_err() && armed(Flaw::SyncRetried) {
            return file.sync();
        }
        first
    }
}

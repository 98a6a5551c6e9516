//! The flusher of one stream: a machine that begins durable writes of sealed blocks, and collects those
//! that have completed.
//!
//! ```text
//! filled ──begin: sealed, contiguous blocks in one write──► in flight ──collect──► durable, D advances
//! ```
//! Several writes may be in flight. They complete in any order; D advances over those that are durable without a gap.
//! Where the device completes writes by itself, no thread waits: it begins a write, does other work, and collects
//! later. Otherwise the thread that collects waits, and makes the write itself. The engine calls the steps from its
//! threads, the simulator in an order that its seed chooses.
//!
//! # What a restart finds
//! A write that is not durable leaves a hole or a torn block, or nothing of it is missing; valid blocks may follow. All
//! of them end within the bytes that may be in flight, counted from the stream's durable end, because no block is
//! written beyond that. A block names the D that was reached when it was sealed, and no epoch in the hole was durable
//! then. So a hole below a named D is damage, and any other is an expected end.
//!
//! # Failures
//! A write that fails stops the log and is never repeated. If the device ends a write before its last byte, the write
//! is continued from there, and fails with the error of the rest. [`Error::Fenced`], with which a device reports that
//! another process owns the log, stops it too. Two failures only delay a step, which is then repeated: a segment cannot
//! be prepared, or a write is refused for want of space. Copy-on-write file systems refuse so even within a file's
//! length. No byte of a refused write counts: it keeps its place, and is written again with the same bytes before any
//! new write begins.

use perdura_base::flaw::{Flaw, armed};
use perdura_base::limits::IN_FLIGHT_BYTES_MAX;
use perdura_base::num::to_u64;
use perdura_base::{Error, Pos, Result, StreamId};
use perdura_device::durable::PARTS_MAX;
use perdura_device::{Completed, DurableWrite, Part, Through};

use crate::failure::Failure;
use crate::flight::Flight;
use crate::flusher::FlushState;
use crate::log::{Stream, Wal};
use crate::rung::Rung;
use crate::segment::SEGMENT_HEADER_BYTES;
use crate::sync::Ordering;
use crate::trouble::Trouble;

#[cfg(feature = "flaws")]
mod seeded;

/// The result of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FlushProgress {
    /// Nothing was left to write.
    Idle,
    /// A write was begun or has ended; more steps follow.
    Wrote,
    /// More of the stream is durable; D may have advanced.
    Synced,
}

/// The choice whether to wait for a write in flight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wait {
    /// Collect the writes that have completed.
    No,
    /// Wait until a write has completed, unless none is in flight.
    ForOne,
}

/// The result of collecting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Collected {
    /// More of the stream is durable; D may have advanced.
    Advanced,
    /// No more of the stream is durable.
    Nothing,
    /// Another thread collects, and perhaps waits.
    Elsewhere,
}

/// The result of an attempt to begin a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Begun {
    /// A write was begun.
    Yes,
    /// There is nothing to write, or as much is in flight as may be.
    No,
    /// The segment that comes next must be placed first, which takes time.
    Unplaced,
}

impl Wal {
    /// Takes one step of a stream's flusher, for a caller that has nothing else to do. Collects the completed writes,
    /// or begins a write, or waits for one.
    ///
    /// # Errors
    /// Fails like [`flush_begin`](Self::flush_begin).
    pub fn flush_step(&self, stream: StreamId) -> Result<FlushProgress> {
        if self.flush_end(stream, Wait::No)? == Collected::Advanced {
            return Ok(FlushProgress::Synced);
        }
        match self.flush_begin(stream) {
            Ok(true) => return Ok(FlushProgress::Wrote),
            Ok(false) => {}
            // The writes in flight do not wait for a delayed step.
            Err(error) if self.in_flight(stream) == 0 || self.failure().is_some() => {
                return Err(error);
            }
            Err(_) => {}
        }
        if self.in_flight(stream) == 0 {
            return Ok(FlushProgress::Idle);
        }
        match self.flush_end(stream, Wait::ForOne)? {
            Collected::Advanced => Ok(FlushProgress::Synced),
            Collected::Nothing => Ok(FlushProgress::Wrote),
            Collected::Elsewhere => {
                drop(self.streams[usize::from(stream.0)].collecting.lock());
                Ok(FlushProgress::Wrote)
            }
        }
    }

    /// Returns whether a thread collects completions of a stream, and perhaps waits for them.
    #[must_use]
    pub fn is_collecting(&self, stream: StreamId) -> bool {
        let s = &self.streams[usize::from(stream.0)];
        s.collecting.try_lock().is_none()
    }

    /// Returns the number of writes of a stream that have begun and are not known to be durable.
    #[must_use]
    pub fn in_flight(&self, stream: StreamId) -> u64 {
        self.streams[usize::from(stream.0)]
            .in_flight
            .load(Ordering::SeqCst)
    }

    /// Returns whether one more write may be in flight.
    #[must_use]
    pub fn has_slot(&self, stream: StreamId) -> bool {
        let s = &self.streams[usize::from(stream.0)];
        self.in_flight(stream) < to_u64(s.queue.depth())
    }

    /// Returns whether writes of a stream complete while no thread waits for them.
    #[must_use]
    pub fn completes_by_itself(&self, stream: StreamId) -> bool {
        self.streams[usize::from(stream.0)].queue.ready().is_some()
    }

    /// Returns a descriptor that is readable while a write of the stream has completed and was not collected. `None`:
    /// writes do not complete by themselves.
    #[must_use]
    pub fn completions(&self, stream: StreamId) -> Option<std::os::fd::BorrowedFd<'_>> {
        self.streams[usize::from(stream.0)].queue.ready()
    }

    /// Begins one write, if one more may be in flight. It has as many of a stream's sealed blocks as are contiguous in
    /// a segment. Returns whether it began one.
    ///
    /// # Errors
    /// Fails with the error that delays the step, which may be repeated. If [`Wal::failure`] returns a reason, it fails
    /// with the error that stopped the log.
    pub fn flush_begin(&self, stream: StreamId) -> Result<bool> {
        loop {
            match self.begin_if_placed(stream)? {
                Begun::Yes => return Ok(true),
                Begun::No => return Ok(false),
                Begun::Unplaced => self.place_now(stream)?,
            }
        }
    }

    /// Like [`flush_begin`](Self::flush_begin), for a thread that does no I/O itself: the segment that comes next is
    /// not placed.
    ///
    /// # Errors
    /// Fails like `flush_begin`.
    pub fn begin_if_placed(&self, stream: StreamId) -> Result<Begun> {
        let s = &self.streams[usize::from(stream.0)];
        match self.next_write(stream, s)? {
            Next::Write(write) => {
                s.queue.submit(write);
                Ok(Begun::Yes)
            }
            Next::Nothing => Ok(Begun::No),
            Next::Unplaced => Ok(Begun::Unplaced),
        }
    }

    /// Begins a write and makes it in this thread, which has nothing else to do. Where the processors are busy, a write
    /// that completes by itself may wait for one of them longer than it takes. Does nothing if another write is in
    /// flight.
    ///
    /// # Errors
    /// Fails like [`flush_begin`](Self::flush_begin).
    pub fn flush_in_place(&self, stream: StreamId) -> Result<Collected> {
        let s = &self.streams[usize::from(stream.0)];
        let Some(_one_at_a_time) = s.collecting.try_lock() else {
            return Ok(Collected::Elsewhere);
        };
        if self.in_flight(stream) > 0 {
            return Ok(Collected::Nothing);
        }
        let Next::Write(write) = self.next_write(stream, s)? else {
            return Ok(Collected::Nothing);
        };
        let parts: Vec<&[u8]> = write.parts.iter().map(Part::bytes).collect();
        let (file, through) = (&write.file, Through::WriteAndSync);
        let result = file.write_durable(write.offset, &parts, through);
        let completed = Completed {
            token: write.token,
            parts: write.parts,
            result,
        };
        self.take_completed(stream, s, vec![completed])
    }

    /// Returns the write that begins next, which counts as in flight from here on.
    fn next_write(&self, stream: StreamId, s: &Stream) -> Result<Next> {
        let mut state = s.flush.lock();
        let state = &mut *state;
        // The check comes after the lock: another thread's step of this stream may just have failed.
        self.check()?;
        assert!(
            !state.has_failed,
            "stream {stream} is written after a failure that is final"
        );
        #[cfg(feature = "flaws")]
        state.write_late()?;
        if let Some(again) = state.flights.begin_again() {
            return Ok(Next::Write(again));
        }
        if state.flights.len() >= s.queue.depth() {
            return Ok(Next::Nothing);
        }
        self.seal_step(stream, s, &mut state.tail);
        let Some(first) = state.tail.next_to_write().map(|first| first.pos) else {
            return Ok(Next::Nothing);
        };
        let last = state.segment.as_ref();
        if last.is_none_or(|last| last.span.end() <= first) {
            match state.placed.take() {
                Some(placed) => state.segment = Some(placed),
                None => return Ok(Next::Unplaced),
            }
        }
        let (flight, parts) = self.gather(s, state);
        let write = state.flights.begin(flight, parts);
        s.in_flight
            .store(to_u64(state.flights.len()), Ordering::SeqCst);
        Ok(Next::Write(write))
    }

    /// Takes the blocks from the tail that one write makes durable.
    fn gather(&self, s: &Stream, state: &mut FlushState) -> (Flight, Vec<Part>) {
        let segment = state.segment.as_ref().expect("a segment is placed");
        let bytes_max = IN_FLIGHT_BYTES_MAX / to_u64(s.queue.depth().max(2));
        let first = state.tail.next_to_write().expect("a block waits");
        let (start, mut end, mut names) = (first.pos, first.pos, first.names);
        let mut parts = Vec::new();
        while let Some(block) = state.tail.next_to_write() {
            let longer = block.end().0 - start.0;
            let fits = parts.is_empty() || (longer <= bytes_max && parts.len() < PARTS_MAX);
            if !fits || segment.span.end() <= block.pos {
                break;
            }
            assert!(
                block.pos == end && block.end() <= segment.span.end(),
                "a block lies in one segment, behind the one before it"
            );
            (end, names) = (block.end(), names.max(block.names));
            parts.extend(state.tail.pop().map(|block| block.into_part()));
            #[cfg(feature = "flaws")]
            seeded::seal_anew(&mut parts, self.durable(Rung::Disk));
        }
        assert!(
            segment.span.start <= start,
            "a write at {start} begins in its segment"
        );
        let synced = s.reached[Rung::Disk].load(Ordering::Relaxed);
        assert!(
            end.0 - synced <= IN_FLIGHT_BYTES_MAX,
            "too much is in flight"
        );
        self.counters
            .blocks
            .fetch_add(to_u64(parts.len()), Ordering::Relaxed);
        self.counters
            .device_bytes
            .fetch_add(end.0 - start.0, Ordering::Relaxed);
        let offset = SEGMENT_HEADER_BYTES + (start.0 - segment.span.start.0);
        (Flight::new(&segment.file, offset, start, end, names), parts)
    }

    /// Collects the writes of a stream that have completed, unless another thread does.
    ///
    /// # Errors
    /// Fails like [`flush_begin`](Self::flush_begin).
    pub fn flush_end(&self, stream: StreamId, wait: Wait) -> Result<Collected> {
        let s = &self.streams[usize::from(stream.0)];
        let mut done = Vec::new();
        if wait == Wait::No && self.in_flight(stream) == 0 {
            return Ok(Collected::Nothing);
        }
        let Some(_one_at_a_time) = s.collecting.try_lock() else {
            return Ok(Collected::Elsewhere);
        };
        if wait == Wait::ForOne {
            s.queue.wait();
        }
        s.queue.collect(&mut done);
        if done.is_empty() {
            return self.check().map(|()| Collected::Nothing);
        }
        self.take_completed(stream, s, done)
    }

    /// Takes the completed writes. The caller holds `collecting`.
    fn take_completed(
        &self,
        stream: StreamId,
        s: &Stream,
        done: Vec<Completed>,
    ) -> Result<Collected> {
        let mut state = s.flush.lock();
        let mut failed = None;
        for completed in done {
            if let Err(failure) = self.note_completed(stream, s, &mut state, completed) {
                failed = Some(match (failed, failure) {
                    (Some(Failure::Final(first)), _) => Failure::Final(first),
                    (_, failure) => failure,
                });
            }
        }
        if let Some(failure @ Failure::Final(_)) = failed {
            return Err(self.note_failure(stream, &mut state, failure));
        }
        // The check comes after the lock: another thread's step of this stream may have failed in the meantime.
        self.check()?;
        let advanced = self.advance(s, &mut state);
        s.in_flight
            .store(to_u64(state.flights.len()), Ordering::SeqCst);
        match failed {
            // The other completed writes count first: the next step reports the delay again.
            Some(failure) if !advanced => Err(failure.into()),
            _ if advanced => Ok(Collected::Advanced),
            _ => Ok(Collected::Nothing),
        }
    }

    fn note_completed(
        &self,
        stream: StreamId,
        s: &Stream,
        state: &mut FlushState,
        completed: Completed,
    ) -> Result<(), Failure> {
        let Completed {
            token,
            parts,
            result,
        } = completed;
        #[cfg(feature = "flaws")]
        if armed(Flaw::NewestCompletionCounts) && !state.flights.has(token) {
            return Ok(());
        }
        let result = match result {
            Err(_) if armed(Flaw::SyncRetried) => state.flights.place(token).0.sync(),
            result => result,
        };
        let result = result.map_err(|error| self.note_refused(stream, error));
        #[cfg(feature = "flaws")]
        let result = seeded::count_refused(state, result, token, &parts);
        match result {
            Ok(()) => {
                state.flights.note_durable(token);
                // One write that succeeded says nothing about another one that was refused.
                if !state.flights.has_refused() {
                    self.troubles.clear(Trouble::Refused, stream);
                }
                self.counters.syncs.fetch_add(1, Ordering::Relaxed);
                let mut inner = s.inner.lock();
                for part in parts {
                    inner.recycle(part.buf);
                }
                Ok(())
            }
            Err(Failure::Delay(error)) => {
                state.flights.note_refused(token, parts);
                Err(Failure::Delay(error))
            }
            Err(Failure::Final(error)) => Err(Failure::Final(error)),
        }
    }

    /// Advances over the writes that are durable without a gap. Returns whether there were any.
    fn advance(&self, s: &Stream, state: &mut FlushState) -> bool {
        let mut reached: Option<Pos> = None;
        while let Some(flight) = state.flights.pop_durable() {
            assert!(
                flight.names <= self.durable(Rung::Disk),
                "a durable block names an epoch that was durable"
            );
            self.evidenced.fetch_max(flight.names.0, Ordering::SeqCst);
            reached = Some(flight.end);
        }
        let Some(end) = reached else {
            return false;
        };
        let filled_end = s.filled_end.load(Ordering::SeqCst);
        assert!(
            end.0 <= filled_end,
            "{end} is durable, and blocks are filled up to {filled_end}"
        );
        state.tail.note_durable(end);
        self.pass_disk(s, end);
        true
    }

    /// Remembers a write that the disk refused.
    pub(crate) fn note_refused(&self, stream: StreamId, error: Error) -> Failure {
        let lacks_means = error.is_shortage();
        let failure = Failure::of_write(error);
        if matches!(failure, Failure::Delay(_)) {
            self.shortages
                .store(u64::from(lacks_means), Ordering::Relaxed);
            self.troubles.set(Trouble::Refused, stream);
        }
        failure
    }

    /// Stops the log if the failure is final, before another thread takes the next step.
    pub(crate) fn note_failure(
        &self,
        stream: StreamId,
        state: &mut FlushState,
        failure: Failure,
    ) -> Error {
        if let Failure::Final(error) = &failure {
            state.has_failed = true;
            self.stop(&format!("log stream {stream}"), error);
        }
        failure.into()
    }
}

/// The write that begins next.
enum Next {
    Write(DurableWrite),
    /// There is nothing to write, or as much is in flight as may be.
    Nothing,
    /// The segment that comes next must be placed first.
    Unplaced,
}

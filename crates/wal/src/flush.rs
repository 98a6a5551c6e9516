//! The flusher of one stream. It begins durable writes of sealed blocks, and collects the writes that have completed.
//!
//! ```text
//! filled ──begin: sealed, contiguous blocks in one write──► in flight ──collect──► durable, D advances
//! ```
//! Several writes may be in flight, and they may complete in any order. D never advances beyond the first write that is
//! not durable. If the device completes writes by itself, no thread waits: a thread begins a write, does other work,
//! and collects the write later. Otherwise the collecting thread executes the write and waits. The engine's threads
//! call the steps. The simulator calls the steps in an order that depends on a seed.
//!
//! # What a restart finds
//! After a crash, a write that was not durable may be missing (a hole), torn, or whole. Valid blocks may follow a hole.
//! No block ends more than `IN_FLIGHT_BYTES_MAX` bytes beyond the stream's durable end. Each block names the D at the
//! time when the block was sealed. If the bytes of a hole were never durable, D never reached an epoch of the hole's
//! blocks. So if some block names a D at or above such an epoch, the hole is damage. Any other hole is an expected end
//! of the log.
//!
//! # Failures
//! Two failures only delay a step, which is then repeated. Either a segment cannot be prepared, or a write is refused
//! for want of space, memory or descriptors. Copy-on-write file systems may refuse a write even within a file's length.
//! No byte of a refused write counts. The write is repeated with unchanged position and bytes before any new write
//! begins.
//!
//! Any other failed write stops the log and is never repeated. If the device writes only the first part of a write, the
//! flusher continues with the rest. If the rest fails, the write fails with that error. [`Error::Fenced`] stops the log
//! too: the device reports that another process owns the log.

use perdura_base::flaw::{Flaw, armed};
use perdura_base::limits::IN_FLIGHT_BYTES_MAX;
use perdura_base::num::to_u64;
use perdura_base::{Error, Pos, Result, StreamId};
use perdura_device::durable::PARTS_MAX;
use perdura_device::{Completed, DurableWrite, Part, Through};

use crate::failure::Failure;
use crate::flight::Flight;
use crate::flusher::{FlushState, Segment};
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
    /// There is nothing to write and nothing in flight.
    Idle,
    /// A write has begun or ended; more steps are needed.
    Wrote,
    /// More of the stream is durable. D may have advanced.
    Synced,
}

/// The choice whether to wait for a write in flight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wait {
    /// Collect only writes that have already completed.
    No,
    /// Wait until a write has completed. Do not wait if none is in flight.
    ForOne,
}

/// The result of collecting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Collected {
    /// More of the stream is durable. D may have advanced.
    Advanced,
    /// The stream is not durable any farther than before.
    Nothing,
    /// Another thread is collecting or executes a write itself, and may be waiting.
    Elsewhere,
}

/// The result of an attempt to begin a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Begun {
    /// A write was begun.
    Yes,
    /// There is nothing to write, or no more writes may be in flight.
    No,
    /// The next segment must be placed first, which takes time.
    Unplaced,
}

impl Wal {
    /// Takes one step of a stream's flusher: collects completed writes, or begins a write, or waits for one. It is for
    /// a caller that has nothing else to do.
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
            // A delayed step must not delay the writes in flight.
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
                let s = &self.streams[usize::from(stream.0)];
                drop(s.collecting.lock());
                drop(s.in_place.write());
                Ok(FlushProgress::Wrote)
            }
        }
    }

    /// Returns whether a thread is collecting completed writes of a stream, or executes a write itself. That thread may
    /// be waiting for the write.
    #[must_use]
    pub fn is_attended(&self, stream: StreamId) -> bool {
        let s = &self.streams[usize::from(stream.0)];
        s.collecting.try_lock().is_none() || s.in_place.try_write().is_none()
    }

    /// Returns the number of a stream's writes in flight. A write is in flight until the stream's durable end reaches
    /// the write's end. A refused write counts too.
    #[must_use]
    pub fn in_flight(&self, stream: StreamId) -> u64 {
        self.streams[usize::from(stream.0)]
            .in_flight
            .load(Ordering::SeqCst)
    }

    /// Returns whether one more write may begin.
    #[must_use]
    pub fn has_slot(&self, stream: StreamId) -> bool {
        let s = &self.streams[usize::from(stream.0)];
        self.in_flight(stream) < to_u64(s.queue.depth())
    }

    /// Returns whether the device completes writes of a stream without a waiting thread.
    #[must_use]
    pub fn completes_by_itself(&self, stream: StreamId) -> bool {
        self.streams[usize::from(stream.0)].queue.ready().is_some()
    }

    /// Returns a descriptor that is readable while a completed write of the stream waits to be collected; `None` if
    /// writes do not complete by themselves.
    #[must_use]
    pub fn completions(&self, stream: StreamId) -> Option<std::os::fd::BorrowedFd<'_>> {
        self.streams[usize::from(stream.0)].queue.ready()
    }

    /// Begins one write, unless the maximum number of writes is already in flight. The write contains sealed blocks of
    /// the stream that are contiguous in one segment. Returns whether a write was begun.
    ///
    /// # Errors
    /// Fails if the step could not be taken. The caller may repeat the step, unless [`Wal::failure`] returns a reason.
    /// In that case the log has stopped, and the error says why.
    pub fn flush_begin(&self, stream: StreamId) -> Result<bool> {
        loop {
            match self.begin_if_placed(stream)? {
                Begun::Yes => return Ok(true),
                Begun::No => return Ok(false),
                Begun::Unplaced => self.place_now(stream)?,
            }
        }
    }

    /// Works like [`flush_begin`](Self::flush_begin), but never places the next segment. The caller is a thread that
    /// must not do I/O.
    ///
    /// # Errors
    /// Fails like `flush_begin`.
    pub fn begin_if_placed(&self, stream: StreamId) -> Result<Begun> {
        let s = &self.streams[usize::from(stream.0)];
        match self.next_write(stream, s, By::Queue)? {
            Next::Write(write) => {
                s.queue.submit(write);
                Ok(Begun::Yes)
            }
            Next::Nothing => Ok(Begun::No),
            Next::Unplaced => Ok(Begun::Unplaced),
        }
    }

    /// Begins a write and executes it in this thread, which has nothing else to do. Does nothing if more than `others`
    /// writes are in flight. On busy processors, this can be faster than a write that completes by itself. A write that
    /// completes by itself may wait for a processor, and the wait may be longer than the write.
    ///
    /// Calls `begun` as soon as the write has begun. If the file bypasses the cache, other writes may begin before this one
    /// ends.
    ///
    /// # Errors
    /// Fails like [`flush_begin`](Self::flush_begin).
    pub fn flush_in_place(
        &self,
        stream: StreamId,
        others: u64,
        begun: impl FnOnce(),
    ) -> Result<Collected> {
        let s = &self.streams[usize::from(stream.0)];
        let Some(_in_place) = s.in_place.try_read() else {
            return Ok(Collected::Elsewhere);
        };
        if self.in_flight(stream) > others {
            return Ok(Collected::Nothing);
        }
        let Next::Write(write) = self.next_write(stream, s, By::Thread)? else {
            return Ok(Collected::Nothing);
        };
        let (file, through) = (&write.file, Through::WriteAndSync);
        begun();
        let parts: Vec<&[u8]> = write.parts.iter().map(Part::bytes).collect();
        let result = file.write_durable(write.offset, &parts, through);
        let completed = Completed {
            token: write.token,
            parts: write.parts,
            result,
        };
        self.take_completed(stream, s, vec![completed])
    }

    /// Returns the next write to submit. It counts as in flight from now on.
    fn next_write(&self, stream: StreamId, s: &Stream, by: By) -> Result<Next> {
        let mut state = s.flush.lock();
        let state = &mut *state;
        // The check must follow the lock: another thread's step of this stream may just have failed.
        self.check()?;
        assert!(
            !state.has_failed,
            "stream {stream} is written after a failure that is final"
        );
        #[cfg(feature = "flaws")]
        state.write_late()?;
        let is_beside = by == By::Thread && state.flights.len() > 0;
        if state.flights.is_exclusive() || (is_beside && state.flights.has_refused()) {
            return Ok(Next::Nothing);
        }
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
        let cached = |segment: &Segment| !segment.file.is_direct();
        if is_beside && state.segment.as_ref().is_some_and(cached) {
            return Ok(Next::Nothing);
        }
        let (mut flight, parts) = self.gather(s, state);
        flight.in_place = by == By::Thread;
        let write = state.flights.begin(flight, parts);
        s.in_flight
            .store(to_u64(state.flights.len()), Ordering::SeqCst);
        Ok(Next::Write(write))
    }

    /// Takes blocks from the tail for one durable write.
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

    /// Collects a stream's completed writes, unless another thread is collecting.
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
            self.check()?;
            let is_in_place = wait == Wait::ForOne && s.in_place.try_write().is_none();
            return Ok(match is_in_place {
                true => Collected::Elsewhere,
                false => Collected::Nothing,
            });
        }
        self.take_completed(stream, s, done)
    }

    /// Processes completed writes.
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
        // The check must follow the lock: another thread's step of this stream may have failed in the meantime.
        self.check()?;
        let advanced = self.advance(s, &mut state);
        s.in_flight
            .store(to_u64(state.flights.len()), Ordering::SeqCst);
        match failed {
            // If other writes have advanced the stream, report that first. The next step reports the delay again.
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
                // The success of one write does not mean that a refused write would succeed now.
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

    /// Advances the stream's durable end to the start of the first write in flight that is not durable. Returns whether
    /// the end advanced.
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

    /// Notes that the disk has refused a write, if the write can be repeated. Returns the failure.
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

    /// Stops the log after a final failure, before any thread can take the next step.
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

/// The executor of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum By {
    Queue,
    /// The thread that begins the write.
    Thread,
}

/// The next step of the flusher.
enum Next {
    Write(DurableWrite),
    /// There is nothing to write, or no more writes may be in flight.
    Nothing,
    /// The next segment must be placed first.
    Unplaced,
}

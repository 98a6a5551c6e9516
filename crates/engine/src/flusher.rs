//! The flusher's thread: it decides when an epoch ends and takes the steps that make it durable.

use std::sync::atomic::Ordering;
use std::time::Duration;

use perdura_base::{Result, StreamId};
use perdura_device::Clock;
use perdura_wal::{Begun, Collected, FlushProgress, Rung, Wait};

use crate::background::FULL_RETRY;
use crate::delays::Work;
use crate::pace::{FlushPacer, thread_cpu_ns};
use crate::shared::Shared;

/// The stream whose flusher ends epochs.
pub(crate) const FIRST: StreamId = StreamId(0);
/// A flusher that is not woken looks up this often: the bound for writes whose replies do not
/// wait, and for the beacon.
const LOOK_EVERY: Duration = Duration::from_millis(7);

/// A flusher whose copy is not due looks again so often.
const COPY_LOOK: Duration = Duration::from_millis(1);
/// After so many looks at a log at rest it appends the beacon.
const LOOKS_TO_BEACON: u32 = 7;

impl Shared {
    /// A stream's flusher. The first one closes epochs and beacons; the others write what the
    /// closing left them.
    pub fn flusher(&self, stream: StreamId) {
        let first = stream == FIRST;
        let mut idle_looks = 0;
        while !self.is_stopping() {
            if self.core.wal().failure().is_some() {
                self.announce();
                std::thread::park_timeout(FULL_RETRY);
                continue;
            }
            if !self.copy_is_due() {
                std::thread::park_timeout(COPY_LOOK);
                idle_looks = if self.core.wal().is_idle() {
                    idle_looks + 1
                } else {
                    0
                };
                if first && idle_looks > LOOKS_TO_BEACON {
                    self.core.wal().append_beacon();
                    idle_looks = 0;
                }
                continue;
            }
            // The housekeeper does this too, and may be zeroing a file for longer than a segment lasts.
            let placed = self.core.wal().place_ahead(stream);
            let flushed = placed.and_then(|_| {
                if first {
                    self.lead()
                } else {
                    self.flush(stream)
                }
            });
            let work = Work::Flush(stream);
            if flushed.is_ok() {
                self.delays.done(work);
            }
            match flushed {
                Ok(true) => {}
                Ok(false) if first && self.wanted.load(Ordering::SeqCst) => {}
                Ok(false) => {
                    std::thread::park_timeout(LOOK_EVERY);
                    if first && self.core.wal().append_beacon() {
                        self.wanted.store(true, Ordering::SeqCst);
                    }
                }
                Err(error) if self.core.wal().failure().is_none() => {
                    std::thread::park_timeout(self.note_log(work, Err(error)));
                }
                Err(_) => self.announce(),
            }
        }
    }

    /// Ends the epoch and flushes the first stream, after the pause that the CPU budget asks for.
    fn lead(&self) -> Result<bool> {
        let wal = self.core.wal();
        let is_wanted = self.wanted.load(Ordering::SeqCst);
        if !is_wanted && self.rings && wal.in_flight(FIRST) > 0 {
            // A thread that serves clients keeps the writes going, but perhaps none waits any more for those
            // that have completed; and one that was refused is repeated by nobody else.
            self.collect(Wait::No);
            if wal.in_flight(FIRST) > 0 && !wal.is_short() {
                return Ok(false);
            }
        }
        let cpu_ns = thread_cpu_ns();
        if is_wanted || wal.has_open_frames() {
            self.hold();
        }
        self.take_turn(&mut self.turn.lock(), cpu_ns, || {
            Ok((self.rings && self.write_in_place()?) || self.flush(FIRST)?)
        })
    }

    /// Pauses for as long as the pacer holds the next flush back. A thread that begins to wait shortens the
    /// pause, a log without room for more ends it.
    fn hold(&self) {
        let mut is_awaited = self.awaited.load(Ordering::SeqCst);
        let mut now_ns = self.clock.mono_ns();
        let delay_ns = {
            let mut pacer = self.turn.lock();
            if is_awaited {
                pacer.delay_ns(now_ns)
            } else {
                pacer.delay_pipelined_ns(now_ns, self.workers.ran_permille())
            }
        };
        let mut due_ns = now_ns.saturating_add(delay_ns);
        while now_ns < due_ns && !self.is_stopping() && !self.core.wal().is_behind(0) {
            std::thread::park_timeout(Duration::from_nanos(due_ns - now_ns));
            now_ns = self.clock.mono_ns();
            if !is_awaited && self.awaited.load(Ordering::SeqCst) {
                is_awaited = true;
                due_ns = due_ns.min(now_ns + self.turn.lock().delay_ns(now_ns));
            }
        }
    }

    /// Flushes in the calling thread, if that is the quicker way: one stream, a fast disk and
    /// no other thread flushing. For a thread that would otherwise go to sleep until the flusher
    /// has been woken, has flushed and has woken it again. Whether it did.
    pub fn flush_here(&self) -> bool {
        if !self.can_flush_here() {
            return false;
        }
        let Some(mut pacer) = self.turn.try_lock() else {
            return false;
        };
        if !pacer.is_short() {
            return false;
        }
        let cpu_ns = thread_cpu_ns();
        // A failure has latched the log, as every caller sees.
        let flushed = if !self.rings {
            self.take_turn(&mut pacer, cpu_ns, || self.flush(FIRST))
        } else if self.core.wal().in_flight(FIRST) == 0 {
            self.take_turn(&mut pacer, cpu_ns, || self.write_in_place())
        } else {
            // That completes without this thread.
            Ok(false)
        };
        flushed.unwrap_or(false)
    }

    /// Whether another thread than the flusher may flush. Flushes at a fixed spacing are the flusher's.
    fn can_flush_here(&self) -> bool {
        let wal = self.core.wal();
        let slow = wal.is_short() || !wal.has_room_ahead(FIRST);
        let is_fixed = !self.options.flush_every.is_zero();
        wal.streams() == 1 && !slow && !is_fixed && wal.failure().is_none()
    }

    /// Has what was appended written, without waiting: ends the epoch and begins a write that completes by
    /// itself. While others are in flight, it does so only after a pause, in which more is gathered. If the
    /// flusher has to do something first, or writes do not complete by themselves, it wakes the flusher.
    /// Returns whether it began a write.
    pub fn begin_log_write(&self) -> bool {
        if !self.rings || !self.can_flush_here() {
            self.nudge();
            return false;
        }
        let wal = self.core.wal();
        let Some(mut pacer) = self.turn.try_lock() else {
            return false;
        };
        let now_ns = self.clock.mono_ns().max(1);
        let is_early = |pacer: &mut FlushPacer| {
            wal.in_flight(FIRST) > 0 && pacer.delay_behind_ns(now_ns, self.write_latency_ns) > 0
        };
        if !wal.has_slot(FIRST) || is_early(&mut pacer) {
            return false;
        }
        self.begin_turn();
        self.core.close_epoch();
        assert_eq!(
            wal.streams(),
            1,
            "one thread begins the writes of all streams"
        );
        match wal.begin_if_placed(FIRST) {
            Ok(Begun::Yes) => {
                pacer.note_begun(now_ns, self.write_cost_ns);
                self.note_pace(&pacer);
                drop(pacer);
                self.offer_written();
                true
            }
            Ok(Begun::No) => false,
            // A failure has latched the log; what is delayed, the flusher tries again.
            Ok(Begun::Unplaced) | Err(_) => {
                drop(pacer);
                self.nudge();
                false
            }
        }
    }

    /// Collects writes of the first stream that have completed by themselves. Returns whether D may have
    /// advanced.
    pub fn collect(&self, wait: Wait) -> Collected {
        if !self.rings {
            return Collected::Nothing;
        }
        let wal = self.core.wal();
        let ended = match wal.in_flight(FIRST) {
            0 => wal.flush_end(FIRST, wait),
            _ => self.watch_behind(|| wal.flush_end(FIRST, wait)),
        };
        match ended {
            Ok(Collected::Advanced) => {
                assert!(
                    wal.evidenced() <= wal.durable(Rung::Disk),
                    "a durable block names an epoch that was durable"
                );
                self.tell_synced();
                Collected::Advanced
            }
            Ok(other) => other,
            Err(_) => {
                if wal.failure().is_some() {
                    self.announce();
                }
                Collected::Nothing
            }
        }
    }

    /// What is appended from here on wants another flush.
    fn begin_turn(&self) {
        self.wanted.store(false, Ordering::SeqCst);
        self.awaited.store(false, Ordering::SeqCst);
    }

    fn note_pace(&self, pacer: &FlushPacer) {
        self.flush_cpu_ns.store(pacer.cost_ns(), Ordering::Relaxed);
        self.spaced.store(pacer.is_spacing(), Ordering::Relaxed);
    }

    /// Ends the epoch and writes the first stream in the way given, whose result says whether it made
    /// anything durable. The calling thread's CPU clock was at `cpu_ns` when it began to prepare the write.
    fn take_turn(
        &self,
        pacer: &mut FlushPacer,
        cpu_ns: u64,
        write: impl FnOnce() -> Result<bool>,
    ) -> Result<bool> {
        let start_ns = self.clock.mono_ns().max(1);
        self.begin_turn();
        if self.core.close_epoch().is_some() {
            for other in self.flushers.read().iter().skip(1) {
                other.unpark();
            }
        }
        let flushed = write()?;
        if flushed {
            let used_ns = thread_cpu_ns().saturating_sub(cpu_ns);
            pacer.note(start_ns, self.clock.mono_ns(), used_ns);
            self.note_pace(pacer);
        }
        Ok(flushed)
    }

    /// Makes one write of the first stream in this thread, if none is in flight and the segment is placed.
    fn write_in_place(&self) -> Result<bool> {
        let wal = self.core.wal();
        let advanced = self.watch_behind(|| wal.flush_in_place(FIRST))? == Collected::Advanced;
        if advanced {
            self.tell_synced();
        }
        Ok(advanced)
    }

    /// Steps a stream's flusher until it is idle; whether it made anything durable.
    fn flush(&self, stream: StreamId) -> Result<bool> {
        let mut synced = false;
        loop {
            match self.watch_behind(|| self.core.flush_step(stream))? {
                FlushProgress::Idle => return Ok(synced),
                FlushProgress::Wrote => self.offer_written(),
                FlushProgress::Synced => {
                    synced = true;
                    self.tell_synced();
                }
            }
        }
    }
}

//! The flusher's thread: it decides when an epoch ends and takes the steps that make it durable.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use perdura_base::{Result, StreamId};
use perdura_wal::{Begun, Collected, FlushProgress, Rung, Wait};

use crate::behind::Worst;
use crate::delays::{FULL_RETRY, Work};
use crate::ground::Ground;
use crate::mirroring::Mirror;
use crate::options::FLUSH_EVERY_MAX;
use crate::pace::{FlushPacer, thread_cpu_ns};

/// The stream whose flusher ends epochs.
pub(crate) const FIRST: StreamId = StreamId(0);
/// A flusher that is not woken looks up this often: the bound for writes whose replies do not
/// wait, and for the beacon.
const LOOK_EVERY: Duration = Duration::from_millis(7);

/// A flusher whose copy is not due looks again after this time.
const COPY_LOOK: Duration = Duration::from_millis(1);
/// The number of looks at a log at rest after which it appends the beacon.
const LOOKS_TO_BEACON: u32 = 7;

/// Writes the log of an open database.
pub(crate) struct LogWriter {
    ground: Arc<Ground>,
    mirror: Arc<Mirror>,
    /// The cost of a durable write to the machine, as measured when the log was opened, nanoseconds.
    write_cost_ns: u64,
    /// The duration of a durable write then, nanoseconds.
    write_latency_ns: u64,
    /// Held by the thread that ends epochs and flushes the first stream.
    turn: Mutex<FlushPacer>,
    /// Smoothed CPU time of a flush.
    flush_cpu_ns: AtomicU64,
    /// True while flushes are being spaced.
    spaced: AtomicBool,
    /// The most that the log's disks were behind.
    pub worst: Worst,
}

impl LogWriter {
    /// Takes the log of a core, with the measured speed of its disk.
    pub fn new(ground: &Arc<Ground>, mirror: &Arc<Mirror>) -> LogWriter {
        let way = ground.core.log_ways().into_iter().next();
        let cost = way.as_ref().map_or(Duration::ZERO, |way| way.cost);
        let latency = way.and_then(|way| way.latency()).unwrap_or_default();
        let nanos = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let flush_every = ground.options.flush_every;
        assert!(flush_every <= FLUSH_EVERY_MAX, "the settings were checked");
        let pacer = FlushPacer::new(nanos(cost), flush_every);
        LogWriter {
            ground: Arc::clone(ground),
            mirror: Arc::clone(mirror),
            write_cost_ns: nanos(cost),
            write_latency_ns: nanos(latency),
            turn: Mutex::new(pacer),
            flush_cpu_ns: AtomicU64::new(0),
            spaced: AtomicBool::new(false),
            worst: Worst::default(),
        }
    }

    /// Returns the smoothed CPU time of a flush, microseconds.
    pub fn flush_cpu_us(&self) -> u64 {
        self.flush_cpu_ns.load(Ordering::Relaxed) / 1000
    }

    /// Returns whether flushes are being spaced.
    pub fn is_spaced(&self) -> bool {
        self.spaced.load(Ordering::Relaxed)
    }

    /// Runs a stream's flusher. The first one closes epochs and beacons. The others write what the closing left to
    /// them.
    pub fn flusher(&self, stream: StreamId) {
        let first = stream == FIRST;
        let mut idle_looks = 0;
        while !self.ground.is_stopping() {
            if self.ground.core.wal().failure().is_some() {
                self.ground.announce();
                std::thread::park_timeout(FULL_RETRY);
                continue;
            }
            if !self.mirror.copy_is_due() {
                std::thread::park_timeout(COPY_LOOK);
                idle_looks = if self.ground.core.wal().is_idle() {
                    idle_looks + 1
                } else {
                    0
                };
                if first && idle_looks > LOOKS_TO_BEACON {
                    self.ground.core.wal().append_beacon();
                    idle_looks = 0;
                }
                continue;
            }
            // The housekeeper also does this, but it may be zeroing a file for longer than a segment lasts.
            let placed = self.ground.core.wal().place_ahead(stream);
            let flushed = placed.and_then(|_| {
                if first {
                    self.lead()
                } else {
                    self.flush(stream)
                }
            });
            let work = Work::Flush(stream);
            if flushed.is_ok() {
                self.ground.delays.done(work);
            }
            match flushed {
                Ok(true) => {}
                Ok(false) if first && self.ground.wishes.is_wanted() => {}
                Ok(false) => {
                    std::thread::park_timeout(LOOK_EVERY);
                    if first && self.ground.core.wal().append_beacon() {
                        self.ground.wishes.note_wanted();
                    }
                }
                Err(error) if self.ground.core.wal().failure().is_none() => {
                    std::thread::park_timeout(self.ground.note_log(work, Err(error)));
                }
                Err(_) => self.ground.announce(),
            }
        }
    }

    /// Ends the epoch and flushes the first stream, after the pause that the CPU budget asks for.
    fn lead(&self) -> Result<bool> {
        let wal = self.ground.core.wal();
        let is_wanted = self.ground.wishes.is_wanted();
        if !is_wanted && self.ground.rings && wal.in_flight(FIRST) > 0 {
            // A thread that serves clients starts writes, but perhaps no thread waits any more for those that have
            // completed. And no other thread retries a write that was refused.
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
            Ok((self.ground.rings && self.write_in_place()?) || self.flush(FIRST)?)
        })
    }

    /// Pauses for as long as the pacer delays the next flush. A thread that begins to wait shortens the pause. A log
    /// without room for more ends it.
    fn hold(&self) {
        let mut is_awaited = self.ground.wishes.is_awaited();
        let mut now_ns = self.ground.now_ns();
        let delay_ns = {
            let mut pacer = self.turn.lock();
            if is_awaited {
                pacer.delay_ns(now_ns)
            } else {
                pacer.delay_pipelined_ns(now_ns, self.ground.wishes.ran_permille())
            }
        };
        let mut due_ns = now_ns.saturating_add(delay_ns);
        while now_ns < due_ns && !self.ground.is_stopping() && !self.ground.core.wal().is_behind(0)
        {
            std::thread::park_timeout(Duration::from_nanos(due_ns - now_ns));
            now_ns = self.ground.now_ns();
            if !is_awaited && self.ground.wishes.is_awaited() {
                is_awaited = true;
                due_ns = due_ns.min(now_ns + self.turn.lock().delay_ns(now_ns));
            }
        }
    }

    /// Flushes in the calling thread, if that is quicker: with one stream, a fast disk and no other thread flushing. It
    /// serves a thread that would otherwise sleep until the flusher has been woken, has flushed and has woken it again.
    /// Returns whether it flushed.
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
        let flushed = if !self.ground.rings {
            self.take_turn(&mut pacer, cpu_ns, || self.flush(FIRST))
        } else if self.ground.core.wal().in_flight(FIRST) == 0 {
            self.take_turn(&mut pacer, cpu_ns, || self.write_in_place())
        } else {
            // Another thread completes the write.
            Ok(false)
        };
        flushed.unwrap_or(false)
    }

    /// Returns whether another thread than the flusher may flush. Flushes at a fixed spacing belong to the flusher.
    fn can_flush_here(&self) -> bool {
        let wal = self.ground.core.wal();
        let slow = wal.is_short() || !wal.has_room_ahead(FIRST);
        let is_fixed = !self.ground.options.flush_every.is_zero();
        wal.streams() == 1 && !slow && !is_fixed && wal.failure().is_none()
    }

    /// Begins to write the appended frames, without waiting: ends the epoch and begins a write that completes by
    /// itself. While other writes are in flight, it does so only after a pause, in which more frames gather. It wakes
    /// the flusher instead if the flusher has to act first, or if writes do not complete by themselves. Returns whether
    /// it began a write.
    pub fn begin_log_write(&self) -> bool {
        if !self.ground.rings || !self.can_flush_here() {
            self.ground.wishes.nudge();
            return false;
        }
        let wal = self.ground.core.wal();
        let Some(mut pacer) = self.turn.try_lock() else {
            return false;
        };
        let now_ns = self.ground.now_ns().max(1);
        let is_early = |pacer: &mut FlushPacer| {
            wal.in_flight(FIRST) > 0 && pacer.delay_behind_ns(now_ns, self.write_latency_ns) > 0
        };
        if !wal.has_slot(FIRST) || is_early(&mut pacer) {
            return false;
        }
        self.ground.wishes.begin_turn();
        self.ground.core.close_epoch();
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
                self.mirror.offer_written();
                true
            }
            Ok(Begun::No) => false,
            // A failure has latched the log. The flusher retries delayed work.
            Ok(Begun::Unplaced) | Err(_) => {
                drop(pacer);
                self.ground.wishes.nudge();
                false
            }
        }
    }

    /// Collects writes of the first stream that have completed by themselves. Returns whether D may have
    /// advanced.
    pub fn collect(&self, wait: Wait) -> Collected {
        if !self.ground.rings {
            return Collected::Nothing;
        }
        let wal = self.ground.core.wal();
        let ended = match wal.in_flight(FIRST) {
            0 => wal.flush_end(FIRST, wait),
            _ => self
                .worst
                .watch(&self.ground.core, || wal.flush_end(FIRST, wait)),
        };
        match ended {
            Ok(Collected::Advanced) => {
                assert!(
                    wal.evidenced() <= wal.durable(Rung::Disk),
                    "a durable block names an epoch that was durable"
                );
                self.mirror.tell_synced();
                Collected::Advanced
            }
            Ok(other) => other,
            Err(_) => {
                if wal.failure().is_some() {
                    self.ground.announce();
                }
                Collected::Nothing
            }
        }
    }

    fn note_pace(&self, pacer: &FlushPacer) {
        self.flush_cpu_ns.store(pacer.cost_ns(), Ordering::Relaxed);
        self.spaced.store(pacer.is_spacing(), Ordering::Relaxed);
    }

    /// Ends the epoch and writes the first stream in the given way, whose result says whether it made anything durable.
    /// The calling thread's CPU clock was at `cpu_ns` when it began to prepare the write.
    fn take_turn(
        &self,
        pacer: &mut FlushPacer,
        cpu_ns: u64,
        write: impl FnOnce() -> Result<bool>,
    ) -> Result<bool> {
        let start_ns = self.ground.now_ns().max(1);
        self.ground.wishes.begin_turn();
        if self.ground.core.close_epoch().is_some() {
            self.ground.wishes.wake_others();
        }
        let flushed = write()?;
        if flushed {
            let used_ns = thread_cpu_ns().saturating_sub(cpu_ns);
            pacer.note(start_ns, self.ground.now_ns(), used_ns);
            self.note_pace(pacer);
        }
        Ok(flushed)
    }

    /// Makes one write of the first stream in this thread, if none is in flight and the segment is placed.
    fn write_in_place(&self) -> Result<bool> {
        let wal = self.ground.core.wal();
        let advanced = self
            .worst
            .watch(&self.ground.core, || wal.flush_in_place(FIRST))?
            == Collected::Advanced;
        if advanced {
            self.mirror.tell_synced();
        }
        Ok(advanced)
    }

    /// Steps a stream's flusher until it is idle. Returns whether it made anything durable.
    fn flush(&self, stream: StreamId) -> Result<bool> {
        let mut synced = false;
        loop {
            match self
                .worst
                .watch(&self.ground.core, || self.ground.core.flush_step(stream))?
            {
                FlushProgress::Idle => return Ok(synced),
                FlushProgress::Wrote => self.mirror.offer_written(),
                FlushProgress::Synced => {
                    synced = true;
                    self.mirror.tell_synced();
                }
            }
        }
    }
}

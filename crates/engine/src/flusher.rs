//! The flusher's thread. It decides when an epoch ends, and takes the steps that make the epoch durable.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use perdura_base::{Epoch, Result, StreamId};
use perdura_wal::{Begun, Collected, FlushProgress, Rung, Wait};

use crate::behind::Worst;
use crate::delays::{FULL_RETRY, Work};
use crate::ground::Ground;
use crate::mirroring::Mirror;
use crate::options::FLUSH_EVERY_MAX;
use crate::pace::{FlushPacer, thread_cpu_ns};

/// The first stream. Its flusher ends epochs.
pub(crate) const FIRST: StreamId = StreamId(0);
/// An epoch that is never durable: a flush until it writes all that there is.
const EVERY_EPOCH: Epoch = Epoch(u64::MAX);
/// The interval at which a flusher checks for work if no thread wakes it. A write that no caller waits for is delayed
/// by at most this interval. The beacon is delayed likewise. The *beacon* is an empty frame that records the durable
/// epoch in the log.
const LOOK_EVERY: Duration = Duration::from_millis(7);

/// The interval at which a flusher checks whether the copy of the log to disk is due. It makes these checks while nodes
/// hold the log.
const COPY_LOOK: Duration = Duration::from_millis(1);
/// The number of successive checks that may find the log idle before the flusher appends the beacon. It applies while
/// nodes hold the log.
const LOOKS_TO_BEACON: u32 = 7;

/// Writes the log of an open database.
pub(crate) struct LogWriter {
    ground: Arc<Ground>,
    mirror: Arc<Mirror>,
    /// The CPU time that a durable write costs the machine, in nanoseconds. It was measured when the log was opened.
    write_cost_ns: u64,
    /// The duration of a durable write, in nanoseconds. It was measured when the log was opened.
    write_latency_ns: u64,
    /// Held by the thread that ends epochs and flushes the first stream. A thread that writes in place holds it only until
    /// its write has begun.
    turn: Mutex<FlushPacer>,
    /// Smoothed CPU time of a flush, nanoseconds.
    flush_cpu_ns: AtomicU64,
    /// True while flushes are being spaced, that is, delayed by the [`FlushPacer`].
    spaced: AtomicBool,
    /// The maximum distance from the durable log to the appended log.
    pub worst: Worst,
}

impl LogWriter {
    /// Returns the writer of a core's log. It uses the measured speed of the log's disk.
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

    /// Runs a stream's flusher. The first stream's flusher also closes epochs and appends beacons. Each other flusher
    /// only writes the frames of closed epochs in its stream.
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
            // The housekeeper also places segments. But while it zeroes a file, the flusher may fill a whole segment.
            let placed = self.ground.core.wal().place_ahead(stream);
            let flushed = placed.and_then(|_| {
                if first {
                    self.lead()
                } else {
                    self.flush(stream, EVERY_EPOCH)
                }
            });
            let work = Work::Flush(stream);
            if flushed.is_ok() {
                self.ground.delays.done(work);
            }
            let is_wanted = self.ground.wishes.is_wanted();
            match flushed {
                // Threads that serve clients begin the writes that their clients wait for.
                Ok(true) if first && self.ground.rings && !is_wanted => {
                    std::thread::park_timeout(LOOK_EVERY);
                }
                Ok(true) => {}
                Ok(false) if first && is_wanted => {}
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

    /// Ends the epoch and flushes the first stream, after the pause that the pacer asks for. Returns whether anything
    /// became durable.
    fn lead(&self) -> Result<bool> {
        let wal = self.ground.core.wal();
        let is_wanted = self.ground.wishes.is_wanted();
        if !is_wanted && self.ground.rings && wal.in_flight(FIRST) > 0 {
            // Threads that serve clients have started writes, but perhaps none of them still waits to collect a
            // completed one. So the flusher collects here. It is also the only thread that retries a refused write.
            self.collect(Wait::No);
            if wal.in_flight(FIRST) > 0 && !wal.is_short() {
                return Ok(false);
            }
        }
        let cpu_ns = thread_cpu_ns();
        if is_wanted || wal.has_open_frames() {
            self.hold();
        }
        if self.ground.rings {
            let written = self.write_in_place(self.turn.lock(), cpu_ns, 0)?;
            if written == Collected::Advanced {
                return Ok(true);
            }
        }
        self.take_turn(&mut self.turn.lock(), cpu_ns, || self.flush_closed())
    }

    /// Pauses for the pacer's delay of the next flush. If a thread begins to wait for the flush, the pause is
    /// shortened. If the log has no room for more frames, the pause ends.
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

    /// Flushes in the calling thread if that is quicker than waking the flusher. It is quicker with one stream, a fast
    /// disk, and no flush in progress. Returns whether anything became durable. Use this in a thread that would
    /// otherwise sleep until the flusher has flushed.
    pub fn flush_here(&self) -> bool {
        self.flush_beside(0) == Some(Collected::Advanced)
    }

    /// Flushes in the calling thread as [`flush_here`](Self::flush_here) does, even if up to `others` writes are in flight.
    /// `None`: the thread has not flushed. If the log's writes complete by themselves, other threads may begin writes
    /// meanwhile. Then a write may become durable after a later one, and only then advances the durable epoch.
    pub fn flush_beside(&self, others: u64) -> Option<Collected> {
        if !self.can_flush_here() {
            return None;
        }
        let mut pacer = self.turn.try_lock()?;
        if !pacer.is_short() {
            return None;
        }
        if !self.ground.rings {
            let cpu_ns = thread_cpu_ns();
            // An error needs no handling here: it has stopped the log, and every caller checks for that.
            let flushed = self.take_turn(&mut pacer, cpu_ns, || self.flush_closed());
            return flushed.unwrap_or(false).then_some(Collected::Advanced);
        }
        let wal = self.ground.core.wal();
        let in_flight = wal.in_flight(FIRST);
        let is_early = in_flight > 0 && pacer.delay_ns(self.ground.now_ns()) > 0;
        if in_flight > others || !wal.has_slot(FIRST) || is_early {
            return None;
        }
        self.write_in_place(pacer, thread_cpu_ns(), others).ok()
    }

    /// Returns whether a thread other than the flusher may flush. With a fixed spacing, only the flusher flushes.
    fn can_flush_here(&self) -> bool {
        let wal = self.ground.core.wal();
        let slow = wal.is_short() || !wal.has_room_ahead(FIRST);
        let is_fixed = !self.ground.options.flush_every.is_zero();
        wal.streams() == 1 && !slow && !is_fixed && wal.failure().is_none()
    }

    /// Ends the epoch and begins a write of the appended frames, without waiting for the write to complete. Returns
    /// whether a write began. If the last write is still in flight and began only recently, the call begins no write,
    /// so that more frames gather. If a thread has to wait for each write, or the flusher has to act first, the call
    /// wakes the flusher instead.
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
            // An error has stopped the log or delayed the write. The flusher retries delayed work.
            Ok(Begun::Unplaced) | Err(_) => {
                drop(pacer);
                self.ground.wishes.nudge();
                false
            }
        }
    }

    /// Collects completed writes of the first stream. The result says whether the durable epoch may have advanced.
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

    /// Ends the epoch and writes the first stream with `write`. Returns the result of `write`: whether anything became
    /// durable. `cpu_ns` is the calling thread's CPU clock when it began to prepare the write.
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

    /// Ends the epoch and makes one write of the first stream in this thread, if at most `others` writes are in flight and
    /// the segment file exists. Other threads may take turns as soon as the write has begun.
    fn write_in_place(
        &self,
        mut pacer: MutexGuard<'_, FlushPacer>,
        cpu_ns: u64,
        others: u64,
    ) -> Result<Collected> {
        let wal = self.ground.core.wal();
        let start_ns = self.ground.now_ns().max(1);
        self.ground.wishes.begin_turn();
        if self.ground.core.close_epoch().is_some() {
            self.ground.wishes.wake_others();
        }
        let mut has_begun = false;
        let begun = || {
            has_begun = true;
            pacer.note_start(start_ns);
            drop(pacer);
            self.mirror.offer_written();
        };
        let written = self.worst.watch(&self.ground.core, || {
            wal.flush_in_place(FIRST, others, begun)
        })?;
        // The lock is free again before waiting threads are woken, because they may need it.
        if has_begun && let Some(mut pacer) = self.turn.try_lock() {
            let used_ns = thread_cpu_ns().saturating_sub(cpu_ns);
            pacer.note_end(self.ground.now_ns().saturating_sub(start_ns), used_ns);
            self.note_pace(&pacer);
        }
        if written == Collected::Advanced {
            self.mirror.tell_synced();
        }
        Ok(written)
    }

    /// Takes the flush steps of the first stream until all closed epochs are durable, or nothing is left to write. Returns
    /// whether anything became durable. Threads that append all the time fill blocks of the open epoch. These blocks
    /// wait for the next flush, so that the pacer can space the flushes.
    fn flush_closed(&self) -> Result<bool> {
        let closed = Epoch(self.ground.core.wal().current().0.saturating_sub(1));
        self.flush(FIRST, closed)
    }

    /// Takes the flush steps of a stream until an epoch is durable, or nothing is left to write. Returns whether anything
    /// became durable.
    fn flush(&self, stream: StreamId, until: Epoch) -> Result<bool> {
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
                    if self.ground.core.wal().durable(Rung::Disk) >= until {
                        return Ok(true);
                    }
                }
            }
        }
    }
}

//! The flusher's thread: it decides when an epoch ends and takes the steps that make it durable.

use std::sync::atomic::Ordering;
use std::time::Duration;

use perdura_base::{Result, StreamId};
use perdura_device::Clock;
use perdura_wal::FlushProgress;

use crate::background::FULL_RETRY;
use crate::delays::Work;
use crate::pace::{FlushPacer, thread_cpu_ns};
use crate::shared::Shared;

/// A flusher that is not woken looks up this often: the bound for writes whose replies do not
/// wait, and for the beacon.
const LOOK_EVERY: Duration = Duration::from_millis(7);

impl Shared {
    /// A stream's flusher. The first one closes epochs and beacons; the others write what the
    /// closing left them.
    pub fn flusher(&self, stream: StreamId) {
        let first = stream == StreamId(0);
        while !self.is_stopping() {
            if self.core.wal().failure().is_some() {
                self.announce();
                std::thread::park_timeout(FULL_RETRY);
                continue;
            }
            let flushed = if first {
                self.lead()
            } else {
                self.flush(stream)
            };
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
        let delay = self.turn.lock().delay_ns(self.clock.mono_ns());
        let wanted = self.wanted.load(Ordering::SeqCst) || self.core.wal().has_open_frames();
        if wanted && delay > 0 {
            std::thread::sleep(Duration::from_nanos(delay));
        }
        self.take_turn(&mut self.turn.lock())
    }

    /// Flushes in the calling thread, if that is the quicker way: one stream, a fast disk and
    /// no other thread flushing. For a thread that would otherwise go to sleep until the flusher
    /// has been woken, has flushed and has woken it again. Whether it did.
    pub fn flush_here(&self) -> bool {
        let wal = self.core.wal();
        let slow = wal.is_short() || !wal.has_room_ahead(StreamId(0));
        if wal.streams() > 1 || slow || wal.failure().is_some() {
            return false;
        }
        let Some(mut pacer) = self.turn.try_lock() else {
            return false;
        };
        // A failure has latched the log, as every caller sees.
        pacer.is_short() && self.take_turn(&mut pacer).unwrap_or(false)
    }

    fn take_turn(&self, pacer: &mut FlushPacer) -> Result<bool> {
        let start_ns = self.clock.mono_ns().max(1);
        let cpu = thread_cpu_ns();
        self.wanted.store(false, Ordering::SeqCst);
        if self.core.close_epoch().is_some() {
            for other in self.flushers.read().iter().skip(1) {
                other.unpark();
            }
        }
        let flushed = self.flush(StreamId(0))?;
        if flushed {
            pacer.note(
                start_ns,
                self.clock.mono_ns(),
                thread_cpu_ns().saturating_sub(cpu),
            );
            self.flush_cpu_ns.store(pacer.cost_ns(), Ordering::Relaxed);
            self.spaced.store(pacer.is_saturated(), Ordering::Relaxed);
        }
        Ok(flushed)
    }

    /// Steps a stream's flusher until it is idle; whether it made anything durable.
    fn flush(&self, stream: StreamId) -> Result<bool> {
        let mut synced = false;
        loop {
            match self.core.flush_step(stream)? {
                FlushProgress::Idle => return Ok(synced),
                FlushProgress::Wrote => {}
                FlushProgress::Synced => {
                    synced = true;
                    self.announce();
                }
            }
        }
    }
}

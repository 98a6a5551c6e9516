//! The flusher's thread: when an epoch ends, and the steps that make it durable.

use std::sync::atomic::Ordering;
use std::time::Duration;

use perdura_base::{Result, StreamId};
use perdura_device::Clock;
use perdura_wal::FlushProgress;

use crate::pace::{FlushPacer, thread_cpu_ns};
use crate::shared::Shared;

/// An idle flusher looks up this often: the beacon's bound.
const BEACON_EVERY: Duration = Duration::from_millis(15);
/// How often a flusher tries again on a full disk.
const FULL_RETRY: Duration = Duration::from_millis(100);

impl Shared {
    /// A stream's flusher. The first one closes epochs and beacons; the others write what the
    /// closing left them.
    pub fn flusher(&self, stream: StreamId) {
        let first = stream == StreamId(0);
        let mut pacer = FlushPacer::default();
        while !self.is_stopping() {
            if self.core.wal().failure().is_some() {
                self.announce();
                std::thread::park_timeout(FULL_RETRY);
                continue;
            }
            if first {
                self.start_epoch_end(&mut pacer);
            }
            let start_ns = self.clock.mono_ns();
            let cpu = thread_cpu_ns();
            match self.flush(stream) {
                Ok(true) => {
                    pacer.note(start_ns, thread_cpu_ns().saturating_sub(cpu));
                    if first {
                        self.flush_cpu_ns.store(pacer.cost_ns(), Ordering::Relaxed);
                        self.spaced.store(pacer.is_saturated(), Ordering::Relaxed);
                    }
                }
                Ok(false) if first && self.wanted.load(Ordering::SeqCst) => {}
                Ok(false) => {
                    std::thread::park_timeout(BEACON_EVERY);
                    if first && self.core.wal().append_beacon() {
                        self.wanted.store(true, Ordering::SeqCst);
                    }
                }
                Err(error) if error.is_disk_full() => std::thread::park_timeout(FULL_RETRY),
                Err(_) => self.announce(),
            }
        }
    }

    /// Closes the epoch if somebody wants it, after the pause that the CPU budget asks for.
    fn start_epoch_end(&self, pacer: &mut FlushPacer) {
        let open = self.core.wal().has_open_frames();
        if !self.wanted.load(Ordering::SeqCst) && !open {
            return;
        }
        let delay = pacer.delay_ns(self.clock.mono_ns());
        if delay > 0 {
            std::thread::sleep(Duration::from_nanos(delay));
        }
        self.wanted.store(false, Ordering::SeqCst);
        let now = self.clock.mono_ns().max(1);
        if self.core.close_epoch().is_some() {
            let since = self.unsynced_since_ns.swap(now, Ordering::SeqCst);
            if since != 0 {
                self.unsynced_since_ns.fetch_min(since, Ordering::SeqCst);
            }
            for other in self.flushers.read().iter().skip(1) {
                other.unpark();
            }
        }
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
                    if self.core.wal().is_idle() {
                        self.unsynced_since_ns.store(0, Ordering::SeqCst);
                    } else {
                        self.unsynced_since_ns
                            .store(self.clock.mono_ns(), Ordering::SeqCst);
                    }
                    self.announce();
                }
            }
        }
    }
}

//! Threads that make commits durable: one flusher for each stream and one thread that closes epochs.
//!
//! The disks set the pace: an epoch is closed when its predecessor is durable, and contains whatever was
//! appended in the meantime. A slow disk gets large epochs and a fast disk small ones, without a configured
//! interval.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use perdura_base::{Epoch, Result, StreamId};
use perdura_wal::{FlushProgress, Rung, Wal};

/// The longest time for which a thread sleeps when nothing calls it. Blocks that fill up within an
/// epoch are written up to this much later.
const NAP: Duration = Duration::from_micros(500);

struct Shared {
    wal: Arc<Wal>,
    stop: AtomicBool,
    lock: Mutex<()>,
    /// An epoch was closed: wakes the flushers.
    closed: Condvar,
    /// Something was synced: wakes the closer, and threads that wait for a commit.
    synced: Condvar,
}

/// The threads; they end when this is dropped.
pub struct Flushers {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

impl Flushers {
    /// Starts the threads.
    #[must_use]
    pub fn start(wal: &Arc<Wal>) -> Flushers {
        let shared = Arc::new(Shared {
            wal: Arc::clone(wal),
            stop: AtomicBool::new(false),
            lock: Mutex::new(()),
            closed: Condvar::new(),
            synced: Condvar::new(),
        });
        let mut threads = Vec::new();
        for stream in (0..wal.streams()).map(StreamId) {
            let shared = Arc::clone(&shared);
            threads.push(std::thread::spawn(move || shared.flush(stream)));
        }
        let closer = Arc::clone(&shared);
        threads.push(std::thread::spawn(move || closer.close()));
        Flushers { shared, threads }
    }

    /// Waits until an epoch is durable.
    ///
    /// # Errors
    /// [`perdura_base::Error::Stopped`] if the log has failed.
    pub fn wait(&self, epoch: Epoch) -> Result<()> {
        let shared = &self.shared;
        while shared.wal.durable(Rung::Disk) < epoch {
            shared.wal.check()?;
            let mut lock = shared.lock.lock();
            if shared.wal.durable(Rung::Disk) < epoch {
                shared.synced.wait_for(&mut lock, NAP);
            }
        }
        Ok(())
    }
}

impl Shared {
    fn is_over(&self) -> bool {
        self.stop.load(Ordering::Relaxed) || self.wal.failure().is_some()
    }

    fn flush(&self, stream: StreamId) {
        while !self.is_over() {
            match self.wal.flush_step(stream) {
                Ok(FlushProgress::Wrote) => {}
                Ok(FlushProgress::Synced) => {
                    drop(self.lock.lock());
                    self.synced.notify_all();
                }
                // A failure is latched in the log, a full disk is tried again after a nap.
                Ok(FlushProgress::Idle) | Err(_) => {
                    let mut lock = self.lock.lock();
                    self.closed.wait_for(&mut lock, NAP);
                }
            }
        }
    }

    fn close(&self) {
        let mut newest = Epoch(0);
        while !self.is_over() {
            if self.wal.durable(Rung::Disk) >= newest
                && let Some(closed) = self.wal.close_epoch()
            {
                assert!(closed > newest, "epoch {closed} closes behind {newest}");
                newest = closed;
                drop(self.lock.lock());
                self.closed.notify_all();
            }
            let mut lock = self.lock.lock();
            self.synced.wait_for(&mut lock, NAP);
        }
    }
}

impl Drop for Flushers {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        drop(self.shared.lock.lock());
        self.shared.closed.notify_all();
        self.shared.synced.notify_all();
        for thread in self.threads.drain(..) {
            // The thread has reported a panic there, which shows as a log that does not advance.
            let _ended = thread.join();
        }
    }
}

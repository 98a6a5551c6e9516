//! Threads that make commits durable: one flusher for each stream and one thread that closes epochs.
//!
//! The disks set the pace. Each epoch is closed when the previous epoch is durable. The epoch contains everything
//! appended in the meantime. So a slow disk gets large epochs and a fast disk gets small epochs. No interval is
//! configured.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use perdura_base::{Epoch, Result, StreamId};
use perdura_wal::{FlushProgress, Rung, Wal};

/// The maximum time that a thread sleeps if no other thread wakes it. A block that fills up within an epoch may wait
/// this long before it is written.
const NAP: Duration = Duration::from_micros(500);

struct Shared {
    wal: Arc<Wal>,
    stop: AtomicBool,
    lock: Mutex<()>,
    /// Signalled when an epoch has been closed: wakes the flushers.
    closed: Condvar,
    /// Signalled after each sync of a stream: wakes the thread for closing epochs and the threads waiting for a commit.
    synced: Condvar,
}

/// The flushers and the thread that closes epochs. They end when this value is dropped.
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
                // A failed log stays failed. If the disk was full, the thread naps and tries the flush again.
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
            // A thread that panicked has reported the panic itself. The log then no longer advances.
            let _ended = thread.join();
        }
    }
}

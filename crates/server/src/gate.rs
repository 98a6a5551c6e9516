//! The wake-ups of a loop.
//!
//! The flusher calls [`Gate::advanced`] after each advance of the durable epoch, many thousand times a second. A
//! wake-up is a system call, so it is made only if the loop has announced that it is about to sleep. No wake-up is
//! lost. The loop *announces its sleep, fences, then looks* at the durable epoch and its mailbox. The flusher *advances
//! the epoch, fences, then looks* at the announcement. A thread that posts a letter does likewise. If two threads each
//! write, fence and read, at least one thread sees both writes.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};

/// The waker of the loop, with flags and a counter that the loop shares with other threads.
#[derive(Debug)]
pub(crate) struct Gate {
    waker: mio::Waker,
    sleeping: AtomicBool,
    /// True if the loop wants reports of keys that expire.
    hears_expired: AtomicBool,
    /// The number of expired keys that were removed.
    expired: AtomicU64,
}

impl Gate {
    /// Returns a gate that wakes through `waker`.
    pub(crate) fn new(waker: mio::Waker) -> Self {
        Gate {
            waker,
            sleeping: AtomicBool::new(false),
            hears_expired: AtomicBool::new(false),
            expired: AtomicU64::new(0),
        }
    }

    /// Announces that the loop is about to sleep. The loop looks at the durable epoch after this.
    pub(crate) fn lie_down(&self) {
        self.sleeping.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// Sets whether the loop wants reports of keys that expire.
    pub(crate) fn hear_expired(&self, hears: bool) {
        self.hears_expired.store(hears, Ordering::Relaxed);
    }

    /// Returns whether the loop wants reports of keys that expire.
    pub(crate) fn hears_expired(&self) -> bool {
        self.hears_expired.load(Ordering::Relaxed)
    }

    /// Counts removed keys that had expired.
    pub(crate) fn count_expired(&self, keys: usize) {
        let keys = u64::try_from(keys).unwrap_or(u64::MAX);
        self.expired.fetch_add(keys, Ordering::Relaxed);
    }

    /// Returns the number of keys expired since the start.
    pub(crate) fn expired(&self) -> u64 {
        self.expired.load(Ordering::Relaxed)
    }

    /// Announces that the loop is awake.
    pub(crate) fn get_up(&self) {
        self.sleeping.store(false, Ordering::Relaxed);
    }

    /// Wakes a sleeping loop, because the durable epoch has advanced, the database has stopped, or a letter has come.
    pub(crate) fn advanced(&self) {
        fence(Ordering::SeqCst);
        if self.sleeping.load(Ordering::Relaxed) && self.sleeping.swap(false, Ordering::Relaxed) {
            self.wake();
        }
    }

    /// Wakes the loop even if it has not announced its sleep.
    pub(crate) fn wake(&self) {
        // A full event counter means that a wake-up is already on its way.
        let _: io::Result<()> = self.waker.wake();
    }
}

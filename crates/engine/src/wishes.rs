//! Requests for a flush of the log, and the flusher threads that serve them.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::Thread;

use parking_lot::RwLock;

use crate::pace::Workers;

/// The requests for a flush of the log, and the threads that flush it.
#[derive(Default)]
pub(crate) struct Wishes {
    /// Flusher threads, to be unparked.
    flushers: RwLock<Vec<Thread>>,
    /// Set when a thread wants a flush; cleared by the flusher that starts one.
    wanted: AtomicBool,
    /// Set when a thread waits for a flush; cleared by the flusher that starts one.
    awaited: AtomicBool,
    /// The load of the threads that want flushes and do not wait.
    workers: Workers,
}

impl Wishes {
    /// Adds a flusher's thread. The threads are added in the order of their streams.
    pub fn add_flusher(&self, thread: Thread) {
        let mut flushers = self.flushers.write();
        debug_assert!(
            flushers.iter().all(|other| other.id() != thread.id()),
            "each stream's flusher is a thread of its own"
        );
        flushers.push(thread);
    }

    /// Returns the number of flushers.
    pub fn flushers(&self) -> usize {
        self.flushers.read().len()
    }

    /// Requests a flush for a caller that waits for it, and wakes the first flusher.
    pub fn nudge(&self) {
        let is_held = !self.awaited.swap(true, Ordering::SeqCst);
        if !self.wanted.swap(true, Ordering::SeqCst) || is_held {
            self.wake_first();
        }
    }

    /// Requests a flush for a caller that does not wait for it, and wakes the first flusher.
    pub fn want(&self, now_ns: impl FnOnce() -> u64) {
        if !self.is_wanted() && !self.wanted.swap(true, Ordering::SeqCst) {
            self.workers.tell(now_ns());
            self.wake_first();
        }
    }

    /// Notes that a flush is wanted, and wakes no flusher.
    pub fn note_wanted(&self) {
        self.wanted.store(true, Ordering::SeqCst);
    }

    /// Returns whether a flush is wanted.
    pub fn is_wanted(&self) -> bool {
        self.wanted.load(Ordering::SeqCst)
    }

    /// Returns whether a thread waits for a flush.
    pub fn is_awaited(&self) -> bool {
        self.awaited.load(Ordering::SeqCst)
    }

    /// Clears the requests, because a flush begins. Frames appended from here on need a new flush.
    pub fn begin_turn(&self) {
        self.wanted.store(false, Ordering::SeqCst);
        self.awaited.store(false, Ordering::SeqCst);
    }

    /// Returns the fraction of time, in thousandths, in which the workers run. Workers are the threads that want
    /// flushes but do not wait for them.
    pub fn ran_permille(&self) -> u64 {
        self.workers.ran_permille()
    }

    fn wake_first(&self) {
        if let Some(first) = self.flushers.read().first() {
            first.unpark();
        }
    }

    /// Wakes the flushers of all streams but the first.
    pub fn wake_others(&self) {
        for other in self.flushers.read().iter().skip(1) {
            other.unpark();
        }
    }

    /// Wakes all flushers.
    pub fn wake_all(&self) {
        for flusher in self.flushers.read().iter() {
            flusher.unpark();
        }
    }
}

//! The wake-ups of a loop.
//!
//! The flusher calls [`Gate::advanced`] after each advance of the durable epoch, many thousand times a second. A
//! wake-up is a system call, so it is made only if the loop has announced that it is about to sleep. No wake-up is
//! lost. The loop *announces its sleep, fences, then looks* at the durable epoch and its mailbox. It also announces
//! whether its clients wait for the log: the flusher wakes only such a loop. The flusher *advances the epoch, fences,
//! then looks* at the announcement. A thread that posts a letter does likewise. If two threads each
//! write, fence and read, at least one thread sees both writes.

use crate::sync::atomic::{AtomicU8, Ordering, fence};
use std::io;

/// The waker of the loop, with a state that the loop shares with other threads.
#[derive(Debug)]
pub(crate) struct Gate {
    waker: mio::Waker,
    /// The loop's announcement: [`AWAKE`], [`ASLEEP`] or [`WAITING`].
    state: AtomicU8,
}

/// The loop is awake.
const AWAKE: u8 = 0;
/// The loop sleeps, or is about to.
const ASLEEP: u8 = 1;
/// The loop sleeps, or is about to, and its clients wait for the log.
const WAITING: u8 = 2;

impl Gate {
    /// Returns a gate that wakes through `waker`.
    pub(crate) fn new(waker: mio::Waker) -> Self {
        Gate {
            waker,
            state: AtomicU8::new(AWAKE),
        }
    }

    /// Announces that the loop is about to sleep, and whether its clients wait for the log. The loop looks at the
    /// durable epoch and its mailbox after this.
    pub(crate) fn lie_down(&self, waits: bool) {
        let state = if waits { WAITING } else { ASLEEP };
        self.state.store(state, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// Announces that the loop is awake.
    pub(crate) fn get_up(&self) {
        self.state.store(AWAKE, Ordering::Relaxed);
    }

    /// Wakes a sleeping loop whose clients wait for the log, because the durable epoch has advanced.
    pub(crate) fn advanced(&self) {
        self.wake_from(WAITING);
    }

    /// Wakes a sleeping loop, because a letter has come or the database may have stopped.
    pub(crate) fn posted(&self) {
        self.wake_from(ASLEEP);
    }

    /// Wakes the loop if its announcement is at least `least`.
    fn wake_from(&self, least: u8) {
        fence(Ordering::SeqCst);
        let sleeps = || self.state.load(Ordering::Relaxed) >= least;
        if sleeps() && self.state.swap(AWAKE, Ordering::Relaxed) != AWAKE {
            self.wake();
        }
    }

    /// Wakes the loop even if it has not announced its sleep.
    pub(crate) fn wake(&self) {
        // A full event counter means that a wake-up is already on its way.
        let _: io::Result<()> = self.waker.wake();
    }
}

//! How long the rounds of the loop take: for as long, no other client is served.
//!
//! Asking for the processor time of a thread is a system call, so it is done at most once a
//! millisecond, and behind a round that took longer than that. What is told may therefore be too
//! long by a millisecond.

use perdura::pace::thread_cpu_ns;
use std::time::{Duration, Instant};

/// Rounds shorter than this are not told of.
const SHORT: Duration = Duration::from_millis(1);

/// The longest round since the start or CONFIG RESETSTAT.
#[derive(Debug)]
pub(crate) struct Rounds {
    begin: Instant,
    /// When the processor time was read last, and what it was, nanoseconds.
    read: (Instant, u64),
    /// The longest round, microseconds.
    pub longest_us: u64,
    /// The most processor time of a round, microseconds.
    pub longest_cpu_us: u64,
}

impl Rounds {
    /// Before the first round.
    pub(crate) fn new(now: Instant) -> Self {
        Rounds {
            begin: now,
            read: (now, thread_cpu_ns()),
            longest_us: 0,
            longest_cpu_us: 0,
        }
    }

    /// A round begins.
    pub(crate) fn begin(&mut self, now: Instant) {
        self.begin = now;
        if now.saturating_duration_since(self.read.0) > SHORT {
            self.read = (now, thread_cpu_ns());
        }
    }

    /// It ends.
    pub(crate) fn end(&mut self) {
        let now = Instant::now();
        let took = now.saturating_duration_since(self.begin);
        if took > SHORT {
            let us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
            let cpu = thread_cpu_ns();
            let cpu_us = cpu.saturating_sub(self.read.1) / 1000;
            self.read = (now, cpu);
            self.longest_us = self.longest_us.max(us);
            self.longest_cpu_us = self.longest_cpu_us.max(cpu_us);
        }
    }

    /// Forgets what it has seen.
    pub(crate) fn reset(&mut self) {
        (self.longest_us, self.longest_cpu_us) = (0, 0);
    }
}

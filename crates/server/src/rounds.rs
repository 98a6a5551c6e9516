//! The durations of the loop's rounds. A client that becomes ready during a round must wait until the round
//! ends.
//!
//! Reading the processor time of a thread takes a system call. So the time is read only if the last reading is
//! more than a millisecond old, or after a round that took more than a millisecond. The reported processor time
//! may therefore be a millisecond too long.

use perdura::pace::thread_cpu_ns;
use std::time::{Duration, Instant};

/// The duration below which a round is not reported.
const SHORT: Duration = Duration::from_millis(1);

/// The longest round since the start or CONFIG RESETSTAT.
#[derive(Debug)]
pub(crate) struct Rounds {
    begin: Instant,
    /// The last reading of the thread's processor time. The pair has the moment of the reading and the processor time
    /// in nanoseconds.
    read: (Instant, u64),
    /// The duration of all rounds.
    busy: Duration,
    /// The duration of the longest round, in microseconds.
    pub longest_us: u64,
    /// The longest processor time of a round, microseconds.
    pub longest_cpu_us: u64,
}

impl Rounds {
    /// Returns the state before the first round.
    pub(crate) fn new(now: Instant) -> Self {
        Rounds {
            begin: now,
            read: (now, thread_cpu_ns()),
            busy: Duration::ZERO,
            longest_us: 0,
            longest_cpu_us: 0,
        }
    }

    /// Notes that a round begins.
    pub(crate) fn begin(&mut self, now: Instant) {
        self.begin = now;
        if now.saturating_duration_since(self.read.0) > SHORT {
            self.read = (now, thread_cpu_ns());
        }
    }

    /// Notes that the round ends.
    pub(crate) fn end(&mut self) {
        let now = Instant::now();
        let took = now.saturating_duration_since(self.begin);
        self.busy += took;
        if took > SHORT {
            let us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
            let cpu = thread_cpu_ns();
            let cpu_us = cpu.saturating_sub(self.read.1) / 1000;
            self.read = (now, cpu);
            self.longest_us = self.longest_us.max(us);
            self.longest_cpu_us = self.longest_cpu_us.max(cpu_us);
        }
    }

    /// Returns the duration of all rounds, microseconds.
    pub(crate) fn busy_us(&self) -> u64 {
        u64::try_from(self.busy.as_micros()).unwrap_or(u64::MAX)
    }

    /// Resets all times.
    pub(crate) fn reset(&mut self) {
        self.busy = Duration::ZERO;
        (self.longest_us, self.longest_cpu_us) = (0, 0);
    }
}

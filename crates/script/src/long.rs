//! The moment at which a run counts as long.
//!
//! A server with several event loops must know when a script begins to keep others waiting. Reading the clock at each
//! interrupt would slow scripts down, so only some interrupts read it.

use std::cell::Cell;
use std::time::{Duration, Instant};

/// The time after which a run counts as long; see [`Host::note_long`](crate::Host::note_long).
pub const LONG_RUN: Duration = Duration::from_micros(200);
/// The number of interrupts between two readings of the clock.
const INTERVAL: u32 = 256;

/// The time of the current run.
#[derive(Debug)]
pub(crate) struct LongRun {
    begun: Cell<Instant>,
    /// The number of interrupts until the clock is read. `None`: the run is known to be long.
    left: Cell<Option<u32>>,
}

impl LongRun {
    /// Returns the state before the first run.
    pub(crate) fn new() -> Self {
        LongRun {
            begun: Cell::new(Instant::now()),
            left: Cell::new(None),
        }
    }

    /// Begins a run.
    pub(crate) fn begin(&self, now: Instant) {
        self.begun.set(now);
        self.left.set(Some(INTERVAL));
    }

    /// Counts an interrupt. Returns whether the run counts as long from now on. Returns true only once for
    /// each run.
    #[inline]
    pub(crate) fn is_reached(&self) -> bool {
        match self.left.get() {
            None => false,
            Some(0) => self.read_clock(),
            Some(left) => {
                self.left.set(Some(left - 1));
                false
            }
        }
    }

    #[cold]
    fn read_clock(&self) -> bool {
        let is_long = self.begun.get().elapsed() >= LONG_RUN;
        self.left.set((!is_long).then_some(INTERVAL));
        is_long
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_becomes_long_once() {
        let run = LongRun::new();
        assert!(!run.is_reached(), "no run has begun");
        run.begin(Instant::now());
        assert!(!run.is_reached(), "the run has just begun");
        let began = Instant::now()
            .checked_sub(2 * LONG_RUN)
            .expect("a clock that runs");
        run.begin(began);
        let reached = (0..4 * INTERVAL).filter(|_| run.is_reached()).count();
        assert_eq!(reached, 1);
        run.begin(began);
        assert!((0..=INTERVAL).any(|_| run.is_reached()), "the next run");
    }
}

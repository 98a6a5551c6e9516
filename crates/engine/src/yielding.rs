//! The sharing of processor time between transactions and the two background jobs, archiver and
//! merger.
//!
//! Archiver and merger each have two threads. Only one thread of a job takes steps at a time. While a core is idle, the
//! thread of the lowest priority works ([`Side::Low`]). It uses idle time only: a transaction that wakes up gets the
//! core at once. While every core is busy, as measured in [`pace`](crate::pace), the thread at normal priority works
//! ([`Side::High`]). One thread is not enough: raising a lowered priority needs a special right.
//!
//! The thread at normal priority takes a share of one core, in short pieces: an eighth while nothing is urgent, and
//! more as urgency grows. The archiver's urgency depends on its [`Lag`]. From a lag of [`CALM_NS`] on, the share grows.
//! At a lag of [`URGENT_NS`], a second below the permitted five seconds, the share is the whole core. The merger's
//! urgency depends on the number of runs.

use std::collections::VecDeque;

use perdura_base::Epoch;

use crate::pace::IdleGauge;

/// The share of one core that a job gets when it is not urgent, in thousandths.
const SHARE_MIN: u64 = 125;
/// The shortest pause, nanoseconds. A shorter one would not be worth the cost of sleeping and waking.
const PAUSE_MIN_NS: u64 = 1_000_000;
/// The longest pause, nanoseconds.
const PAUSE_MAX_NS: u64 = 50_000_000;
/// The longest lag that is not urgent, nanoseconds. Collecting a run takes a second.
const CALM_NS: u64 = 1_500_000_000;
/// The shortest lag at which the archiver takes a whole core, nanoseconds.
const URGENT_NS: u64 = 4_000_000_000;
/// The shortest time between two marks of [`Lag`], nanoseconds.
const MARK_NS: u64 = 100_000_000;

/// One of the two threads of a background job (archiver or merger).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    /// The thread of the lowest priority, which works while a core is idle.
    Low,
    /// The thread of normal priority, which works while no core is idle, or when the job is urgent.
    High,
}

impl Side {
    /// Gives the calling thread the priority of this side. If the system refuses, the thread keeps its old priority.
    pub fn begin(self) {
        if self == Side::Low {
            let _refused = rustix::process::nice(LOWEST);
        }
    }
}

/// The lowest priority, as `nice` defines it.
const LOWEST: i32 = 19;

/// The pauses of a thread that works in the background.
#[derive(Debug, Default)]
pub(crate) struct Yielding {
    gauge: IdleGauge,
    owed_ns: u64,
}

impl Yielding {
    /// Returns whether the thread of this side takes the next steps. `urgency` is in thousandths.
    pub fn is_turn(&mut self, side: Side, now_ns: u64, urgency: u64) -> bool {
        let is_busy = self.gauge.saturated(now_ns);
        match side {
            Side::Low => !is_busy,
            Side::High => is_busy || urgency > 0,
        }
    }

    /// Returns the time in nanoseconds for which the thread must now pause. `cpu_ns` is the processor time of the
    /// thread's last step. `urgency` is in thousandths.
    pub fn pause_ns(&mut self, now_ns: u64, cpu_ns: u64, urgency: u64) -> u64 {
        if !self.gauge.saturated(now_ns) {
            self.owed_ns = 0;
            return 0;
        }
        let share = SHARE_MIN + (1000 - SHARE_MIN) * urgency.min(1000) / 1000;
        assert!((SHARE_MIN..=1000).contains(&share), "a share of one core");
        self.owed_ns += cpu_ns.saturating_mul(1000 - share) / share;
        if self.owed_ns < PAUSE_MIN_NS {
            return 0;
        }
        let pause_ns = self.owed_ns.min(PAUSE_MAX_NS);
        self.owed_ns = 0;
        pause_ns
    }
}

/// The age of the oldest durable part of the log that the archive lacks.
#[derive(Debug, Default)]
pub(crate) struct Lag {
    /// Pairs of a time, in nanoseconds, and the last epoch that was durable at that time, ascending. Only epochs that
    /// the archive lacks are listed.
    marks: VecDeque<(u64, Epoch)>,
}

impl Lag {
    /// Notes the last durable and the last archived epoch, and returns the lag in nanoseconds.
    pub fn note(&mut self, now_ns: u64, durable: Epoch, archived: Epoch) -> u64 {
        while self.marks.front().is_some_and(|mark| mark.1 <= archived) {
            self.marks.pop_front();
        }
        let last = self.marks.back();
        let is_time = last.is_none_or(|mark| mark.0 + MARK_NS <= now_ns && mark.1 < durable);
        if archived < durable && is_time {
            self.marks.push_back((now_ns, durable));
        }
        debug_assert!(
            self.marks.iter().is_sorted_by(|a, b| a.1 < b.1),
            "the durable epoch does not go back"
        );
        let oldest = self.marks.front();
        oldest.map_or(0, |mark| now_ns.saturating_sub(mark.0))
    }
}

/// Returns the urgency of an archiver with this lag, in thousandths.
pub(crate) fn urgency_of_lag(lag_ns: u64) -> u64 {
    lag_ns.saturating_sub(CALM_NS).min(URGENT_NS - CALM_NS) * 1000 / (URGENT_NS - CALM_NS)
}

/// Returns the urgency, in thousandths, of merging an archive with this many runs. Up to 64 runs are not urgent:
/// even after a hundred days with a new run every second, merging leaves at most 64 runs.
pub(crate) fn urgency_of_runs(runs: usize) -> u64 {
    let runs = u64::try_from(runs).unwrap_or(u64::MAX);
    runs.saturating_sub(64).min(192) * 1000 / 192
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_side_works_unless_the_job_is_urgent_while_a_core_is_idle() {
        for (is_busy, urgency, low, high) in [
            (false, 0, true, false),
            (true, 0, false, true),
            (true, 500, false, true),
            (false, 500, true, true),
        ] {
            let mut yielding = Yielding {
                gauge: IdleGauge::fixed(is_busy),
                owed_ns: 0,
            };
            assert_eq!(yielding.is_turn(Side::Low, 1, urgency), low);
            assert_eq!(yielding.is_turn(Side::High, 1, urgency), high);
        }
    }

    #[test]
    fn while_a_core_is_idle_nothing_waits() {
        let mut yielding = Yielding {
            gauge: IdleGauge::fixed(false),
            owed_ns: 0,
        };
        assert!((1..1000).all(|now| yielding.pause_ns(now, 1_000_000, 0) == 0));
    }

    /// Simulates a thread with a job of this urgency. Returns the thread's working time, in thousandths. Each step
    /// takes 0.3 ms.
    fn share(urgency: u64) -> u64 {
        let mut yielding = Yielding {
            gauge: IdleGauge::fixed(true),
            owed_ns: 0,
        };
        let (mut now, mut ran) = (1, 0);
        while now < 10_000_000_000 {
            ran += 300_000;
            now += 300_000 + yielding.pause_ns(now, 300_000, urgency);
        }
        ran * 1000 / now
    }

    #[test]
    fn while_every_core_is_busy_the_share_grows_with_the_urgency() {
        assert!((120..=130).contains(&share(0)), "{}", share(0));
        assert!((540..=590).contains(&share(500)), "{}", share(500));
        assert!(share(1000) >= 999, "{}", share(1000));
    }

    /// Simulates a minute with every core busy. Archiving the log needs `permille` of a core. Returns the longest lag.
    fn longest_lag_ns(permille: u64) -> u64 {
        let mut yielding = Yielding {
            gauge: IdleGauge::fixed(true),
            owed_ns: 0,
        };
        let mut lag = Lag::default();
        let (mut now, mut archived, mut read, mut longest) = (1u64, 0u64, 0u64, 0);
        let mut run_begin = 1;
        // An epoch is a millisecond of the log. Archiving an epoch takes `permille` of a
        // millisecond.
        while now < 60_000_000_000 {
            let durable = now / 1_000_000;
            let lag_ns = lag.note(now, Epoch(durable), Epoch(archived));
            longest = longest.max(lag_ns);
            if read < durable {
                let cpu_ns = permille * 1000;
                read += 1;
                now += cpu_ns + yielding.pause_ns(now, cpu_ns, urgency_of_lag(lag_ns));
            } else {
                now += 1_000_000;
            }
            if now - run_begin > 1_000_000_000 {
                (archived, run_begin) = (read, now);
            }
        }
        longest
    }

    #[test]
    fn the_lag_stays_within_five_seconds_whatever_share_the_log_needs() {
        for permille in [10, 100, 200, 400, 600, 800, 900] {
            let longest = longest_lag_ns(permille);
            assert!(longest < 5_000_000_000, "{permille}: {longest} ns");
            assert!(longest > 900_000_000, "a run is collected for a second");
        }
    }

    #[test]
    fn the_lag_is_the_age_of_the_oldest_epoch_that_is_missing() {
        let mut lag = Lag::default();
        assert_eq!(lag.note(10, Epoch(5), Epoch(5)), 0);
        assert_eq!(lag.note(20, Epoch(6), Epoch(5)), 0);
        assert_eq!(lag.note(MARK_NS + 20, Epoch(9), Epoch(5)), MARK_NS);
        assert_eq!(lag.note(MARK_NS + 50, Epoch(9), Epoch(6)), 30);
        assert_eq!(lag.note(MARK_NS + 60, Epoch(9), Epoch(9)), 0);
    }
}

//! The durations and failures of commands. Each command has a log-linear histogram: the range from a power of two to
//! the next one has sixteen equal buckets. So a percentile is exact within 6 %.
//!
//! The server measures a command from call to return, as Redis does. The engine counts separately how long the reply
//! then waits for the disk.

use std::time::Duration;

const STEPS: usize = 16;
const STEP_BITS: u32 = STEPS.trailing_zeros();
const _: () = assert!(STEPS.is_power_of_two(), "the step is some bits of a time");
const BUCKETS: usize = (64 - 3) * STEPS;

/// A histogram of times.
#[derive(Debug, Clone)]
pub(crate) struct Histogram {
    counts: Box<[u64]>,
    total: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        Histogram {
            counts: vec![0; BUCKETS].into_boxed_slice(),
            total: 0,
        }
    }
}

/// Returns a time in nanoseconds. A time of more than 584 years counts as 584 years.
pub(crate) fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

fn bucket(ns: u64) -> usize {
    let small = usize::try_from(ns).unwrap_or(usize::MAX);
    if small < STEPS {
        return small;
    }
    let octave = ns.ilog2() - STEP_BITS;
    let step = usize::try_from(ns >> octave).unwrap_or(0) - STEPS;
    debug_assert!(step < STEPS, "an octave has so many steps");
    usize::try_from(octave + 1).unwrap_or(0) * STEPS + step
}

/// Returns the longest time that a bucket counts, nanoseconds.
fn upper_ns(bucket: usize) -> u64 {
    debug_assert!(bucket < BUCKETS, "a bucket is one of those that there are");
    let (octave, step) = (bucket / STEPS, bucket % STEPS);
    let step = u64::try_from(step).unwrap_or(0);
    match octave.checked_sub(1) {
        None => step,
        Some(shift) => {
            let next = u128::from(step + 17) << shift;
            u64::try_from(next - 1).unwrap_or(u64::MAX)
        }
    }
}

impl Histogram {
    /// Counts one time.
    pub(crate) fn add(&mut self, took: Duration) {
        let ns = nanoseconds(took);
        debug_assert!(
            ns <= upper_ns(bucket(ns)),
            "a time lies below the bound of its bucket"
        );
        self.counts[bucket(ns)] += 1;
        self.total += 1;
    }

    /// Adds the times of another histogram.
    fn add_all(&mut self, other: &Histogram) {
        let counts = self.counts.iter_mut().zip(&other.counts);
        counts.for_each(|(sum, part)| *sum += part);
        self.total += other.total;
    }

    /// Returns the time, in nanoseconds, that `percent` of the commands did not exceed.
    pub(crate) fn percentile_ns(&self, percent: f64) -> u64 {
        let mut seen = 0;
        for (at, count) in self.counts.iter().enumerate() {
            seen += count;
            if *count > 0 && share(seen, self.total) * 100.0 >= percent {
                return upper_ns(at);
            }
        }
        0
    }

    /// Returns pairs of a bound and the number of commands with a duration up to that bound. The bounds are 1, 2, 4 …
    /// microseconds. A bound is left out if no command lies between the bound below and this bound.
    pub(crate) fn cumulative_us(&self) -> Vec<(u64, u64)> {
        let mut list: Vec<(u64, u64)> = Vec::new();
        let mut seen = 0;
        for (at, count) in self.counts.iter().enumerate().filter(|(_, c)| **c > 0) {
            seen += count;
            let bound = upper_ns(at).div_ceil(1000).max(1).next_power_of_two();
            match list.last_mut() {
                Some(last) if last.0 == bound => last.1 = seen,
                _ => list.push((bound, seen)),
            }
        }
        debug_assert_eq!(seen, self.total, "each time is in a bucket");
        debug_assert!(
            list.is_sorted_by(|a, b| a.0 < b.0),
            "each bound stands once"
        );
        list
    }
}

/// Returns the quotient of `part` and `whole`. Each is far below 2^53.
fn share(part: u64, whole: u64) -> f64 {
    let float = |n: u64| {
        f64::from(u32::try_from(n >> 21).unwrap_or(u32::MAX)) * 2_097_152.0
            + f64::from(u32::try_from(n & 0x1f_ffff).unwrap_or(0))
    };
    float(part) / float(whole).max(1.0)
}

/// The figures of one command.
#[derive(Debug, Default, Clone)]
pub(crate) struct Figures {
    /// The number of runs.
    pub calls: u64,
    /// The time of all runs, nanoseconds.
    pub took_ns: u64,
    /// The number of times that the command was refused before it ran.
    pub rejected: u64,
    /// The number of error replies.
    pub failed: u64,
    /// The durations of the command's calls. `None`: no duration has been counted.
    pub times: Option<Histogram>,
}

impl Figures {
    /// Returns whether there is anything to report.
    pub(crate) fn used(&self) -> bool {
        self.calls > 0 || self.rejected > 0
    }

    /// Adds the figures of another loop.
    pub(crate) fn add(&mut self, other: &Figures) {
        self.calls += other.calls;
        self.took_ns += other.took_ns;
        self.rejected += other.rejected;
        self.failed += other.failed;
        if let Some(times) = &other.times {
            self.times.get_or_insert_default().add_all(times);
        }
    }

    /// Counts a run.
    pub(crate) fn ran(&mut self, took: Duration, histogram: bool) {
        self.calls += 1;
        self.took_ns += nanoseconds(took);
        if histogram {
            self.times.get_or_insert_default().add(took);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_time_has_a_bucket_that_holds_it_closely() {
        let times = (0..63).flat_map(|n| [1u64 << n, (1 << n) + 1, (2 << n) - 1]);
        for ns in times.chain([0, u64::MAX]) {
            let at = bucket(ns);
            let upper = upper_ns(at);
            assert!(upper >= ns && upper - ns <= ns / 16, "{ns}: {upper}");
            assert!(at == 0 || upper_ns(at - 1) < ns, "{ns}");
        }
    }

    #[test]
    fn percentiles_and_bounds_are_read_off() {
        let mut times = Histogram::default();
        for us in 1..=100 {
            times.add(Duration::from_micros(us));
        }
        let median = times.percentile_ns(50.0);
        assert!((50_000..54_000).contains(&median), "{median}");
        assert!(times.percentile_ns(100.0) >= 100_000);
        let bounds = times.cumulative_us();
        assert_eq!(bounds.last(), Some(&(128, 100)));
        assert!(bounds.is_sorted());
    }
}

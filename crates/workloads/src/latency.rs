//! Latencies from the clients' view, in a common form for all benches.

use std::time::Duration;

use hdrhistogram::Histogram;
use serde::Serialize;

/// The longest latency that the histogram distinguishes, microseconds. Longer latencies are recorded as this value.
const LATENCY_US_MAX: u64 = 60_000_000;

/// Returns an empty histogram of microseconds, with a precision of three digits.
#[must_use]
pub fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, LATENCY_US_MAX, 3).expect("fixed bounds")
}

/// Records `count` latencies of `us` microseconds.
pub fn record(latencies: &mut Histogram<u64>, us: u64, count: u64) {
    latencies.saturating_record_n(us.clamp(1, LATENCY_US_MAX), count);
}

/// Returns a duration in whole microseconds.
#[must_use]
pub fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

/// Latencies, microseconds.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub struct LatencyUs {
    /// The median.
    pub p50: u64,
    /// The latency that 99 of 100 do not exceed.
    pub p99: u64,
    /// The latency that 999 of 1000 do not exceed.
    pub p999: u64,
    /// The longest latency.
    pub max: u64,
}

impl LatencyUs {
    /// Returns the percentiles of a histogram, or zeros for an empty one.
    #[must_use]
    pub fn of(latencies: &Histogram<u64>) -> LatencyUs {
        if latencies.is_empty() {
            return LatencyUs::default();
        }
        LatencyUs {
            p50: latencies.value_at_quantile(0.5),
            p99: latencies.value_at_quantile(0.99),
            p999: latencies.value_at_quantile(0.999),
            max: latencies.max(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_of_what_was_recorded() {
        let mut latencies = histogram();
        assert_eq!(LatencyUs::of(&latencies).max, 0);
        record(&mut latencies, 0, 989);
        record(&mut latencies, 700, 11);
        let of = LatencyUs::of(&latencies);
        assert_eq!((of.p50, of.p99, of.p999, of.max), (1, 700, 700, 700));
        record(&mut latencies, u64::MAX, 1);
        assert!(LatencyUs::of(&latencies).max >= LATENCY_US_MAX);
        assert_eq!(micros(Duration::MAX), u64::MAX);
    }
}

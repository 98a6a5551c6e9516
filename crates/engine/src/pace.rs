//! When to flush, and how fast to write an image.
//!
//! Group commit clocks itself: a flush starts when the one before it has ended, and takes with it
//! whatever has come meanwhile. While a core idles that is all. When the cores are saturated each
//! sync takes its CPU time from the transactions, so flushes are spaced by what a sync was measured
//! to cost: they may use a set share of one core, and wait at most [`SPACING_NS_MAX`].

use std::time::Duration;

/// The longest time a flush is held back, nanoseconds.
pub const SPACING_NS_MAX: u64 = 5_000_000;
/// Syncs may use one part in this many of a core while the cores are saturated.
const SYNC_SHARE: u64 = 8;
/// A flush up to this long is made by a thread that has nothing else to do, nanoseconds: handing
/// it over and being woken again would take about as long.
const SHORT_NS: u64 = 400_000;
/// How often the machine's idle time is read, nanoseconds.
const GAUGE_NS: u64 = 20_000_000;

/// Decides when the next flush may start.
#[derive(Debug, Default)]
pub struct FlushPacer {
    /// Smoothed CPU time of a flush, nanoseconds.
    cost_ns: u64,
    /// Smoothed duration of a flush, nanoseconds.
    wall_ns: u64,
    last_start_ns: u64,
    gauge: IdleGauge,
}

impl FlushPacer {
    /// How long to hold the next flush back, nanoseconds; 0 is "now".
    pub fn delay_ns(&mut self, now_ns: u64) -> u64 {
        if !self.gauge.saturated(now_ns) {
            return 0;
        }
        spacing_ns(self.cost_ns).saturating_sub(now_ns.saturating_sub(self.last_start_ns))
    }

    /// How long to hold back a write that completes by itself while another one is in flight, nanoseconds:
    /// as [`delay_ns`](Self::delay_ns), and at least so long that two are in flight when the first of
    /// them completes. More and smaller writes cost more than they save.
    pub fn delay_behind_ns(&mut self, now_ns: u64, latency_ns: u64) -> u64 {
        let since_ns = now_ns.saturating_sub(self.last_start_ns);
        self.delay_ns(now_ns)
            .max((latency_ns / 2).saturating_sub(since_ns))
    }

    /// Notes that a write was begun that completes by itself, and what one costs the machine.
    pub fn note_begun(&mut self, now_ns: u64, cost_ns: u64) {
        assert!(now_ns > 0, "the clock runs");
        self.last_start_ns = self.last_start_ns.max(now_ns);
        self.cost_ns = cost_ns;
        // One that was long for once is forgotten, and tried again.
        self.wall_ns = self.wall_ns * 7 / 8;
    }

    /// Notes that a flush took from `start_ns` to `end_ns` and used `cpu_ns` of CPU.
    pub fn note(&mut self, start_ns: u64, end_ns: u64, cpu_ns: u64) {
        assert!(
            self.last_start_ns <= start_ns,
            "flushes of the first stream follow one another"
        );
        assert!(start_ns <= end_ns, "a flush ends after it has begun");
        self.last_start_ns = start_ns;
        self.wall_ns = (self.wall_ns * 7 + end_ns.saturating_sub(start_ns)) / 8;
        self.cost_ns = (self.cost_ns * 7 + cpu_ns) / 8;
    }

    /// Whether a flush is short enough to be made by the thread that waits for it.
    #[must_use]
    pub fn is_short(&self) -> bool {
        self.wall_ns <= SHORT_NS
    }

    /// Whether the cores were saturated when last looked at.
    #[must_use]
    pub fn is_saturated(&self) -> bool {
        self.gauge.saturated
    }

    /// The smoothed CPU time of a flush, nanoseconds.
    #[must_use]
    pub fn cost_ns(&self) -> u64 {
        self.cost_ns
    }
}

fn spacing_ns(cost_ns: u64) -> u64 {
    (cost_ns * SYNC_SHARE).min(SPACING_NS_MAX)
}

/// Whether any core of the machine is idle, from the kernel's own accounting.
#[derive(Debug, Default)]
struct IdleGauge {
    next_ns: u64,
    last: Option<(u64, u64)>,
    saturated: bool,
}

impl IdleGauge {
    fn saturated(&mut self, now_ns: u64) -> bool {
        if now_ns >= self.next_ns {
            self.next_ns = now_ns + GAUGE_NS;
            let stat = std::fs::read_to_string("/proc/stat").unwrap_or_default();
            if let Some((idle, total)) = parse_idle(&stat) {
                if let Some((idle_before, total_before)) = self.last {
                    let idle = idle.saturating_sub(idle_before);
                    let total = total.saturating_sub(total_before);
                    self.saturated = is_saturated(idle, total);
                }
                self.last = Some((idle, total));
            }
        }
        self.saturated
    }
}

/// Idle and total ticks of all cores.
fn parse_idle(stat: &str) -> Option<(u64, u64)> {
    let ticks: Vec<u64> = stat
        .lines()
        .next()?
        .strip_prefix("cpu ")?
        .split_whitespace()
        .take(8)
        .map_while(|field| field.parse().ok())
        .collect();
    // user, nice, system, idle, iowait, irq, softirq, steal: waiting for I/O is idling.
    Some((ticks.get(3)? + ticks.get(4)?, ticks.iter().sum()))
}

/// Less than a tenth of all core time idle.
fn is_saturated(idle: u64, total: u64) -> bool {
    total > 0 && idle * 10 < total
}

/// The CPU time of the calling thread, nanoseconds.
#[must_use]
pub fn thread_cpu_ns() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    seconds * 1_000_000_000 + u64::try_from(time.tv_nsec).unwrap_or(0)
}

/// Spreads an image's writes over time, so that they do not starve the log: at least
/// `bytes_per_second_min`, and fast enough to finish within the longest duration.
#[derive(Debug)]
pub struct ImagePacer {
    bytes_per_second: u64,
    started_ns: u64,
    written: u64,
}

/// Even a small image is written no faster than it must, but no slower than this, bytes a second.
const IMAGE_RATE_MIN: u64 = 48 << 20;

impl ImagePacer {
    /// A pacer for about `expected_bytes` within `seconds_max`.
    #[must_use]
    pub fn new(expected_bytes: u64, seconds_max: u64, now_ns: u64) -> Self {
        let rate = expected_bytes
            .div_ceil(seconds_max.max(1))
            .max(IMAGE_RATE_MIN);
        ImagePacer {
            bytes_per_second: rate,
            started_ns: now_ns,
            written: 0,
        }
    }

    /// How long to wait after `bytes` more were written.
    pub fn wait_after(&mut self, bytes: u64, now_ns: u64) -> Duration {
        assert!(
            self.started_ns <= now_ns,
            "both times are of the clock that the image was begun by"
        );
        self.written += bytes;
        let due_ns = u128::from(self.written) * 1_000_000_000 / u128::from(self.bytes_per_second);
        let due_ns = self.started_ns + u64::try_from(due_ns).unwrap_or(u64::MAX / 2);
        Duration::from_nanos(due_ns.saturating_sub(now_ns))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flushes_are_spaced_by_their_cost_and_never_by_more_than_the_limit() {
        assert_eq!(spacing_ns(0), 0);
        assert_eq!(spacing_ns(30_000), 240_000);
        assert_eq!(spacing_ns(u64::from(u32::MAX)), SPACING_NS_MAX);
    }

    #[test]
    fn the_kernels_accounting_is_read() {
        let stat = "cpu  10 1 5 100 20 0 1 2 0 0\ncpu0 1 2 3\n";
        assert_eq!(parse_idle(stat), Some((120, 139)));
        assert_eq!(parse_idle("nothing"), None);
        assert!(is_saturated(9, 100));
        assert!(!is_saturated(10, 100));
        assert!(!is_saturated(0, 0));
    }

    #[test]
    fn an_image_is_written_in_time_and_not_faster() {
        let mut pacer = ImagePacer::new(600 << 20, 10, 0);
        assert_eq!(pacer.wait_after(60 << 20, 0), Duration::from_secs(1));
        assert_eq!(pacer.wait_after(0, 2_000_000_000), Duration::ZERO);
    }
}

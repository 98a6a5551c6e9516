//! Clocks. Callers supply them: no crate below the engine reads the system's clock.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

/// A source of time.
pub trait Clock: Send + Sync + 'static {
    /// Returns the wall clock, microseconds since the Unix epoch. The wall clock may jump forward or back. It is used
    /// only for time stamps in files and for expiry, never to order events.
    fn wall_us(&self) -> u64;

    /// Returns the monotone clock, nanoseconds since some fixed time. It never decreases. It also counts while the
    /// machine is suspended, because leases must expire then: other machines were not suspended.
    fn mono_ns(&self) -> u64;

    /// Returns the number of page faults of the process so far, or 0 if they are not counted. Each page fault takes
    /// some of the process's time.
    fn page_faults(&self) -> u64 {
        0
    }
}

/// The clocks of the machine.
#[derive(Debug)]
pub struct SystemClock {
    start_ns: u64,
}

impl SystemClock {
    /// Returns a clock with monotone time 0 now.
    #[must_use]
    pub fn new() -> Self {
        SystemClock {
            start_ns: since_boot_ns(),
        }
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for SystemClock {
    fn wall_us(&self) -> u64 {
        let since = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
    }

    fn mono_ns(&self) -> u64 {
        since_boot_ns().saturating_sub(self.start_ns)
    }

    fn page_faults(&self) -> u64 {
        let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
        parse_faults(&stat).unwrap_or(0)
    }
}

/// Returns the nanoseconds since the machine was started. Time in suspension counts too.
fn since_boot_ns() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    seconds * 1_000_000_000 + u64::try_from(time.tv_nsec).unwrap_or(0)
}

/// Returns the sum of the minor and major page faults. `stat` is the text of a process's `stat` file in `/proc`.
fn parse_faults(stat: &str) -> Option<u64> {
    // The name of the command is in parentheses and may itself contain spaces and parentheses.
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_whitespace().map(str::parse::<u64>);
    let minor = fields.nth(7)?.ok()?;
    let major = fields.nth(1)?.ok()?;
    minor.checked_add(major)
}

/// The clock of a simulator. Its time stands still until the simulator moves it.
#[derive(Debug, Default)]
pub struct ManualClock {
    wall_us: AtomicU64,
    mono_ns: AtomicU64,
}

impl ManualClock {
    /// Returns a clock with the wall time `wall_us` and the monotone time 0.
    #[must_use]
    pub fn at(wall_us: u64) -> Self {
        ManualClock {
            wall_us: AtomicU64::new(wall_us),
            mono_ns: AtomicU64::new(0),
        }
    }

    /// Moves the wall clock and the monotone clock forward by `us`.
    pub fn advance_us(&self, us: u64) {
        self.wall_us.fetch_add(us, Ordering::Relaxed);
        self.mono_ns
            .fetch_add(us.saturating_mul(1000), Ordering::Relaxed);
    }

    /// Sets the wall clock. The new time may be earlier or later.
    pub fn set_wall_us(&self, us: u64) {
        self.wall_us.store(us, Ordering::Relaxed);
    }
}

impl Clock for ManualClock {
    fn wall_us(&self) -> u64 {
        self.wall_us.load(Ordering::Relaxed)
    }

    fn mono_ns(&self) -> u64 {
        self.mono_ns.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_faults_of_a_process_are_counted() {
        let stat = "7 (a ) b) S 1 7 7 0 -1 4194560 120 9 3 8 1 0 0 0 20 0";
        assert_eq!(parse_faults(stat), Some(123));
        assert_eq!(parse_faults("7 (a) S 1"), None);
        assert!(SystemClock::new().page_faults() > 0);
        assert_eq!(ManualClock::default().page_faults(), 0);
    }
}

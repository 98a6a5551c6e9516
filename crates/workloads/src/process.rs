//! The CPU time and the memory of a process or a thread. A value is `None` if the kernel does not report it.

use std::fs;
use std::time::Duration;

/// The number of clock ticks a second. The kernel reports CPU time in ticks.
const TICKS_PER_SECOND: f64 = 100.0;

/// Returns the peak of the resident memory of a process, bytes.
#[must_use]
pub fn peak_rss_bytes(pid: u32) -> Option<u64> {
    status_kib(pid, "VmHWM:").map(|kib| kib * 1024)
}

/// Returns the present resident memory of a process, bytes.
#[must_use]
pub fn rss_bytes(pid: u32) -> Option<u64> {
    status_kib(pid, "VmRSS:").map(|kib| kib * 1024)
}

fn status_kib(pid: u32, field: &str) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = text.lines().find(|line| line.starts_with(field))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

/// Returns the CPU time that a process has used in user code and in the kernel together, seconds.
#[must_use]
pub fn cpu_seconds(pid: u32) -> Option<f64> {
    cpu_parts(pid).map(|(own, system)| own + system)
}

/// Returns the CPU time that a process has used in user code, and the CPU time in the kernel, seconds.
#[must_use]
pub fn cpu_parts(pid: u32) -> Option<(f64, f64)> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name is in parentheses and may contain anything, so the fields are counted from the last parenthesis.
    let (_, rest) = text.rsplit_once(')')?;
    let ticks = |field: usize| rest.split_whitespace().nth(field)?.parse::<f64>().ok();
    Some((ticks(11)? / TICKS_PER_SECOND, ticks(12)? / TICKS_PER_SECOND))
}

/// Returns the bytes that devices have delivered to a process. Reads from the operating system's cache are not in it.
#[must_use]
pub fn device_read_bytes(pid: u32) -> Option<u64> {
    read_bytes(&fs::read_to_string(format!("/proc/{pid}/io")).ok()?)
}

/// Returns the count of device bytes from the text of the file `io` of a process.
fn read_bytes(text: &str) -> Option<u64> {
    let mut lines = text.lines();
    let count = lines.find_map(|line| line.strip_prefix("read_bytes:"))?;
    count.trim().parse().ok()
}

/// Returns the CPU time that this thread has used. Waiting for a core is not included.
#[must_use]
pub fn thread_cpu() -> Duration {
    let spent = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    let seconds = u64::try_from(spent.tv_sec).unwrap_or(0);
    Duration::new(seconds, u32::try_from(spent.tv_nsec).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_has_memory_and_time() {
        let me = std::process::id();
        assert!(peak_rss_bytes(me).is_some_and(|peak| peak > 1 << 20));
        assert!(rss_bytes(me) <= peak_rss_bytes(me));
        assert!(cpu_seconds(me).is_some());
        assert_eq!(cpu_seconds(u32::MAX), None);
    }

    #[test]
    fn the_bytes_of_devices_are_counted_without_those_of_the_cache() {
        let text = "rchar: 9000\nwchar: 1\nread_bytes: 4096\nwrite_bytes: 0\n";
        assert_eq!(read_bytes(text), Some(4096));
        assert_eq!(read_bytes("rchar: 9000\n"), None);
        assert_eq!(read_bytes("read_bytes: many\n"), None);
        assert!(device_read_bytes(std::process::id()).is_some());
    }

    #[test]
    fn a_thread_that_sleeps_uses_no_processor() {
        let begin = (std::time::Instant::now(), thread_cpu());
        std::thread::sleep(Duration::from_millis(20));
        let slept = thread_cpu() - begin.1;
        assert!(slept < begin.0.elapsed() / 2, "{slept:?}");
        let mut sum = 0_u64;
        while thread_cpu() - begin.1 < slept + Duration::from_millis(1) {
            sum = std::hint::black_box(sum.wrapping_add(1));
        }
    }
}

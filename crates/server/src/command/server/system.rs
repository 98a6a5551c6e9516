//! The operating system's figures about this process, read from `/proc`. A figure that cannot be read is zero.

use std::fs;

/// Returns the operating system's name and version.
pub(crate) fn name() -> String {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let (system, arch) = (std::env::consts::OS, std::env::consts::ARCH);
    let (first, rest) = system.split_at(1);
    let upper = first.to_ascii_uppercase();
    format!("{upper}{rest} {} {arch}", release.trim())
}

/// Returns the resident memory of the process, bytes.
pub(crate) fn resident_bytes() -> u64 {
    kibibytes("/proc/self/status", "VmRSS:")
}

/// Returns the memory of the machine, bytes.
pub(crate) fn machine_bytes() -> u64 {
    kibibytes("/proc/meminfo", "MemTotal:")
}

fn kibibytes(file: &str, name: &str) -> u64 {
    let text = fs::read_to_string(file).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    let number = line.and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok());
    number.unwrap_or(0).saturating_mul(1024)
}

/// The number of ticks in a second in `/proc/…/stat`. Linux has fixed it for all programs.
const TICKS: f64 = 100.0;

/// Returns the seconds of processor time: in user mode, then in system mode. `who` is `self` for the process or
/// `thread-self` for the calling thread.
pub(crate) fn cpu_seconds(who: &str) -> (f64, f64) {
    let text = fs::read_to_string(format!("/proc/{who}/stat")).unwrap_or_default();
    // The name in parentheses may hold any bytes. The text after the parentheses begins with the third field.
    let fields = text.rsplit_once(')').map_or("", |(_, fields)| fields);
    let mut ticks = fields.split_whitespace().skip(11);
    let mut next = || {
        ticks
            .next()
            .and_then(|t| t.parse::<u32>().ok())
            .unwrap_or(0)
    };
    let (user, system) = (next(), next());
    (f64::from(user) / TICKS, f64::from(system) / TICKS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(target_os = "linux")]
    fn the_process_has_memory_and_a_processor() {
        assert!(resident_bytes() > 0 && machine_bytes() > resident_bytes());
        let begin = std::time::Instant::now();
        let mut sum = 0u64;
        while cpu_seconds("self").0 + cpu_seconds("self").1 == 0.0 {
            sum = sum.wrapping_add(1);
            assert!(begin.elapsed().as_secs() < 60, "{sum}");
        }
        assert!(name().starts_with("Linux "), "{}", name());
    }
}

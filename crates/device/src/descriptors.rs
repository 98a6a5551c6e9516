//! The limit of file descriptors of the process.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// The reported limit if the system has no limit. No process has that many descriptors.
const MANY: u64 = 1 << 30;

/// Raises the limit of descriptors to the maximum that needs no privileges. Returns the new limit. Many systems start
/// processes with a soft limit of 1,024 and a much higher hard limit.
#[must_use]
pub fn raise_limit() -> u64 {
    let (before, hard) = (limit(), getrlimit(Resource::Nofile).maximum);
    let wanted = Rlimit {
        current: hard,
        maximum: hard,
    };
    // If the system refuses, the soft limit stays, and is returned.
    let _ = setrlimit(Resource::Nofile, wanted);
    let raised = limit();
    assert!(before <= raised, "{before} descriptors became {raised}");
    raised
}

/// Returns the limit of descriptors in force.
#[must_use]
pub fn limit() -> u64 {
    getrlimit(Resource::Nofile).current.unwrap_or(MANY)
}

/// Returns the number of open descriptors. 0: the system does not report the number.
#[must_use]
pub fn open_count() -> u64 {
    // Reading the directory itself uses one descriptor.
    let listed = std::fs::read_dir("/proc/self/fd").map_or(1, Iterator::count);
    u64::try_from(listed.saturating_sub(1)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn open_files_are_counted_and_stay_below_the_limit() {
        let limit = raise_limit();
        let files: Vec<_> = (0..64)
            .map(|_| std::fs::File::open("/dev/null").unwrap())
            .collect();
        let open = open_count();
        assert!((64..=limit).contains(&open), "{open} of {limit}");
        assert_eq!(files.len(), 64);
        assert_eq!(super::limit(), limit, "it is raised once");
    }
}

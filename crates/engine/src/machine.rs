//! What the machine offers.

/// 75 % of the memory of the container, or of the machine, whichever is less.
pub(crate) fn default_memory_limit() -> u64 {
    let number = |path: &str| {
        std::fs::read_to_string(path)
            .ok()
            .and_then(|text| text.trim().parse::<u64>().ok())
    };
    let machine = std::fs::read_to_string("/proc/meminfo")
        .ok()
        .and_then(|text| {
            let line = text.lines().find(|line| line.starts_with("MemTotal:"))?;
            line.split_whitespace()
                .nth(1)?
                .parse::<u64>()
                .ok()
                .map(|kib| kib * 1024)
        });
    let limits = [
        machine,
        number("/sys/fs/cgroup/memory.max"),
        number("/sys/fs/cgroup/memory/memory.limit_in_bytes"),
    ];
    limits
        .into_iter()
        .flatten()
        .min()
        .map_or(u64::MAX, |bytes| bytes / 4 * 3)
}

//! The count of bytes that devices delivered to this process. Reads from the operating system's cache are not in it.

use std::fs;

/// Returns the bytes that this process has read from devices. `None`: the system does not count them.
#[must_use]
pub fn device_bytes() -> Option<u64> {
    read_bytes(&fs::read_to_string("/proc/self/io").ok()?)
}

/// Returns the count from the text of the file `io` of a process.
fn read_bytes(text: &str) -> Option<u64> {
    let mut lines = text.lines();
    let count = lines.find_map(|line| line.strip_prefix("read_bytes:"))?;
    count.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_count_is_of_the_device() {
        let text = "rchar: 9000\nwchar: 1\nread_bytes: 4096\nwrite_bytes: 0\n";
        assert_eq!(read_bytes(text), Some(4096));
        assert_eq!(read_bytes("rchar: 9000\n"), None);
        assert_eq!(read_bytes("read_bytes: many\n"), None);
    }
}

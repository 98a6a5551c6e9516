//! A readable description of the process that holds the lock of a directory.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Describes the process that holds the lock of a directory. A process on a different machine cannot be identified.
pub(super) fn of(dir: &str) -> String {
    let path = Path::new(dir).join("LOCK");
    let locks = fs::read_to_string("/proc/locks").unwrap_or_default();
    let inode = fs::metadata(&path).map(|found| (found.dev(), found.ino()));
    match inode
        .ok()
        .and_then(|(device, inode)| find(&locks, device, inode))
    {
        Some(pid) => {
            let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
            match name.trim() {
                "" => format!("it is locked by process {pid}"),
                name => format!("it is locked by process {pid} ({name})"),
            }
        }
        None => String::from(
            "it is locked by a process of another machine or container, or by a killed process \
             whose last write has not ended",
        ),
    }
}

/// Returns the id of the process that holds a lock on the file with this device and inode. `locks` is the text of
/// `/proc/locks`. A line is, for example, `1: FLOCK ADVISORY WRITE 1234 08:02:5678 0 EOF`.
fn find(locks: &str, device: u64, inode: u64) -> Option<u32> {
    let held = |line: &str| {
        let mut words = line.split_whitespace();
        // The lock's number. In a line of a waiting process, an arrow follows the number, so the
        // next check skips that line.
        words.next()?;
        if words.next()? != "FLOCK" {
            return None;
        }
        let pid: u32 = words.nth(2)?.parse().ok()?;
        let mut file = words.next()?.split(':');
        let major = u32::from_str_radix(file.next()?, 16).ok()?;
        let minor = u32::from_str_radix(file.next()?, 16).ok()?;
        let same = rustix::fs::makedev(major, minor) == device && file.next()?.parse() == Ok(inode);
        (same && pid > 0).then_some(pid)
    };
    locks.lines().find_map(held)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_holder_of_a_lock_is_read_from_the_list_of_locks() {
        let device = rustix::fs::makedev(8, 0x12);
        let locks = "1: POSIX  ADVISORY  WRITE 11 08:12:5678 0 EOF\n\
                     2: FLOCK  ADVISORY  WRITE 12 08:12:5679 0 EOF\n\
                     2: -> FLOCK  ADVISORY  WRITE 13 08:12:5678 0 EOF\n\
                     3: FLOCK  ADVISORY  WRITE 0 08:12:5678 0 EOF\n\
                     4: FLOCK  ADVISORY  WRITE 14 08:12:5678 0 EOF\n";
        assert_eq!(find(locks, device, 5678), Some(14));
        assert_eq!(find(locks, device, 5679), Some(12));
        assert_eq!(find(locks, device, 1), None);
        assert_eq!(find("1: FLOCK\nnonsense", device, 1), None);
    }

    #[test]
    fn a_lock_of_this_process_names_it() {
        let dir = tempfile::tempdir().expect("a directory");
        let file = fs::File::create(dir.path().join("LOCK")).expect("a file");
        file.lock().expect("a lock");
        let said = of(&dir.path().display().to_string());
        let known = fs::read_to_string("/proc/locks").is_ok_and(|text| {
            // Some file systems show another device number in `/proc/locks` than in the file's
            // metadata.
            let inode = file.metadata().expect("a file");
            find(&text, inode.dev(), inode.ino()).is_some()
        });
        let pid = std::process::id().to_string();
        assert!(said.contains(&pid) || !known, "{said}");
        assert!(of("/no such directory").contains("another machine"));
    }
}

//! Recognizes directories on file systems in memory, where a sync makes nothing durable.
//!
//! The database treats a log in memory as durable, but the log is lost when the power fails. That is useful for tests.
//! Otherwise it is a mistake that must be reported.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{major, minor, statfs};

/// The identifiers of file system types that the system returns.
const TMPFS: u64 = 0x0102_1994;
const RAMFS: u64 = 0x8584_58f6;
const OVERLAY: u64 = 0x794c_7630;

/// Returns the name of the memory file system that a directory is on. `None`: the directory is not in memory, or the
/// system does not say.
#[must_use]
pub fn in_memory(dir: &Path) -> Option<&'static str> {
    match kind(dir)? {
        TMPFS => Some("tmpfs"),
        RAMFS => Some("ramfs"),
        OVERLAY => {
            let meta = fs::metadata(dir).ok()?;
            let device = format!("{}:{}", major(meta.dev()), minor(meta.dev()));
            let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
            match kind(&upper_dir(&mounts, &device)?)? {
                TMPFS => Some("an overlay on tmpfs"),
                RAMFS => Some("an overlay on ramfs"),
                _ => None,
            }
        }
        _ => None,
    }
}

fn kind(dir: &Path) -> Option<u64> {
    let found = statfs(dir).ok()?.f_type;
    // The type is a 32-bit number in a signed word.
    Some(u64::from_ne_bytes(found.to_ne_bytes()) & 0xffff_ffff)
}

/// Returns the directory that stores the changes of an overlay file system. `device` is the file system's device
/// number. `mounts` is the text of the system's list of mounts.
fn upper_dir(mounts: &str, device: &str) -> Option<PathBuf> {
    let is_device = |line: &&str| line.split(' ').nth(2) == Some(device);
    let line = mounts.lines().find(is_device)?;
    let options = line.rsplit(' ').next()?.split(',');
    let upper = options
        .filter_map(|option| option.strip_prefix("upperdir="))
        .next();
    upper.map(PathBuf::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_told_from_disks() {
        if kind(Path::new("/dev/shm")) == Some(TMPFS) {
            assert_eq!(in_memory(Path::new("/dev/shm")), Some("tmpfs"));
        }
        assert_eq!(in_memory(Path::new("/proc")), None);
        assert_eq!(in_memory(Path::new("/no such directory")), None);
    }

    #[test]
    fn an_overlay_writes_where_its_mount_says() {
        let mounts = "22 28 0:20 / /proc rw,nosuid shared:1 - proc proc rw\n\
            371 370 0:61 / / rw,relatime - overlay overlay rw,lowerdir=/l:/m,upperdir=/run/u,workdir=/w\n";
        assert_eq!(upper_dir(mounts, "0:61"), Some(PathBuf::from("/run/u")));
        assert_eq!(upper_dir(mounts, "0:20"), None);
        assert_eq!(upper_dir(mounts, "9:9"), None);
    }
}

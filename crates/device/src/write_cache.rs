//! The write cache of the disk below a directory, as the system reports it.
//!
//! A disk with a write-back cache needs a cache flush for each durable write. A disk with *force unit access* (FUA)
//! does not: its writes can bypass the cache. These two facts explain a measured latency. The system reports them for
//! block devices (`/sys/dev/block/MAJOR:MINOR/queue`). It does not report them for file systems in memory, on several
//! devices or on other machines.

use std::fmt;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fs::{major, minor};

/// The system's directory of block devices.
const BLOCK_DEVICES: &str = "/sys/dev/block";

/// The write cache of a disk. `None` in a field: the system does not report it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct WriteCache {
    /// True if a write may be complete while it is only in the disk's cache.
    pub writes_back: Option<bool>,
    /// True if the disk supports writes that bypass its cache.
    pub fua: Option<bool>,
}

impl WriteCache {
    /// Returns the cache of a directory's disk.
    pub(crate) fn below(dir: &Path) -> WriteCache {
        let Ok(meta) = fs::metadata(dir) else {
            return WriteCache::default();
        };
        let name = format!("{}:{}", major(meta.dev()), minor(meta.dev()));
        WriteCache::of(&Path::new(BLOCK_DEVICES).join(name))
    }

    /// Returns the cache of a device. If the device is a partition, returns the disk's cache.
    fn of(device: &Path) -> WriteCache {
        debug_assert!(device.parent().is_some(), "{device:?} lies in a directory");
        let own = device.join("queue");
        let queue = match own.is_dir() {
            true => own,
            // The entry of a partition is a directory inside that of its disk.
            false => device.join("..").join("queue"),
        };
        let said = |name: &str| fs::read_to_string(queue.join(name)).unwrap_or_default();
        WriteCache {
            writes_back: match said("write_cache").trim() {
                "write back" => Some(true),
                "write through" => Some(false),
                _ => None,
            },
            fua: match said("fua").trim() {
                "1" => Some(true),
                "0" => Some(false),
                _ => None,
            },
        }
    }

    /// Returns the word that reports use for the cache.
    #[must_use]
    pub fn cache_name(self) -> &'static str {
        match self.writes_back {
            Some(true) => "write-back",
            Some(false) => "write-through",
            None => "unknown",
        }
    }

    /// Returns the word that reports use for FUA.
    #[must_use]
    pub fn fua_name(self) -> &'static str {
        match self.fua {
            Some(true) => "yes",
            Some(false) => "no",
            None => "unknown",
        }
    }
}

impl fmt::Display for WriteCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (cache, fua) = (self.cache_name(), self.fua_name());
        write!(f, "the disk's cache: {cache}, FUA: {fua}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Makes a directory like the system's directory of block devices. It has a disk, a partition of that disk, and a
    /// device about which the system reports nothing.
    #[test]
    fn a_partition_has_the_cache_of_its_disk_and_what_is_not_said_is_unknown() {
        let dir = tempfile::tempdir().unwrap();
        let disk = dir.path().join("devices/vda");
        fs::create_dir_all(disk.join("queue")).unwrap();
        fs::create_dir(disk.join("vda1")).unwrap();
        fs::create_dir_all(dir.path().join("devices/other/part")).unwrap();
        for (name, target) in [
            ("254:0", "devices/vda"),
            ("254:1", "devices/vda/vda1"),
            ("7:0", "devices/other/part"),
        ] {
            std::os::unix::fs::symlink(target, dir.path().join(name)).unwrap();
        }
        let say = |cache: &str, fua: &str| {
            fs::write(disk.join("queue/write_cache"), cache).unwrap();
            fs::write(disk.join("queue/fua"), fua).unwrap();
        };
        let of = |name: &str| WriteCache::of(&dir.path().join(name)).to_string();
        say("write back\n", "0\n");
        let back = "the disk's cache: write-back, FUA: no";
        assert_eq!([of("254:0"), of("254:1")], [back; 2]);
        say("write through\n", "1\n");
        let through = "the disk's cache: write-through, FUA: yes";
        assert_eq!([of("254:0"), of("254:1")], [through; 2]);
        say("\u{fffd} not known", "2");
        let unknown = "the disk's cache: unknown, FUA: unknown";
        assert_eq!([of("254:1"), of("7:0"), of("9:9")], [unknown; 3]);
    }

    #[test]
    fn any_directory_has_an_answer() {
        for dir in ["/", "/proc", "/dev/shm", "/no such directory", ""] {
            let said = WriteCache::below(Path::new(dir)).to_string();
            assert!(said.contains("FUA"), "{dir}: {said}");
        }
    }
}

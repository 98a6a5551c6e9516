//! The data directory: who may open it, and what the machine offers.

use std::path::Path;
use std::sync::Arc;

use perdura_base::Result;
use perdura_device::{Disk, FileDisk};
use perdura_recovery::disks::{Demand, Disks, Locks, Opening};

use crate::options::Options;

/// Opens and locks the directories of a database, and makes those of a new one.
///
/// # Errors
/// `Error::Locked`, `Error::Version`, `Error::Foreign` for a directory that holds other
/// people's files.
pub fn open(options: &Options) -> Result<(Disks, Locks)> {
    let paths = options.paths();
    let opening = Opening::begin(&paths, &open_dir)?;
    opening.write_version()?;
    opening.finish(options.streams, paths.image_disks(), Demand::OfExisting)
}

fn open_dir(dir: &Path) -> Result<Arc<dyn Disk>> {
    Ok(Arc::new(FileDisk::new(dir)?))
}

/// 75 % of the memory of the container, or of the machine, whichever is less.
#[must_use]
pub fn default_memory_limit() -> u64 {
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

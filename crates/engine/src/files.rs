//! The data directory: who may open it, and what the machine offers.

use std::path::Path;
use std::sync::Arc;

use perdura_base::{Result, StreamId};
use perdura_device::{Disk, FileDisk};
use perdura_recovery::found::{is_database, missing_log, write_version};

use crate::options::Options;

const LOCK_PATH: &str = "LOCK";

/// The disks of a database in a directory, with its lock held.
pub struct OpenedFiles {
    /// The data directory.
    pub data: Arc<dyn Disk>,
    /// The disk of each stream.
    pub logs: Vec<Arc<dyn Disk>>,
    /// Held as long as the database is open.
    pub locks: Vec<Box<dyn std::any::Any + Send + Sync>>,
}

/// Opens and locks the directories of a database.
///
/// # Errors
/// `Error::Locked`, `Error::Version`, `Error::Foreign` for a directory that holds other
/// people's files.
pub fn open(options: &Options) -> Result<OpenedFiles> {
    let disk = FileDisk::new(&options.data)?;
    let data: Arc<dyn Disk> = Arc::new(disk);
    let exists = is_database(data.as_ref())?;
    let mut locks = vec![data.lock(LOCK_PATH)?];
    write_version(data.as_ref())?;
    let mut logs: Vec<Arc<dyn Disk>> = Vec::new();
    for id in (0..options.streams).map(StreamId) {
        let stream = usize::from(id.0);
        let dir = match options.log_dirs.len() {
            0 => None,
            1 => options.log_dirs.first(),
            _ => options.log_dirs.get(stream),
        };
        logs.push(match dir {
            None => Arc::clone(&data),
            Some(dir) => {
                if exists {
                    expect_log_dir(dir, id)?;
                }
                open_log_dir(dir, &mut locks, stream)?
            }
        });
    }
    Ok(OpenedFiles { data, logs, locks })
}

/// The log of a database that exists is somewhere: a directory that is not there, or empty, is a
/// disk that was not mounted, or a wrong name, and must not be made.
fn expect_log_dir(dir: &Path, stream: StreamId) -> Result<()> {
    if dir.join(perdura_wal::segment::LOG_DIR).is_dir() {
        return Ok(());
    }
    Err(missing_log(&dir.display().to_string(), stream))
}

fn open_log_dir(
    dir: &Path,
    locks: &mut Vec<Box<dyn std::any::Any + Send + Sync>>,
    stream: usize,
) -> Result<Arc<dyn Disk>> {
    let disk: Arc<dyn Disk> = Arc::new(FileDisk::new(dir)?);
    locks.push(disk.lock(&format!("{LOCK_PATH}.s{stream:02}"))?);
    Ok(disk)
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

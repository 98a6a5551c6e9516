//! Opening and locking the directories of a database.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use perdura_base::{Error, Result};
use perdura_device::{Disk, FileDisk};
use perdura_recovery::disks::{Demand, Disks, Locks, Opening};

use crate::options::Options;

mod holder;

/// The pause between two attempts to lock a directory.
const LOCK_PAUSE: Duration = Duration::from_millis(5);

/// Opens and locks the directories of a database. Makes them for a new database. Waits for the locks, up to the limit
/// in the options. The locks of a killed process become free when its last write has completed.
///
/// # Errors
/// `Error::Locked` if a different process has the locks. `Error::Version` for a format of an unsupported version.
/// `Error::Foreign` for a directory that holds files of other programs.
pub fn open(options: &Options) -> Result<(Disks, Locks)> {
    open_telling(options, &|_| {})
}

/// Like [`open`], but reports to `tell` if it has to wait for a lock. The first report names the process that holds the
/// lock and the longest wait. A second report follows when the lock is free.
///
/// # Errors
/// As [`open`].
pub fn open_telling(options: &Options, tell: &dyn Fn(&str)) -> Result<(Disks, Locks)> {
    let begin = Instant::now();
    let mut waits = false;
    loop {
        match open_now(options) {
            Err(Error::Locked { dir }) if begin.elapsed() < options.lock_wait => {
                if !std::mem::replace(&mut waits, true) {
                    let (holder, most) = (holder::of(&dir), options.lock_wait.as_secs_f64());
                    tell(&format!(
                        "Waiting for the lock of {dir} for {most:.1} s at most: {holder}"
                    ));
                }
                std::thread::sleep(LOCK_PAUSE);
            }
            opened => {
                if waits && opened.is_ok() {
                    let waited = begin.elapsed().as_secs_f64();
                    tell(&format!("The lock is free after {waited:.1} s"));
                }
                return opened;
            }
        }
    }
}

/// Opens and locks the directories for a database that a restore makes. Writes nothing into them but the lock.
///
/// # Errors
/// As [`open`].
pub fn open_empty(options: &Options) -> Result<(Disks, Locks)> {
    open_directories(options, false)
}

fn open_now(options: &Options) -> Result<(Disks, Locks)> {
    open_directories(options, true)
}

fn open_directories(options: &Options, writes_version: bool) -> Result<(Disks, Locks)> {
    let paths = options.paths();
    let log_io = options.log_io;
    let open_dir = |dir: &Path| -> Result<Arc<dyn Disk>> {
        Ok(Arc::new(FileDisk::new(dir)?.with_log_io(log_io)))
    };
    let opening = Opening::begin(&paths, &open_dir)?;
    if writes_version {
        opening.write_version()?;
    }
    opening.finish(options.streams, paths.image_disks(), Demand::OfExisting)
}

//! The disks of the experiments: a modelled disk in front of memory, or a directory of this machine.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result};
use perdura_device::{Access, Clock, Disk, FileDisk, MemDisk, ModelDisk, OverlayDisk, SystemClock};

use super::super::scratch::Scratch;

/// The time of an access to the modelled disk, microseconds. For an access of less than a millisecond, the model would
/// spin. On a machine of two cores, the spinning would take CPU time from the work.
pub(super) const ACCESS_US: u64 = 2_000;

/// The disk of the experiments' files.
pub(super) struct Ground {
    /// A directory on the machine's own disk. `None`: the files are in memory.
    dir: Option<Scratch>,
    pub clock: Arc<dyn Clock>,
}

impl Ground {
    /// Puts the files in memory or, if `data` is given, in a new directory within `data`.
    pub fn new(data: Option<&Path>) -> Result<Ground> {
        let make = |data: &Path| {
            std::fs::create_dir_all(data).with_context(|| format!("making {}", data.display()))?;
            Scratch::within(data)
        };
        Ok(Ground {
            dir: data.map(make).transpose()?,
            clock: Arc::new(SystemClock::new()),
        })
    }

    /// Returns whether the files are on the machine's own disk.
    pub fn is_own(&self) -> bool {
        self.dir.is_some()
    }

    /// Returns how the tree's pages are accessed.
    pub fn access(&self) -> Access {
        match self.is_own() {
            true => Access::Direct,
            false => Access::Buffered,
        }
    }

    /// Returns an empty disk. On the machine's own disk, it is the directory `name`. If the directory exists, it is
    /// removed first.
    pub fn disk(&self, name: &str) -> Result<Arc<dyn Disk>> {
        let Some(scratch) = &self.dir else {
            return Ok(Arc::new(MemDisk::new()));
        };
        let dir = scratch.dir.join(name);
        if dir.exists() {
            std::fs::remove_dir_all(&dir).with_context(|| format!("removing {}", dir.display()))?;
        }
        std::fs::create_dir(&dir).with_context(|| format!("making {}", dir.display()))?;
        Ok(Arc::new(FileDisk::new(&dir)?))
    }

    /// Returns a disk that shows the contents of `below`. Writes to the new disk do not change `below`, and are lost
    /// when the new disk is dropped.
    pub fn over(&self, below: &Arc<dyn Disk>) -> Result<Arc<dyn Disk>> {
        let scratch = self.disk("scratch")?;
        Ok(Arc::new(OverlayDisk::new(
            Arc::clone(below),
            &*scratch,
            "",
        )?))
    }

    /// Returns `disk` with the speed for timed restarts. The machine's own disk is returned as is. A disk in memory
    /// gets a model that delays accesses.
    pub fn timed(&self, disk: Arc<dyn Disk>) -> Arc<dyn Disk> {
        match self.is_own() {
            true => disk,
            false => {
                let clock = Arc::clone(&self.clock);
                Arc::new(ModelDisk::new(
                    disk,
                    0,
                    ACCESS_US,
                    clock,
                    std::thread::sleep,
                ))
            }
        }
    }

    /// Returns a text that describes the setting.
    pub fn setting(&self) -> String {
        match self.is_own() {
            true => String::from(
                "the machine's own disk, pages with O_DIRECT; each restart on an overlay that pays its I/O",
            ),
            false => format!(
                "one modelled disk over memory for pages and log, {} ms a read or a sync; each restart on an overlay that pays its I/O",
                ACCESS_US / 1000
            ),
        }
    }
}

//! The files that an archiver left in the folder when it stopped: temporary files, and finished runs that it did not
//! report to its caller.

use perdura_base::{Epoch, Result};
use perdura_device::Disk;

use crate::name::{RunId, TEMPORARY};

/// The leftover files of runs of level 0 that begin at or after the new archiver's first epoch.
pub(super) struct Leftovers {
    /// The generation of the new archiver's runs. It is 0 if no finished run was left. Otherwise it is one more than
    /// the highest generation of the finished leftover runs, so that no file name is used twice.
    pub generation: u32,
    temporaries: Vec<String>,
}

impl Leftovers {
    /// Lists the folder of an archiver. `begin` is the first epoch of the archiver's first run.
    pub fn list(disk: &dyn Disk, dir: &str, begin: Epoch) -> Result<Leftovers> {
        let mut left = Leftovers {
            generation: 0,
            temporaries: Vec::new(),
        };
        for name in disk.list(dir)? {
            let base = name.strip_suffix(TEMPORARY);
            let id = RunId::parse(base.unwrap_or(&name));
            let Some(id) = id.filter(|id| id.level == 0 && id.epochs.begin >= begin) else {
                continue;
            };
            if base.is_some() {
                left.temporaries
                    .push(format!("{}{TEMPORARY}", id.path(dir)));
            } else {
                left.generation = left.generation.max(id.generation.saturating_add(1));
            }
        }
        Ok(left)
    }

    /// Removes one temporary file. Returns `false` if no temporary file was left.
    pub fn remove_one(&mut self, disk: &dyn Disk) -> Result<bool> {
        let Some(path) = self.temporaries.pop() else {
            return Ok(false);
        };
        assert!(path.ends_with(TEMPORARY), "a run is not removed");
        disk.remove(&path)?;
        Ok(true)
    }
}

//! The files that an unfinished archiver has left in the folder: temporary files, and runs that were reported to no
//! caller.

use perdura_base::{Epoch, Result};
use perdura_device::Disk;

use crate::name::{RunId, TEMPORARY};

/// Files of runs of level 0 that begin where the archiver does, or behind.
pub(super) struct Leftovers {
    /// A generation above that of each published run, so that no name is used twice.
    pub generation: u32,
    temporaries: Vec<String>,
}

impl Leftovers {
    /// Lists the folder of an archiver whose first run begins with epoch `begin`.
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

    /// Removes one temporary file. `false`: none is left.
    pub fn remove_one(&mut self, disk: &dyn Disk) -> Result<bool> {
        let Some(path) = self.temporaries.pop() else {
            return Ok(false);
        };
        assert!(path.ends_with(TEMPORARY), "a run is not removed");
        disk.remove(&path)?;
        Ok(true)
    }
}

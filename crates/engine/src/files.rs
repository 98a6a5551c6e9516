//! Opening the directories of a database to serve it.

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

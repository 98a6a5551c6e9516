//! The restart of a stopped database in memory, and the settings that a tree needs for it.

use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use perdura::Result;
use perdura_device::{FileDisk, OverlayDisk};
use perdura_recovery::disks::Disks;
use perdura_recovery::tree::TreeMeans;

/// The number of threads that read the pages of a tree ahead.
const READERS: usize = 32;

/// The means of a tree's restart.
#[derive(Debug, Clone, Args)]
pub struct Pool {
    /// Pages in memory, for a database with a tree.
    #[arg(long, value_name = "N", default_value_t = 16_384)]
    pub pool_pages: usize,
    /// The directory for changed pages of a tree that do not fit in memory [default: the data directory]. They are in a
    /// file without a name, which is removed when the process ends.
    #[arg(long, value_name = "DIR")]
    pub scratch: Option<PathBuf>,
}

impl Pool {
    /// Returns the settings that the restart of a tree uses.
    pub fn means(&self) -> TreeMeans {
        TreeMeans {
            readers: READERS,
            ..TreeMeans::of_frames(self.pool_pages)
        }
    }

    /// Returns the disks, with an overlay over the disk of the tree. Writes go to the overlay and leave the disk
    /// unchanged.
    pub fn overlay(&self, data: &PathBuf, disks: &Disks) -> Result<Disks> {
        let scratch = FileDisk::at(self.scratch.as_ref().unwrap_or(data));
        let overlay = OverlayDisk::new(Arc::clone(&disks.data), &scratch, "")?;
        Ok(Disks {
            data: Arc::new(overlay),
            ..disks.clone()
        })
    }
}

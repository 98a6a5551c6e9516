//! How a stopped database is restarted in memory: what a tree needs for it.

use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use perdura::Result;
use perdura_device::{FileDisk, OverlayDisk};
use perdura_recovery::disks::Disks;
use perdura_recovery::tree::TreeMeans;

/// Threads that read pages of a tree ahead.
const READERS: usize = 32;

/// What a restart of a tree works with.
#[derive(Debug, Clone, Args)]
pub struct Pool {
    /// Pages in memory, where the database has a tree.
    #[arg(long, value_name = "N", default_value_t = 16_384)]
    pub pool_pages: usize,
    /// Where a restart in memory keeps the pages of a tree that it changes and that do not fit [default: the data
    /// directory]. In a file without a name, which goes with the process.
    #[arg(long, value_name = "DIR")]
    pub scratch: Option<PathBuf>,
}

impl Pool {
    /// Returns the means of a tree's restart.
    pub fn means(&self) -> TreeMeans {
        TreeMeans {
            readers: READERS,
            ..TreeMeans::of_frames(self.pool_pages)
        }
    }

    /// The disks, of which the one with the tree is not changed by what is written to it.
    pub fn overlay(&self, data: &PathBuf, disks: &Disks) -> Result<Disks> {
        let scratch = FileDisk::at(self.scratch.as_ref().unwrap_or(data));
        let overlay = OverlayDisk::new(Arc::clone(&disks.data), &scratch, "")?;
        Ok(Disks {
            data: Arc::new(overlay),
            ..disks.clone()
        })
    }
}

//! The restart of a stopped database in memory, and the settings that a tree needs for it.

use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use perdura::Result;
use perdura_device::{FileDisk, OverlayDisk};
use perdura_recovery::disks::Disks;
use perdura_recovery::tree::TreeMeans;

/// The number of threads that read a tree's pages before the restart needs them.
const READERS: usize = 32;

/// The default number of a tree's pages in memory.
const POOL_PAGES: usize = 16_384;

/// The command-line options for the restart of a tree.
#[derive(Debug, Clone, Args)]
pub struct Pool {
    /// Number of pages to keep in memory, for a database with a tree.
    #[arg(long, value_name = "N", default_value_t = POOL_PAGES)]
    pub pool_pages: usize,
    /// The directory for a tree's changed pages, for which memory has no room [default: the data directory]. The pages
    /// go to an unnamed file, which vanishes when the process ends.
    #[arg(long, value_name = "DIR")]
    pub scratch: Option<PathBuf>,
}

impl Default for Pool {
    fn default() -> Pool {
        Pool {
            pool_pages: POOL_PAGES,
            scratch: None,
        }
    }
}

impl Pool {
    /// Returns the settings that the restart of a tree uses.
    pub fn means(&self) -> TreeMeans {
        TreeMeans {
            readers: READERS,
            ..TreeMeans::of_frames(self.pool_pages)
        }
    }

    /// Returns `disks` with an overlay over the disk that holds the tree. Writes go to the overlay and leave that disk
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

//! The options of a tree's restart: the size of the pool, the limits on notes, and options for reading the tree's file.

use perdura_base::{Error, Result};
use perdura_device::Access;
use perdura_tree::monitor::Limits;

/// The maximum percentage of dirty pages in a pool. Above this percentage, redo writes dirty pages.
const DIRTY_PERCENT: usize = 80;

/// The options of a tree's restart.
#[derive(Debug, Clone, Copy)]
pub struct TreeMeans {
    /// The number of pages that fit in memory.
    pub frames: usize,
    /// The limits on the collected notes about pages. When the notes reach a limit, they are logged.
    pub limits: Limits,
    /// True if a Δ record contains the number of each update (appendix D.1).
    pub with_numbers: bool,
    /// The number of pages that may be dirty. If more pages are dirty, redo writes some dirty pages between two
    /// operations.
    pub dirty_max: usize,
    /// The access to the file of pages: direct or buffered.
    pub access: Access,
    /// The number of threads that read ahead, if the method reads ahead. 0: the restart itself reads ahead, between two
    /// operations.
    pub readers: usize,
}

/// The minimum number of pages in memory. One change of a tall tree's structure needs almost this number of pages at
/// once.
const FRAMES_MIN: usize = 8;

impl TreeMeans {
    /// Checks that enough pages fit in memory.
    ///
    /// # Errors
    /// [`Error::Usage`] if fewer pages fit in memory than the tree needs.
    pub fn check(&self) -> Result<()> {
        if self.frames < FRAMES_MIN {
            return Err(Error::Usage(format!(
                "{} pages of memory are too few for a tree. It needs at least {FRAMES_MIN}",
                self.frames
            )));
        }
        Ok(())
    }

    /// Returns the options for a pool of `frames` pages. A small pool logs notes more often, so that the log soon has a
    /// note of each written page.
    #[must_use]
    pub fn of_frames(frames: usize) -> TreeMeans {
        let usual = Limits::default();
        let share = |most: usize, part: usize| (frames / part).clamp(1, most);
        TreeMeans {
            frames,
            limits: Limits {
                notes: share(usual.notes, 8),
                written: share(usual.written, 32),
            },
            with_numbers: false,
            dirty_max: frames * DIRTY_PERCENT / 100,
            access: Access::Buffered,
            readers: 0,
        }
    }
}

impl Default for TreeMeans {
    /// Returns the options for a pool of 4096 pages. With pages of 8 KiB, the pool has 32 MiB.
    fn default() -> TreeMeans {
        TreeMeans::of_frames(4096)
    }
}

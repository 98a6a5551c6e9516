//! The means of a tree's restart: its pages in memory, and how its file is read.

use perdura_base::{Error, Result};
use perdura_device::Access;
use perdura_tree::monitor::Limits;

/// The part of a pool's pages that redo may leave dirty before it writes some, percent.
const DIRTY_PERCENT: usize = 80;

/// The means of a tree's restart.
#[derive(Debug, Clone, Copy)]
pub struct TreeMeans {
    /// Pages in memory.
    pub frames: usize,
    /// The limits at which notes are cut.
    pub limits: Limits,
    /// True if a Δ has the number of each update (appendix D.1).
    pub with_numbers: bool,
    /// Pages that redo may leave dirty before it writes some between two operations.
    pub dirty_max: usize,
    /// The access to the pages' file.
    pub access: Access,
    /// Threads that read ahead, if the method does; 0: the restart reads ahead itself, between two operations.
    pub readers: usize,
}

/// The fewest pages in memory: those that a change of a tall tree's structure may need at once, and a few more.
const FRAMES_MIN: usize = 8;

impl TreeMeans {
    /// Checks the number of pages in memory.
    ///
    /// # Errors
    /// [`Error::Usage`] if they are too few.
    pub fn check(&self) -> Result<()> {
        if self.frames < FRAMES_MIN {
            return Err(Error::Usage(format!(
                "{} pages of memory are too few for a tree. It needs at least {FRAMES_MIN}",
                self.frames
            )));
        }
        Ok(())
    }

    /// Returns the means of a pool of `frames` pages. Small pools cut their notes more often, so that the log soon
    /// notes each page that is written.
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
    /// Returns the means for 4096 pages: 32 MiB of pages of 8 KiB.
    fn default() -> TreeMeans {
        TreeMeans::of_frames(4096)
    }
}

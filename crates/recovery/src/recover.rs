//! The recovery of pages from an image and a log.
//!
//! [`recover`] uses neither the anchor nor files. It loads an [`Image`] and plays the page records of a [`LogSource`]
//! up to the log's end. A restart calls it with the image and the log that the anchor names. After that, the restart
//! makes the later owners play their records, and closes the last life of the database.

use std::sync::Arc;

use perdura_base::Result;
use perdura_heap::Heap;

use crate::base::Image;
use crate::indexing::Tables;
use crate::level::Busy;
use crate::replay::Replay;
use crate::schedule;
use crate::source::LogSource;

pub use crate::means::Means;
pub use crate::stats::ReplayStats;

/// The result of a recovery.
pub struct State {
    /// The pages.
    pub heap: Arc<Heap>,
    /// Count of damaged pages in the image. If the count is not 0, the state is void, and the caller must recover again
    /// with a new plan.
    pub damaged: u64,
    /// The tables, with their indexes built.
    pub tables: Tables,
    /// The counts of records.
    pub stats: ReplayStats,
    /// Busy times of disks and players.
    pub busy: Busy,
    /// The seconds spent undoing.
    pub undo_seconds: f64,
}

/// Recovers the pages from an image and a log.
///
/// # Errors
/// Those of the image, the log and the player.
pub fn recover<I: Image, S: LogSource>(image: &I, log: &S, means: &Means<'_>) -> Result<State> {
    let heap = Arc::new(Heap::new(means.geometry, Arc::clone(means.memory)));
    let replay = Replay::new(&heap, image, log, means);
    let busy = schedule::run(&replay, means.schedule, means.clock)?;
    let attempt = replay.finish();
    Ok(State {
        heap,
        damaged: attempt.damaged,
        tables: attempt.tables,
        stats: attempt.stats,
        busy,
        undo_seconds: attempt.undo_seconds,
    })
}

//! (image, log, target) → state.
//!
//! [`recover`] knows neither the anchor nor the files: it loads an [`Image`] and plays a
//! [`LogSource`] up to a [`Target`] by the player of a method's row and the supplied players. Restart is a caller that takes
//! image and log from the anchor and closes the incarnation afterwards; a restore to a point in time
//! or a replica are callers with another source or target.

use std::sync::Arc;

use perdura_base::{Epoch, Error, Result};
use perdura_device::Clock;
use perdura_heap::{Geometry, Heap, MemoryAccount};

use crate::base::Image;
use crate::indexing::{Indexing, Tables};
use crate::level::{Busy, Schedule};
use crate::method::Method;
use crate::player::Supplied;
use crate::replay::{Replay, ReplayStats};
use crate::report::Progress;
use crate::schedule;
use crate::source::{LogEnd, LogSource};

/// How far the state reaches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// To the log's end.
    End,
    /// To this epoch, and no transaction further.
    Epoch(Epoch),
}

impl Target {
    /// The last epoch that the state has, given the log's end.
    ///
    /// # Errors
    /// [`Error::Usage`] if the log ends before the target.
    pub fn within(self, end: &LogEnd) -> Result<Epoch> {
        match self {
            Target::End => Ok(end.epoch),
            Target::Epoch(epoch) if epoch <= end.epoch => Ok(epoch),
            Target::Epoch(epoch) => Err(Error::Usage(format!(
                "the state of epoch {epoch} is asked for, and the log ends with epoch {}",
                end.epoch
            ))),
        }
    }
}

/// What a recovery works with.
pub struct Means<'a> {
    /// The shape of the heap.
    pub geometry: Geometry,
    /// The account that the heap is on.
    pub memory: &'a Arc<MemoryAccount>,
    /// The method, whose player takes the heap's records.
    pub method: &'a Method,
    /// Players of other kinds of records in the same log.
    pub supplied: &'a [Arc<dyn Supplied>],
    /// Level and threads.
    pub schedule: &'a Schedule,
    /// Time, for the report.
    pub clock: &'a dyn Clock,
    /// Where to say how far it is.
    pub progress: &'a Progress,
    /// What the indexes are built with; `None` for a caller that wants pages alone.
    pub indexing: Option<Indexing<'a>>,
}

/// What a recovery leaves.
pub struct State {
    /// The pages.
    pub heap: Arc<Heap>,
    /// Pages of the image that were damaged. If there are any, the state is void: the caller plans
    /// another image.
    pub damaged: u64,
    /// The tables, indexed.
    pub tables: Tables,
    /// Figures.
    pub stats: ReplayStats,
    /// Seconds that disks and players were busy.
    pub busy: Busy,
    /// Seconds of undoing.
    pub undo_seconds: f64,
}

/// Recovers the state that an image and a log hold at a target.
///
/// # Errors
/// Those of the image, the log and the players; [`Error::Usage`] if one pass over the log cannot serve
/// all players.
pub fn recover<I: Image, S: LogSource>(
    image: &I,
    log: &S,
    target: Target,
    means: &Means<'_>,
) -> Result<State> {
    let heap = Arc::new(Heap::new(means.geometry, Arc::clone(means.memory)));
    let replay = Replay::new(&heap, image, log, target, means)?;
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

//! The arguments of a recovery besides image and log, and how far the recovered state reaches.

use std::sync::Arc;

use perdura_base::{Epoch, Error, Result};
use perdura_device::Clock;
use perdura_heap::{Geometry, MemoryAccount};

use crate::families::Families;
use crate::indexing::Indexing;
use crate::level::Schedule;
use crate::method::Method;
use crate::player::Supplied;
use crate::report::Progress;
use crate::source::LogEnd;

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
    /// The ordered frames that a second pass plays after this recovery. Any other ends it.
    pub ordered: Families,
    /// Whether a tree's part follows, which plays the frames that have numbers.
    pub has_tree: bool,
    /// What the indexes are built with; `None` for a caller that wants pages alone.
    pub indexing: Option<Indexing<'a>>,
}

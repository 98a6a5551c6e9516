//! The arguments of a recovery besides image and log.

use std::sync::Arc;

use perdura_device::Clock;
use perdura_heap::{Geometry, MemoryAccount};

use crate::claims::Claims;
use crate::indexing::Indexing;
use crate::level::Schedule;
use crate::player::PagePlayer;
use crate::report::Progress;

/// The inputs of a recovery.
pub struct Means<'a> {
    /// The shape of the heap.
    pub geometry: Geometry,
    /// The account that the heap is on.
    pub memory: &'a Arc<MemoryAccount>,
    /// The player of page records.
    pub records: PagePlayer,
    /// The frames that owners play after this recovery. Any other foreign one ends it.
    pub later: Claims,
    /// Level and threads.
    pub schedule: &'a Schedule,
    /// Time, for the report.
    pub clock: &'a dyn Clock,
    /// The counters in which it reports its progress.
    pub progress: &'a Progress,
    /// The inputs for building the indexes. `None`: the caller wants pages alone.
    pub indexing: Option<Indexing<'a>>,
}

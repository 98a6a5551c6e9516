//! The arguments of a recovery other than the image and the log.

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
    /// The memory account that the heap is charged to.
    pub memory: &'a Arc<MemoryAccount>,
    /// The player of page records.
    pub records: PagePlayer,
    /// The kinds of frames that other owners play after this recovery. The recovery fails at a frame that neither
    /// `records` nor a later owner plays.
    pub later: Claims,
    /// The level, the threads and the memory budget.
    pub schedule: &'a Schedule,
    /// The clock that measures times for the report.
    pub clock: &'a dyn Clock,
    /// The counters of the recovery's progress.
    pub progress: &'a Progress,
    /// The inputs for building the indexes. `None`: no indexes are built.
    pub indexing: Option<Indexing<'a>>,
}

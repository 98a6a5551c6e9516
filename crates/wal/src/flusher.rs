//! A stream's flusher between two of its steps; `flush` takes the steps.

use std::sync::Arc;

use perdura_base::limits::IN_FLIGHT_BYTES_MAX;
use perdura_base::{Epoch, Pos};
#[cfg(feature = "flaws")]
use perdura_device::AlignedBuf;
use perdura_device::File;

use crate::sizes::Span;
use crate::tail::Tail;

/// The segment being written.
pub(crate) struct Segment {
    pub span: Span,
    pub file: Arc<dyn File>,
}

/// What a stream's flusher keeps from one step to the next.
pub(crate) struct FlushState {
    /// Sealed blocks that wait to be written.
    pub tail: Tail,
    /// Where the blocks written since the last sync end.
    pub written_end: Option<Pos>,
    /// The highest D that a block written since the last sync names.
    pub names_durable: Epoch,
    pub segment: Option<Segment>,
    /// Files to sync: the segment written last, and those left behind in this batch.
    pub unsynced: Vec<Arc<dyn File>>,
    /// A segment that has its name, while its header or its predecessor's cannot be written because
    /// the disk is full.
    pub placed: Option<Segment>,
    /// The last step was delayed: the next one syncs the blocks written before it.
    pub delayed: bool,
    /// A write or sync has failed for good: no further step is taken.
    pub has_failed: bool,
    #[cfg(feature = "flaws")]
    pub late: Option<LateBlock>,
}

impl FlushState {
    /// The flusher of a stream that starts at `start`.
    pub fn new(start: Pos) -> Self {
        FlushState {
            tail: Tail::new(start, IN_FLIGHT_BYTES_MAX / 2),
            written_end: None,
            names_durable: Epoch(0),
            segment: None,
            unsynced: Vec::new(),
            placed: None,
            delayed: false,
            has_failed: false,
            #[cfg(feature = "flaws")]
            late: None,
        }
    }
}

/// A block that the disk refused and that counts already, as a seeded bug has it: file, offset and bytes.
#[cfg(feature = "flaws")]
pub(crate) type LateBlock = (Arc<dyn File>, u64, AlignedBuf);

//! The state that a stream's flusher keeps between two steps; `flush` takes the steps.

use std::sync::Arc;

use perdura_base::Pos;
#[cfg(feature = "flaws")]
use perdura_device::AlignedBuf;
use perdura_device::File;

use crate::flight::Flights;
use crate::sizes::Span;
use crate::tail::Tail;

/// The segment that is being written, or the next one.
#[derive(Clone)]
pub(crate) struct Segment {
    pub span: Span,
    pub file: Arc<dyn File>,
}

/// The state that a stream's flusher keeps from one step to the next.
pub(crate) struct FlushState {
    /// Sealed blocks that wait to be written.
    pub tail: Tail,
    /// The begun writes that are not known to be durable.
    pub flights: Flights,
    /// The segment of the last write.
    pub segment: Option<Segment>,
    /// The next segment. The segment's name and header are durable. The preceding segment is durably marked as
    /// followed.
    pub placed: Option<Segment>,
    /// True after a final failure of a write. No further step is taken then.
    pub has_failed: bool,
    #[cfg(feature = "flaws")]
    pub late: Option<LateBlock>,
}

impl FlushState {
    /// Returns the state for a stream that starts at `start`, with a tail of at most `tail_bytes_max` bytes.
    pub fn new(start: Pos, tail_bytes_max: u64) -> Self {
        FlushState {
            tail: Tail::new(start, tail_bytes_max),
            flights: Flights::new(start),
            segment: None,
            placed: None,
            has_failed: false,
            #[cfg(feature = "flaws")]
            late: None,
        }
    }
}

/// Seeded bug: a block counted as durable although the disk refused the write. The tuple has the block's file, offset
/// and bytes.
#[cfg(feature = "flaws")]
pub(crate) type LateBlock = (Arc<dyn File>, u64, AlignedBuf);

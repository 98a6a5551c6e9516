//! The writer's state, which lasts from one step to the next.

use perdura_base::Pos;

use crate::lease::Lease;
use crate::link::Link;
use crate::view::View;

/// The anchor's statement on whether acknowledgements may rest on nodes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Anchored {
    No,
    /// An update has begun, and perhaps failed. Another update may write its record later.
    Perhaps,
    /// The anchor permits it durably.
    Yes,
}

impl Anchored {
    /// Returns the anchor's statement after an update.
    pub fn of(mirrored: bool) -> Anchored {
        match mirrored {
            true => Anchored::Yes,
            false => Anchored::No,
        }
    }
}

/// The state of the writer between two steps.
pub(crate) struct State {
    pub view: View,
    /// A view that was sent to the arbiter, and whose fate is not known.
    pub pending: Option<View>,
    pub groups: Vec<[Link; 2]>,
    /// The position up to which each stream may have been acknowledged.
    pub raised: Vec<Pos>,
    pub anchored: Anchored,
    pub lease: Lease,
    /// The nodes that are still to drop the rings of writers before this one, group by group.
    pub unretired: Vec<[bool; 2]>,
    pub is_stopping: bool,
    pub fenced: Option<String>,
    pub random: Box<dyn FnMut() -> u64 + Send>,
    pub events: Vec<String>,
}

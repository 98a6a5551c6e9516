//! The writer's state that lasts from one step to the next.

use perdura_base::Pos;

use crate::lease::Lease;
use crate::link::Link;
use crate::view::View;

/// The anchor's permission for acknowledgements to rest on nodes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Anchored {
    No,
    /// The anchor perhaps permits it: an update has begun, and may have failed. A later update may still store its
    /// record.
    Perhaps,
    /// The anchor permits it, durably.
    Yes,
}

impl Anchored {
    /// Returns the state after an update that has stored `mirrored`.
    pub fn of(mirrored: bool) -> Anchored {
        match mirrored {
            true => Anchored::Yes,
            false => Anchored::No,
        }
    }
}

/// The state of a writer between two steps.
pub(crate) struct State {
    pub view: View,
    /// A view that was sent to the arbiter, and of which it is unknown whether it was stored.
    pub pending: Option<View>,
    pub groups: Vec<[Link; 2]>,
    /// The position up to which each stream may have been acknowledged.
    pub raised: Vec<Pos>,
    pub anchored: Anchored,
    pub lease: Lease,
    /// For each node, group by group: true if it must still drop the rings of earlier writers.
    pub unretired: Vec<[bool; 2]>,
    pub is_stopping: bool,
    pub fenced: Option<String>,
    pub random: Box<dyn FnMut() -> u64 + Send>,
    pub events: Vec<String>,
}

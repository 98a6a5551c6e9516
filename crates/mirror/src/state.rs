//! The writer's state that lasts from one step to the next.

use perdura_base::Pos;

use crate::lease::Lease;
use crate::link::Link;
use crate::view::View;

/// The anchor's permission to acknowledge bytes that only nodes hold.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Anchored {
    No,
    /// It is unknown whether the anchor gives the permission: an update of the anchor has begun and may have failed. A
    /// later update may still store the failed update's record.
    Perhaps,
    /// The durable anchor gives the permission.
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
    /// A view on the way to the arbiter. The arbiter may or may not have stored the view.
    pub pending: Option<View>,
    pub groups: Vec<[Link; 2]>,
    /// For each stream, the highest position that may have been acknowledged.
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

//! What the writer's side keeps from one step to the next.

use perdura_base::Pos;

use crate::lease::Lease;
use crate::link::Link;
use crate::view::View;

/// Whether the anchor says that acknowledgements may rest on nodes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Anchored {
    No,
    /// An update has begun, and perhaps failed: what it has left may be written later, with another update.
    Perhaps,
    /// It says so durably.
    Yes,
}

impl Anchored {
    /// What the anchor says after an update.
    pub fn of(mirrored: bool) -> Anchored {
        match mirrored {
            true => Anchored::Yes,
            false => Anchored::No,
        }
    }
}

/// The writer's side between two steps.
pub(crate) struct State {
    pub view: View,
    /// A view that was sent to the arbiter, and whose fate is not known.
    pub pending: Option<View>,
    pub groups: Vec<[Link; 2]>,
    /// How far acknowledgements may have gone in each stream.
    pub raised: Vec<Pos>,
    pub anchored: Anchored,
    pub lease: Lease,
    /// The rings of writers before this one are to be dropped: by node, group by group.
    pub unretired: Vec<[bool; 2]>,
    pub is_stopping: bool,
    pub fenced: Option<String>,
    pub random: Box<dyn FnMut() -> u64 + Send>,
    pub events: Vec<String>,
}

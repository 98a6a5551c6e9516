//! The code of the streams' seeded bugs; see [`perdura_base::flaw`].

use parking_lot::Mutex;
use perdura_base::StreamId;
use perdura_base::flaw::{Flaw, armed};

use perdura_recovery::active::Active;

use super::Streams;

/// The active list of each stream, copied when the window began.
pub(super) type EarlyLists = Mutex<Vec<Active>>;

impl Streams {
    /// If the seeded bug is armed, copies the active lists when the window begins. The correct time is when the end
    /// marks are appended.
    pub(super) fn list_early(&self) {
        if armed(Flaw::ListRace) {
            let lists = self.active.iter().map(|active| active.lock().clone());
            *self.early.lock() = lists.collect();
        }
    }

    /// Returns the list that the seeded bug puts into a stream's end mark instead of the current list. `None`: the bug
    /// is not armed.
    pub(super) fn listed_early(&self, stream: StreamId) -> Option<Active> {
        let early = self.early.lock();
        armed(Flaw::ListRace).then(|| early[usize::from(stream.0)].clone())
    }
}

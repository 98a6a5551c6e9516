//! The work of a command that is left after its transaction: events for observers, and freeing the
//! space of a flush.

use super::{Event, Later};
use crate::command::Told;
use crate::command::scripts::ran::Ran;
use crate::engine::{Epoch, Flushed, Reached, Rung};
use crate::state::State;

/// The work that a transaction leaves until it has committed.
#[must_use]
pub(crate) struct Outcome {
    pub(super) hits: u64,
    pub(super) misses: u64,
    pub(super) errors: u64,
    pub(super) events: Vec<Event>,
    pub(super) changes: u64,
    pub(super) flushed: Option<Flushed>,
    pub(super) swapped: u16,
    pub(super) ran: Option<Box<Ran>>,
    pub(super) emptied: bool,
    /// True if the transaction has written anything, even values equal to the old ones.
    pub(super) wrote: bool,
    /// The reason why the command has no reply yet. `None`: it has its reply.
    pub later: Option<Later>,
}

impl Outcome {
    /// Returns the epochs that the replies of a transaction rest on. `epoch` is the epoch of its
    /// commit. If it wrote only values equal to the old ones, that is the epoch of the newest write
    /// to its partitions. 0 means that this write is older than this opening of the database.
    pub(crate) fn told(&self, epoch: Epoch, reached: Reached) -> Told {
        let rests_on = self.ran.as_ref().map(|ran| ran.rests_on);
        let written = match epoch {
            _ if !self.wrote => Epoch(0),
            Epoch(0) => reached.at(Rung::Disk),
            epoch => epoch,
        };
        Told {
            epoch: rests_on.map_or(epoch, |rests_on| rests_on.max(epoch)),
            written,
        }
    }

    /// Counts the lookups, and publishes the changes, which are durable with `epoch`. Frees the
    /// space that a flush has emptied.
    pub(crate) fn settle(self, state: &mut State, epoch: Epoch) {
        state.stats.hits += self.hits;
        state.stats.misses += self.misses;
        state.stats.errors += self.errors;
        state.changes.add(self.changes);
        if self.emptied || self.swapped != 0 {
            state.all_changed(epoch);
        }
        state.tell(&self.events, epoch);
        state.jobs.swapped(self.swapped);
        if let Some(ran) = self.ran {
            ran.settle(state, epoch);
        }
        if let (Some(flushed), Some(db)) = (self.flushed, state.db()) {
            db.reclaim_flushed(flushed);
        }
    }
}

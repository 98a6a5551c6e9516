//! The work that remains after a command's transaction. Observers get events, and the space of flushed databases is
//! freed.

use super::{Event, Later};
use crate::command::Told;
use crate::command::scripts::ran::Ran;
use crate::engine::{Epoch, Flushed, Reached, Rung};
use crate::state::State;

/// The work that a transaction postpones until after its commit.
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
    /// True if the transaction has written anything, even unchanged values.
    pub(super) wrote: bool,
    /// The reason why the command has no reply yet. `None`: it has its reply.
    pub later: Option<Later>,
}

impl Outcome {
    /// Returns the epochs that the replies of a transaction depend on. `epoch` is the epoch of the transaction's
    /// commit. If the transaction wrote only unchanged values, `epoch` is the epoch of the newest earlier write to the
    /// written partitions. It is 0 if there was no earlier write since the database was opened.
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

    /// Counts the lookups, publishes the changes, and frees the space of flushed databases. The changes become
    /// durable with `epoch`.
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

//! The work that remains after a command's transaction. Observers get events, and the space of flushed databases is
//! freed.

use super::{Claims, Event, Later};
use crate::blocking::Wait;
use crate::command::Told;
use crate::command::scripts::ran::Ran;
use crate::common::Common;
use crate::engine::{Epoch, Flushed, Reached, Rung};
use crate::pubsub::Seat;
use crate::state::State;
use crate::tell::Message;

/// The parties to a commit besides the database: the observers, and the client that made the changes.
#[derive(Clone, Copy)]
pub(crate) struct Observing<'a> {
    /// The observers.
    pub common: &'a Common,
    /// The client that made the changes.
    pub writer: Seat,
    /// The newest epoch that a reply of the client's loop has depended on. Messages wait for it.
    pub newest: Epoch,
    /// The durable epoch of each rung.
    pub reached: Reached,
}

impl<'a> Observing<'a> {
    /// Returns the parties to a commit of the loop's running command.
    pub(crate) fn of(state: &'a State) -> Self {
        Observing {
            common: &state.common,
            writer: state.running,
            newest: state.newest(),
            reached: state.reached,
        }
    }
}

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

    /// Removes and returns the wait that the command is to begin. `None`: the client does not wait for a key.
    pub(crate) fn take_wait(&mut self) -> Option<Wait> {
        let later = self
            .later
            .take_if(|later| matches!(later, Later::Wait(_)))?;
        let Later::Wait(wait) = later else {
            return None;
        };
        self.later = Some(Later::Waits(wait.timeout));
        Some(*wait)
    }

    /// Adds messages that are sent at the commit.
    pub(crate) fn add_messages(&mut self, messages: Vec<Message>) {
        if !messages.is_empty() {
            self.ran.get_or_insert_default().messages.extend(messages);
        }
    }

    /// Informs the clients that watch or track the changed keys, sends events and messages, and answers the clients in
    /// `claims`. `epoch` is the epoch of the transaction's commit. The
    /// caller holds the transaction's latches.
    #[inline]
    pub(crate) fn publish(&mut self, to: &Observing<'_>, claims: &mut Claims<'_>, epoch: Epoch) {
        let changes_all = self.emptied || self.swapped != 0;
        if changes_all || !self.events.is_empty() || self.ran.is_some() || !claims.is_empty() {
            self.publish_all(to, claims, epoch);
        }
    }

    fn publish_all(&mut self, to: &Observing<'_>, claims: &mut Claims<'_>, epoch: Epoch) {
        let (common, told) = (to.common, self.told(epoch, to.reached));
        if self.emptied || self.swapped != 0 {
            common.all_changed(epoch);
            if common.scans.is_in_use() {
                common.scans.with(|scans| scans.swapped(self.swapped));
            }
        }
        // An answer comes behind the events that led to it, and before the events of the answered command.
        let (first, mut from) = (claims.first_events(), 0);
        let first = first.unwrap_or(self.events.len());
        common.tell(&self.events[..first], to.writer, epoch);
        if let Some(ran) = &mut self.ran {
            let messages = std::mem::take(&mut ran.messages);
            common.send_deferred(messages, epoch.max(to.newest));
        }
        claims.publish(told, |events| {
            common.tell(&self.events[from.max(first)..events], to.writer, epoch);
            from = events;
        });
        common.tell(&self.events[from.max(first)..], to.writer, epoch);
    }

    /// Counts the lookups, and frees the space of flushed databases.
    pub(crate) fn settle(self, state: &mut State) {
        state.stats.hits += self.hits;
        state.stats.misses += self.misses;
        state.stats.errors += self.errors;
        state.changes.add(self.changes);
        if let Some(ran) = self.ran {
            ran.settle(state);
        }
        if let (Some(flushed), Some(db)) = (self.flushed, state.db()) {
            db.reclaim_flushed(flushed);
        }
    }
}

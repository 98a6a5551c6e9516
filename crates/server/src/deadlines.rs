//! The deadlines of clients that wait.

use std::collections::{BTreeSet, HashMap};
use std::time::Instant;

/// The deadlines of clients, each with the id of its client.
#[derive(Debug, Default)]
pub(crate) struct Deadlines {
    /// The deadlines, the earliest first.
    order: BTreeSet<(Instant, u64)>,
    of: HashMap<u64, Instant>,
}

impl Deadlines {
    /// Returns the number of clients that have a deadline.
    pub(crate) fn count(&self) -> usize {
        debug_assert_eq!(self.order.len(), self.of.len(), "a client has one deadline");
        self.of.len()
    }

    /// Notes the deadline of a client, if it has one.
    pub(crate) fn add(&mut self, deadline: Option<Instant>, id: u64) {
        if let Some(at) = deadline {
            let before = self.of.insert(id, at);
            debug_assert!(before.is_none(), "a client has one deadline");
            self.order.insert((at, id));
        }
    }

    /// Forgets the deadline of a client, if it has one.
    pub(crate) fn remove(&mut self, id: u64) {
        if let Some(at) = self.of.remove(&id) {
            let was_noted = self.order.remove(&(at, id));
            debug_assert!(was_noted, "the deadline of a client that waits is noted");
        }
    }

    /// Returns the earliest deadline.
    pub(crate) fn next(&self) -> Option<Instant> {
        self.order.first().map(|(at, _)| *at)
    }

    /// Returns the id of the client with the earliest deadline, if that deadline has passed.
    pub(crate) fn next_late(&self, now: Instant) -> Option<u64> {
        let (at, id) = self.order.first()?;
        (*at <= now).then_some(*id)
    }
}

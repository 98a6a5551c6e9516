//! The deadlines of clients that wait.

use std::collections::BTreeSet;
use std::time::Instant;

/// The deadlines, the earliest first, each with the id of its client.
#[derive(Debug, Default)]
pub(crate) struct Deadlines(BTreeSet<(Instant, u64)>);

impl Deadlines {
    /// Returns the number of clients that have a deadline.
    pub(crate) fn count(&self) -> usize {
        self.0.len()
    }

    /// Notes the deadline of a client, if it has one.
    pub(crate) fn add(&mut self, deadline: Option<Instant>, id: u64) {
        if let Some(at) = deadline {
            let is_new = self.0.insert((at, id));
            debug_assert!(is_new, "a client has one deadline");
        }
    }

    /// Forgets the deadline of a client, if it has one.
    pub(crate) fn remove(&mut self, deadline: Option<Instant>, id: u64) {
        if let Some(at) = deadline {
            let was_noted = self.0.remove(&(at, id));
            debug_assert!(was_noted, "the deadline of a client that waits is noted");
        }
    }

    /// Returns the earliest deadline.
    pub(crate) fn next(&self) -> Option<Instant> {
        self.0.first().map(|(at, _)| *at)
    }

    /// Returns the id of the client with the earliest deadline, if that deadline has passed.
    pub(crate) fn next_late(&self, now: Instant) -> Option<u64> {
        let (at, id) = self.0.first()?;
        (*at <= now).then_some(*id)
    }
}

//! Room for newcomers: the limit for all clients, and the limit for clients that have not authenticated.
//!
//! A stranger can open connections and say nothing. So if a password is needed, connections that have not
//! authenticated have their own bound. They cannot keep a newcomer out: if there is no place, the client that
//! has waited longest to authenticate is closed.

use super::EventLoop;
use crate::pubsub::Seat;
use std::time::{Duration, Instant};

/// The time after which a client that has not authenticated may be closed for a newcomer.
const GRACE: Duration = Duration::from_secs(1);

impl EventLoop {
    /// Returns whether one more client may come. If no place is left, closes the client that has waited
    /// longest to authenticate.
    pub(super) fn has_place(&mut self) -> bool {
        let options = &self.state.options;
        let (all, strangers) = (options.maxclients, options.maxclients_unauthenticated);
        let is_full = self.state.connections.count() >= all;
        // Newcomers are strangers, unless no password is needed.
        let is_crowded = !self.state.acl.open() && self.state.strangers.len() >= strangers;
        if !is_full && !is_crowded {
            return true;
        }
        self.forget_known();
        let is_crowded = !self.state.acl.open() && self.state.strangers.len() >= strangers;
        (!is_full && !is_crowded) || self.close_stranger()
    }

    /// Notes a client that has to authenticate.
    pub(super) fn note_stranger(&mut self, seat: Seat) {
        debug_assert!(
            !self.state.strangers.contains(&seat),
            "a newcomer is noted once"
        );
        self.state.strangers.push_back(seat);
    }

    /// Forgets the clients that have authenticated or have gone.
    fn forget_known(&mut self) {
        let connections = &self.state.connections;
        self.state.strangers.retain(|seat| {
            let found = connections.get(seat.index);
            found.is_some_and(|c| c.session.seat == *seat && !c.session.authenticated)
        });
    }

    /// Closes the client that has waited longest to authenticate, for [`GRACE`] at least, and whose password is
    /// not being checked. Returns whether there was such a client.
    fn close_stranger(&mut self) -> bool {
        let now = Instant::now();
        let connections = &self.state.connections;
        let goes = self.state.strangers.iter().position(|seat| {
            let found = connections.get(seat.index);
            found.is_some_and(|c| !c.session.asks && now.duration_since(c.session.since) >= GRACE)
        });
        let Some(seat) = goes.and_then(|at| self.state.strangers.remove(at)) else {
            return false;
        };
        let Some(connection) = self.state.connections.take(seat.index) else {
            return false;
        };
        self.state.stats.rejected += 1;
        self.close(seat.index, connection);
        true
    }
}

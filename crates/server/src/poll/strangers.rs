//! Room for newcomers: the limit for all clients, and the limit for clients that have not authenticated.
//!
//! A client can open connections and send nothing. So if a password is needed, connections that have not authenticated
//! have a separate limit. Such connections cannot keep a newcomer out. If there is no room for the newcomer, the server
//! closes the client that has been unauthenticated for the longest time.

use super::EventLoop;
use crate::pubsub::Seat;
use std::time::{Duration, Instant};

/// The minimum age of an unauthenticated client that a newcomer may replace.
const GRACE: Duration = Duration::from_secs(1);

impl EventLoop {
    /// Returns whether one more client may connect. If there is no room, first tries to close the client that has been
    /// unauthenticated for the longest time.
    pub(super) fn has_place(&mut self) -> bool {
        let options = &self.state.options;
        let (all, strangers) = (options.maxclients, options.maxclients_unauthenticated);
        let is_full = self.state.connections.count() >= all;
        // A newcomer has not authenticated, unless no password is needed.
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

    /// Forgets the authenticated clients and the closed clients.
    fn forget_known(&mut self) {
        let connections = &self.state.connections;
        self.state.strangers.retain(|seat| {
            let found = connections.get(seat.index);
            found.is_some_and(|c| c.session.seat == *seat && !c.session.authenticated)
        });
    }

    /// Closes the client that has been unauthenticated for the longest time, if this time is at least [`GRACE`].
    /// Clients with a password check in progress are not closed. Returns whether there was a client to close.
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

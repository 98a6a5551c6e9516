//! Room for newcomers: the limit for all clients, and the limit for clients that have not authenticated.
//!
//! A client can open connections and send nothing. So if a password is needed, connections that have not authenticated
//! have a separate limit. Such connections cannot keep a newcomer out. If there is no room for the newcomer, the server
//! closes the client that has been unauthenticated for the longest time.

use super::EventLoop;
use crate::pubsub::Seat;
use crate::state::State;
use std::time::{Duration, Instant};

/// The minimum age of an unauthenticated client that a newcomer may replace.
const GRACE: Duration = Duration::from_secs(1);

impl EventLoop {
    /// Returns whether one more client may connect. If there is no room, first tries to close the client that has been
    /// unauthenticated for the longest time.
    pub(super) fn has_place(&mut self) -> bool {
        // The newcomer is counted already.
        (!self.is_full(0) && !self.is_crowded()) || self.close_stranger()
    }

    /// Returns whether the clients of all loops and `more` clients are more than may be.
    pub(super) fn is_full(&self, more: usize) -> bool {
        let clients = self.state.common.crowd.clients() + more;
        clients > self.state.options.maxclients
    }

    /// Returns whether there are as many clients that have not authenticated as may be. A newcomer has not authenticated,
    /// unless no password is needed.
    pub(super) fn is_crowded(&self) -> bool {
        let State {
            common, strangers, ..
        } = &*self.state;
        let others = common.crowd.strangers_beside(self.state.event_loop);
        let most = self.state.options.maxclients_unauthenticated;
        !self.state.acl.open() && others + strangers.len() >= most
    }

    /// Notes a client that has to authenticate.
    pub(super) fn note_stranger(&mut self, seat: Seat) {
        debug_assert!(
            !self.state.strangers.contains(&seat),
            "a newcomer is noted once"
        );
        self.state.strangers.push_back(seat);
    }

    /// Closes the client that has been unauthenticated for the longest time, if this time is at least [`GRACE`].
    /// Clients with a password check in progress are not closed. Returns whether there was a client to close.
    fn close_stranger(&mut self) -> bool {
        let now = Instant::now();
        let connections = &self.state.connections;
        let mut strangers = self.state.strangers.iter();
        let goes = strangers.find(|seat| {
            let found = connections.get(seat.index);
            found.is_some_and(|c| !c.session.asks && now.duration_since(c.session.since) >= GRACE)
        });
        let Some(seat) = goes.copied() else {
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

//! The loop's upkeep: it accepts or rejects newcomers, closes idle clients, and computes rates.

use super::{CONNECTIONS, EventLoop, TICK};
use crate::connection::Connection;
use crate::net::{Listener, Newcomer};
use crate::pubsub::Seat;
use crate::session::Session;
use crate::state::State;
use mio::Token;
use std::io::{ErrorKind, Write};
use std::time::{Duration, Instant};

/// The time for which a client must be idle before its empty buffers are freed.
const REST_AFTER: Duration = Duration::from_secs(2);
/// The maximum number of new connections from one listener in a round.
pub(super) const ACCEPTS_MAX: usize = 32;
/// The maximum number of newcomers that other loops are about to refuse.
const REFUSED_MAX: usize = 8;
/// The time in a round for accepting connections.
const ACCEPT_SHARE: Duration = Duration::from_millis(1);

/// The error for clients of other machines while no password is set.
const PROTECTED: &[u8] = b"-DENIED Perdura is running in protected mode: clients from other \
                          machines are refused while the user default needs no password. Set one \
                          on this machine with ACL SETUSER default >password, or set \
                          protected-mode to no\r\n";

impl EventLoop {
    /// Accepts the waiting connections if the poller has announced any. Stops when the round's time for this is over.
    pub(super) fn accept(&mut self) {
        self.newcomers_left = false;
        if !std::mem::take(&mut self.accept_pending) {
            return;
        }
        let begin = Instant::now();
        for at in 0..self.listeners.len() {
            self.accept_from(at, begin);
        }
    }

    /// Accepts at most [`ACCEPTS_MAX`] connections from one listener. So newcomers do not delay connected
    /// clients for long, nor the newcomers of other listeners.
    fn accept_from(&mut self, at: usize, begin: Instant) {
        let is_tls = matches!(self.listeners[at], Listener::Tls(_));
        for _ in 0..ACCEPTS_MAX {
            if begin.elapsed() > ACCEPT_SHARE {
                break;
            }
            if self.is_full_of_newcomers() {
                // A loop that refuses a newcomer wakes this one.
                self.accept_pending = true;
                return;
            }
            let is_only = !self.state.peers.several();
            if is_tls && is_only && !self.makes_room_for_handshake() {
                // The loop tries again after a handshake ends or at the next tick. Both wake it.
                self.accept_pending = true;
                return;
            }
            let (tls, certified) = self.state.tls();
            match self.listeners[at].accept(tls.as_ref(), certified) {
                Ok((stream, peer, local)) => {
                    let unix = matches!(self.listeners[at], Listener::Unix(..));
                    self.place(Newcomer {
                        stream,
                        peer,
                        local,
                        unix,
                        tries: 0,
                    });
                }
                Err(e) if e.kind() == ErrorKind::WouldBlock => return,
                Err(e)
                    if matches!(
                        e.kind(),
                        ErrorKind::Interrupted | ErrorKind::ConnectionAborted
                    ) => {}
                Err(e) => {
                    self.complain(&e);
                    self.accept_pending = true;
                    return;
                }
            }
        }
        (self.accept_pending, self.newcomers_left) = (true, true);
    }

    /// Logs, at most once a second, that no connection can be accepted. Without free descriptors every attempt
    /// fails.
    fn complain(&mut self, error: &std::io::Error) {
        let now = self.state.now;
        let recently = |at: Instant| now.duration_since(at) < Duration::from_secs(1);
        if !self.complained.is_some_and(recently) {
            self.complained = Some(now);
            tracing::warn!("Cannot accept a connection: {error}");
        }
    }

    /// Gives a connection to the loop with the fewest clients. If clients of other loops would have to leave for it, gives
    /// it to the loop with most clients that have not authenticated.
    fn place(&mut self, newcomer: Newcomer) {
        let (own, crowd) = (self.state.event_loop, &self.state.common.crowd);
        let event_loop = match () {
            () if !self.state.peers.several() => own,
            () if newcomer.stream.handshaking() => crowd.calmest(self.handshakes.most()),
            () if self.is_full(1) || self.is_crowded() => crowd.strangest(),
            () => crowd.emptiest(),
        };
        crowd.join(event_loop);
        match event_loop == own {
            true => self.greet(newcomer),
            false => self.crew.give(event_loop, newcomer),
        }
    }

    /// Returns whether as many clients as may be are connected and [`REFUSED_MAX`] newcomers are about to be refused. Each
    /// has a descriptor until its loop has refused it.
    fn is_full_of_newcomers(&self) -> bool {
        let most = self.state.options.maxclients.saturating_add(REFUSED_MAX);
        self.state.common.crowd.clients() >= most
    }

    /// Serves a client from now on, or refuses it. The client is counted already.
    pub(super) fn greet(&mut self, newcomer: Newcomer) {
        let placed = match self.takes_requests() {
            true => self.find_place(newcomer),
            false => None,
        };
        if !placed.is_some_and(|newcomer| self.admit(newcomer)) {
            self.state.common.crowd.leave(self.state.event_loop);
            if !self.state.leads() {
                self.state.common.wake(0);
            }
        }
    }

    /// Returns the client if it may be served here. If there is no room, gives the client to the next loop, where another
    /// client may have to leave for it. The last loop refuses the client.
    fn find_place(&mut self, mut newcomer: Newcomer) -> Option<Newcomer> {
        let silent = newcomer.stream.handshaking();
        let has_room = !silent || self.makes_room_for_handshake();
        let stream = &mut newcomer.stream;
        let is_open = self.state.options.protected_mode && self.state.acl.open();
        let refusal = if is_open && !stream.is_local() {
            PROTECTED
        } else if has_room && self.has_place() {
            return Some(newcomer);
        } else {
            newcomer.tries += 1;
            if newcomer.tries < self.state.common.loops() {
                let next = (self.state.event_loop + 1) % self.state.common.loops();
                self.state.common.crowd.join(next);
                self.crew.give(next, newcomer);
                return None;
            }
            b"-ERR max number of clients reached\r\n"
        };
        self.state.stats.rejected += 1;
        if !silent {
            // The error is a courtesy, so a failed write does not matter.
            let _ = newcomer.stream.write(refusal);
        }
        None
    }

    /// Returns whether the loop has taken a client.
    fn admit(&mut self, newcomer: Newcomer) -> bool {
        let Newcomer {
            mut stream,
            peer,
            local,
            unix,
            ..
        } = newcomer;
        // Without keepalive, a peer that has disappeared without closing is noticed only when something is sent
        // to it.
        let _ = stream.keep_alive(self.state.options.tcp_keepalive_seconds);
        let index = self.state.connections.reserve();
        if let Err(e) = stream.register(self.poll.registry(), Token(CONNECTIONS + index)) {
            tracing::warn!("Cannot watch a connection: {e}");
            self.state.connections.release(index);
            return false;
        }
        self.state.stats.accepted += 1;
        let seat = Seat {
            event_loop: self.state.event_loop,
            index,
            id: self.state.common.next_client(),
        };
        let session = Session::new(seat, peer, local, unix, &self.state);
        if stream.handshaking()
            && let Err(e) = self.handshakes.begin(index, seat.id, session.since)
        {
            tracing::error!("Cannot start a thread for TLS handshakes: {e}");
            self.state.connections.release(index);
            return false;
        }
        if !session.authenticated {
            self.note_stranger(seat);
        }
        self.state
            .connections
            .put(index, Box::new(Connection::new(stream, session)));
        true
    }

    /// Notes what the loop that accepts connections must know of this loop.
    pub(super) fn note_crowd(&mut self) {
        if self.state.peers.several() {
            let (own, crowd) = (self.state.event_loop, &self.state.common.crowd);
            crowd.note_strangers(own, self.state.strangers.len());
            crowd.note_handshakes(own, self.handshakes.count());
        }
    }

    /// Does the loop's regular upkeep, if a tick is due.
    pub(super) fn tick(&mut self) {
        let now = self.state.now;
        if now.duration_since(self.ticked) < TICK {
            return;
        }
        self.ticked = now;
        let State {
            try_again,
            try_later,
            ..
        } = &mut *self.state;
        try_again.append(try_later);
        self.look_for_stop();
        self.answer_stalled();
        self.state.look_for_delays();
        self.state.tell_views();
        self.state.common.beat(self.state.event_loop, now);
        self.state.tell_supervisor();
        self.close_handshakes();
        let (since, before) = self.counted;
        let elapsed = now.duration_since(since);
        if elapsed >= Duration::from_secs(1) {
            let ms = u64::try_from(elapsed.as_millis())
                .unwrap_or(u64::MAX)
                .max(1);
            let stats = &mut self.state.stats;
            let counts = [stats.commands, stats.input_bytes, stats.output_bytes];
            for (rate, (now, before)) in stats.per_second.iter_mut().zip(counts.iter().zip(before))
            {
                *rate = now.saturating_sub(before).saturating_mul(1000) / ms;
            }
            self.counted = (now, counts);
            self.state.publish_figures();
            self.state.look_at_checkpoints();
            self.state.look_at_conditions();
            self.state.look_for_alarms();
            self.end_mutual_waits();
            self.close_idle();
            self.rest_idle();
        }
    }

    /// Frees the buffers of idle clients, so that even ten thousand idle clients hold no buffers.
    fn rest_idle(&mut self) {
        let now = self.state.now;
        let idle = |c: &Connection| now.duration_since(c.session.active) >= REST_AFTER;
        let indices: Vec<usize> = self
            .state
            .connections
            .iter()
            .filter(|(_, c)| c.could_rest() && idle(c))
            .map(|(index, _)| index)
            .collect();
        for index in indices {
            if let Some(mut connection) = self.state.connections.take(index) {
                connection.rest(&self.state);
                // A connection that was not read because of its large buffers may now be read again.
                self.put_back(index, connection, Ok(()));
            }
        }
    }

    /// Closes the clients that have been idle for too long. Subscribers and monitors send no requests, so they stay.
    fn close_idle(&mut self) {
        let max = self.state.options.idle_seconds_max;
        if max == 0 {
            return;
        }
        let now = self.state.now;
        let idle = |c: &Connection| now.duration_since(c.session.active).as_secs() > max;
        let indices: Vec<usize> = self
            .state
            .connections
            .iter()
            .filter(|(_, c)| idle(c) && !c.blocked && !c.replies.waits())
            .filter(|(_, c)| c.session.subscriptions.is_none() && !c.session.monitors)
            .map(|(index, _)| index)
            .collect();
        for index in indices {
            if let Some(connection) = self.state.connections.take(index) {
                self.close(index, connection);
            }
        }
    }
}

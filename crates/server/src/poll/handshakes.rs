//! Connections in a TLS handshake.
//!
//! The loop reads the client's bytes and writes the answers. The threads of [`crate::tls::pool`] do the cryptography in
//! between. There are at most [`HANDSHAKES_MAX`] handshakes; further connections wait in the system's queue. At the
//! limit, a newcomer replaces the oldest handshake that waits for its client, if that handshake began at least [`SLOW`]
//! ago. A handshake that lasts longer than [`HANDSHAKE`] is closed.

use super::{EventLoop, HEAVY_SHARE};
use crate::connection::Connection;
use crate::pubsub::Seat;
use crate::tls::HANDSHAKE;
use crate::tls::pool::{Pool, Step};
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The maximum number of handshakes at a time.
const HANDSHAKES_MAX: usize = 1000;
/// The minimum age of a handshake that a newcomer may replace. Only a handshake that waits for its client is replaced.
const SLOW: Duration = Duration::from_secs(1);

/// A connection in its handshake.
#[derive(Debug)]
struct Handshake {
    index: usize,
    begun: Instant,
    /// True if a thread of the pool has the session.
    away: bool,
}

/// All handshakes, by client id. Ids ascend, so the oldest handshake comes first.
pub(super) struct Handshakes {
    all: BTreeMap<u64, Handshake>,
    /// The maximum number of handshakes at a time.
    most: usize,
    pub(super) pool: Pool,
    /// True if the last round had no time to collect all finished steps.
    pub(super) left: bool,
}

impl Handshakes {
    /// Returns an empty set. The threads call `wake` when there is a finished step to collect.
    pub(super) fn new(wake: Arc<dyn Fn() + Send + Sync>) -> Self {
        Handshakes {
            all: BTreeMap::new(),
            most: HANDSHAKES_MAX,
            pool: Pool::new(wake),
            left: false,
        }
    }

    /// Starts the thread pool if necessary, and notes the handshake of a new client.
    ///
    /// # Errors
    /// No thread for handshakes can be started.
    pub(super) fn begin(&mut self, index: usize, id: u64, begun: Instant) -> io::Result<()> {
        self.pool.start()?;
        let away = false;
        let before = self.all.insert(id, Handshake { index, begun, away });
        debug_assert!(before.is_none(), "ids are given once");
        Ok(())
    }

    /// Returns the maximum number of handshakes at a time.
    pub(super) fn most(&self) -> usize {
        self.most
    }

    /// Returns the number of handshakes.
    pub(super) fn count(&self) -> usize {
        self.all.len()
    }

    /// Returns whether the maximum number of handshakes is reached.
    pub(super) fn is_full(&self) -> bool {
        self.all.len() >= self.most
    }

    /// Notes that a client has gone.
    pub(super) fn forget(&mut self, id: u64) {
        self.all.remove(&id);
    }

    /// Gives a client's session to the threads, if the session has bytes to be processed.
    fn hand_over(&mut self, connection: &mut Connection) {
        let seat = connection.session.seat;
        if let Some(session) = connection.stream.take_step()
            && let Some(handshake) = self.all.get_mut(&seat.id)
        {
            debug_assert!(!handshake.away, "a handshake makes one step at a time");
            handshake.away = true;
            self.pool.submit(Step {
                seat,
                session,
                failed: None,
            });
        }
    }

    /// Returns the indices and ids of the overdue handshakes.
    fn late(&self, now: Instant) -> Vec<(usize, u64)> {
        let late = |one: &Handshake| now.saturating_duration_since(one.begun) >= HANDSHAKE;
        let all = self.all.iter().take_while(|(_, one)| late(one));
        all.map(|(id, one)| (one.index, *id)).collect()
    }

    /// Returns the index and id of the oldest handshake that waits for its client. The handshake must have begun at
    /// least [`SLOW`] ago.
    fn silent(&self, now: Instant) -> Option<(usize, u64)> {
        let (id, one) = self.all.iter().find(|(_, one)| !one.away)?;
        let is_slow = now.saturating_duration_since(one.begun) >= SLOW;
        is_slow.then_some((one.index, *id))
    }
}

impl EventLoop {
    /// Gives a client's session to the threads, if the client is in its handshake and the session has bytes to be
    /// processed.
    pub(super) fn hand_over(&mut self, connection: &mut Connection) {
        if connection.stream.handshaking() {
            self.handshakes.hand_over(connection);
        }
    }

    /// Collects sessions from the threads and sends the answers to the clients. Stops when the round's time for
    /// handshakes is used up. After the handshake a client is served like all other clients.
    pub(super) fn collect_handshakes(&mut self) {
        self.handshakes.left = false;
        let begin = Instant::now();
        while let Some(step) = self.handshakes.pool.collect() {
            self.resume_handshake(step);
            if begin.elapsed() > HEAVY_SHARE {
                self.handshakes.left = true;
                return;
            }
        }
    }

    fn resume_handshake(&mut self, step: Step) {
        let Seat { index, id, .. } = step.seat;
        let Some(mut connection) = self.state.connections.take(index) else {
            return;
        };
        if connection.session.seat.id != id {
            return self.state.connections.put(index, connection);
        }
        if let Some(one) = self.handshakes.all.get_mut(&id) {
            one.away = false;
        }
        if connection.stream.put_back(step).is_err() {
            return self.close(index, connection);
        }
        if !connection.stream.handshaking() {
            self.handshakes.forget(id);
        }
        // The poller announced bytes that arrived while a thread had the session. They have not been read yet.
        connection.readable = true;
        connection.full = connection.stream.pending();
        if !std::mem::replace(&mut connection.queued, true) {
            self.again.push(index);
        }
        self.state.connections.put(index, connection);
    }

    /// Returns whether one more handshake may begin. If there are too many, first closes the oldest slow one.
    pub(super) fn makes_room_for_handshake(&mut self) -> bool {
        if !self.handshakes.is_full() {
            return true;
        }
        if let Some((index, id)) = self.handshakes.silent(self.state.now) {
            self.end_handshake(index, id);
        }
        !self.handshakes.is_full()
    }

    /// Closes the handshakes that have not ended in time.
    pub(super) fn close_handshakes(&mut self) {
        for (index, id) in self.handshakes.late(self.state.now) {
            self.end_handshake(index, id);
        }
    }

    fn end_handshake(&mut self, index: usize, id: u64) {
        self.handshakes.forget(id);
        match self.state.connections.take(index) {
            Some(connection) if connection.session.seat.id == id => self.close(index, connection),
            Some(connection) => self.state.connections.put(index, connection),
            None => {}
        }
    }
}

#[cfg(test)]
mod tests;

//! Connections whose TLS handshake has not ended.
//!
//! The loop reads the client's bytes and writes the answers. Other threads do the cryptography in between
//! ([`crate::tls::pool`]). There are at most [`HANDSHAKES_MAX`] handshakes; further connections wait in the
//! system's queue. The oldest handshake that waits for its client is closed for a newcomer if it began at least
//! [`SLOW`] ago. A handshake that lasts longer than [`HANDSHAKE`] is closed.

use super::{EventLoop, HEAVY_SHARE};
use crate::connection::Connection;
use crate::pubsub::Seat;
use crate::tls::HANDSHAKE;
use crate::tls::pool::{Pool, Step};
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The most handshakes at once.
const HANDSHAKES_MAX: usize = 1000;
/// The age from which on a handshake that waits for its client may be closed for a newcomer.
const SLOW: Duration = Duration::from_secs(1);

/// A connection in its handshake.
#[derive(Debug)]
struct Handshake {
    index: usize,
    begun: Instant,
    /// True if its session is with the threads.
    away: bool,
}

/// All handshakes, by their clients' ids and so in the order in which the clients came.
pub(super) struct Handshakes {
    all: BTreeMap<u64, Handshake>,
    /// The most handshakes at once.
    most: usize,
    pub(super) pool: Pool,
    /// True if there was no time to collect all finished steps.
    pub(super) left: bool,
}

impl Handshakes {
    /// Returns an empty set. `wake` is called when there is something to collect.
    pub(super) fn new(wake: Arc<dyn Fn() + Send + Sync>) -> Self {
        Handshakes {
            all: BTreeMap::new(),
            most: HANDSHAKES_MAX,
            pool: Pool::new(wake),
            left: false,
        }
    }

    /// Notes that a client has come.
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

    /// Returns whether no further handshake may begin.
    pub(super) fn is_full(&self) -> bool {
        self.all.len() >= self.most
    }

    /// Notes that a client has gone.
    pub(super) fn forget(&mut self, id: u64) {
        self.all.remove(&id);
    }

    /// Gives the session of a client to the threads, if it has bytes to be worked on.
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

    /// Returns the indices and ids of the handshakes that have lasted too long.
    fn late(&self, now: Instant) -> Vec<(usize, u64)> {
        let late = |one: &Handshake| now.saturating_duration_since(one.begun) >= HANDSHAKE;
        let all = self.all.iter().take_while(|(_, one)| late(one));
        all.map(|(id, one)| (one.index, *id)).collect()
    }

    /// Returns the index and id of the oldest handshake that waits for its client, if it began at least
    /// [`SLOW`] ago.
    fn silent(&self, now: Instant) -> Option<(usize, u64)> {
        let (id, one) = self.all.iter().find(|(_, one)| !one.away)?;
        let is_slow = now.saturating_duration_since(one.begun) >= SLOW;
        is_slow.then_some((one.index, *id))
    }
}

impl EventLoop {
    /// Gives the session of a client that is in its handshake to the threads, if they have something to do
    /// for it.
    pub(super) fn hand_over(&mut self, connection: &mut Connection) {
        if connection.stream.handshaking() {
            self.handshakes.hand_over(connection);
        }
    }

    /// Collects sessions that the threads are done with, as far as there is time in the round, and sends
    /// their answers. Once its handshake has ended, a client's requests are run like those of all others.
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
        let Seat { index, id } = step.seat;
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
        // Bytes that arrived while the session was with the threads were announced and not read.
        connection.readable = true;
        connection.full = connection.stream.pending();
        if !std::mem::replace(&mut connection.queued, true) {
            self.again.push(index);
        }
        self.state.connections.put(index, connection);
    }

    /// Returns whether another handshake may begin. If there are too many handshakes, closes a slow one first.
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

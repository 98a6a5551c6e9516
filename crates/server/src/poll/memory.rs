//! The clients' share of memory (`maxmemory-clients`), which is a part of `maxmemory`.
//!
//! If data reaches its limit, writes are refused and no client is disconnected. The share limits clients'
//! buffers, not data. It covers unfinished requests, waiting requests, queued transactions, and unread replies and
//! messages.
//!
//! While more than three quarters of the share are used, clients with large buffers are not read. The only
//! exception is the client with the largest unfinished request, so that at least one of many uploads finishes.
//! That client stays chosen until its request is complete. If it is too slow while others wait, it is
//! disconnected. If there is no large unfinished request, all clients are read until the share is full. Then the
//! client with the largest buffers is disconnected. `CLIENT NO-EVICT ON` protects a client from this.
//!
//! Several loops share the memory. One loop at a time reads a large request, and the loop with the largest client of all
//! disconnects it ([`crate::pressure`]).
//!
//! A large, complete request that waits for the server frees its memory once it has run. If the chosen client's request
//! fits only after that, no large request is read until the waiting request has run.

use super::{EventLoop, TICK};
use crate::connection::{Connection, HELD_OFF_BYTES};
use crate::engine::MemoryUse;
use crate::state::State;
use perdura_base::num::to_u64;
use std::time::{Duration, Instant};

/// The time within which the chosen client must send its next [`progress`] bytes.
const STALLED: Duration = Duration::from_secs(1);
/// The minimum number of bytes that counts as progress.
const PROGRESS_BYTES_MIN: u64 = 64 << 10;

/// The id of no client.
const NO_CLIENT: u64 = 0;

/// Returns the bytes that the chosen client must send within [`STALLED`]. At that pace the last quarter of the
/// share fills up in about a minute, for a share of any size.
fn progress(share: u64) -> u64 {
    PROGRESS_BYTES_MIN.max(share / 256)
}

/// The one client with large buffers that may still send while the share is nearly full, and its progress.
#[derive(Debug)]
pub(super) struct Reader {
    id: u64,
    /// The number of bytes that the client had sent when `waited` was last set to zero.
    received: u64,
    /// The time that other clients have waited for this client since `received` was last set.
    waited: Duration,
    /// The time at which the client's progress was last checked.
    seen: Instant,
    /// The number of bytes that the client had sent at the last check.
    had: u64,
}

impl Reader {
    fn new(id: u64, received: u64, now: Instant) -> Reader {
        Reader {
            id,
            received,
            waited: Duration::ZERO,
            seen: now,
            had: received,
        }
    }

    /// Excludes the time since the last check from `waited`. The delay is not the client's fault: the client waits for
    /// a turn, and its bytes are counted only when they are read.
    fn excuse(&mut self, now: Instant) {
        self.seen = now;
    }

    /// Returns whether the client has kept others waiting for too long. The waiting time is set to zero if no other
    /// client waits, or if the client has sent [`progress`] bytes. A few bytes do not reset it. Each check
    /// adds at most two ticks, because a long round of the loop is not the client's fault.
    fn stalls(&mut self, received: u64, share: u64, others_wait: bool, now: Instant) -> bool {
        let since = now.saturating_duration_since(self.seen).min(TICK * 2);
        debug_assert!(received >= self.had, "what a client has sent only grows");
        self.seen = now;
        self.had = received;
        if !others_wait || received.saturating_sub(self.received) >= progress(share) {
            self.received = received;
            self.waited = Duration::ZERO;
        } else {
            self.waited += since;
        }
        self.waited > STALLED
    }
}

impl EventLoop {
    /// Returns the used and the permitted number of bytes in clients' buffers.
    fn client_memory(&self) -> Option<(u64, u64)> {
        let share = self.state.client_share?;
        let used = self.state.db()?.memory().get(MemoryUse::Clients);
        Some((used, share))
    }

    /// Disconnects the clients with the largest buffers until all buffers fit into the share. The loop calls
    /// this after each client that ran.
    pub(super) fn keep_share(&mut self) {
        while let Some((used, share)) = self.client_memory()
            && used > share
            && self.evict_largest(used, share)
        {}
    }

    /// Disconnects the client with the largest buffers. Returns `false` if no client may be disconnected.
    fn evict_largest(&mut self, used: u64, share: u64) -> bool {
        let largest = self.note_largest();
        let common = &self.state.common;
        if let Some(other) = common.pressure.larger(self.state.event_loop) {
            common.wake(other);
            return false;
        }
        largest.is_some_and(|index| self.evict(index, used, share))
    }

    /// Notes for the other loops how large the largest buffers of a client are. Returns the client's index.
    fn note_largest(&self) -> Option<usize> {
        let clients = self.state.connections.iter();
        let largest = clients
            .filter(|(_, c)| !c.session.no_evict && c.accounted() > 0)
            .map(|(index, c)| (index, c.accounted()))
            .max_by_key(|(_, bytes)| *bytes);
        let (own, pressure) = (self.state.event_loop, &self.state.common.pressure);
        pressure.note_largest(own, largest.map_or(0, |(_, bytes)| bytes));
        largest.map(|(index, _)| index)
    }

    /// Disconnects a client to free its buffers for the remaining clients.
    #[cold]
    fn evict(&mut self, index: usize, used: u64, share: u64) -> bool {
        let Some(connection) = self.state.connections.take(index) else {
            return false;
        };
        self.state.stats.evicted_clients += 1;
        tracing::warn!(
            "{} is disconnected: its buffers take {} bytes, those of all clients {used} of {share} \
             (maxmemory-clients)",
            connection.session.who(),
            connection.accounted(),
        );
        self.close(index, connection);
        true
    }

    /// Stops reading from clients with large buffers while the share is nearly full, and resumes afterwards. The
    /// loop calls this once in each round.
    pub(super) fn squeeze(&mut self) {
        // `squeezed` is always cleared: when the limit is lifted, every client must be read again.
        let before = self.state.squeezed.take();
        if let Some((used, share)) = self.client_memory()
            && used > share / 4 * 3
        {
            // Another loop may have left its largest client to this loop.
            self.keep_share();
            self.note_largest();
            let room = share.saturating_sub(used);
            self.choose_reader(before, room);
            if let Some(index) = self.stalled(share)
                && self.evict(index, used, share)
            {
                self.choose_reader(None, room);
            }
        } else {
            self.reader = None;
            self.state.common.pressure.end(self.state.event_loop);
            self.note_parked();
        }
        if before.is_some() && before != self.state.squeezed {
            self.resume_reading();
        }
    }

    /// Returns the index of the chosen client if it is too slow while others wait.
    fn stalled(&mut self, share: u64) -> Option<usize> {
        let state = &self.state;
        let all = || state.connections.iter();
        let waits = all().any(|(_, c)| c.readable && c.held_off(state));
        let pressure = &state.common.pressure;
        pressure.note_waits(state.event_loop, waits);
        let others_wait = pressure.any_waits();
        let reader = self.reader.as_mut()?;
        let (index, chosen) = all().find(|(_, c)| c.session.seat.id == reader.id)?;
        if chosen.queued && chosen.received == reader.had {
            reader.excuse(state.now);
            return None;
        }
        let stalls = reader.stalls(chosen.received, share, others_wait, state.now);
        stalls.then_some(index)
    }

    /// Chooses the only client with large buffers whose bytes the loop still reads. If a complete request must run
    /// first, chooses the client of that request instead. In that case the loop reads from no client with large
    /// buffers.
    fn choose_reader(&mut self, before: Option<u64>, room: u64) {
        let (own, pressure) = (self.state.event_loop, &self.state.common.pressure);
        let reader = choose(&self.state, before);
        if reader.is_some() && !pressure.may_read(own) {
            self.state.squeezed = Some(NO_CLIENT);
            self.reader = None;
            return;
        }
        if reader.is_none() {
            pressure.end_reading(own);
        }
        let parked = largest_waiting(&self.state).map(|c| c.session.seat.id);
        pressure.note_parked(own, parked.is_some());
        let waiting = parked.or(pressure.any_parked().then_some(NO_CLIENT));
        if let Some(waiting) = waiting.filter(|_| !fits(reader, room)) {
            self.state.squeezed = Some(waiting);
            self.reader = None;
            return;
        }
        let chosen = reader.map(|c| (c.session.seat.id, c.received));
        self.state.squeezed = chosen.map(|(id, _)| id);
        let stays = |reader: &Reader| Some(reader.id) == self.state.squeezed;
        if !self.reader.as_ref().is_some_and(stays) {
            let now = self.state.now;
            self.reader = chosen.map(|(id, received)| Reader::new(id, received, now));
        }
        let watched = self.reader.as_ref().map(|reader| reader.id);
        debug_assert_eq!(
            watched, self.state.squeezed,
            "the client that is read is watched"
        );
    }

    /// Notes for the other loops, if there are any, whether a complete large request waits. Half of the share must be used,
    /// so that the loop rarely looks at all clients.
    fn note_parked(&self) {
        let (state, pressure) = (&self.state, &self.state.common.pressure);
        let is_used = |(used, share)| used > share / 2;
        let is_used = state.peers.several() && self.client_memory().is_some_and(is_used);
        pressure.note_parked(
            state.event_loop,
            is_used && largest_waiting(state).is_some(),
        );
    }

    fn resume_reading(&mut self) {
        let state = &self.state;
        let ready = state.connections.iter();
        let ready: Vec<usize> = ready
            .filter(|(_, c)| !c.queued && c.ready(state))
            .map(|(index, _)| index)
            .collect();
        for index in ready {
            if let Some(mut connection) = self.state.connections.take(index) {
                connection.queued = true;
                self.again.push(index);
                self.state.connections.put(index, connection);
            }
        }
    }
}

/// Returns whether a client has a large request that has not run.
fn is_large(connection: &Connection) -> bool {
    to_u64(connection.input_held()) > HELD_OFF_BYTES
}

/// Returns the client with the largest complete request that waits for the server.
fn largest_waiting(state: &State) -> Option<&Connection> {
    let all = state.connections.iter().map(|(_, c)| c);
    all.filter(|c| is_large(c) && c.waits_for_server(state))
        .max_by_key(|c| c.input_held())
}

/// Returns whether the rest of `reader`'s request fits into `room`. If not, a complete request that waits must run first.
fn fits(reader: Option<&Connection>, room: u64) -> bool {
    reader.is_none_or(|c| to_u64(c.input_wanted()) <= room)
}

/// Chooses the client from which the loop reads while other clients must wait. The client `before` stays chosen while
/// its request is unfinished. Otherwise the client with the largest unfinished request is chosen, if any is large. A
/// client is not chosen if it waits for the server, must first read its replies, or has `CLIENT NO-EVICT ON`.
fn choose(state: &State, before: Option<u64>) -> Option<&Connection> {
    let all = state.connections.iter().map(|(_, c)| c);
    let waits = |c: &Connection| c.postponed || c.blocked || c.is_choked(state);
    let unfinished = all.filter(|c| is_large(c) && !waits(c) && !c.session.no_evict);
    let rank = |c: &&Connection| (before == Some(c.session.seat.id), c.input_held());
    unfinished.max_by_key(rank)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::ServerOptions;
    use crate::session::Block;
    use crate::testbed::{Testbed, connection, socket};

    const SHARE: u64 = 8 << 20;

    #[test]
    fn a_client_that_trickles_stalls_however_often_it_sends() {
        let begin = Instant::now();
        let mut reader = Reader::new(1, 0, begin);
        let mut stalled_at = None;
        for step in 1..40 {
            let now = begin + TICK * step;
            if reader.stalls(u64::from(step), SHARE, true, now) && stalled_at.is_none() {
                stalled_at = Some(now - begin);
            }
        }
        let at = stalled_at.expect("it stalls");
        assert!(at > STALLED && at <= STALLED + TICK * 2, "{at:?}");
    }

    #[test]
    fn progress_and_a_time_when_nobody_waits_begin_the_count_anew_and_a_long_round_counts_little() {
        let begin = Instant::now();
        let mut reader = Reader::new(1, 0, begin);
        let mut now = begin;
        for step in 1..100_u64 {
            now += TICK;
            let sent = step * progress(SHARE) / 8;
            assert!(!reader.stalls(sent, SHARE, true, now), "{step}");
        }
        let sent = 100 * progress(SHARE);
        for _ in 0..100 {
            now += TICK;
            assert!(!reader.stalls(sent, SHARE, false, now));
        }
        now += STALLED * 10;
        assert!(!reader.stalls(sent, SHARE, true, now));
    }

    #[test]
    fn a_client_that_waits_for_the_server_is_not_chosen_and_the_chosen_one_stays() {
        let bed = Testbed::new();
        let database = crate::engine::Options::new("");
        let mut state = bed.state(ServerOptions::default(), database);
        let sizes = [500_000, 400_000, 300_000, 200_000, 100_000];
        for (id, bytes) in (1..).zip(sizes) {
            let index = state.connections.reserve();
            let mut client = connection(&state, socket(), index, id);
            client.session.block = Some(Block {
                bytes,
                ..Block::default()
            });
            client.postponed = id == 1;
            client.blocked = id == 2;
            client.session.no_evict = id == 3;
            state.connections.put(index, client);
        }
        let id = |chosen: Option<&Connection>| chosen.map(|c| c.session.seat.id);
        assert_eq!(id(choose(&state, None)), Some(4));
        assert_eq!(id(choose(&state, Some(5))), Some(5), "it is not done yet");
        assert_eq!(id(choose(&state, Some(1))), Some(4));
        assert_eq!(id(choose(&state, Some(77))), Some(4), "that one is gone");
    }

    #[test]
    fn a_request_that_was_read_whole_waits_and_a_rest_that_does_not_fit_beside_it_is_not_read() {
        let bed = Testbed::new();
        let database = crate::engine::Options::new("");
        let mut state = bed.state(ServerOptions::default(), database);
        let index = state.connections.reserve();
        let mut client = connection(&state, socket(), index, 1);
        client.take(&mut state, b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$1000000\r\n");
        client.take(&mut state, &[b'v'; 100_000]);
        assert_eq!(client.input_wanted(), 900_002, "the end of the line, too");
        state.connections.put(index, client);
        let reader = choose(&state, None);
        assert!(!fits(reader, 0));
        assert!(largest_waiting(&state).is_none(), "nobody waits");
        let index = state.connections.reserve();
        let mut client = connection(&state, socket(), index, 2);
        client.session.block = Some(Block {
            bytes: 500_000,
            ..Block::default()
        });
        client.postponed = true;
        state.connections.put(index, client);
        let id = |chosen: Option<&Connection>| chosen.map(|c| c.session.seat.id);
        let reader = choose(&state, None);
        assert_eq!(id(reader), Some(1));
        assert_eq!(id(largest_waiting(&state)), Some(2));
        assert!(!fits(reader, 900_001) && fits(reader, 900_002));
    }
}

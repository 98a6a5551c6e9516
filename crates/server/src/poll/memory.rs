//! The clients' share of memory (`maxmemory-clients`), which is kept inside `maxmemory`.
//!
//! Data at its limit refuses writes and closes nobody. The share is for what clients leave behind:
//! unfinished requests, queued transactions, replies and messages that they do not read. From three
//! quarters on, clients with large buffers are not read from, but for the one whose request is the
//! largest: so that of many uploads some end. If that one has stopped sending, or the share is full,
//! its largest holder is disconnected. `CLIENT NO-EVICT ON` spares a client.

use super::EventLoop;
use crate::engine::MemoryUse;
use std::time::Duration;

/// A client that is read while others must wait has this long for its next bytes.
const STALLED: Duration = Duration::from_secs(1);

impl EventLoop {
    /// What clients' buffers take, and what they may take, bytes.
    fn client_memory(&self) -> Option<(u64, u64)> {
        let share = self.state.client_share?;
        let used = self.state.db()?.memory().get(MemoryUse::Clients);
        Some((used, share))
    }

    /// Disconnects the largest holders while the share is more than full. Called after each client
    /// that ran.
    pub(super) fn keep_share(&mut self) {
        while let Some((used, share)) = self.client_memory()
            && used > share
            && self.evict(used, share)
        {}
    }

    /// Disconnects the client with the largest buffers; `false` if all are spared.
    #[cold]
    fn evict(&mut self, used: u64, share: u64) -> bool {
        let clients = self.state.connections.iter();
        let largest = clients
            .filter(|(_, c)| !c.session.no_evict && c.accounted() > 0)
            .max_by_key(|(_, c)| c.accounted())
            .map(|(index, _)| index);
        let Some(index) = largest else { return false };
        let Some(connection) = self.state.connections.take(index) else {
            return false;
        };
        self.state.stats.evicted_clients += 1;
        (self.state.log)(&format!(
            "Client {} at {} is disconnected: its buffers take {} bytes, those of all clients {used} of {share} \
             (maxmemory-clients)",
            connection.session.seat.id,
            connection.session.peer,
            connection.accounted(),
        ));
        self.close(index, connection);
        true
    }

    /// Once a round: stops reading from clients with large buffers while the share is nearly full,
    /// and goes on afterwards.
    pub(super) fn squeeze(&mut self) {
        // Taken in any case: who lifts the limit must not leave clients unread.
        let before = self.state.squeezed.take();
        if let Some((used, share)) = self.client_memory()
            && used > share / 4 * 3
        {
            self.choose_reader();
            let now = self.state.now;
            let all = || self.state.connections.iter().map(|(_, c)| c);
            let stalled = all().any(|c| {
                Some(c.session.seat.id) == self.state.squeezed
                    && now.saturating_duration_since(c.session.active) > STALLED
            });
            let waits = all().any(|c| c.readable && c.held_off(&self.state));
            if stalled && waits && self.evict(used, share) {
                self.choose_reader();
            }
        }
        if before.is_some() && before != self.state.squeezed {
            self.resume_reading();
        }
    }

    /// Picks the client with the largest unfinished request as the one that is read all the same: one
    /// that waits for the server has nothing to be read.
    fn choose_reader(&mut self) {
        let clients = self.state.connections.iter();
        let unfinished = clients.filter(|(_, c)| !c.postponed && !c.blocked && !c.session.no_evict);
        let largest = unfinished.max_by_key(|(_, c)| c.input_held());
        self.state.squeezed = largest.map(|(_, c)| c.session.seat.id);
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

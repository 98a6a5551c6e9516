//! The number of each loop's clients. The loop that accepts connections gives each to the loop with the fewest.

use std::sync::atomic::{AtomicUsize, Ordering};

/// The clients of one loop.
#[derive(Debug, Default)]
struct Count {
    /// The clients that the loop has, and those that it is about to get.
    clients: AtomicUsize,
    /// The clients that have not authenticated.
    strangers: AtomicUsize,
    /// The clients in a TLS handshake.
    handshakes: AtomicUsize,
}

/// The clients of all loops.
#[derive(Debug)]
pub(crate) struct Crowd {
    loops: Vec<Count>,
}

impl Crowd {
    /// Returns the state of this number of loops, without clients.
    pub(crate) fn new(loops: usize) -> Crowd {
        let loops = (0..loops).map(|_| Count::default()).collect();
        Crowd { loops }
    }

    /// Returns the number of clients of all loops.
    pub(crate) fn clients(&self) -> usize {
        let each = self.loops.iter();
        each.map(|one| one.clients.load(Ordering::Relaxed)).sum()
    }

    /// Returns the number of clients of a loop, those included that it is about to get.
    pub(crate) fn clients_of(&self, event_loop: usize) -> usize {
        self.loops[event_loop].clients.load(Ordering::Relaxed)
    }

    /// Returns the number of clients of the other loops that have not authenticated.
    pub(crate) fn strangers_beside(&self, event_loop: usize) -> usize {
        let others = self.loops.iter().enumerate();
        let others = others.filter(|(at, _)| *at != event_loop);
        let each = others.map(|(_, one)| one.strangers.load(Ordering::Relaxed));
        each.sum()
    }

    /// Notes that a loop gets a client.
    pub(crate) fn join(&self, event_loop: usize) {
        self.loops[event_loop]
            .clients
            .fetch_add(1, Ordering::Relaxed);
    }

    /// Notes that a client has left a loop.
    pub(crate) fn leave(&self, event_loop: usize) {
        let before = self.loops[event_loop]
            .clients
            .fetch_sub(1, Ordering::Relaxed);
        debug_assert!(before > 0, "who leaves has joined");
    }

    /// Notes the number of a loop's strangers.
    pub(crate) fn note_strangers(&self, event_loop: usize, count: usize) {
        self.loops[event_loop]
            .strangers
            .store(count, Ordering::Relaxed);
    }

    /// Notes the number of a loop's TLS handshakes.
    pub(crate) fn note_handshakes(&self, event_loop: usize, count: usize) {
        self.loops[event_loop]
            .handshakes
            .store(count, Ordering::Relaxed);
    }

    /// Returns the loop with the fewest clients.
    pub(crate) fn emptiest(&self) -> usize {
        self.least(|one| one.clients.load(Ordering::Relaxed))
    }

    /// Returns the loop with the most strangers. There a newcomer may replace one.
    pub(crate) fn strangest(&self) -> usize {
        self.least(|one| usize::MAX - one.strangers.load(Ordering::Relaxed))
    }

    /// Returns the loop for a client that begins a TLS handshake: the one with the fewest clients, if it does not have
    /// `most` handshakes. Otherwise it is the loop with the fewest handshakes.
    pub(crate) fn calmest(&self, most: usize) -> usize {
        let handshakes = |one: &Count| one.handshakes.load(Ordering::Relaxed);
        let emptiest = self.emptiest();
        match handshakes(&self.loops[emptiest]) < most {
            true => emptiest,
            false => self.least(handshakes),
        }
    }

    fn least(&self, key: impl Fn(&Count) -> usize) -> usize {
        let each = self.loops.iter().enumerate();
        each.min_by_key(|(_, one)| key(one)).map_or(0, |(at, _)| at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_newcomer_goes_where_there_is_room() {
        let crowd = Crowd::new(3);
        for event_loop in [0, 0, 1, 2, 2] {
            crowd.join(event_loop);
        }
        assert_eq!((crowd.emptiest(), crowd.clients()), (1, 5));
        crowd.join(1);
        crowd.leave(2);
        assert_eq!(crowd.emptiest(), 2);
        assert_eq!(crowd.strangest(), 0, "there are none");
        crowd.note_strangers(2, 1);
        let beside = [0, 2].map(|own| crowd.strangers_beside(own));
        assert_eq!((crowd.strangest(), beside), (2, [1, 0]));
        crowd.note_handshakes(0, 3);
        crowd.note_handshakes(1, 2);
        crowd.note_handshakes(2, 4);
        assert_eq!([3, 4, 5].map(|most| crowd.calmest(most)), [1, 1, 2]);
    }
}

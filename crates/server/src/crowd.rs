//! The number of each loop's clients. The loop that accepts connections gives each to the loop with the fewest.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

/// The clients of one loop.
#[derive(Debug, Default)]
struct Count {
    /// The clients that the loop has, and those that it is about to get.
    clients: AtomicUsize,
    /// The clients that had not authenticated when they were last checked.
    strangers: AtomicUsize,
    /// The clients in a TLS handshake.
    handshakes: AtomicUsize,
    /// The memory of the client with the largest buffers, bytes. 0 while the clients' share of memory is not nearly full.
    largest: AtomicU64,
    /// True if a client with large buffers waits to be read, because another client is read alone.
    waits: AtomicBool,
    /// True if a complete large request waits until it may run.
    parked: AtomicBool,
}

/// The clients of all loops.
#[derive(Debug)]
pub(crate) struct Crowd {
    loops: Vec<Count>,
    /// The index of the loop with the only client whose large request is read, while the clients' share of memory is
    /// nearly full. [`NOBODY`]: no loop has one.
    reader: AtomicUsize,
}

/// The index of no loop.
const NOBODY: usize = usize::MAX;

impl Crowd {
    /// Returns the state of this number of loops, without clients.
    pub(crate) fn new(loops: usize) -> Crowd {
        let loops = (0..loops).map(|_| Count::default()).collect();
        Crowd {
            loops,
            reader: AtomicUsize::new(NOBODY),
        }
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

    /// Returns the number of clients of the other loops that had not authenticated when they were last checked.
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

    /// Notes the memory of a loop's client with the largest buffers, bytes. Returns the index of another loop with a
    /// client that has larger buffers.
    pub(crate) fn larger(&self, event_loop: usize, bytes: u64) -> Option<usize> {
        self.loops[event_loop]
            .largest
            .store(bytes, Ordering::Relaxed);
        let others = self.loops.iter().enumerate();
        let others = others.filter(|(at, _)| *at != event_loop);
        let (at, most) = others
            .map(|(at, one)| (at, one.largest.load(Ordering::Relaxed)))
            .max_by_key(|(_, bytes)| *bytes)?;
        (most > bytes).then_some(at)
    }

    /// Notes whether clients of a loop wait to be read. Returns whether clients of any loop wait.
    pub(crate) fn any_waits(&self, event_loop: usize, waits: bool) -> bool {
        self.loops[event_loop].waits.store(waits, Ordering::Relaxed);
        let mut all = self.loops.iter();
        all.any(|one| one.waits.load(Ordering::Relaxed))
    }

    /// Notes whether a complete large request of a loop waits until it may run.
    pub(crate) fn note_parked(&self, event_loop: usize, parked: bool) {
        self.loops[event_loop]
            .parked
            .store(parked, Ordering::Relaxed);
    }

    /// Returns whether a complete large request of another loop waits until it may run.
    pub(crate) fn parked_beside(&self, event_loop: usize) -> bool {
        let mut all = self.loops.iter().enumerate();
        all.any(|(at, one)| at != event_loop && one.parked.load(Ordering::Relaxed))
    }

    /// Returns whether a loop may read a large request while the clients' share of memory is nearly full. One loop may,
    /// until it calls [`end_reading`](Self::end_reading).
    pub(crate) fn may_read(&self, event_loop: usize) -> bool {
        let (relaxed, nobody) = (Ordering::Relaxed, NOBODY);
        let taken = self
            .reader
            .compare_exchange(nobody, event_loop, relaxed, relaxed);
        taken.is_ok() || taken == Err(event_loop)
    }

    /// Ends the reading of a loop's large request, if the loop reads one.
    pub(crate) fn end_reading(&self, event_loop: usize) {
        if self.reader.load(Ordering::Relaxed) == event_loop {
            self.reader.store(NOBODY, Ordering::Relaxed);
        }
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

    #[test]
    fn one_loop_reads_and_the_largest_client_of_all_leaves() {
        let crowd = Crowd::new(2);
        let may = |event_loop| crowd.may_read(event_loop);
        assert_eq!([may(1), may(1), may(0)], [true, true, false]);
        crowd.end_reading(0);
        assert!(!crowd.may_read(0));
        crowd.end_reading(1);
        assert!(crowd.may_read(0));
        assert_eq!(crowd.larger(0, 5), None);
        assert_eq!(crowd.larger(1, 4), Some(0));
        assert_eq!(crowd.larger(1, 6), None);
        assert_eq!(crowd.larger(0, 5), Some(1));
        assert!(!crowd.any_waits(0, false));
        assert!(crowd.any_waits(1, true) && crowd.any_waits(0, false));
        assert!(!crowd.any_waits(1, false));
        crowd.note_parked(1, true);
        assert!(crowd.parked_beside(0) && !crowd.parked_beside(1));
    }
}

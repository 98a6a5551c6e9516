//! The loops' portions of the clients' share of memory, while that share is nearly full: see `poll/memory.rs`.
//!
//! Each loop notes its own portion in each round. The figures of the others may be a round old.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

/// The portion of one loop.
#[derive(Debug, Default)]
struct Portion {
    largest: AtomicU64,
    waits: AtomicBool,
    parked: AtomicBool,
}

/// The portions of all loops.
#[derive(Debug)]
pub(crate) struct Pressure {
    loops: Vec<Portion>,
    /// The index of the loop that reads a large request. [`NOBODY`]: no loop does.
    reader: AtomicUsize,
}

/// The index of no loop.
const NOBODY: usize = usize::MAX;

impl Pressure {
    /// Returns the state of this number of loops, without large requests.
    pub(crate) fn new(loops: usize) -> Pressure {
        Pressure {
            loops: (0..loops).map(|_| Portion::default()).collect(),
            reader: AtomicUsize::new(NOBODY),
        }
    }

    /// Notes that the share is not nearly full.
    pub(crate) fn end(&self, event_loop: usize) {
        self.end_reading(event_loop);
        self.note_largest(event_loop, 0);
        self.note_waits(event_loop, false);
    }

    /// Notes the memory of the loop's client with the largest buffers, bytes.
    pub(crate) fn note_largest(&self, event_loop: usize, bytes: u64) {
        let part = &self.loops[event_loop];
        part.largest.store(bytes, Ordering::Relaxed);
    }

    /// Returns the index of another loop that has a client with more than twice the buffers of any client of this loop.
    /// That loop needs time to disconnect its client. So a loop with a client of about this size does not wait for it.
    pub(crate) fn larger(&self, event_loop: usize) -> Option<usize> {
        let bytes = |one: &Portion| one.largest.load(Ordering::Relaxed);
        let all = self.loops.iter().enumerate();
        let (at, most) = all.max_by_key(|(_, one)| bytes(one))?;
        (bytes(most) / 2 > bytes(&self.loops[event_loop])).then_some(at)
    }

    /// Notes whether clients of a loop wait to be read, because another client is read alone.
    pub(crate) fn note_waits(&self, event_loop: usize, waits: bool) {
        let part = &self.loops[event_loop];
        part.waits.store(waits, Ordering::Relaxed);
    }

    /// Returns whether clients of any loop wait to be read.
    pub(crate) fn any_waits(&self) -> bool {
        let mut all = self.loops.iter();
        all.any(|one| one.waits.load(Ordering::Relaxed))
    }

    /// Notes whether a complete large request of a loop waits until it may run.
    pub(crate) fn note_parked(&self, event_loop: usize, parked: bool) {
        let part = &self.loops[event_loop];
        part.parked.store(parked, Ordering::Relaxed);
    }

    /// Returns whether a complete large request of any loop waits until it may run.
    pub(crate) fn any_parked(&self) -> bool {
        let mut all = self.loops.iter();
        all.any(|one| one.parked.load(Ordering::Relaxed))
    }

    /// Returns whether a loop may read a large request. One loop may, until it calls [`end_reading`](Self::end_reading).
    pub(crate) fn may_read(&self, event_loop: usize) -> bool {
        let relaxed = Ordering::Relaxed;
        let taken = self
            .reader
            .compare_exchange(NOBODY, event_loop, relaxed, relaxed);
        taken.is_ok() || taken == Err(event_loop)
    }

    /// Ends the reading of a loop's large request, if the loop reads one.
    pub(crate) fn end_reading(&self, event_loop: usize) {
        if self.reader.load(Ordering::Relaxed) == event_loop {
            self.reader.store(NOBODY, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_loop_reads_and_the_largest_client_of_all_leaves() {
        let pressure = Pressure::new(2);
        assert_eq!(
            [1, 1, 0].map(|at| pressure.may_read(at)),
            [true, true, false]
        );
        pressure.end_reading(0);
        assert!(!pressure.may_read(0), "the other still reads");
        pressure.end(1);
        assert!(pressure.may_read(0));
        pressure.note_largest(0, 10);
        pressure.note_largest(1, 4);
        assert_eq!([0, 1].map(|at| pressure.larger(at)), [None, Some(0)]);
        pressure.note_largest(1, 5);
        assert_eq!([0, 1].map(|at| pressure.larger(at)), [None, None]);
        pressure.note_waits(1, true);
        pressure.note_parked(1, true);
        assert!(pressure.any_waits() && pressure.any_parked());
        pressure.end(1);
        assert!(!pressure.any_waits() && pressure.any_parked());
    }
}

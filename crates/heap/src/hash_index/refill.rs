//! Filling new arrays with the entries of old ones. This is how an index grows, shrinks, is cut, is joined, and is
//! built from a sidecar.

use std::hint::black_box;
use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::accesses::{self, NEVER};
use crate::hash_index::range::{EMPTY, Extent, home};
use crate::hash_index::work;

/// A moving entry: its inverted value as in an array, its spread hash, and the second of its last use.
pub(super) type Moving = (u64, u64, u32);

/// An array that is being filled. Entries arrive nearly in the order of their homes. So the run of taken places that
/// was filled last is remembered, and an entry whose home is in this run is put behind it without a search. However
/// crowded the array becomes, each entry costs about one step.
pub(super) struct Refill {
    pub(super) extent: Extent,
    pub(super) places: Box<[u64]>,
    /// The access times of the entries, if any are noted.
    pub(super) seconds: Option<Box<[AtomicU32]>>,
    pub(super) len: u32,
    /// The distance of the farthest entry from its home.
    pub(super) farthest: usize,
    /// The latest run of taken places without a gap. Places beyond the array's end continue at its beginning.
    run: Range<usize>,
}

impl Refill {
    pub(super) fn new(extent: Extent, places: usize, noted: bool) -> Refill {
        assert!(
            u32::try_from(places).is_ok(),
            "a range of {places} places: homes are computed for less than 2^32"
        );
        Refill {
            extent,
            places: empty(places),
            seconds: noted.then(|| accesses::unnoted(places)),
            len: 0,
            farthest: 0,
            run: 0..0,
        }
    }

    /// Puts an entry of the extent in the first empty place from its home on.
    fn put(&mut self, (raw, spread, second): Moving) {
        debug_assert!(self.extent.has(spread), "an entry goes to its own range");
        let home = home(spread, self.extent.depth, self.places.len());
        self.len += 1;
        debug_assert!(
            (self.len as usize) < self.places.len(),
            "an empty place is left"
        );
        if !self.run.contains(&home) {
            self.run = home..home;
        }
        loop {
            work::step();
            let at = self.run.end % self.places.len();
            self.run.end += 1;
            if self.places[at] == EMPTY {
                self.places[at] = raw;
                self.farthest = self.farthest.max(self.run.end - 1 - home);
                if let Some(seconds) = self.seconds.as_ref().filter(|_| second != NEVER) {
                    seconds[at].store(second, Ordering::Relaxed);
                }
                return;
            }
        }
    }
}

/// Fills arrays with entries. The arrays' extents follow each other, and the entries arrive nearly in the order of
/// their hashes.
pub(super) fn fill(mut refills: Vec<Refill>, entries: impl Iterator<Item = Moving>) -> Vec<Refill> {
    let mut at = 0;
    for entry in entries {
        if !refills[at].extent.has(entry.1) {
            let before = refills.partition_point(|refill| refill.extent.first() <= entry.1);
            at = before.saturating_sub(1);
        }
        refills[at].put(entry);
    }
    refills
}

/// Returns an array of empty places whose memory has been written. If memory is read before it is written, the kernel
/// maps it twice, and the second time interrupts every other processor.
fn empty(places: usize) -> Box<[u64]> {
    // If the memory only had to be zero, the compiler would use an allocation that is not written.
    let mut empty = black_box(Vec::with_capacity(places));
    empty.resize(places, EMPTY);
    assert_eq!(empty.capacity(), places, "an array has no room to spare");
    empty.into_boxed_slice()
}

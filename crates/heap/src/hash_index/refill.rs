//! Filling new arrays with the entries of old arrays. This is how an index grows, shrinks, is cut, is joined, and is
//! built from a sidecar.

use std::hint::black_box;
use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::accesses::{self, NEVER};
use crate::hash_index::range::{EMPTY, Extent, home};
use crate::hash_index::work;

/// A moving entry: the inverted value from the array, the spread hash, and the time of the last use in seconds.
pub(super) type Moving = (u64, u64, u32);

/// An array that is being filled. Entries arrive nearly in the order of their homes. So `run` remembers the consecutive
/// taken places that end with the newest entry. If the next entry's home is among these places, the search for an empty
/// place starts directly after them. So each entry costs about one step, even in a crowded array.
pub(super) struct Refill {
    pub(super) extent: Extent,
    pub(super) places: Box<[u64]>,
    /// The access times of the entries, if any are noted.
    pub(super) seconds: Option<Box<[AtomicU32]>>,
    pub(super) len: u32,
    /// The distance of the farthest entry from its home.
    pub(super) farthest: usize,
    /// The consecutive taken places that end with the newest entry. If the range extends beyond the array's end, it
    /// continues at the array's beginning.
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

    /// Adds an entry, which must belong to the extent. The entry gets the first empty place at or after its home.
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

/// Fills arrays with entries. The arrays' extents are adjacent, and the entries arrive nearly in the order of their
/// hashes.
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

/// Returns an array of empty places, and writes all of its memory. If memory is read before it is first written, the
/// kernel maps it twice. The second mapping interrupts every other processor.
fn empty(places: usize) -> Box<[u64]> {
    // Without `black_box`, the compiler would allocate zeroed memory and not write it.
    let mut empty = black_box(Vec::with_capacity(places));
    empty.resize(places, EMPTY);
    assert_eq!(empty.capacity(), places, "an array has no room to spare");
    empty.into_boxed_slice()
}

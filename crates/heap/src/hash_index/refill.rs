//! Arrays that are filled with the entries of others. An index grows, shrinks, is cut and joined, and is made from a
//! sidecar in this way.

use std::hint::black_box;
use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::accesses::{self, NEVER};
use crate::hash_index::range::{EMPTY, Extent, home};
use crate::hash_index::work;

/// An entry that moves: inverted like in an array, its spread hash, and the second of its last use.
pub(super) type Moving = (u64, u64, u32);

/// An array in the making. Entries come nearly in the order of their homes. So the run that was filled last is
/// remembered, and an entry at home in it goes behind it without a search. However crowded the array becomes, each
/// entry costs about one step.
pub(super) struct Refill {
    pub(super) extent: Extent,
    pub(super) places: Box<[u64]>,
    /// The accesses of the entries, if any are noted.
    pub(super) seconds: Option<Box<[AtomicU32]>>,
    pub(super) len: u32,
    /// The distance of the farthest entry from its home.
    pub(super) farthest: usize,
    /// The places that are taken without a gap; those beyond the array's end are at its beginning.
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

    /// Puts an entry of the extent where it belongs.
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

/// Fills arrays whose extents follow each other with entries that come nearly in the order of their
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

/// Returns an array of empty places that has been written. Memory that is read before it is written is mapped twice,
/// and the second time interrupts every other processor.
fn empty(places: usize) -> Box<[u64]> {
    // For zeroed memory the compiler would use an allocation that is not written.
    let mut empty = black_box(Vec::with_capacity(places));
    empty.resize(places, EMPTY);
    assert_eq!(empty.capacity(), places, "an array has no room to spare");
    empty.into_boxed_slice()
}

//! The entries of one range of hashes: an array with open addressing and linear probing.
//!
//! Invariants: an entry lies between its home and the first empty place after it. No place holds an entry twice. At
//! least one place is empty, if there are any.

use perdura_base::num::to_usize;

use crate::accesses::{ACCESS_BYTES, Accesses, NEVER};
use crate::entry::Entry;
use crate::hash_index::refill::{Moving, Refill};
use crate::hash_index::work;

/// The value of an empty place. Entries are kept inverted, so that fresh zeroed memory is an empty table. The entry of
/// all ones, which this excludes, would name slot 1023, which no page has.
pub(super) const EMPTY: u64 = 0;
pub(super) const PLACES_MIN: usize = 8;
/// The distance of an entry from its home that shows a crowd which chance does not make, in an array that is four
/// fifths full.
const CROWDED: usize = 512;
/// Like `CROWDED`, for an array that is at most half full.
const CROWDED_WHERE_EMPTY: usize = 128;
/// The number of places that a hint looks at.
const NEAR: usize = 16;
/// The most places for each entry that an array may have because it is crowded.
pub(super) const SPARSE_MAX: usize = 16;

/// The spread hashes that share their top bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Extent {
    /// The top half of the first hash.
    pub(super) start: u32,
    /// The number of bits that all of them share.
    pub(super) depth: u8,
}

impl Extent {
    /// All hashes.
    pub(super) const ALL: Extent = Extent { start: 0, depth: 0 };

    /// Returns the first of the hashes.
    pub(super) fn first(self) -> u64 {
        u64::from(self.start) << 32
    }

    /// Returns whether a spread hash is one of them.
    pub(super) fn has(self, spread: u64) -> bool {
        let differ = spread ^ self.first();
        differ.leading_zeros() >= u32::from(self.depth)
    }

    /// Returns the lower and the upper half.
    pub(super) fn halves(self) -> [Extent; 2] {
        debug_assert!(self.depth < 31, "an extent that can be cut");
        let depth = self.depth + 1;
        let upper = self.start | 1 << (32 - u32::from(depth));
        [self.start, upper].map(|start| Extent { start, depth })
    }

    /// Returns the extent of which this is a half.
    pub(super) fn whole(self) -> Option<Extent> {
        let depth = self.depth.checked_sub(1)?;
        let start = self.start & !(1 << (31 - u32::from(depth)));
        Some(Extent { start, depth })
    }
}

/// The entries of one extent.
pub(crate) struct Range {
    pub(super) extent: Extent,
    places: Box<[u64]>,
    len: u32,
    /// The number of entries below which the array may shrink.
    shrink_below: u32,
    /// The times at which the entries were used. Only the index of keys has them, and only if they are asked for.
    accesses: Option<Accesses>,
}

impl Range {
    /// Returns a range without entries.
    pub(super) fn new(extent: Extent) -> Range {
        Range {
            extent,
            places: Box::default(),
            len: 0,
            shrink_below: u32::MAX,
            accesses: None,
        }
    }

    /// Returns a range of an array that was filled. Its accesses continue like those of another range.
    pub(super) fn of(refill: Refill, like: &Range) -> Range {
        assert!(
            refill.len == 0 || to_usize(refill.len.into()) < refill.places.len(),
            "{} entries and an empty place in an array of {}",
            refill.len,
            refill.places.len()
        );
        Range {
            extent: refill.extent,
            places: refill.places,
            len: refill.len,
            shrink_below: u32::MAX,
            accesses: like.accesses.as_ref().map(|a| a.moved(refill.seconds)),
        }
    }

    /// Returns the top half of its lowest hash.
    pub(crate) fn start(&self) -> u32 {
        self.extent.start
    }

    /// Returns the number of leading bits that all its hashes share.
    pub(crate) fn depth(&self) -> u32 {
        self.extent.depth.into()
    }

    pub(crate) fn len(&self) -> usize {
        to_usize(self.len.into())
    }

    pub(crate) fn place_count(&self) -> usize {
        self.places.len()
    }

    /// Returns the bytes that a place takes, with its access.
    pub(super) fn place_bytes(&self) -> usize {
        size_of::<u64>() + self.accesses.as_ref().map_or(0, |_| ACCESS_BYTES)
    }

    pub(crate) fn place(&self, place: usize) -> Option<Entry> {
        let raw = self.places.get(place).filter(|raw| **raw != EMPTY);
        raw.map(|raw| Entry(!raw))
    }

    /// Returns the first taken place from `from` on.
    pub(super) fn next_taken(&self, from: usize) -> Option<usize> {
        if self.len == 0 {
            return None;
        }
        (from..self.places.len()).find(|place| self.places[*place] != EMPTY)
    }

    pub(super) fn note_accesses(&mut self, since: Option<u32>) {
        self.accesses = since.map(Accesses::new);
    }

    /// Returns whether any access has been noted.
    pub(super) fn has_accesses(&self) -> bool {
        self.accesses.as_ref().is_some_and(Accesses::is_any)
    }

    pub(super) fn note_access(&self, place: usize, second: u32) {
        if let Some(accesses) = &self.accesses {
            accesses.note(place, self.places.len(), second);
        }
    }

    pub(super) fn accessed(&self, place: usize) -> Option<u32> {
        self.accesses.as_ref().map(|accesses| accesses.last(place))
    }

    /// Begins to fetch the access of the entry that belongs to a spread hash, so that it comes from memory while the
    /// entry does. Otherwise noting it later would wait for it: the release of the latch is an atomic instruction,
    /// which waits for every store before it.
    #[inline]
    pub(super) fn fetch_access(&self, spread: u64) {
        if let Some(accesses) = &self.accesses
            && !self.places.is_empty()
        {
            std::hint::black_box(accesses.noted(self.home(spread)));
        }
    }

    /// Loads the place that belongs to a spread hash, and its access. The result means nothing.
    #[inline]
    pub(crate) fn touch(&self, spread: u64) -> u64 {
        let home = self.home(spread);
        debug_assert!(
            home < self.places.len().max(1),
            "a home is in the array, if there is one"
        );
        let accesses = self.accesses.as_ref();
        let second = accesses.filter(|_| home < self.places.len());
        self.places.get(home).copied().unwrap_or(EMPTY)
            ^ second.map_or(0, |accesses| u64::from(accesses.noted(home)))
    }

    /// Returns the entries that a search for a spread hash looks at first.
    #[inline]
    pub(crate) fn near(&self, spread: u64) -> impl Iterator<Item = Entry> + use<'_> {
        let places = self.places.iter().skip(self.home(spread)).take(NEAR);
        places
            .take_while(|raw| **raw != EMPTY)
            .map(|raw| Entry(!raw))
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = Entry> + use<'_> {
        let taken = self.places.iter().filter(|raw| **raw != EMPTY);
        taken.map(|raw| Entry(!raw))
    }

    /// Returns the entries as they move to other arrays.
    pub(super) fn moving(&self, salt: u64) -> impl Iterator<Item = Moving> + use<'_> {
        let taken = self.places.iter().enumerate();
        let taken = taken.filter(|(_, raw)| **raw != EMPTY);
        taken.map(move |(place, raw)| {
            let second = self.accesses.as_ref().map_or(NEVER, |a| a.noted(place));
            (*raw, Entry(!raw).spread(salt), second)
        })
    }

    /// Returns the place at which the search for a spread hash begins.
    #[inline]
    pub(crate) fn home(&self, spread: u64) -> usize {
        home(spread, self.extent.depth, self.places.len())
    }

    fn after(&self, place: usize) -> usize {
        if place + 1 == self.places.len() {
            0
        } else {
            place + 1
        }
    }

    /// Returns the distance of `to` behind `from`, around the end.
    fn distance(&self, from: usize, to: usize) -> usize {
        if to >= from {
            to - from
        } else {
            to + self.places.len() - from
        }
    }

    /// Returns the place of the first entry near the spread hash for which `is` holds.
    #[inline]
    pub(super) fn search(&self, spread: u64, mut is: impl FnMut(Entry) -> bool) -> Option<usize> {
        if self.places.is_empty() {
            return None;
        }
        work::search();
        let mut place = self.home(spread);
        loop {
            let raw = self.places[place];
            if raw == EMPTY {
                return None;
            }
            if is(Entry(!raw)) {
                return Some(place);
            }
            work::step();
            place = self.after(place);
        }
    }

    /// Returns whether `more` further entries leave a fifth of the places empty.
    pub(super) fn has_room(&self, more: usize) -> bool {
        (self.len() + more) * 5 <= self.places.len() * 4
    }

    /// Returns whether less than a fifth of the places is used, in an array worth shrinking.
    pub(super) fn is_sparse(&self) -> bool {
        self.places.len() > 64 && self.len() * 5 < self.places.len() && self.len < self.shrink_below
    }

    /// Keeps the array until half of the entries are gone: a smaller array would be crowded.
    pub(super) fn keep(&mut self) {
        self.shrink_below = self.len / 2;
    }

    /// Returns whether an entry this far from its home shows that the array is filled unevenly, and should get more
    /// places than it needs.
    pub(super) fn wants_more(&self, distance: usize) -> bool {
        distance >= CROWDED_WHERE_EMPTY
            && (distance >= CROWDED || self.len() * 2 <= self.places.len())
            && self.places.len() < self.len() * SPARSE_MAX
    }

    /// Puts an entry that is not in the array in the first empty place from its home on. Returns the distance.
    pub(super) fn put(&mut self, entry: Entry, spread: u64, second: u32) -> usize {
        debug_assert!(self.extent.has(spread), "an entry is in its own range");
        debug_assert!(self.has_room(1), "a search for an empty place ends soon");
        let home = self.home(spread);
        let mut place = home;
        while self.places[place] != EMPTY {
            work::step();
            place = self.after(place);
        }
        self.places[place] = !entry.0;
        self.len += 1;
        self.note_access(place, second);
        self.distance(home, place)
    }

    /// Removes an entry. Returns whether it was there. It closes the gap, so that there are no tombstones.
    pub(super) fn remove(&mut self, entry: Entry, spread: u64, salt: u64) -> bool {
        let Some(mut gap) = self.search(spread, |e| e == entry) else {
            return false;
        };
        debug_assert!(self.len > 0, "an entry that was found is counted");
        let mut place = gap;
        loop {
            place = self.after(place);
            let raw = self.places[place];
            if raw == EMPTY {
                break;
            }
            work::step();
            let home = self.home(Entry(!raw).spread(salt));
            if self.distance(home, place) >= self.distance(gap, place) {
                self.places[gap] = raw;
                if let Some(accesses) = &self.accesses {
                    accesses.note(gap, self.places.len(), accesses.noted(place));
                }
                gap = place;
            }
        }
        self.places[gap] = EMPTY;
        self.len -= 1;
        true
    }

    pub(super) fn clear(&mut self) {
        self.places.fill(EMPTY);
        self.len = 0;
        self.shrink_below = u32::MAX;
        self.accesses = self.accesses.as_ref().map(|a| a.moved(None));
    }
}

impl Refill {
    /// Returns whether an array that was made smaller is as quick to read as chance allows.
    pub(super) fn is_even(&self) -> bool {
        self.farthest < CROWDED_WHERE_EMPTY
    }
}

/// Returns the number of places of an array that `entries` entries fill to four fifths.
pub(super) fn roomy(entries: usize) -> usize {
    PLACES_MIN.max(entries + entries / 4 + 1)
}

/// Returns the place of a spread hash in an array of `places` places. It is the bits that follow those that all hashes
/// of the range share, scaled to the array.
#[inline]
pub(super) fn home(spread: u64, depth: u8, places: usize) -> usize {
    let places = u64::try_from(places).unwrap_or(0);
    usize::try_from((((spread << depth) >> 32) * places) >> 32).unwrap_or(0)
}

//! The hash index: arrays of eight-byte entries, one for each range of hashes.
//!
//! A lookup of a random key waits for memory, so its cost is the number of cache lines that it needs one after the
//! other. A table with separate control bytes needs two lines and then the row's. Here the entry has enough bits of the
//! hash to reject other keys, so that one line and then the row's suffice. An array that is four fifths full grows by
//! half. It takes ten to fifteen bytes per row.
//!
//! No step of growth is long. An array that would have more than `RANGE_PLACES` places is cut in two instead, each for
//! half of its hashes. A directory finds a hash's array by its top bits (extendible hashing: Fagin, Nievergelt,
//! Pippenger and Strong, 1979). The two halves get unequal room, and so do the arrays of an index that is built at
//! once. The reason is that hashes are evenly distributed: arrays with equal room would all be full at the same time. A
//! small index is one array without a directory.
//!
//! Places are in the order of the spread hash. This makes cursors possible. It also makes an array sensitive to entries
//! that are inserted or removed in that order: one part of it becomes crowded and another one empty. So each index
//! spreads hashes by a *salt*, and the order of one index is random in another. One case remains: a client that removes
//! or adds names in exactly the order in which a scan of the same index returned them. The array then grows, or is cut,
//! before it is full, up to `SPARSE_MAX` places an entry. It is not made smaller as long as that would crowd it.
//!
//! The index can also keep the second of each entry's last [access](crate::accesses), which moves with the entry.
//!
//! Invariants: the ranges follow each other and cover all hashes. For each value of the top bits, the directory has the
//! number of the range with these hashes. An entry is in the range of its hash. The invariants of an array are in
//! `range`.

mod grow;
mod range;
mod refill;
mod work;

use crate::accesses::NEVER;
use crate::entry::Entry;
use perdura_base::checksum::mix64;
use perdura_base::num::{to_u64, to_usize};
use range::Extent;
pub(crate) use range::Range;

/// The number of places above which an array is cut in two instead of grown. A cut takes a third of a millisecond.
const RANGE_PLACES: usize = 32 << 10;

/// The place of an entry. It is valid until the next insertion or removal. Places are in the order of the hashes,
/// except for entries that were pushed around the end of their array.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    range: u32,
    at: u32,
}

impl Place {
    pub(crate) const FIRST: Place = Place { range: 0, at: 0 };

    fn new(range: usize, at: usize) -> Place {
        let number =
            |n: usize| u32::try_from(n).expect("ranges and their places are less than 2^32");
        Place {
            range: number(range),
            at: number(at),
        }
    }

    /// Returns the next place, even if it is beyond the array's end.
    pub(crate) fn next(self) -> Place {
        Place {
            at: self.at + 1,
            ..self
        }
    }

    fn range(self) -> usize {
        to_usize(self.range.into())
    }

    fn at(self) -> usize {
        to_usize(self.at.into())
    }
}

pub(crate) struct HashIndex {
    salt: u64,
    ranges: Ranges,
}

enum Ranges {
    One(Range),
    Many(Many),
}

/// Ranges with their directory.
struct Many {
    /// The ranges, in the order of their hashes.
    ranges: Vec<Range>,
    /// The number of the range that contains a hash, indexed by the top `depth` bits of the hash.
    directory: Vec<u32>,
    depth: u8,
    /// The sums of the entries and of the places of all ranges, and the number of places of the widest range.
    len: usize,
    places: usize,
    widest: usize,
}

impl Many {
    #[inline]
    fn of(&self, spread: u64) -> usize {
        let slot = spread >> (64 - u32::from(self.depth));
        let slot = usize::try_from(slot).unwrap_or(0);
        to_usize(self.directory[slot].into())
    }
}

impl HashIndex {
    /// Returns an empty index that spreads hashes by a salt.
    pub(crate) fn new(salt: u64) -> HashIndex {
        HashIndex {
            salt,
            ranges: Ranges::One(Range::new(Extent::ALL)),
        }
    }

    /// Returns the salt that spreads its hashes.
    pub(crate) fn salt(&self) -> u64 {
        self.salt
    }

    fn ranges(&self) -> &[Range] {
        match &self.ranges {
            Ranges::One(range) => std::slice::from_ref(range),
            Ranges::Many(many) => &many.ranges,
        }
    }

    /// Returns the range that has a spread hash.
    #[inline]
    pub(crate) fn range_of(&self, spread: u64) -> &Range {
        self.range(spread).1
    }

    /// Returns the range that has a spread hash, and its number.
    #[inline]
    fn range(&self, spread: u64) -> (usize, &Range) {
        match &self.ranges {
            Ranges::One(range) => (0, range),
            Ranges::Many(many) => {
                let number = many.of(spread);
                (number, &many.ranges[number])
            }
        }
    }

    #[inline]
    fn range_mut(&mut self, spread: u64) -> (usize, &mut Range) {
        match &mut self.ranges {
            Ranges::One(range) => (0, range),
            Ranges::Many(many) => {
                let number = many.of(spread);
                (number, &mut many.ranges[number])
            }
        }
    }

    /// Counts an entry that was inserted into or removed from an index of many ranges. An index of one range counts by
    /// itself.
    #[inline]
    fn count(&mut self, came: bool) {
        if let Ranges::Many(many) = &mut self.ranges {
            many.len = if came { many.len + 1 } else { many.len - 1 };
        }
    }

    /// Changes a range in place. `change` must not add or remove entries.
    fn change<R>(&mut self, number: usize, change: impl FnOnce(&mut Range) -> R) -> R {
        match &mut self.ranges {
            Ranges::One(range) => change(range),
            Ranges::Many(many) => {
                let range = &mut many.ranges[number];
                let (len, places) = (range.len(), range.place_count());
                let result = change(range);
                assert_eq!(range.len(), len, "the entries stay");
                many.places = many.places - places + range.place_count();
                many.widest = many.widest.max(range.place_count());
                result
            }
        }
    }

    fn change_all(&mut self, mut change: impl FnMut(&mut Range)) {
        for number in 0..self.ranges().len() {
            self.change(number, &mut change);
        }
    }
    pub(crate) fn len(&self) -> usize {
        match &self.ranges {
            Ranges::One(range) => range.len(),
            Ranges::Many(many) => many.len,
        }
    }

    /// Returns the number of places, taken or not.
    pub(crate) fn place_count(&self) -> usize {
        match &self.ranges {
            Ranges::One(range) => range.place_count(),
            Ranges::Many(many) => many.places,
        }
    }

    /// Returns the entry in a place.
    #[inline]
    pub(crate) fn place(&self, place: Place) -> Option<Entry> {
        self.ranges().get(place.range())?.place(place.at())
    }

    /// Returns the first taken place from `from` on.
    pub(crate) fn next_taken(&self, from: Place) -> Option<Place> {
        let mut at = from.at();
        for (number, range) in self.ranges().iter().enumerate().skip(from.range()) {
            if let Some(taken) = range.next_taken(at) {
                return Some(Place::new(number, taken));
            }
            at = 0;
        }
        None
    }

    /// Returns a place chosen by the random number `r`; all places are equally likely. The place may not exist in its
    /// range. Returns `None` if the index has no place.
    pub(crate) fn random_place(&self, r: u64) -> Option<Place> {
        let (r, ranges) = (mix64(r), to_u64(self.ranges().len()));
        let widest = match &self.ranges {
            Ranges::One(range) => range.place_count(),
            Ranges::Many(many) => many.widest,
        };
        let at = mix64(r).checked_rem(to_u64(widest))?;
        Some(Place::new(to_usize(r % ranges), to_usize(at)))
    }

    /// Returns the ranges, beginning with the range that has the spread hash.
    pub(crate) fn ranges_from(&self, spread: u64) -> impl Iterator<Item = &Range> {
        self.ranges()[self.range(spread).0..].iter()
    }

    /// Returns the bytes of the entries' arrays, of the accesses' arrays, and of the directory.
    pub(crate) fn bytes(&self) -> usize {
        let arrays = self.place_count() * self.ranges()[0].place_bytes();
        match &self.ranges {
            Ranges::One(_) => arrays,
            Ranges::Many(many) => {
                arrays + size_of_val(&*many.directory) + size_of_val(&*many.ranges)
            }
        }
    }

    /// Keeps a time of access for each entry from now on. Present entries count as used at `since`. `None`: keeps no
    /// times.
    pub(crate) fn note_accesses(&mut self, since: Option<u32>) {
        self.change_all(|range| range.note_accesses(since));
    }

    /// Notes the time at which the entry in a place was used.
    pub(crate) fn note_access(&self, place: Place, second: u32) {
        self.ranges()[place.range()].note_access(place.at(), second);
    }

    /// Returns the time at which the entry in a place was used, if that is noted.
    pub(crate) fn accessed(&self, place: Place) -> Option<u32> {
        self.ranges()[place.range()].accessed(place.at())
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = Entry> + '_ {
        self.ranges().iter().flat_map(Range::iter)
    }

    /// Returns the place of the first entry near the spread hash for which `is` returns true. `is` is also called for
    /// entries of other hashes.
    #[inline]
    pub(crate) fn search(&self, spread: u64, is: impl FnMut(Entry) -> bool) -> Option<Place> {
        let (number, range) = self.range(spread);
        range.fetch_access(spread);
        let at = range.search(spread, is)?;
        Some(Place::new(number, at))
    }

    /// Adds an entry that is not in the index.
    pub(crate) fn insert(&mut self, entry: Entry) {
        self.insert_used(entry, NEVER);
    }

    /// Adds an entry that is not in the index and was used at `second`.
    pub(crate) fn insert_used(&mut self, entry: Entry, second: u32) {
        let spread = entry.spread(self.salt);
        let (number, mut range) = self.range_mut(spread);
        if !range.has_room(1) {
            self.make_room(spread, number);
            (_, range) = self.range_mut(spread);
        }
        let distance = range.put(entry, spread, second);
        let wants_more = range.wants_more(distance);
        self.count(true);
        if wants_more {
            self.grow(self.range(spread).0);
        }
    }

    /// Removes an entry. Returns whether it was there.
    pub(crate) fn remove(&mut self, entry: Entry) -> bool {
        let (spread, salt) = (entry.spread(self.salt), self.salt);
        let removed = self.range_mut(spread).1.remove(entry, spread, salt);
        if removed {
            self.count(false);
        }
        removed
    }

    /// Discards all entries, and keeps the arrays.
    pub(crate) fn clear(&mut self) {
        match &mut self.ranges {
            Ranges::One(range) => range.clear(),
            Ranges::Many(many) => {
                many.ranges.iter_mut().for_each(Range::clear);
                many.len = 0;
            }
        }
    }
}

#[cfg(test)]
mod tests;

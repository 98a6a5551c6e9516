//! The hash index: arrays of eight-byte entries, one for each range of hashes.
//!
//! A lookup of a random key waits for memory. So the cost of a lookup is the number of cache lines needed in sequence.
//! A table with separate control bytes needs two lines and then the row's line. Here an entry has enough bits of the
//! hash to reject wrong keys, so one line and then the row's line suffice. An array that is four fifths full grows by
//! half. An array takes ten to fifteen bytes per row.
//!
//! No step of growth is long. An array that would have more than `RANGE_PLACES` places is cut into two arrays instead,
//! each for half of the hashes. A directory finds the array by the top bits of a hash (extendible hashing: Fagin,
//! Nievergelt, Pippenger and Strong, 1979). The two arrays get different numbers of places, and so do the arrays of an
//! index that is built in one step. Hashes are evenly distributed, so equally large arrays would all become full at the
//! same time. A small index is one array without a directory.
//!
//! Places are in the order of the spread hash. This makes cursors possible. But insertions or removals in that order
//! make one part of an array crowded and leave the rest empty. So each index spreads hashes by a *salt*. The order of
//! one index then looks random to any other index. Only one order still does harm: a client adds or removes names in
//! exactly the order in which a scan of this index returns them. The array then becomes crowded before it is full, and
//! so it grows or is cut early. It gets at most `SPARSE_MAX` places for each entry. It does not shrink while a smaller
//! array would be crowded.
//!
//! The index can also keep the time of each entry's last [access](crate::accesses), in seconds. The time moves with the
//! entry.
//!
//! Invariants: the ranges are adjacent and cover all hashes. For each value of the top bits, the directory has the
//! position in `ranges` of the range with these hashes. An entry is in the range of its hash. The invariants of an
//! array are in `range`.

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
/// except for entries that wrapped around the end of their array.
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
    /// The position in `ranges` of the range that contains a hash, indexed by the top `depth` bits of the hash.
    directory: Vec<u32>,
    depth: u8,
    /// The number of entries in all ranges.
    len: usize,
    /// The number of places in all ranges.
    places: usize,
    /// The number of places in the range with the most places.
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

    /// Returns the salt that spreads this index's hashes.
    pub(crate) fn salt(&self) -> u64 {
        self.salt
    }

    fn ranges(&self) -> &[Range] {
        match &self.ranges {
            Ranges::One(range) => std::slice::from_ref(range),
            Ranges::Many(many) => &many.ranges,
        }
    }

    /// Returns the range of a spread hash.
    #[inline]
    pub(crate) fn range_of(&self, spread: u64) -> &Range {
        self.range(spread).1
    }

    /// Returns the range of a spread hash, and the range's position in `ranges`.
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

    /// Updates the number of entries after one was inserted or removed. Does nothing if the index has one range,
    /// because a range counts its entries.
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

    /// Returns the first place at or after `from` that has an entry.
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

    /// Returns a place chosen by the random number `r`, as if every range were as large as the largest range. So all
    /// places are equally likely, but the result may be beyond the end of its range. Returns `None` if the index has no
    /// places.
    pub(crate) fn random_place(&self, r: u64) -> Option<Place> {
        let (r, ranges) = (mix64(r), to_u64(self.ranges().len()));
        let widest = match &self.ranges {
            Ranges::One(range) => range.place_count(),
            Ranges::Many(many) => many.widest,
        };
        let at = mix64(r).checked_rem(to_u64(widest))?;
        Some(Place::new(to_usize(r % ranges), to_usize(at)))
    }

    /// Returns the ranges from the one that contains the spread hash to the last one.
    pub(crate) fn ranges_from(&self, spread: u64) -> impl Iterator<Item = &Range> {
        self.ranges()[self.range(spread).0..].iter()
    }

    /// Returns the bytes that the index takes: arrays of entries, arrays of access times, and the directory.
    pub(crate) fn bytes(&self) -> usize {
        let arrays = self.place_count() * self.ranges()[0].place_bytes();
        match &self.ranges {
            Ranges::One(_) => arrays,
            Ranges::Many(many) => {
                arrays + size_of_val(&*many.directory) + size_of_val(&*many.ranges)
            }
        }
    }

    /// Begins to keep the time of each entry's last access. The entries already present count as used at `since`. If
    /// `since` is `None`, stops keeping times.
    pub(crate) fn note_accesses(&mut self, since: Option<u32>) {
        self.change_all(|range| range.note_accesses(since));
    }

    /// Notes the time of an access to the entry in a place.
    pub(crate) fn note_access(&self, place: Place, second: u32) {
        self.ranges()[place.range()].note_access(place.at(), second);
    }

    /// Returns the time of the last access to the entry in a place, or `None` if times are not noted.
    pub(crate) fn accessed(&self, place: Place) -> Option<u32> {
        self.ranges()[place.range()].accessed(place.at())
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = Entry> + '_ {
        self.ranges().iter().flat_map(Range::iter)
    }

    /// Searches from the home of a spread hash. Returns the place of the first entry that `is` accepts. `is` is also
    /// called for entries of other hashes.
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

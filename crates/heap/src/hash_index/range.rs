//! The entries of one range of hashes: an array with open addressing and linear probing.
//!
//! Invariants: every place from the home of an entry to the entry is taken. No two places have the same entry. At least
//! one place is empty, unless the array has no places.

use perdura_base::num::to_usize;

use crate::accesses::{ACCESS_BYTES, Accesses, NEVER};
use crate::entry::Entry;
use crate::hash_index::refill::{Moving, Refill};
use crate::hash_index::work;

/// The value of an empty place. Entries are stored inverted, so that zeroed memory is an array of empty places. An
/// entry of 64 one bits would look like an empty place. No such entry exists, because a page never has a slot 1023.
pub(super) const EMPTY: u64 = 0;
pub(super) const PLACES_MIN: usize = 8;
/// The minimum distance between an entry and its home that shows crowding. In an array that is four fifths full, such a
/// distance does not arise by chance.
const CROWDED: usize = 512;
/// Like `CROWDED`, for an array that is at most half full.
const CROWDED_WHERE_EMPTY: usize = 128;
/// The number of places that [`Range::near`] examines.
const NEAR: usize = 16;
/// The maximum number of places per entry in an array that grows because it is crowded.
pub(super) const SPARSE_MAX: usize = 16;

/// The spread hashes that share their top bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Extent {
    /// The upper 32 bits of the first hash.
    pub(super) start: u32,
    /// The number of top bits that all these hashes share.
    pub(super) depth: u8,
}

impl Extent {
    /// All hashes.
    pub(super) const ALL: Extent = Extent { start: 0, depth: 0 };

    /// Returns the lowest hash of the extent.
    pub(super) fn first(self) -> u64 {
        u64::from(self.start) << 32
    }

    /// Returns whether a spread hash is in the extent.
    pub(super) fn has(self, spread: u64) -> bool {
        let differ = spread ^ self.first();
        differ.leading_zeros() >= u32::from(self.depth)
    }

    /// Returns the extents of the lower and of the upper half.
    pub(super) fn halves(self) -> [Extent; 2] {
        debug_assert!(self.depth < 31, "an extent that can be cut");
        let depth = self.depth + 1;
        let upper = self.start | 1 << (32 - u32::from(depth));
        [self.start, upper].map(|start| Extent { start, depth })
    }

    /// Returns the extent that contains this extent and is twice as large; `None` if this extent has all hashes.
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
    /// The number of entries below which the array may be shrunk.
    shrink_below: u32,
    /// The times of the last accesses to the entries. Only an index of keys has access times, and only if access times
    /// are switched on.
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

    /// Returns a range made from a filled array. The range notes accesses if `like` does.
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

    /// Returns the upper 32 bits of the range's lowest hash.
    pub(crate) fn start(&self) -> u32 {
        self.extent.start
    }

    /// Returns the number of top bits that all hashes of the range share.
    pub(crate) fn depth(&self) -> u32 {
        self.extent.depth.into()
    }

    pub(crate) fn len(&self) -> usize {
        to_usize(self.len.into())
    }

    pub(crate) fn place_count(&self) -> usize {
        self.places.len()
    }

    /// Returns the bytes that a place takes, its access time included.
    pub(super) fn place_bytes(&self) -> usize {
        size_of::<u64>() + self.accesses.as_ref().map_or(0, |_| ACCESS_BYTES)
    }

    pub(crate) fn place(&self, place: usize) -> Option<Entry> {
        let raw = self.places.get(place).filter(|raw| **raw != EMPTY);
        raw.map(|raw| Entry(!raw))
    }

    /// Returns the first place at or after `from` that has an entry.
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

    /// Begins to fetch the access time at the home of a spread hash, so that it arrives from memory together with the
    /// entry. Otherwise the later store of a new access time would wait for memory. The release of the latch would wait
    /// for that store, because an atomic instruction waits for all earlier stores.
    #[inline]
    pub(super) fn fetch_access(&self, spread: u64) {
        if let Some(accesses) = &self.accesses
            && !self.places.is_empty()
        {
            std::hint::black_box(accesses.noted(self.home(spread)));
        }
    }

    /// Reads the entry at the home of a spread hash, and its access time, to bring both into the cache. The result only
    /// keeps the compiler from removing the reads.
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

    /// Returns the entries that a search for a spread hash would examine first.
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

    /// Returns the entries as [`Moving`] values, which are put into new arrays.
    pub(super) fn moving(&self, salt: u64) -> impl Iterator<Item = Moving> + use<'_> {
        let taken = self.places.iter().enumerate();
        let taken = taken.filter(|(_, raw)| **raw != EMPTY);
        taken.map(move |(place, raw)| {
            let second = self.accesses.as_ref().map_or(NEVER, |a| a.noted(place));
            (*raw, Entry(!raw).spread(salt), second)
        })
    }

    /// Returns the place at which the search for a spread hash starts.
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

    /// Returns the number of steps from place `from` forward to place `to`. The place after the last one is the first
    /// one.
    fn distance(&self, from: usize, to: usize) -> usize {
        if to >= from {
            to - from
        } else {
            to + self.places.len() - from
        }
    }

    /// Searches from the home of a spread hash. Returns the place of the first entry that `is` accepts.
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

    /// Returns whether at least a fifth of the places stays empty if `more` entries are added.
    pub(super) fn has_room(&self, more: usize) -> bool {
        (self.len() + more) * 5 <= self.places.len() * 4
    }

    /// Returns whether the array should shrink: the array is not small, and less than a fifth of the places is used.
    pub(super) fn is_sparse(&self) -> bool {
        self.places.len() > 64 && self.len() * 5 < self.places.len() && self.len < self.shrink_below
    }

    /// Prevents shrinking until half of the entries are gone, because a smaller array would be crowded.
    pub(super) fn keep(&mut self) {
        self.shrink_below = self.len / 2;
    }

    /// Returns whether the array should grow although it is not full. It should if an entry is so far from its home
    /// that the array must be filled unevenly. `distance` is an entry's distance from its home.
    pub(super) fn wants_more(&self, distance: usize) -> bool {
        distance >= CROWDED_WHERE_EMPTY
            && (distance >= CROWDED || self.len() * 2 <= self.places.len())
            && self.places.len() < self.len() * SPARSE_MAX
    }

    /// Adds an entry, which must not be in the array yet. The entry gets the first empty place at or after its home.
    /// Returns the distance of that place from the home.
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

    /// Removes an entry. Returns whether it was in the array. Later entries are moved to close the gap, so there are no
    /// tombstones.
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
    /// Returns whether the array is not crowded: each entry is near its home.
    pub(super) fn is_even(&self) -> bool {
        self.farthest < CROWDED_WHERE_EMPTY
    }
}

/// Returns the number of places of an array that is four fifths full with `entries` entries.
pub(super) fn roomy(entries: usize) -> usize {
    PLACES_MIN.max(entries + entries / 4 + 1)
}

/// Returns the home of a spread hash in an array of `places` places. The top `depth` bits are equal in the whole range.
/// The bits after them, scaled to the array, are the home.
#[inline]
pub(super) fn home(spread: u64, depth: u8, places: usize) -> usize {
    let places = u64::try_from(places).unwrap_or(0);
    usize::try_from((((spread << depth) >> 32) * places) >> 32).unwrap_or(0)
}

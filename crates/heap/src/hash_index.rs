//! The hash index: one array of eight-byte entries, open addressing, linear probing.
//!
//! A lookup of a random key waits for memory, so what counts is how many cache lines it needs one
//! after the other. A table with separate control bytes needs two and then the row; here the
//! entry carries enough of the hash to reject strangers, so that one line and then the row
//! suffice. The array grows by half at four fifths full: ten to fifteen bytes per row. Deletion
//! closes the gap it leaves, so that there are no tombstones.
//!
//! Places are in the order of the spread hash, which is what makes cursors possible, and what makes
//! the array sensitive to entries that come or go in that order: they leave one part of it crowded
//! and another one empty. Each index spreads by a *salt*, so that the order of one is random in
//! another. What is left is a client that removes or adds names in the very order that a scan of the
//! same index returned them. The array then grows before it is full, up to [`SPARSE_MAX`] places
//! an entry, and is not made smaller while that would crowd it.
//!
//! Beside the entries may stand the seconds of their last [accesses](crate::accesses), which move with
//! them.
//!
//! Invariants: an entry lies between its home and the first empty place after it; no place holds
//! an entry twice; at least one place is empty.

use std::hint::black_box;
use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::accesses::{self, ACCESS_BYTES, Accesses, NEVER};
use crate::entry::Entry;

/// Entries are kept inverted, so that fresh zeroed memory is an empty table. The entry of all
/// ones, which this excludes, would name slot 1023, which no page has.
const EMPTY: u64 = 0;
const PLACES_MIN: usize = 8;
/// An entry so far from its home is in a crowd that chance does not make, in an array that is four
/// fifths full.
const CROWDED: usize = 512;
/// The same in an array that is at most half full.
const CROWDED_WHERE_EMPTY: usize = 128;
/// A hint looks at so many places.
const NEAR: usize = 16;
/// An array may have so many places for each entry because it is crowded.
const SPARSE_MAX: usize = 16;

pub(crate) struct HashIndex {
    places: Vec<u64>,
    len: usize,
    salt: u64,
    /// The array stays as it is until fewer entries are left.
    shrink_below: usize,
    /// When the entries were used; only the index of keys has it, and only if it is asked for.
    accesses: Option<Accesses>,
}

impl HashIndex {
    /// An empty index that spreads hashes by a salt.
    pub(crate) fn new(salt: u64) -> HashIndex {
        HashIndex {
            places: Vec::new(),
            len: 0,
            salt,
            shrink_below: usize::MAX,
            accesses: None,
        }
    }

    /// An index of entries that come in the order of one with the same salt: then each takes about one step.
    pub(crate) fn of_ordered(
        salt: u64,
        entries: impl ExactSizeIterator<Item = Entry>,
    ) -> HashIndex {
        let mut index = HashIndex::new(salt);
        let (len, places) = (entries.len(), roomy(entries.len()));
        if len == 0 {
            return index;
        }
        let mut refill = Refill::new(places, false);
        for entry in entries {
            refill.put(!entry.0, home(entry.spread(salt), places));
        }
        let mut farthest = refill.farthest;
        index.adopt(refill);
        index.len = len;
        while index.is_crowded(farthest) && index.places.len() < len * SPARSE_MAX {
            farthest = index.grow_crowded();
        }
        index
    }

    /// What its hashes are spread by.
    pub(crate) fn salt(&self) -> u64 {
        self.salt
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Places, taken or not.
    pub(crate) fn place_count(&self) -> usize {
        self.places.len()
    }

    /// The entry in a place.
    pub(crate) fn place(&self, place: usize) -> Option<Entry> {
        self.places
            .get(place)
            .filter(|raw| **raw != EMPTY)
            .map(|raw| Entry(!raw))
    }

    /// Bytes of the array, and of that of the accesses.
    pub(crate) fn bytes(&self) -> usize {
        let access_bytes = self.accesses.as_ref().map_or(0, |_| ACCESS_BYTES);
        self.places.len() * (size_of::<u64>() + access_bytes)
    }

    /// Has a time of access beside each entry, which is `since` for those that are there, or none.
    pub(crate) fn note_accesses(&mut self, since: Option<u32>) {
        self.accesses = since.map(Accesses::new);
    }

    /// Notes when the entry in a place was used.
    pub(crate) fn note_access(&self, place: usize, second: u32) {
        if let Some(accesses) = &self.accesses {
            accesses.note(place, self.places.len(), second);
        }
    }

    /// Begins to fetch the access of the entry that belongs to a spread hash, so that it comes from
    /// memory while the entry does. Noting it later would wait for it: the release of the latch is an
    /// atomic instruction, which waits for every store before it.
    pub(crate) fn fetch_access(&self, spread: u64) {
        if let Some(accesses) = &self.accesses
            && !self.places.is_empty()
        {
            std::hint::black_box(accesses.noted(self.home(spread)));
        }
    }

    /// Loads the place that belongs to a spread hash, and its access. What is returned means nothing.
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

    /// The entries that a search for a spread hash looks at first.
    pub(crate) fn near(&self, spread: u64) -> impl Iterator<Item = Entry> + '_ {
        let home = self.home(spread);
        let places = self.places.iter().skip(home).take(NEAR);
        places
            .take_while(|raw| **raw != EMPTY)
            .map(|raw| Entry(!raw))
    }

    /// When the entry in a place was used, if that is noted.
    pub(crate) fn accessed(&self, place: usize) -> Option<u32> {
        self.accesses.as_ref().map(|accesses| accesses.last(place))
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = Entry> + '_ {
        self.places
            .iter()
            .filter(|raw| **raw != EMPTY)
            .map(|raw| Entry(!raw))
    }

    /// Where the search for a spread hash begins: the hash scaled to the array.
    pub(crate) fn home(&self, spread: u64) -> usize {
        home(spread, self.places.len())
    }

    /// The home of an entry.
    pub(crate) fn home_of(&self, entry: Entry) -> usize {
        self.home(entry.spread(self.salt))
    }

    fn after(&self, place: usize) -> usize {
        if place + 1 == self.places.len() {
            0
        } else {
            place + 1
        }
    }

    /// How far `to` lies behind `from`, around the end.
    fn distance(&self, from: usize, to: usize) -> usize {
        if to >= from {
            to - from
        } else {
            to + self.places.len() - from
        }
    }

    /// The place of the first entry near the spread hash for which `is` holds. It is asked about
    /// strangers too.
    pub(crate) fn search(&self, spread: u64, mut is: impl FnMut(Entry) -> bool) -> Option<usize> {
        if self.places.is_empty() {
            return None;
        }
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

    /// Makes room for `more` entries.
    pub(crate) fn reserve(&mut self, more: usize) {
        let needed = self.len + more;
        if needed * 5 > self.places.len() * 4 {
            let grown = self.places.len() + self.places.len() / 2;
            let places = grown.max(roomy(needed));
            let grown = self.spread_out(places);
            self.adopt(grown);
        }
    }

    /// Gives memory back when less than a fifth of it is used, unless that would crowd what is
    /// left; then again when half of it is gone.
    pub(crate) fn shrink(&mut self) {
        if self.places.len() > 64
            && self.len * 5 < self.places.len()
            && self.len < self.shrink_below
        {
            let smaller = self.spread_out(self.len * 2);
            if smaller.farthest < CROWDED_WHERE_EMPTY {
                self.adopt(smaller);
                self.shrink_below = usize::MAX;
            } else {
                self.shrink_below = self.len / 2;
            }
        }
    }

    /// Whether an entry this far from its home shows that the array is filled unevenly.
    fn is_crowded(&self, distance: usize) -> bool {
        distance >= CROWDED_WHERE_EMPTY
            && (distance >= CROWDED || self.len * 2 <= self.places.len())
    }

    /// All entries in an array of so many places.
    fn spread_out(&self, places: usize) -> Refill {
        assert!(
            u32::try_from(places).is_ok(),
            "an index of {places} places: homes are computed for less than 2^32"
        );
        let accesses = self.accesses.as_ref().filter(|accesses| accesses.is_any());
        let mut refill = Refill::new(places, accesses.is_some());
        let taken = self.places.iter().enumerate();
        for (place, raw) in taken.filter(|(_, raw)| **raw != EMPTY) {
            let to = refill.put(*raw, home(Entry(!raw).spread(self.salt), places));
            if let (Some(accesses), Some(seconds)) = (accesses, &refill.seconds) {
                seconds[to].store(accesses.noted(place), Ordering::Relaxed);
            }
        }
        refill
    }

    /// Goes on with the array that its entries were put in.
    fn adopt(&mut self, refill: Refill) {
        assert!(
            self.len == 0 || self.len < refill.places.len(),
            "{} entries and an empty place in an array of {}",
            self.len,
            refill.places.len()
        );
        self.places = refill.places;
        if let Some(accesses) = &mut self.accesses {
            accesses.replace(refill.seconds);
        }
    }

    /// Puts an entry in the first empty place from its home on; how far that is.
    fn put(&mut self, entry: Entry, second: u32) -> usize {
        debug_assert!(
            self.len < self.places.len(),
            "a search for an empty place ends"
        );
        let home = self.home_of(entry);
        let mut place = home;
        while self.places[place] != EMPTY {
            work::step();
            place = self.after(place);
        }
        self.places[place] = !entry.0;
        self.note_access(place, second);
        self.distance(home, place)
    }

    /// Adds an entry that is not there.
    pub(crate) fn insert(&mut self, entry: Entry) {
        self.insert_used(entry, NEVER);
    }

    /// The same, of an entry that was used at a second.
    pub(crate) fn insert_used(&mut self, entry: Entry, second: u32) {
        self.reserve(1);
        debug_assert!(
            (self.len + 1) * 5 <= self.places.len() * 4,
            "the array is at most four fifths full"
        );
        let distance = self.put(entry, second);
        self.len += 1;
        if self.is_crowded(distance) && self.places.len() < self.len * SPARSE_MAX {
            self.grow_crowded();
        }
    }

    /// Grows by half though there is room; how far from its home the farthest entry is then.
    fn grow_crowded(&mut self) -> usize {
        let grown = self.spread_out(self.places.len() + self.places.len() / 2);
        let farthest = grown.farthest;
        self.adopt(grown);
        self.shrink_below = self.len / 2;
        farthest
    }

    /// Removes an entry; whether it was there.
    pub(crate) fn remove(&mut self, entry: Entry) -> bool {
        let Some(mut gap) = self.search(entry.spread(self.salt), |e| e == entry) else {
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
            let home = self.home_of(Entry(!raw));
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

    pub(crate) fn clear(&mut self) {
        self.places.fill(EMPTY);
        self.len = 0;
        self.shrink_below = usize::MAX;
        if let Some(accesses) = &mut self.accesses {
            accesses.replace(None);
        }
    }
}

/// Places of an array that so many entries fill to four fifths.
fn roomy(entries: usize) -> usize {
    PLACES_MIN.max(entries + entries / 4 + 1)
}

/// The place of a spread hash in an array of so many places.
fn home(spread: u64, places: usize) -> usize {
    let places = u64::try_from(places).unwrap_or(0);
    usize::try_from(((spread >> 32) * places) >> 32).unwrap_or(0)
}

/// An array that is filled with the entries of another one. They come nearly in the order of their
/// homes; so what was filled last is remembered, and an entry at home in it goes behind it without
/// a search: however crowded the array becomes, each entry costs about one step.
struct Refill {
    places: Vec<u64>,
    /// The accesses of the entries, if any are noted.
    seconds: Option<Box<[AtomicU32]>>,
    /// Places that are taken without a gap; those beyond the array's end are at its beginning.
    run: Range<usize>,
    /// How far from its home the farthest entry is.
    farthest: usize,
}

/// An array of empty places that has been written. Memory that is read before it is written is mapped twice,
/// and the second time interrupts every other processor.
fn empty(places: usize) -> Vec<u64> {
    // The compiler would ask for zeroed memory, which is not written.
    let mut empty = black_box(Vec::with_capacity(places));
    empty.resize(places, EMPTY);
    assert_eq!(empty.capacity(), places, "an array has no room to spare");
    empty
}

impl Refill {
    fn new(places: usize, noted: bool) -> Refill {
        Refill {
            places: empty(places),
            seconds: noted.then(|| accesses::unnoted(places)),
            run: 0..0,
            farthest: 0,
        }
    }

    /// Puts an entry where it belongs, and returns its place.
    fn put(&mut self, raw: u64, home: usize) -> usize {
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
                return at;
            }
        }
    }
}

/// Steps taken in arrays, counted for tests alone: what an order of insertion costs is told by
/// them, not by a clock.
mod work {
    #[cfg(not(test))]
    pub(super) fn step() {}

    #[cfg(test)]
    pub(super) use counted::step;

    #[cfg(test)]
    pub(super) mod counted {
        use std::cell::Cell;

        std::thread_local! {
            static STEPS: Cell<u64> = const { Cell::new(0) };
        }

        pub(in super::super) fn step() {
            STEPS.set(STEPS.get() + 1);
        }

        /// The steps that `f` takes on this thread.
        pub(in super::super) fn during(f: impl FnOnce()) -> u64 {
            let before = STEPS.get();
            f();
            STEPS.get() - before
        }
    }
}

#[cfg(test)]
mod tests;

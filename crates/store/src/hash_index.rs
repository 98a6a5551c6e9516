//! The hash index: one array of eight-byte entries, open addressing, linear probing.
//!
//! A lookup of a random key waits for memory, so what counts is how many cache lines it needs one
//! after the other. A table with separate control bytes needs two and then the row; here the
//! entry carries enough of the hash to reject strangers, so that one line and then the row
//! suffice. The array grows by half at four fifths full: ten to fifteen bytes per row. Deletion
//! closes the gap it leaves, so that there are no tombstones.
//!
//! Invariants: an entry lies between its home and the first empty place after it; no place holds
//! an entry twice; at least one place is empty.

use crate::index::Entry;

/// Entries are kept inverted, so that fresh zeroed memory is an empty table. The entry of all
/// ones, which this excludes, would name slot 1023, which no page has.
const EMPTY: u64 = 0;
const PLACES_MIN: usize = 8;

#[derive(Default)]
pub(crate) struct HashIndex {
    places: Vec<u64>,
    len: usize,
}

impl HashIndex {
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

    /// Bytes of the array.
    pub(crate) fn bytes(&self) -> usize {
        self.places.len() * size_of::<u64>()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = Entry> + '_ {
        self.places
            .iter()
            .filter(|raw| **raw != EMPTY)
            .map(|raw| Entry(!raw))
    }

    /// Where the search for a spread hash begins: the hash scaled to the array.
    pub(crate) fn home(&self, spread: u64) -> usize {
        let places = u64::try_from(self.places.len()).unwrap_or(0);
        usize::try_from(((spread >> 32) * places) >> 32).unwrap_or(0)
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

    fn search(&self, spread: u64, mut is: impl FnMut(Entry) -> bool) -> Option<usize> {
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
            place = self.after(place);
        }
    }

    /// The first entry near the spread hash for which `is` holds. It is asked about strangers
    /// too.
    pub(crate) fn find(&self, spread: u64, is: impl FnMut(Entry) -> bool) -> Option<Entry> {
        self.search(spread, is).and_then(|place| self.place(place))
    }

    /// Makes room for `more` entries.
    pub(crate) fn reserve(&mut self, more: usize) {
        let needed = self.len + more;
        if needed * 5 > self.places.len() * 4 {
            let grown = self.places.len() + self.places.len() / 2;
            self.resize(PLACES_MIN.max(grown).max(needed + needed / 4 + 1));
        }
    }

    /// Gives memory back when less than a fifth of it is used.
    pub(crate) fn shrink(&mut self) {
        if self.places.len() > 64 && self.len * 5 < self.places.len() {
            self.resize(self.len * 2);
        }
    }

    fn resize(&mut self, places: usize) {
        assert!(
            u32::try_from(places).is_ok(),
            "2^24 pages have fewer rows of one hash share"
        );
        let old = std::mem::replace(&mut self.places, vec![EMPTY; places]);
        for raw in old.into_iter().filter(|raw| *raw != EMPTY) {
            self.put(raw);
        }
    }

    fn put(&mut self, raw: u64) {
        let mut place = self.home(Entry(!raw).spread());
        while self.places[place] != EMPTY {
            place = self.after(place);
        }
        self.places[place] = raw;
    }

    /// Adds an entry that is not there.
    pub(crate) fn insert(&mut self, entry: Entry) {
        self.reserve(1);
        self.put(!entry.0);
        self.len += 1;
    }

    /// Removes an entry; whether it was there.
    pub(crate) fn remove(&mut self, entry: Entry) -> bool {
        let Some(mut gap) = self.search(entry.spread(), |e| e == entry) else {
            return false;
        };
        let mut place = gap;
        loop {
            place = self.after(place);
            let raw = self.places[place];
            if raw == EMPTY {
                break;
            }
            let home = self.home(Entry(!raw).spread());
            if self.distance(home, place) >= self.distance(gap, place) {
                self.places[gap] = raw;
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
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::geometry::KeyHash;

    fn check(index: &HashIndex, model: &BTreeSet<Entry>) {
        assert_eq!(index.len(), model.len());
        assert_eq!(&index.iter().collect::<BTreeSet<_>>(), model);
        assert!(index.len() * 5 <= index.place_count() * 4);
        for entry in model {
            assert_eq!(index.find(entry.spread(), |e| e == *entry), Some(*entry));
        }
    }

    #[test]
    fn it_is_a_set_under_random_inserts_and_removes_with_colliding_hashes() {
        for hashes in [1, 10, 1 << 30] {
            let mut rng = fastrand::Rng::with_seed(hashes);
            let (mut index, mut model) = (HashIndex::default(), BTreeSet::new());
            for step in 0..4000 {
                let hash = KeyHash(rng.u64(..hashes));
                let entry = Entry::new(hash, rng.u32(..4), rng.usize(..30));
                if step % 1000 < 600 && !model.contains(&entry) {
                    index.insert(entry);
                    model.insert(entry);
                } else if rng.bool() {
                    assert_eq!(index.remove(entry), model.remove(&entry));
                } else if let Some(first) = model.pop_first() {
                    assert!(index.remove(first));
                }
                if step % 97 == 0 {
                    check(&index, &model);
                }
            }
            check(&index, &model);
            index.clear();
            check(&index, &BTreeSet::new());
        }
    }

    #[test]
    fn the_extreme_entries_are_kept() {
        let mut index = HashIndex::default();
        assert_eq!(index.find(7, |_| true), None);
        assert!(!index.remove(Entry(0)));
        for entry in [Entry(0), Entry(u64::MAX - 1)] {
            index.insert(entry);
            assert_eq!(index.find(entry.spread(), |e| e == entry), Some(entry));
        }
        assert_eq!(index.len(), 2);
    }
}

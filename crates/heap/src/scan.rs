//! Cursors over hash order.
//!
//! An entry's place in a hash index follows from its spread hash: ranges of hashes follow each other, and in
//! one's array the hash is scaled to the array: a greater hash has its home further on, whatever the array's size. So the top 32 bits of the spread hash
//! are a cursor that outlives growth, shrinking and a restart: everything below it was returned.
//! What an entry has for good is its hash; its place is moved by its neighbours. From the cursor's
//! home on, all entries above the cursor stand before the next empty place behind *their* homes,
//! so a walk may end at any empty place and has missed nothing up to there. Entries pushed around
//! the end of their array stand at its beginning and are met last of it, as their hashes demand.

use perdura_base::flaw::{Flaw, armed};
use perdura_base::{PartitionId, TableId};

use crate::entry::Entry;
use crate::geometry::Geometry;
use crate::hash_index::{HashIndex, Place, Range};
use crate::partition::Partition;
use crate::row_ref::RowRef;

fn top(entry: Entry, salt: u64) -> u32 {
    u32::try_from(entry.spread(salt) >> 32).unwrap_or(u32::MAX)
}

impl HashIndex {
    /// An entry chosen by a random number: taken places are hit evenly, empty ones are tried
    /// again.
    pub(crate) fn random(&self, r: u64) -> Option<Entry> {
        let tries = (0..64).filter_map(|i| self.random_place(r.wrapping_add(i)));
        let hit = tries.map(|place| self.place(place)).find(Option::is_some);
        hit.flatten().or_else(|| {
            let from = self.random_place(r)?;
            let taken = self
                .next_taken(from)
                .or_else(|| self.next_taken(Place::FIRST))?;
            self.place(taken)
        })
    }

    /// About `count` entries from the hash `from` on, whole hashes at a time, and where to go on;
    /// `None`: this was the end.
    pub(crate) fn scan(&self, mut from: u32, count: usize) -> (Vec<Entry>, Option<u32>) {
        let (count, mut found) = (count.max(1), Vec::new());
        let mut ranges = self.ranges_from(u64::from(from) << 32);
        while let Some(range) = ranges.next() {
            from = from.max(range.start());
            let (some, next) = range.scan(from, count - found.len(), self.salt());
            found.extend(some);
            if next.is_some() {
                return (found, next);
            }
            if found.len() >= count {
                let more = ranges.find(|range| range.len() > 0);
                return (found, more.map(Range::start));
            }
        }
        (found, None)
    }
}

impl Range {
    /// The same of one range; `None`: this was its end.
    fn scan(&self, from: u32, count: usize, salt: u64) -> (Vec<Entry>, Option<u32>) {
        let places = self.place_count();
        let home_of = |entry: Entry| self.home(entry.spread(salt));
        let (mut found, mut end) = (Vec::<(u32, Entry)>::new(), None);
        for place in self.home(u64::from(from) << 32)..places {
            let Some(entry) = self.place(place) else {
                if found.len() >= count {
                    end = Some(place);
                    break;
                }
                continue;
            };
            // One that stands before its home was pushed around the end.
            let displaced = home_of(entry) != place;
            if displaced && armed(Flaw::ScanSkipsDisplaced) {
                continue;
            }
            if top(entry, salt) >= from && home_of(entry) <= place {
                found.push((top(entry, salt), entry));
            }
        }
        if end.is_none() {
            let around = (0..places).map_while(|place| Some((place, self.place(place)?)));
            let pushed = around.filter(|(place, entry)| home_of(*entry) > *place);
            found.extend(
                pushed
                    .map(|(_, entry)| (top(entry, salt), entry))
                    .filter(|(top, _)| *top >= from),
            );
        }
        found.sort_unstable();
        let mut next = None;
        if let Some((last, _)) = found.get(count - 1) {
            let last = *last;
            let kept = found.partition_point(|(top, _)| *top <= last);
            let more = end.is_some() || kept < found.len();
            found.truncate(kept);
            next = last.checked_add(1).filter(|_| more);
            assert!(
                next.is_none_or(|next| next > from),
                "a scan moves on with each call"
            );
        }
        (found.into_iter().map(|(_, entry)| entry).collect(), next)
    }
}

impl Geometry {
    /// The partition that a cursor over a table's keys stands in; `None` beyond the last.
    #[must_use]
    pub fn partition_of_cursor(&self, cursor: u64) -> Option<PartitionId> {
        let id = u16::try_from(cursor >> 32).ok()?;
        (id < self.partitions).then_some(PartitionId(id))
    }
}

impl Partition {
    /// Keys of a table in hash order from a cursor in this partition on, about `count` of them,
    /// and the cursor to go on from, which may be in the next partition; 0: this was the end. A
    /// key that is there throughout is returned, whatever happens to others meanwhile.
    #[must_use]
    pub fn scan_keys(&self, table: TableId, cursor: u64, count: usize) -> (Vec<RowRef<'_>>, u64) {
        let from = u32::try_from(cursor & u64::from(u32::MAX)).unwrap_or(0);
        let (entries, next) = match self.tables.get(&table) {
            Some(table) => table.hash.scan(from, count),
            None => (Vec::new(), None),
        };
        let rows = entries.into_iter().filter_map(|entry| self.row(entry));
        let id = u64::from(self.id().0);
        let next = match next {
            Some(next) => id << 32 | u64::from(next),
            None if id + 1 < u64::from(self.pages.geometry.partitions) => (id + 1) << 32,
            None => 0,
        };
        debug_assert!(
            next == 0 || next > cursor,
            "a cursor moves on with each call"
        );
        (rows.collect(), next)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::geometry::KeyHash;

    #[test]
    fn what_is_there_throughout_is_returned_under_inserts_removes_growth_and_shrinking() {
        for seed in 0..300 {
            let mut rng = fastrand::Rng::with_seed(seed);
            let hashes = if seed % 3 == 0 { 50 } else { 1 << 30 };
            let mut index = HashIndex::new(9);
            let mut next_slot = 0;
            let mut fresh = |rng: &mut fastrand::Rng| {
                next_slot += 1;
                Entry::new(KeyHash(rng.u64(..hashes)), next_slot, 0)
            };
            let mut stays = BTreeSet::new();
            let mut others = Vec::new();
            for _ in 0..rng.usize(0..300) {
                let entry = fresh(&mut rng);
                index.insert(entry);
                if rng.bool() {
                    stays.insert(entry);
                } else {
                    others.push(entry);
                }
            }
            let (mut seen, mut cursor) = (BTreeSet::new(), 0);
            loop {
                let (entries, next) = index.scan(cursor, rng.usize(0..20));
                seen.extend(entries);
                let Some(next) = next else { break };
                assert!(next > cursor, "seed {seed}");
                cursor = next;
                for _ in 0..rng.usize(0..60) {
                    if rng.bool() {
                        let entry = fresh(&mut rng);
                        index.insert(entry);
                        others.push(entry);
                    } else if !others.is_empty() {
                        let gone = others.swap_remove(rng.usize(..others.len()));
                        assert!(index.remove(gone));
                        index.shrink(gone);
                    }
                }
            }
            assert!(stays.is_subset(&seen), "seed {seed}");
        }
    }

    #[test]
    fn a_scan_without_changes_returns_each_entry_once_and_about_as_many_as_asked() {
        let mut index = HashIndex::new(9);
        let mut rng = fastrand::Rng::with_seed(1);
        for i in 0..5000 {
            index.insert(Entry::new(KeyHash(rng.u64(..)), i, 0));
        }
        let (mut seen, mut cursor) = (Vec::new(), 0);
        loop {
            let (entries, next) = index.scan(cursor, 10);
            assert!(entries.len() <= 11, "distinct hashes");
            seen.extend(entries);
            let Some(next) = next else { break };
            cursor = next;
        }
        assert_eq!(seen.len(), 5000);
        assert_eq!(seen.iter().collect::<BTreeSet<_>>().len(), 5000);
        assert_eq!(HashIndex::new(9).scan(0, 10), (Vec::new(), None));
        let hits: BTreeSet<_> = (0..40_000).filter_map(|r| index.random(r)).collect();
        assert!(hits.len() > 4900);
    }
}

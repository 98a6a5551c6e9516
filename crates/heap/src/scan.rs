//! Cursors over hash order.
//!
//! The home of an entry in a hash index follows from its spread hash. An index consists of ranges of hashes, in
//! ascending order. Within a range the hash is scaled to the size of the range's array. So a greater hash never has an
//! earlier home, whatever the array's size. Therefore the top 32 bits of a spread hash can be a cursor. The cursor says
//! that all entries with lower hashes have been returned. A cursor stays valid across growth, shrinking and a restart.
//!
//! Neighbours may displace an entry from its home to a later place, but never past the first empty place after the
//! home. So a walk that begins at the cursor's home may end at any empty place without having missed an entry. Entries
//! displaced past the end of an array lie at the array's beginning. The walk reads these entries last, because their
//! homes are at the array's end.
//!
//! A walk over a sparse array finds little and must not take long. It ends at the first empty place after it has looked
//! at the permitted number of places.

use perdura_base::flaw::{Flaw, armed};
use perdura_base::num::to_u64;
use perdura_base::{PartitionId, TableId};

use crate::entry::Entry;
use crate::geometry::Geometry;
use crate::hash_index::{HashIndex, Place, Range};
use crate::partition::Partition;
use crate::row_ref::RowRef;

/// Returns how many places a scan of about `count` entries may look at. Only a scan of a sparse index reaches this
/// bound.
#[must_use]
pub fn scan_places(count: usize) -> usize {
    count.saturating_mul(16).saturating_add(1024)
}

fn top(entry: Entry, salt: u64) -> u32 {
    u32::try_from(entry.spread(salt) >> 32).unwrap_or(u32::MAX)
}

impl HashIndex {
    /// Returns a random entry. It tries random places until one is taken, so the entries are equally likely.
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

    /// Returns about `count` entries from the hash `from` on, and the hash to continue from; `None` at the end. Entries
    /// of equal hash are returned together. Looks at about `places` places, and lowers `places` by the number it has
    /// looked at.
    pub(crate) fn scan(
        &self,
        mut from: u32,
        count: usize,
        places: &mut usize,
    ) -> (Vec<Entry>, Option<u32>) {
        let (count, mut found) = (count.max(1), Vec::new());
        let mut ranges = self
            .ranges_from(u64::from(from) << 32)
            .filter(|range| range.len() > 0);
        while let Some(range) = ranges.next() {
            from = from.max(range.start());
            let (some, next) = range.scan(from, count - found.len(), self.salt(), places);
            found.extend(some);
            if next.is_some() {
                return (found, next);
            }
            if found.len() >= count || *places == 0 {
                return (found, ranges.next().map(Range::start));
            }
        }
        (found, None)
    }
}

impl Range {
    /// Scans one range like [`HashIndex::scan`]. Returns the hash to continue from; `None` at the range's end.
    fn scan(
        &self,
        from: u32,
        count: usize,
        salt: u64,
        looks: &mut usize,
    ) -> (Vec<Entry>, Option<u32>) {
        let places = self.place_count();
        let home_of = |entry: Entry| self.home(entry.spread(salt));
        let (mut found, mut end) = (Vec::<(u32, Entry)>::new(), None);
        for place in self.home(u64::from(from) << 32)..places {
            *looks = looks.saturating_sub(1);
            let Some(entry) = self.place(place) else {
                if found.len() >= count || *looks == 0 && self.top_at(place) > from {
                    end = Some(place);
                    break;
                }
                continue;
            };
            // An entry before its home was pushed around the array's end.
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
        // If the walk ended at an empty place, the next call begins there, even if entries beyond that place were
        // found.
        let mut next = end.map(|place| self.top_at(place));
        if let Some((last, _)) = found.get(count - 1) {
            next = last.checked_add(1);
        }
        let more = |found: &[_], kept| end.is_some() || kept < found.len();
        if let Some(start) = next {
            let kept = found.partition_point(|(top, _)| *top < start);
            next = next.filter(|_| more(&found, kept));
            found.truncate(kept);
        }
        assert!(
            next.is_none_or(|next| next > from),
            "a scan moves on with each call"
        );
        (found.into_iter().map(|(_, entry)| entry).collect(), next)
    }

    /// Returns the greatest cursor that a place permits. All hashes below the cursor have their homes at or before the
    /// place.
    fn top_at(&self, place: usize) -> u32 {
        let share = (to_u64(place) << 32) / to_u64(self.place_count().max(1));
        let share = u32::try_from(share).unwrap_or(u32::MAX);
        let top = self.start() + share.checked_shr(self.depth()).unwrap_or(0);
        debug_assert!(
            self.home(u64::from(top) << 32) <= place,
            "a cursor's home is not behind the place"
        );
        top
    }
}

impl Geometry {
    /// Returns the partition of a cursor over a table's keys; `None` if the cursor is beyond the last partition.
    #[must_use]
    pub fn partition_of_cursor(&self, cursor: u64) -> Option<PartitionId> {
        let id = u16::try_from(cursor >> 32).ok()?;
        (id < self.partitions).then_some(PartitionId(id))
    }
}

impl Partition {
    /// Returns about `count` keys of a table in hash order, beginning at a cursor in this partition. The second value
    /// is the cursor for the next call, in this partition or the next one; 0 at the end. A key that exists during the
    /// whole scan is returned, whatever else changes meanwhile. Looks at about `places` places of the index, and lowers
    /// `places` by the number it has looked at.
    #[must_use]
    pub fn scan_keys(
        &self,
        table: TableId,
        cursor: u64,
        count: usize,
        places: &mut usize,
    ) -> (Vec<RowRef<'_>>, u64) {
        let from = u32::try_from(cursor & u64::from(u32::MAX)).unwrap_or(0);
        let (entries, next) = match self.tables.get(table) {
            Some(table) => table.hash.scan(from, count, places),
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
        for seed in 0..600 {
            // Scans with odd seeds may look at few places in each call.
            let looks = |rng: &mut fastrand::Rng| match seed % 2 {
                0 => usize::MAX,
                _ => rng.usize(0..40),
            };
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
                let (entries, next) = index.scan(cursor, rng.usize(0..20), &mut looks(&mut rng));
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
            let (entries, next) = index.scan(cursor, 10, &mut scan_places(10));
            assert!(entries.len() <= 11, "distinct hashes");
            seen.extend(entries);
            let Some(next) = next else { break };
            cursor = next;
        }
        assert_eq!(seen.len(), 5000);
        assert_eq!(seen.iter().collect::<BTreeSet<_>>().len(), 5000);
        assert_eq!(
            HashIndex::new(9).scan(0, 10, &mut scan_places(10)),
            (Vec::new(), None)
        );
        let hits: BTreeSet<_> = (0..40_000).filter_map(|r| index.random(r)).collect();
        assert!(hits.len() > 4900);
    }

    /// Scans to the end. Each call may look at `places` places. Returns the entries found and the number of calls.
    fn scanned(index: &HashIndex, count: usize, places: usize) -> (Vec<Entry>, usize) {
        let (mut all, mut calls, mut cursor) = (Vec::new(), 0, 0);
        loop {
            let mut left = places;
            let (some, next) = index.scan(cursor, count, &mut left);
            assert!(some.len() <= count, "distinct hashes");
            (calls, cursor) = (calls + 1, next.unwrap_or(0));
            all.extend(some);
            if cursor == 0 {
                return (all, calls);
            }
            assert!(left == 0 || all.len() >= count, "a call ends for a reason");
        }
    }

    #[test]
    fn a_scan_of_a_sparse_index_looks_at_few_places_in_a_call_and_misses_nothing() {
        let mut rng = fastrand::Rng::with_seed(3);
        let all: Vec<Entry> = (0..200_000)
            .map(|i| Entry::new(KeyHash(rng.u64(..)), i, 0))
            .collect();
        let mut index = HashIndex::new(9);
        all.iter().for_each(|entry| index.insert(*entry));
        let places = index.place_count();
        // The entries are removed without shrinking the index, as in the purge of an orphan.
        for entry in &all[40..] {
            assert!(index.remove(*entry));
        }
        assert_eq!(index.place_count(), places);
        let (found, calls) = scanned(&index, 10, 1000);
        assert_eq!(found.len(), 40, "each once");
        assert!(
            found
                .iter()
                .collect::<BTreeSet<_>>()
                .iter()
                .all(|e| all[..40].contains(e))
        );
        let full = places / 1000;
        assert!((full / 2..full * 2).contains(&calls), "{calls} of {full}");
    }

    #[test]
    fn an_index_whose_entries_are_removed_one_by_one_is_soon_as_small_as_a_new_one() {
        let mut rng = fastrand::Rng::with_seed(4);
        let all: Vec<Entry> = (0..100_000)
            .map(|i| Entry::new(KeyHash(rng.u64(..)), i, 0))
            .collect();
        let mut index = HashIndex::new(9);
        all.iter().for_each(|entry| index.insert(*entry));
        let own = scanned(&index, 100, usize::MAX).0;
        for order in [all, own] {
            let mut index = HashIndex::new(9);
            order.iter().for_each(|entry| index.insert(*entry));
            for entry in &order[..order.len() - 10] {
                assert!(index.remove(*entry));
                index.shrink(*entry);
            }
            assert!(index.place_count() <= 64, "{} places", index.place_count());
            assert_eq!(scanned(&index, 11, scan_places(11)).1, 1);
        }
    }
}

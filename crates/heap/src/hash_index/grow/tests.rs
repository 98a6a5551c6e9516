//! Tests of indexes with many ranges: compares their contents with sets, and measures the cost of growth.

use std::collections::BTreeSet;

use crate::geometry::KeyHash;
use crate::hash_index::work::counted::during;

use super::*;

const SALT: u64 = 0x0dd_ba11;

/// Checks the invariants of the index.
fn check(index: &HashIndex) {
    let (mut next, mut len) = (0, 0);
    for range in index.ranges() {
        assert_eq!(range.extent.first(), next, "ranges follow each other");
        let hashes = 1u128 << (64 - u32::from(range.extent.depth));
        next = u64::try_from((u128::from(next) + hashes) & u128::from(u64::MAX)).unwrap();
        assert!(range.has_room(0), "at most four fifths full");
        let mut entries = range.moving(SALT);
        assert!(entries.all(|(_, spread, _)| range.extent.has(spread)));
        len += range.iter().count();
    }
    assert_eq!(next, 0, "ranges cover all hashes");
    assert_eq!(index.len(), len);
    let places: usize = index.ranges().iter().map(Range::place_count).sum();
    assert_eq!(index.place_count(), places);
    if let Ranges::Many(many) = &index.ranges {
        for (slot, number) in (0u64..).zip(&many.directory) {
            let hash = slot << (64 - u32::from(many.depth));
            let range = &many.ranges[perdura_base::num::to_usize(u64::from(*number))];
            assert!(range.extent.has(hash), "the directory names a hash's range");
        }
    }
}

fn check_all(index: &HashIndex, model: &BTreeSet<Entry>) {
    check(index);
    assert_eq!(&index.iter().collect::<BTreeSet<_>>(), model);
    let found = |entry: &Entry| {
        let place = index.search(entry.spread(SALT), |e| e == *entry);
        place.and_then(|place| index.place(place))
    };
    assert!(model.iter().all(|entry| found(entry) == Some(*entry)));
    let (mut scanned, mut from) = (Vec::new(), Some(0));
    while let Some(cursor) = from {
        let (some, next) = index.scan(cursor, 1000, &mut { usize::MAX });
        scanned.extend(some);
        from = next;
    }
    assert_eq!(scanned.len(), model.len(), "a scan returns each entry once");
    assert_eq!(&scanned.into_iter().collect::<BTreeSet<_>>(), model);
}

fn entries(seed: u64, count: u32) -> Vec<Entry> {
    let mut rng = fastrand::Rng::with_seed(seed);
    let entry = |local| Entry::new(KeyHash(rng.u64(..)), local, 0);
    (0..count).map(entry).collect()
}

fn filled(entries: &[Entry]) -> HashIndex {
    let mut index = HashIndex::new(SALT);
    entries.iter().for_each(|entry| index.insert(*entry));
    index
}

#[test]
fn it_is_a_set_while_it_grows_to_many_ranges_and_back_in_any_order() {
    let all = entries(1, 120_000);
    let own: Vec<Entry> = filled(&all).iter().collect();
    let backwards = own.iter().rev().copied().collect();
    let halves = own.iter().step_by(2).chain(own.iter().skip(1).step_by(2));
    let halves = halves.copied().collect();
    let orders: [Vec<Entry>; 4] = [all, own, backwards, halves];
    for nth in 0..orders.len() {
        let (coming, going) = (&orders[nth], &orders[(nth + 1) % 4]);
        let (mut index, mut model) = (HashIndex::new(SALT), BTreeSet::new());
        for (at, entry) in coming.iter().copied().enumerate() {
            index.insert(entry);
            assert!(model.insert(entry));
            if at % 30_000 == 29_999 {
                check_all(&index, &model);
            }
        }
        assert!(index.ranges().len() > 4, "it has been cut");
        for (at, entry) in going.iter().copied().enumerate() {
            assert!(index.remove(entry) && model.remove(&entry));
            index.shrink(entry);
            if at % 30_000 == 29_999 || at == 119_000 {
                check_all(&index, &model);
            }
        }
        assert_eq!((index.len(), index.ranges().len()), (0, 1), "order {nth}");
        assert!(index.place_count() <= 64);
    }
}

#[test]
fn no_insertion_takes_long_and_the_long_ones_are_spread() {
    let (all, window) = (entries(2, 1_000_000), 4096);
    for made_at_once in [0, 300_000] {
        let (first, rest) = all.split_at(made_at_once);
        let ordered: Vec<Entry> = filled(first).iter().collect();
        let mut index = HashIndex::of_ordered(SALT, ordered.iter().copied());
        let (mut total, mut longest) = (0, 0);
        for some in rest.chunks(window) {
            let mut together = 0;
            for entry in some {
                let steps = during(|| index.insert(*entry));
                assert!(steps <= 3 * to_u64(RANGE_PLACES), "{steps} steps");
                together += steps;
            }
            total += together;
            if index.len() > 200_000 {
                longest = longest.max(together);
            }
        }
        check(&index);
        if let Ranges::Many(many) = &index.ranges {
            let slots = many.directory.len();
            assert!(slots <= index.len() / SLOT_ENTRIES, "{slots} slots");
        }
        let mean = total * to_u64(window) / to_u64(rest.len());
        assert!(
            longest <= 6 * mean,
            "{longest} steps together, {mean} on average"
        );
        assert!(index.bytes() <= 16 * index.len(), "bytes of an entry");
    }
}

#[test]
fn entries_of_one_hash_are_kept_in_one_range() {
    let alike = (0..30_000).map(|local| Entry::new(KeyHash(5), local, 0));
    let alike: Vec<Entry> = alike.collect();
    let index = HashIndex::of_ordered(SALT, alike.iter().copied());
    check(&index);
    assert_eq!(index.iter().count(), alike.len());
    let mut index = filled(&entries(3, 60_000));
    alike
        .iter()
        .take(3000)
        .for_each(|entry| index.insert(*entry));
    check(&index);
}

#[test]
fn the_second_of_an_access_goes_where_its_entry_goes() {
    let all = entries(4, 100_000);
    let second = |entry: Entry| entry.local() + 7;
    let mut index = HashIndex::new(SALT);
    index.note_accesses(Some(3));
    for entry in &all {
        index.insert_used(*entry, second(*entry));
    }
    let check_seconds = |index: &HashIndex| {
        for entry in index.iter() {
            let place = index.search(entry.spread(SALT), |e| e == entry);
            let place = place.expect("an entry that is there");
            assert_eq!(index.accessed(place), Some(second(entry)));
        }
    };
    assert!(index.ranges().len() > 4);
    check_seconds(&index);
    for entry in &all[1000..] {
        assert!(index.remove(*entry));
        index.shrink(*entry);
    }
    assert_eq!(index.ranges().len(), 1, "1000 entries are joined");
    check_seconds(&index);
    index.shrink_all();
    check_seconds(&index);
    index.clear();
    index.insert(all[0]);
    let place = index.search(all[0].spread(SALT), |_| true);
    assert_eq!(place.and_then(|place| index.accessed(place)), Some(3));
}

#[test]
fn an_index_with_room_made_at_once_does_not_grow_while_it_is_filled() {
    for count in [1000, 20_000, 200_000] {
        let all = entries(5, count);
        let mut index = HashIndex::new(SALT);
        index.reserve(all.len());
        let (places, ranges) = (index.place_count(), index.ranges().len());
        all.iter().for_each(|entry| index.insert(*entry));
        assert_eq!(
            (index.place_count(), index.ranges().len()),
            (places, ranges)
        );
        check(&index);
        for entry in &all[10..] {
            assert!(index.remove(*entry));
        }
        index.shrink_all();
        check_all(&index, &all[..10].iter().copied().collect());
        assert!(index.place_count() <= 64);
    }
}

#[test]
fn each_entry_is_as_likely_to_be_chosen_whatever_the_ranges_are() {
    let mut index = filled(&entries(6, 100_000));
    let own: Vec<Entry> = index.iter().collect();
    for entry in own[..40_000].iter().filter(|entry| entry.local() % 8 != 0) {
        assert!(index.remove(*entry));
    }
    let low = index
        .iter()
        .take_while(|entry| *entry != own[40_000])
        .count();
    let (mut in_low, tries) = (0u32, 100_000);
    let low_entries: BTreeSet<Entry> = index.iter().take(low).collect();
    for r in 0..tries {
        let chosen = index.random(r * 1000).expect("an entry");
        in_low += u32::from(low_entries.contains(&chosen));
    }
    let expected = low as f64 / index.len() as f64 * tries as f64;
    let sigma = expected.sqrt();
    assert!(
        (f64::from(in_low) - expected).abs() < 6.0 * sigma,
        "{in_low} of {tries}, {expected} expected"
    );
}

//! The index compared with a set, and the cost of insertions and removals in various orders.

use std::collections::BTreeSet;
use std::sync::Arc;

use perdura_base::{CkptEpoch, PartitionId, TableId};
use perdura_page::{CollectionId, Shape};

use super::range::SPARSE_MAX;
use super::work::counted::{during, searches};
use super::*;
use crate::address::TableCollection;
use crate::elements::Elements;
use crate::geometry::{Geometry, KeyHash};
use crate::latches::Heap;
use crate::memory::MemoryAccount;
use crate::partition::Partition;
use crate::undo::Undo;

const SALT: u64 = 0x1234_5678_9abc_def0;
/// The steps that an insertion or removal may take on average, including its share of the growth. In an array that is
/// four fifths full an unsuccessful search takes 13 steps, and far fewer in an emptier array.
const STEPS: u64 = 24;

fn find(index: &HashIndex, entry: Entry) -> Option<Entry> {
    let place = index.search(entry.spread(index.salt()), |e| e == entry)?;
    index.place(place)
}

fn check(index: &HashIndex, model: &BTreeSet<Entry>) {
    assert_eq!(index.len(), model.len());
    assert_eq!(&index.iter().collect::<BTreeSet<_>>(), model);
    assert!(index.len() * 5 <= index.place_count() * 4);
    for entry in model {
        assert_eq!(find(index, *entry), Some(*entry));
    }
}

#[test]
fn it_is_a_set_under_random_inserts_and_removes_with_colliding_hashes() {
    for hashes in [1, 10, 1 << 30] {
        let mut rng = fastrand::Rng::with_seed(hashes);
        let (mut index, mut model) = (HashIndex::new(SALT), BTreeSet::new());
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
    let mut index = HashIndex::new(SALT);
    assert_eq!(index.search(7, |_| true), None);
    assert!(!index.remove(Entry(0)));
    for entry in [Entry(0), Entry(u64::MAX - 1)] {
        index.insert(entry);
        assert_eq!(find(&index, entry), Some(entry));
    }
    assert_eq!(index.len(), 2);
}

fn random_entries(count: u32) -> Vec<Entry> {
    let mut rng = fastrand::Rng::with_seed(u64::from(count));
    let entry = |local| Entry::new(KeyHash(rng.u64(..)), local, 0);
    (0..count).map(entry).collect()
}

fn filled(salt: u64, entries: &[Entry]) -> HashIndex {
    let mut index = HashIndex::new(salt);
    entries.iter().for_each(|entry| index.insert(*entry));
    index
}

/// Returns the entries in the order of a scan.
fn in_scan_order(index: &HashIndex) -> Vec<Entry> {
    let (mut all, mut cursor) = (Vec::new(), 0);
    loop {
        let (entries, next) = index.scan(cursor, 256, &mut { usize::MAX });
        all.extend(entries);
        match next {
            Some(next) => cursor = next,
            None => return all,
        }
    }
}

/// Searches for an entry that is not in the index and then inserts it, as writing a new name does.
fn write(index: &mut HashIndex, entry: Entry) {
    assert_eq!(find(index, entry), None);
    index.insert(entry);
}

fn steps_of_writing(index: &mut HashIndex, entries: &[Entry]) -> u64 {
    during(|| entries.iter().for_each(|entry| write(index, *entry))) / entries.len() as u64
}

#[test]
fn input_in_the_order_of_another_index_costs_what_random_input_costs_at_any_size() {
    for count in [1000, 4000, 16_000, 64_000] {
        let random = random_entries(count);
        let first = filled(SALT, &random);
        let orders = [
            ("random", random),
            ("scan", in_scan_order(&first)),
            ("places", first.iter().collect()),
            (
                "scan, backwards",
                in_scan_order(&first).into_iter().rev().collect(),
            ),
        ];
        for (name, entries) in orders {
            for salt in [SALT ^ 1, SALT ^ 1 << 40, 0] {
                let mut index = HashIndex::new(salt);
                let steps = steps_of_writing(&mut index, &entries);
                assert!(
                    steps <= STEPS,
                    "{count} in {name} order: {steps} steps each"
                );
            }
        }
    }
}

#[test]
fn input_in_an_indexs_own_order_takes_few_steps_and_bounded_memory() {
    for count in [1000u32, 8000, 64_000] {
        let own = in_scan_order(&filled(SALT, &random_entries(count)));
        let backwards = own.iter().rev().copied().collect();
        for entries in [own, backwards] {
            let mut index = HashIndex::new(SALT);
            let steps = steps_of_writing(&mut index, &entries);
            assert!(steps <= 8 * STEPS, "{count}: {steps} steps each");
            assert!(index.place_count() <= entries.len() * SPARSE_MAX * 3 / 2);
        }
    }
}

#[test]
fn a_sidecar_costs_a_step_for_each_entry_and_makes_the_index_that_it_was_taken_from() {
    for count in [0, 1, 7, 1000, 64_000] {
        let first = filled(SALT, &random_entries(count));
        let own: Vec<Entry> = first.iter().collect();
        let mut index = HashIndex::new(SALT);
        let steps = during(|| index = HashIndex::of_ordered(SALT, own.iter().copied()));
        assert!(steps <= 3 * own.len() as u64, "{steps} steps");
        check_members(&index, &own.iter().copied().collect());
        assert_eq!(in_scan_order(&index), in_scan_order(&first));
    }
}

#[test]
fn the_sidecar_of_a_crowded_index_makes_one_that_is_as_quick_to_read() {
    let own = in_scan_order(&filled(SALT, &random_entries(200_000)));
    let crowd = filled(SALT, &own[..20_000]);
    let held: Vec<Entry> = crowd.iter().collect();
    let again = HashIndex::of_ordered(SALT, held.into_iter());
    check_members(&again, &own[..20_000].iter().copied().collect());
    let of = |index: &HashIndex| {
        during(|| assert!(own[..20_000].iter().all(|e| find(index, *e).is_some())))
    };
    let (first, again) = (of(&crowd), of(&again));
    assert!(again <= 2 * first + 20_000, "{again} steps after {first}");
}

#[test]
fn removal_in_an_indexs_own_order_leaves_an_index_that_is_quick_to_read_and_write() {
    for count in [2000u32, 16_000, 64_000] {
        let mut index = filled(SALT, &random_entries(count));
        let own = in_scan_order(&index);
        let newcomers = random_entries(count / 64 + 1);
        for (nth, entry) in own.iter().enumerate() {
            let steps = during(|| {
                assert!(index.remove(*entry));
                index.shrink(*entry);
            });
            let sweep = index.place_count() as u64 * 4;
            assert!(steps <= sweep, "{count}: removal {nth} took {steps} steps");
            if nth % (own.len() / 8) == 7 {
                let steps = during(|| {
                    for new in &newcomers {
                        write(&mut index, Entry(new.0 ^ 1));
                    }
                });
                let most = 5 * STEPS * newcomers.len() as u64 + 4 * index.place_count() as u64;
                assert!(steps <= most, "{count} after {nth}: {steps} steps");
                for new in &newcomers {
                    assert!(index.remove(Entry(new.0 ^ 1)));
                }
            }
        }
        assert_eq!((index.len(), index.place_count() <= 4096), (0, true));
    }
}

#[test]
fn a_crowded_index_grows_shrinks_and_is_scanned_like_any_other() {
    let mut index = HashIndex::new(SALT);
    let own = in_scan_order(&filled(SALT, &random_entries(20_000)));
    let (low, high) = own.split_at(3000);
    let mut model: BTreeSet<Entry> = low.iter().copied().collect();
    low.iter().for_each(|entry| index.insert(*entry));
    check_members(&index, &model);
    for entry in &high[15_000..] {
        index.insert(*entry);
        model.insert(*entry);
    }
    check_members(&index, &model);
    assert_eq!(in_scan_order(&index).len(), model.len());
    for entry in &low[..2900] {
        assert!(index.remove(*entry) && model.remove(entry));
        index.shrink(*entry);
    }
    check_members(&index, &model);
}

fn check_members(index: &HashIndex, model: &BTreeSet<Entry>) {
    check(index, model);
    assert_eq!(
        in_scan_order(index).into_iter().collect::<BTreeSet<_>>(),
        *model
    );
}

/// Returns a heap that has a set, a hash and a sorted set in each of two partitions. The ids are equal in the two
/// partitions.
fn collections_of_the_same_numbers() -> (Heap, Vec<(Shape, CollectionId)>) {
    let geometry = Geometry {
        partitions: 2,
        chunk_pages: 4,
        hash_seed: 5,
    };
    let heap = Heap::new(geometry, Arc::new(MemoryAccount::new(u64::MAX)));
    heap.set_ckpt_epoch(CkptEpoch(1));
    let mut made = Vec::new();
    for part in [0, 1].map(PartitionId) {
        let mut part = heap.lock(part);
        part.attach_table(TableId(1), false);
        made = [Shape::Set, Shape::Hash, Shape::Zset]
            .map(|shape| {
                (
                    shape,
                    part.make_collection(&mut Undo::new(), TableId(1), shape),
                )
            })
            .map(|(shape, id)| (shape, id.expect("attached")))
            .to_vec();
    }
    (heap, made)
}

#[test]
fn a_copy_costs_per_element_what_the_original_cost_whatever_its_size() {
    for count in [2000u64, 8000, 32_000] {
        let (heap, made) = collections_of_the_same_numbers();
        let (mut from, mut to) = (heap.lock(PartitionId(0)), heap.lock(PartitionId(1)));
        for (shape, id) in made {
            let value = [0; 8];
            let value = if shape == Shape::Zset {
                &value[..]
            } else {
                &[]
            };
            let put = |part: &mut Partition, name: &[u8]| {
                let new = part.element_put(
                    &mut Undo::new(),
                    TableCollection::new(TableId(1), id),
                    name,
                    value,
                );
                assert!(new.expect("room"));
            };
            let steps = during(|| (0..count).for_each(|i| put(&mut from, &i.to_le_bytes())));
            assert!(
                steps <= STEPS * count,
                "{shape:?} of {count}: {steps} steps"
            );
            let names: Vec<Vec<u8>> = match from.elements(TableId(1), id) {
                Some(elements) if matches!(shape, Shape::Zset | Shape::Stream) => {
                    in_order_of_scan(&elements)
                }
                Some(elements) => elements
                    .iter()
                    .map(|row| row.field().into_owned())
                    .collect(),
                None => Vec::new(),
            };
            assert_eq!(names.len() as u64, count);
            let steps = during(|| names.iter().for_each(|name| put(&mut to, name)));
            assert!(
                steps <= STEPS * count,
                "copied {shape:?} of {count}: {steps} steps"
            );
        }
    }
}

fn in_order_of_scan(elements: &Elements<'_>) -> Vec<Vec<u8>> {
    let (mut names, mut cursor) = (Vec::new(), 0);
    loop {
        let (rows, next) = elements.scan(cursor, 256);
        names.extend(rows.iter().map(|row| row.field().into_owned()));
        cursor = next;
        if cursor == 0 {
            return names;
        }
    }
}

#[test]
fn keys_in_the_order_of_another_partition_cost_what_random_ones_cost() {
    let geometry = Geometry {
        partitions: 4,
        chunk_pages: 1,
        hash_seed: 9,
    };
    let salt = |partition| geometry.salts(PartitionId(partition)).of_keys();
    let first = filled(salt(0), &random_entries(16_000));
    let order = in_scan_order(&first);
    for partition in [1, 3] {
        let mut index = HashIndex::new(salt(partition));
        let steps = steps_of_writing(&mut index, &order);
        assert!(steps <= STEPS, "partition {partition}: {steps}");
    }
    assert_eq!(salt(0), first.salt(), "durable numbers give the same salt");
}

#[test]
fn a_part_of_a_stream_is_removed_without_a_search_for_its_name() {
    let (heap, _) = collections_of_the_same_numbers();
    let mut part = heap.lock(PartitionId(0));
    let (table, mut undo) = (TableId(1), Undo::new());
    let id = part.make_collection(&mut undo, table, Shape::Stream);
    let id = id.expect("attached");
    let names: Vec<Vec<u8>> = (0..5000u64)
        .map(|i| [&[4, 0, 0, 0, 1][..], &i.to_be_bytes(), &7u64.to_be_bytes()].concat())
        .collect();
    for name in &names {
        let put = part.element_put(&mut undo, TableCollection::new(table, id), name, name);
        assert!(put.expect("room"));
    }
    let before = searches();
    for name in &names {
        let taken = part.element_take(&mut undo, TableCollection::new(table, id), name, |row| {
            row.value().into_owned()
        });
        assert_eq!(taken.expect("attached").as_ref(), Some(name));
        let again = part.element_take(&mut undo, TableCollection::new(table, id), name, |_| ());
        assert_eq!(again.expect("attached"), None, "it is removed once");
    }
    let made = searches() - before;
    assert_eq!(made, 5000, "one search takes an entry out of the index");
    assert!(part.elements(table, id).is_some_and(|left| left.is_empty()));
}

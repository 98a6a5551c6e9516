//! The memory limit, the size limits, and dropped tables.

use std::ops::Bound;

use perdura_base::limits::{KEY_BYTES_MAX, VALUE_BYTES_MAX};
use perdura_base::{Error, PartitionId, TableId};
use perdura_heap::{GroupBuilder, MemoryUse, TableKey, Undo};

use crate::harness::*;

const P: PartitionId = PartitionId(0);

#[test]
fn at_the_memory_limit_growth_is_refused_and_deletes_and_overwrites_work() {
    let heap = new_heap(1);
    put(&heap, PLAIN, b"a", &[1; 100], None);
    put(&heap, PLAIN, b"big", &[1; 100_000], None);
    heap.memory().set_limit(heap.memory().used());
    let before = contents(&heap);
    let (mut undo, mut group) = (Undo::new(), GroupBuilder::new());
    for bytes in [1000, 16_000, 50_000] {
        let hash = heap.geometry().hash(b"new");
        let refused = heap.lock(P).put(
            &mut undo,
            TableKey::new(PLAIN, b"new", hash),
            &vec![0; bytes],
            None,
        );
        assert!(matches!(refused, Err(Error::OutOfMemory { .. })), "{bytes}");
    }
    heap.lock(P).encode(&undo, &mut group);
    assert!(group.is_empty(), "a refused write changes nothing");
    assert_eq!(contents(&heap), before);
    put(&heap, PLAIN, b"a", &[2; 100], None);
    undo.clear();
    assert!(
        heap.lock(P)
            .delete(&mut undo, PLAIN, b"big", heap.geometry().hash(b"big"))
            .is_some()
    );
    put(&heap, PLAIN, b"new", &[0; 50_000], None);
    heap.lock(P).attach_table(TableId(0), false);
    heap.memory().set_limit(0);
    put(&heap, TableId(0), b"t", b"the catalog may grow", None);
}

#[test]
fn oversized_rows_and_unknown_tables_are_the_callers_mistake() {
    let heap = new_heap(1);
    let mut undo = Undo::new();
    let long = vec![0; KEY_BYTES_MAX + 1];
    let mut part = heap.lock(P);
    let hash = heap.geometry().hash(&long);
    let refused = part.put(&mut undo, TableKey::new(PLAIN, &long, hash), b"", None);
    assert!(matches!(refused, Err(Error::Usage(_))));
    let hash = heap.geometry().hash(b"k");
    let refused = part.put(
        &mut undo,
        TableKey::new(PLAIN, b"k", hash),
        &vec![0; VALUE_BYTES_MAX + 1],
        None,
    );
    assert!(matches!(refused, Err(Error::Usage(_))));
    let refused = part.put(
        &mut undo,
        TableKey::new(TableId(77), b"k", hash),
        b"v",
        None,
    );
    assert!(matches!(refused, Err(Error::Usage(_))));
    assert!(undo.is_empty());
    assert!(part.get(TableId(77), b"k", hash).is_none());
    assert!(part.delete(&mut undo, TableId(77), b"k", hash).is_none());
}

#[test]
fn pages_of_a_detached_table_are_reclaimed_and_used_again() {
    let heap = new_heap(1);
    for i in 0..300u32 {
        put(&heap, PLAIN, &i.to_le_bytes(), &[7; 400], None);
    }
    put(&heap, PLAIN, b"large", &[7; 70_000], None);
    put(&heap, ORDERED, b"stays", b"here", None);
    let pages = heap.lock(P).pages();
    drop(heap.lock(P).detach_table(PLAIN));
    assert!(heap.lock(P).detach_table(PLAIN).is_none());
    let mut freed = 0;
    loop {
        let (mut undo, mut group) = (Undo::new(), GroupBuilder::new());
        let n = heap.lock(P).reclaim(&mut undo, 3);
        heap.lock(P).encode(&undo, &mut group);
        assert_eq!(n == 0, group.finish().is_empty());
        if n == 0 {
            break;
        }
        freed += n;
    }
    assert!(freed > 10);
    assert_eq!(heap.memory().get(MemoryUse::Pages), 16 * 1024);
    heap.lock(P).attach_table(PLAIN, false);
    put(&heap, PLAIN, b"large", &[7; 70_000], None);
    assert_eq!(heap.lock(P).pages(), pages);
    assert_eq!(contents(&heap).len(), 2);
}

#[test]
fn scans_honour_every_kind_of_bound() {
    let heap = new_heap(1);
    for key in [b"a", b"b", b"c", b"d"] {
        put(&heap, ORDERED, key, key, None);
    }
    let part = heap.lock(P);
    let scan = |low, high, limit| -> Vec<u8> {
        part.scan(ORDERED, low, high, limit)
            .into_iter()
            .map(|(key, _)| key[0])
            .collect()
    };
    use Bound::{Excluded, Included, Unbounded};
    assert_eq!(scan(Unbounded, Unbounded, 9), b"abcd");
    assert_eq!(scan(Included(&b"b"[..]), Excluded(&b"d"[..]), 9), b"bc");
    assert_eq!(scan(Excluded(&b"b"[..]), Unbounded, 1), b"c");
    assert_eq!(scan(Included(&b"c"[..]), Included(&b"b"[..]), 9), b"");
    assert_eq!(scan(Excluded(&b"b"[..]), Excluded(&b"b"[..]), 9), b"");
    assert_eq!(part.scan(PLAIN, Unbounded, Unbounded, 9), []);
}

#[test]
fn due_rows_are_listed_longest_overdue_first() {
    let heap = new_heap(1);
    for (key, expiry) in [
        (b"a", Some(30)),
        (b"b", None),
        (b"c", Some(10)),
        (b"d", Some(31)),
    ] {
        put(&heap, PLAIN, key, b"", expiry);
    }
    let part = heap.lock(P);
    assert_eq!(part.expired(PLAIN, 30, 9), [b"c", b"a"]);
    assert_eq!(part.expired(PLAIN, 99, 1), [b"c"]);
    assert_eq!(part.expired(PLAIN, 9, 9), [[0u8; 0]; 0]);
}

#[test]
fn sixteen_byte_keys_with_hundred_byte_values_stay_within_the_memory_goal() {
    let heap = new_heap(1);
    for i in 0..20_000u64 {
        let mut key = [b'k'; 16];
        key[..8].copy_from_slice(&i.to_le_bytes());
        put(&heap, PLAIN, &key, &[1; 100], None);
    }
    let per_row = |what| heap.memory().get(what) / 20_000;
    assert!(
        per_row(MemoryUse::Pages) * 100 <= 121 * 115,
        "{}",
        per_row(MemoryUse::Pages)
    );
    assert!(
        per_row(MemoryUse::Indexes) <= 20,
        "{}",
        per_row(MemoryUse::Indexes)
    );
}

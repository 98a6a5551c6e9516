//! The code that the tests share: a small heap, one-row transactions, and a heap's contents as a map.

use std::collections::BTreeMap;
use std::sync::Arc;

use perdura_base::{CkptEpoch, PartitionId, TableId};
use perdura_heap::{Geometry, GroupBuilder, Heap, MemoryAccount, TableForm, TableKey, Undo};

/// A plain table.
pub const PLAIN: TableId = TableId(1);
/// A table with an ordered index.
pub const ORDERED: TableId = TableId(2);

/// A map from table and key to value and expiry.
pub type Contents = BTreeMap<(TableId, Vec<u8>), (Vec<u8>, Option<u64>)>;

pub fn ordered(table: TableId) -> Option<TableForm> {
    match table.0 {
        1 => Some(false.into()),
        2 => Some(true.into()),
        _ => None,
    }
}

pub fn bare_heap(partitions: u16) -> Heap {
    let geometry = Geometry {
        partitions,
        chunk_pages: 4,
        hash_seed: 5,
    };
    let heap = Heap::new(geometry, Arc::new(MemoryAccount::new(u64::MAX)));
    heap.set_ckpt_epoch(CkptEpoch(1));
    heap
}

pub fn new_heap(partitions: u16) -> Heap {
    let heap = bare_heap(partitions);
    for p in ids(&heap) {
        heap.lock(p).attach_table(PLAIN, false);
        heap.lock(p).attach_table(ORDERED, true);
    }
    heap
}

pub fn ids(heap: &Heap) -> impl Iterator<Item = PartitionId> + use<> {
    (0..heap.geometry().partitions).map(PartitionId)
}

/// Returns the contents of the heap. Checks that all functions for reading the heap agree.
pub fn contents(heap: &Heap) -> Contents {
    let mut out = Contents::new();
    for p in ids(heap) {
        let part = heap.lock(p);
        for table in [PLAIN, ORDERED] {
            let mut mine = BTreeMap::new();
            part.for_each(table, |row| {
                let mut value = Vec::new();
                row.copy_value(&mut value);
                assert_eq!(value.len(), row.value_len());
                assert!(row.value_slice().is_none_or(|slice| slice == value));
                let twin = mine.insert(row.key().into_owned(), (value, row.expiry_ms()));
                assert!(twin.is_none());
            });
            let len = u64::try_from(mine.len()).expect("rows");
            assert_eq!(part.len(table), len);
            let expiring = mine.values().filter(|(_, expiry)| expiry.is_some()).count();
            assert_eq!(part.expiring(table), u64::try_from(expiring).expect("rows"));
            assert_eq!(part.expired(table, u64::MAX, usize::MAX).len(), expiring);
            assert_eq!(part.random_row(table, 12345).is_some(), len > 0);
            for (key, (value, expiry)) in &mine {
                let row = part
                    .get(table, key, heap.geometry().hash(key))
                    .expect("the row");
                let mut copy = Vec::new();
                row.copy_value(&mut copy);
                assert_eq!((&copy, row.expiry_ms()), (value, *expiry));
            }
            if table == ORDERED {
                use std::ops::Bound::Unbounded;
                let scanned = part.scan(table, Unbounded, Unbounded, usize::MAX);
                let want: Vec<_> = mine
                    .iter()
                    .map(|(k, (v, _))| (k.clone(), v.clone()))
                    .collect();
                assert_eq!(scanned, want);
            }
            out.extend(mine.into_iter().map(|(key, row)| ((table, key), row)));
        }
    }
    out
}

/// Returns the logged region of every page, but leaves out regions that are all zeros.
pub fn logged_bytes(heap: &Heap) -> Vec<(PartitionId, u32, Vec<u8>)> {
    let mut out = Vec::new();
    for p in ids(heap) {
        let part = heap.lock(p);
        for local in 0..part.pages() {
            let bytes = part.page_bytes(local).expect("a page")[16..].to_vec();
            if bytes.iter().any(|b| *b != 0) {
                out.push((p, local, bytes));
            }
        }
    }
    out
}

/// Copies every page from `from` to `to`, as loading an image does.
pub fn load_pages(from: &Heap, to: &Heap) {
    for p in ids(from) {
        let part = from.lock(p);
        for local in 0..part.pages() {
            to.lock(p)
                .load_page(local, part.page_bytes(local).expect("a page"));
        }
    }
}

/// Commits a transaction that puts one row, and returns the transaction's group.
pub fn put(heap: &Heap, table: TableId, key: &[u8], value: &[u8], expiry: Option<u64>) -> Vec<u8> {
    let hash = heap.geometry().hash(key);
    let mut part = heap.lock(heap.geometry().partition_of(hash));
    let (mut undo, mut group) = (Undo::new(), GroupBuilder::new());
    part.put(&mut undo, TableKey::new(table, key, hash), value, expiry)
        .expect("room");
    part.encode(&undo, &mut group);
    group.finish().to_vec()
}

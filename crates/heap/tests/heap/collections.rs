//! Collections in the heap: the state after a rollback, the contents of a sidecar, and damage.

use perdura_base::{CkptEpoch, Error, ImageSlot, PartitionId};
use perdura_heap::{
    CollectionId, End, Heap, Home, IndexStats, Kind, MemoryUse, NewRow, Partition, RowRef, Shape,
    TableCollection, TableKey, Undo, scan_places,
};
use perdura_page::{SlotClass, layout};

use crate::harness::*;

const P: PartitionId = PartitionId(0);

#[test]
fn an_index_of_keys_gives_memory_back_as_its_keys_are_deleted() {
    let heap = new_heap(1);
    let keys: Vec<String> = (0..20_000).map(|i| format!("key {i}")).collect();
    for key in &keys {
        put(&heap, PLAIN, key.as_bytes(), b"value", None);
    }
    let full = heap.memory().get(MemoryUse::Indexes);
    let mut part = heap.lock(P);
    let mut undo = Undo::new();
    for key in &keys[..19_980] {
        let hash = heap.geometry().hash(key.as_bytes());
        assert!(
            part.delete(&mut undo, PLAIN, key.as_bytes(), hash)
                .is_some()
        );
    }
    part.encode(&undo, &mut perdura_heap::GroupBuilder::new());
    let left = heap.memory().get(MemoryUse::Indexes);
    assert!(left * 50 < full, "{left} of {full} bytes");
    let mut places = scan_places(50);
    let (rows, next) = part.scan_keys(PLAIN, 0, 50, &mut places);
    assert_eq!((rows.len(), next), (20, 0), "one call finds what is left");
}

/// Makes a key that is the header of a collection with `count` elements.
fn fill(heap: &Heap, key: &[u8], shape: Shape, count: u32) -> CollectionId {
    let hash = heap.geometry().hash(key);
    let mut undo = Undo::new();
    let mut part = heap.lock(heap.geometry().partition_of(hash));
    let (id, _) = part
        .create(&mut undo, TableKey::new(PLAIN, key, hash), shape, None)
        .expect("room");
    for i in 0..count {
        write(&mut part, &mut undo, shape, id, i);
    }
    part.encode(&undo, &mut perdura_heap::GroupBuilder::new());
    id
}

fn write(part: &mut Partition, undo: &mut Undo, shape: Shape, id: CollectionId, i: u32) {
    let name = format!("element {i}");
    let score = f64::from(i % 7).to_le_bytes();
    let value: &[u8] = match shape {
        Shape::List => {
            let end = if i.is_multiple_of(2) {
                End::Back
            } else {
                End::Front
            };
            let pushed = part.list_push(
                undo,
                TableCollection::new(PLAIN, id),
                end,
                &[name.as_bytes()],
            );
            pushed.expect("room");
            return;
        }
        Shape::Hash | Shape::Stream => b"value",
        Shape::Set => b"",
        Shape::Zset => &score,
    };
    part.element_put(
        undo,
        TableCollection::new(PLAIN, id),
        name.as_bytes(),
        value,
    )
    .expect("room");
}

/// Returns all elements of a collection with their values. Items and members keep their order; names are sorted.
fn elements(heap: &Heap, id: CollectionId) -> Option<Vec<(Vec<u8>, Vec<u8>)>> {
    let part = heap.lock(P);
    let elements = part.elements(PLAIN, id)?;
    let rows = elements.iter().map(|row| {
        let mut value = Vec::new();
        row.copy_value(&mut value);
        (row.field().into_owned(), value)
    });
    let mut rows: Vec<_> = rows.collect();
    if matches!(elements.shape(), Shape::Hash | Shape::Set) {
        rows.sort();
    }
    Some(rows)
}

#[test]
fn a_rollback_restores_bytes_elements_and_orphans() {
    for shape in Shape::ALL {
        for count in [5, 100, 400] {
            let heap = new_heap(1);
            let id = fill(&heap, b"key", shape, count);
            let (bytes, before) = (logged_bytes(&heap), elements(&heap, id));
            let pages = heap.memory().get(MemoryUse::Pages);
            let hash = heap.geometry().hash(b"key");
            let mut undo = Undo::new();
            let mut part = heap.lock(P);
            for i in 0..50 {
                write(&mut part, &mut undo, shape, id, 3 * i);
                write(&mut part, &mut undo, shape, id, 1000 + i);
            }
            if shape == Shape::List {
                for end in [End::Front, End::Back] {
                    let items: [&[u8]; 3] = [b"a", b"b", b"c"];
                    let pushed =
                        part.list_push(&mut undo, TableCollection::new(PLAIN, id), end, &items);
                    pushed.expect("room");
                }
            }
            assert!(part.delete(&mut undo, PLAIN, b"key", hash).is_some());
            assert!(part.elements(PLAIN, id).is_none());
            part.purge_orphans(&mut undo, 37);
            let (other, _) = part
                .create(
                    &mut undo,
                    TableKey::new(PLAIN, b"key", hash),
                    shape,
                    Some(9),
                )
                .expect("room");
            for i in 0..200 {
                write(&mut part, &mut undo, shape, other, i);
            }
            part.rollback(&undo);
            assert_eq!(part.orphan_rows(), 0);
            drop(part);
            assert!(logged_bytes(&heap) == bytes);
            assert_eq!(elements(&heap, id), before, "{shape:?} {count}");
            assert!(elements(&heap, other).is_none());
            assert_eq!(heap.memory().get(MemoryUse::Pages), pages);
        }
    }
}

/// Returns items of several lengths. One item needs a chain of pages.
fn items() -> Vec<Vec<u8>> {
    let mut rng = fastrand::Rng::with_seed(11);
    let mut items: Vec<_> = (0..3000u32)
        .map(|i| vec![i.to_le_bytes()[0]; rng.usize(0..40)])
        .collect();
    items[1500] = vec![7; 40_000];
    items
}

#[test]
fn items_pushed_and_popped_together_leave_the_pages_that_they_leave_one_by_one() {
    let items = items();
    let all: Vec<&[u8]> = items.iter().map(Vec::as_slice).collect();
    for end in [End::Front, End::Back] {
        let left = [1, 3000].map(|step| {
            let heap = new_heap(1);
            let id = fill(&heap, b"key", Shape::List, 2000);
            let mut undo = Undo::new();
            let mut part = heap.lock(P);
            let list = TableCollection::new(PLAIN, id);
            for left in (100..2000).rev().step_by(step.min(1900)) {
                if step == 1 {
                    let taken = part.list_take(&mut undo, list, end, |_| ());
                    assert_eq!(taken.expect("a list"), Some(((), left)));
                } else {
                    let popped = part.list_pop(&mut undo, list, end, 1900);
                    popped.expect("items");
                }
            }
            let mut len = 100;
            for few in all.chunks(step) {
                len += few.len();
                let pushed = part.list_push(&mut undo, list, end, few);
                assert_eq!(pushed.expect("room"), len);
            }
            drop(part);
            (logged_bytes(&heap), elements(&heap, id))
        });
        assert!(left[0] == left[1], "{end:?}");
    }
}

#[test]
fn the_only_item_of_a_list_is_read_and_stays() {
    let heap = new_heap(1);
    let id = fill(&heap, b"key", Shape::List, 2);
    let (bytes, before) = (logged_bytes(&heap), elements(&heap, id));
    let list = TableCollection::new(PLAIN, id);
    let mut undo = Undo::new();
    let mut part = heap.lock(P);
    let mut take = |end| {
        let read = |row: RowRef<'_>| row.value().into_owned();
        part.list_take(&mut undo, list, end, read).expect("a list")
    };
    let (first, left) = take(End::Front).expect("an item");
    assert_eq!(left, 1);
    let (second, left) = take(End::Back).expect("an item");
    assert_eq!(left, 0);
    assert_ne!(first, second);
    assert_eq!(take(End::Front), Some((second, 0)), "it is still there");
    part.rollback(&undo);
    drop(part);
    assert!(logged_bytes(&heap) == bytes);
    assert_eq!(elements(&heap, id), before);
}

#[test]
fn a_rollback_gives_back_items_that_were_popped_together() {
    let heap = new_heap(1);
    let id = fill(&heap, b"key", Shape::List, 2000);
    let (bytes, before) = (logged_bytes(&heap), elements(&heap, id));
    let items = items();
    let all: Vec<&[u8]> = items.iter().map(Vec::as_slice).collect();
    let mut undo = Undo::new();
    let mut part = heap.lock(P);
    for (end, count) in [(End::Front, 700), (End::Back, 900), (End::Front, 3)] {
        let popped = part.list_pop(&mut undo, TableCollection::new(PLAIN, id), end, count);
        popped.expect("items");
        let pushed = part.list_push(&mut undo, TableCollection::new(PLAIN, id), end, &all);
        pushed.expect("room");
        let popped = part.list_pop(&mut undo, TableCollection::new(PLAIN, id), end, 2500);
        popped.expect("items");
    }
    part.rollback(&undo);
    drop(part);
    assert!(logged_bytes(&heap) == bytes);
    assert_eq!(elements(&heap, id), before);
}

fn restarted(heap: &Heap, sidecar: Option<&[u8]>) -> Result<(Heap, IndexStats, u64), Error> {
    let copy = bare_heap(1);
    load_pages(heap, &copy);
    copy.lock(P)
        .finish_restart(CkptEpoch(1), Some(ImageSlot::A));
    let sidecar = sidecar.map(|bytes| copy.read_sidecar(P, bytes));
    let stats = copy.lock(P).build_indexes(&ordered, sidecar)?;
    let orphans = copy.settle_collections()?;
    Ok((copy, stats, orphans))
}

/// Returns the names that a scan returns from a cursor to the end.
fn scanned(heap: &Heap, id: CollectionId, mut cursor: u64) -> Vec<Vec<u8>> {
    let part = heap.lock(P);
    let elements = part.elements(PLAIN, id).expect("there");
    let mut names = Vec::new();
    loop {
        let (rows, next) = elements.scan(cursor, 10);
        names.extend(rows.iter().map(|row| row.field().into_owned()));
        cursor = next;
        if cursor == 0 {
            return names;
        }
    }
}

#[test]
fn a_cursor_goes_on_after_a_restart_where_it_stood() {
    let heap = new_heap(1);
    let keys = (0..300).map(|i| format!("key {i}"));
    keys.for_each(|key| drop(put(&heap, PLAIN, key.as_bytes(), b"value", None)));
    let set = fill(&heap, b"set", Shape::Set, 300);
    let ranked = fill(&heap, b"sorted set", Shape::Zset, 300);
    let mut sidecar = Vec::new();
    heap.lock(P).sidecar(&mut sidecar);
    let (copy, ..) = restarted(&heap, Some(&sidecar)).expect("sound");
    let names = |heap: &Heap, cursor| {
        let part = heap.lock(P);
        let (rows, next) = part.scan_keys(PLAIN, cursor, 100, &mut scan_places(100));
        let names: Vec<Vec<u8>> = rows.iter().map(|row| row.key().into_owned()).collect();
        (names, next)
    };
    let (_, cursor) = names(&heap, 0);
    assert_eq!(names(&heap, cursor), names(&copy, cursor));
    for id in [set, ranked] {
        let (_, cursor) = heap
            .lock(P)
            .elements(PLAIN, id)
            .expect("there")
            .scan(0, 100);
        let rest = scanned(&heap, id, cursor);
        assert_eq!(rest, scanned(&copy, id, cursor));
        assert!((199..=200).contains(&rest.len()), "{}", rest.len());
    }
}

#[test]
fn a_sidecar_knows_the_keys_and_elements_are_found_by_their_rows() {
    let heap = new_heap(1);
    let ids = Shape::ALL.map(|shape| fill(&heap, format!("{shape:?}").as_bytes(), shape, 300));
    put(&heap, PLAIN, b"string", b"value", None);
    let mut sidecar = Vec::new();
    heap.lock(P).sidecar(&mut sidecar);
    let (copy, stats, orphans) = restarted(&heap, Some(&sidecar)).expect("sound");
    assert_eq!((stats.from_sidecar, stats.from_rows), (6, 1500));
    assert_eq!(
        (stats.rows, stats.sidecar_refused, orphans),
        (1506, false, 0)
    );
    let (again, stats, _) = restarted(&heap, None).expect("sound");
    assert_eq!((stats.from_sidecar, stats.from_rows), (0, 1506));
    for id in ids {
        assert_eq!(elements(&copy, id), elements(&heap, id));
        assert_eq!(elements(&again, id), elements(&heap, id));
    }
    assert_eq!(copy.lock(P).len(PLAIN), 6);
    // Here the sidecar lists an element as a key.
    let mut wrong = sidecar.clone();
    let last = wrong.len() - 8;
    wrong.copy_within(8..16, last);
    wrong[last] ^= 1;
    let (copy, stats, _) = restarted(&heap, Some(&wrong)).expect("sound");
    assert!(stats.sidecar_refused);
    assert_eq!((copy.lock(P).len(PLAIN), stats.rows), (6, 1506));
}

#[test]
fn collections_without_a_header_are_orphans_and_their_numbers_are_not_used_again() {
    let heap = new_heap(1);
    let id = fill(&heap, b"key", Shape::Zset, 300);
    let mut undo = Undo::new();
    let hash = heap.geometry().hash(b"key");
    heap.lock(P).delete(&mut undo, PLAIN, b"key", hash);
    let (copy, _, orphans) = restarted(&heap, None).expect("sound");
    assert_eq!((orphans, copy.lock(P).orphan_rows()), (1, 300));
    let next = fill(&copy, b"other", Shape::Set, 3);
    assert!(next > id);
    let mut undo = Undo::new();
    let mut part = copy.lock(P);
    assert_eq!(part.purge_orphans(&mut undo, 256), 256);
    assert_eq!(part.purge_orphans(&mut undo, 256), 44);
    assert_eq!(part.purge_orphans(&mut undo, 256), 0);
    drop(part);
    assert_eq!(elements(&copy, next).map(|rows| rows.len()), Some(3));
}

/// Restarts a copy of the heap. Before that, passes every row of the copy to `change`.
fn with_rows(heap: &Heap, mut change: impl FnMut(&mut [u8])) -> Result<u64, Error> {
    let copy = bare_heap(1);
    {
        let (from, mut to) = (heap.lock(P), copy.lock(P));
        for local in 0..from.pages() {
            let mut page = from.page_bytes(local).expect("a page").to_vec();
            let class: Option<SlotClass> = from.slotted(local);
            if let Some(class) = class {
                let slots: Vec<usize> = layout::taken(&page, class).collect();
                for slot in slots {
                    let at = class.slot_offset(slot);
                    change(&mut page[at..at + class.bytes()]);
                }
            }
            to.load_page(local, &page);
        }
        to.build_indexes(&ordered, None)?;
    }
    copy.settle_collections()
}

#[test]
fn damage_of_headers_and_elements_is_an_error_that_names_page_and_slot() {
    let is = |row: &[u8], kind: Kind| row[0] >> 4 == kind.code();
    type Change = Box<dyn FnMut(&mut [u8])>;
    let cases: Vec<(&str, Shape, Change)> = vec![
        (
            "a header of another collection",
            Shape::Set,
            Box::new(move |row| {
                if is(row, Kind::Header(Shape::Set)) {
                    // The bytes of the row: flags, lengths, key "key", partition, id.
                    row[7] = 99;
                }
            }),
        ),
        (
            "a header of another shape",
            Shape::Set,
            Box::new(move |row| {
                if is(row, Kind::Header(Shape::Set)) {
                    row[0] = Kind::Header(Shape::Hash).code() << 4;
                }
            }),
        ),
        (
            "a header in a partition that is not",
            Shape::Set,
            Box::new(move |row| {
                if is(row, Kind::Header(Shape::Set)) {
                    row[6] = 5;
                }
            }),
        ),
        (
            "a score that is no number",
            Shape::Zset,
            Box::new(move |row| {
                if is(row, Kind::Element(Shape::Zset)) {
                    let value = 3 + usize::from(row[1]);
                    row[value..value + 8].copy_from_slice(&f64::NAN.to_le_bytes());
                }
            }),
        ),
        (
            "two items of one label",
            Shape::List,
            Box::new(move |row| {
                if is(row, Kind::Element(Shape::List)) && row[1] == 4 {
                    row[4..7].copy_from_slice(&[0x80, 0x80, 0x01]);
                }
            }),
        ),
        (
            "an element among those of another shape",
            Shape::Hash,
            Box::new(move |row| {
                if is(row, Kind::Element(Shape::Hash)) && row.windows(2).any(|w| w == b" 3") {
                    row[0] = Kind::Element(Shape::Zset).code() << 4;
                }
            }),
        ),
        (
            "two elements of one name",
            Shape::Set,
            Box::new(move |row| {
                if is(row, Kind::Element(Shape::Set)) {
                    let last = 3 + usize::from(row[1]) - 1;
                    row[last] = b'0';
                }
            }),
        ),
    ];
    for (name, shape, change) in cases {
        let heap = new_heap(1);
        fill(&heap, b"key", shape, 9);
        assert_eq!(with_rows(&heap, |_| ()).expect("sound"), 0);
        let error = with_rows(&heap, change).expect_err(name);
        assert!(matches!(error, Error::Corrupt(_)), "{name}: {error}");
        assert!(error.to_string().contains("slot"), "{name}: {error}");
    }
}

#[test]
fn two_headers_of_one_collection_are_damage() {
    let heap = new_heap(1);
    let id = fill(&heap, b"key", Shape::Set, 9);
    let twin = Home { partition: P, id }.encode();
    let hash = heap.geometry().hash(b"twin");
    let mut undo = Undo::new();
    let at = TableKey::new(PLAIN, b"twin", hash);
    let header = NewRow::of(at, Kind::Header(Shape::Set), &twin, None);
    heap.lock(P)
        .put_kind(&mut undo, PLAIN, &header)
        .expect("room");
    let error = with_rows(&heap, |_| ()).expect_err("damage");
    assert!(error.to_string().contains("another key heads"), "{error}");
}

#[test]
fn random_bytes_in_rows_of_collections_never_panic() {
    let mut rng = fastrand::Rng::with_seed(4);
    for shape in Shape::ALL {
        let heap = new_heap(1);
        fill(&heap, b"key", shape, 40);
        for _ in 0..400 {
            let mut left = rng.usize(1..4);
            let outcome = with_rows(&heap, |row| {
                if left > 0 && rng.u8(0..20) == 0 {
                    left -= 1;
                    let at = rng.usize(0..row.len().min(12));
                    row[at] = rng.u8(..);
                }
            });
            if let Err(error) = outcome {
                assert!(matches!(error, Error::Corrupt(_)), "{error}");
            }
        }
    }
}

//! The check of update numbers, the dirty bits after a restart, sidecars, and damage.

use perdura_base::{CkptEpoch, Error, ImageSlot, PartitionId, Useq};
use perdura_heap::{Heap, TableForm, Visit, decode_group};

use crate::harness::*;

const P: PartitionId = PartitionId(0);

fn apply(heap: &Heap, group: &[u8]) {
    for record in decode_group(group).expect("a group").records() {
        heap.lock(P).apply(&record).expect("a page");
    }
}

/// Returns a heap with one row, and a copy of the row's page. The page's update number is `useq`.
fn heap_at(useq: u32) -> (Heap, Vec<u8>) {
    let heap = new_heap(1);
    put(&heap, PLAIN, b"k", b"0000", None);
    let mut page = heap.lock(P).page_bytes(0).expect("a page").to_vec();
    page[8..12].copy_from_slice(&useq.to_le_bytes());
    let heap = new_heap(1);
    heap.lock(P).load_page(0, &page);
    heap.lock(P)
        .finish_restart(CkptEpoch(1), Some(ImageSlot::A));
    heap.lock(P).build_indexes(&ordered, None).expect("sound");
    (heap, page)
}

#[test]
fn lost_and_doubled_records_are_found_also_across_the_wrap_of_update_numbers() {
    for start in [0, 7, u32::MAX - 2, u32::MAX] {
        let (heap, page) = heap_at(start);
        let groups: Vec<Vec<u8>> = (1..=5u8)
            .map(|i| put(&heap, PLAIN, b"k", &[i; 4], None))
            .collect();
        let replay = |order: &[usize]| {
            let heap = new_heap(1);
            heap.lock(P).load_page(0, &page);
            for i in order {
                apply(&heap, &groups[*i]);
            }
            heap
        };
        for order in [&[0, 1, 2, 3, 4][..], &[4, 2, 0, 1, 3], &[0, 1, 2], &[]] {
            let heap = replay(order);
            assert_eq!(heap.lock(P).useq_gaps(), [], "{start} {order:?}");
            heap.lock(P).finish_restart(CkptEpoch(1), None);
            let bytes = heap.lock(P).page_bytes(0).expect("a page").to_vec();
            let want = start.wrapping_add(u32::try_from(order.len()).expect("few"));
            assert_eq!(bytes[8..12], want.to_le_bytes());
        }
        for order in [
            &[1, 2, 3, 4][..],
            &[0, 1, 3, 4],
            &[0, 0],
            &[0, 1, 1, 3],
            &[0, 1, 2, 2, 4],
            &[4],
        ] {
            let heap = replay(order);
            let gaps = heap.lock(P).useq_gaps();
            assert_eq!(gaps.len(), 1, "{start} {order:?}");
            assert_eq!(gaps[0].image_useq, Useq(start));
            assert_eq!(usize::try_from(gaps[0].seen).expect("few"), order.len());
        }
    }
}

#[test]
fn after_restart_a_page_is_clean_only_for_the_loaded_image_and_only_if_unchanged() {
    let heap = new_heap(1);
    put(&heap, PLAIN, b"a", &[1; 20], None);
    put(&heap, PLAIN, b"b", &[1; 200], None);
    let restarted = new_heap(1);
    load_pages(&heap, &restarted);
    let touch = put(&heap, PLAIN, b"b", &[2; 200], None);
    let born = put(&heap, PLAIN, b"c", &[1; 5000], None);
    apply(&restarted, &touch);
    apply(&restarted, &born);
    let mut part = restarted.lock(P);
    assert_eq!(part.touched_pages(), 2);
    part.finish_restart(CkptEpoch(9), Some(ImageSlot::B));
    let bits = |local| ImageSlot::ALL.map(|slot| part.is_dirty(local, slot));
    assert_eq!(bits(0), [true, false], "unchanged");
    assert_eq!(bits(1), [true, true], "changed by a record");
    assert_eq!(bits(2), [true, true], "born after the image");
    part.build_indexes(&ordered, None).expect("sound");
    assert_eq!(part.visit(0, ImageSlot::B, CkptEpoch(10)), Visit::Clean);
    assert!(matches!(
        part.visit(0, ImageSlot::A, CkptEpoch(11)),
        Visit::Dirty(_)
    ));
    drop(part);
    assert_eq!(contents(&restarted), contents(&heap));
}

#[test]
fn without_an_image_every_page_is_dirty_for_both() {
    let heap = new_heap(1);
    let group = put(&heap, PLAIN, b"a", b"1", None);
    let restarted = bare_heap(1);
    apply(&restarted, &group);
    restarted.lock(P).finish_restart(CkptEpoch(0), None);
    assert!(
        ImageSlot::ALL
            .iter()
            .all(|slot| restarted.lock(P).is_dirty(0, *slot))
    );
}

#[test]
fn a_sidecar_loads_what_a_rebuild_finds_and_a_wrong_one_is_refused() {
    let heap = new_heap(1);
    for i in 0..500 {
        let expiry = (i % 7 == 0).then_some(i);
        let key = format!("row {i}").into_bytes();
        put(&heap, PLAIN, &key, &[3; 90], expiry);
        put(
            &heap,
            ORDERED,
            &key,
            &vec![3; if i % 50 == 0 { 20_000 } else { 10 }],
            expiry,
        );
    }
    let mut sidecar = Vec::new();
    heap.lock(P).sidecar(&mut sidecar);
    let build = |sidecar: Option<&[u8]>| {
        let copy = bare_heap(1);
        load_pages(&heap, &copy);
        copy.lock(P)
            .finish_restart(CkptEpoch(1), Some(ImageSlot::A));
        let sidecar = sidecar.map(|bytes| copy.read_sidecar(P, bytes));
        let stats = copy
            .lock(P)
            .build_indexes(&ordered, sidecar)
            .expect("sound");
        assert_eq!(stats.rows, 1000);
        assert_eq!(contents(&copy), contents(&heap));
        stats
    };
    let loaded = build(Some(&sidecar));
    assert_eq!((loaded.from_sidecar, loaded.from_rows), (1000, 0));
    let rebuilt = build(None);
    assert_eq!((rebuilt.from_sidecar, rebuilt.from_rows), (0, 1000));
    for cut in [1, 7, 8, 100, sidecar.len() / 2] {
        assert!(build(Some(&sidecar[..sidecar.len() - cut])).sidecar_refused);
    }
    let mut wrong = sidecar.clone();
    wrong[8] ^= 1;
    assert!(build(Some(&wrong)).sidecar_refused);
    let mut doubled = sidecar.clone();
    doubled.copy_within(8..16, 16);
    assert!(build(Some(&doubled)).sidecar_refused);
}

fn with_page(change: impl FnOnce(&mut [u8])) -> Result<perdura_heap::IndexStats, Error> {
    let heap = new_heap(1);
    put(&heap, PLAIN, b"a", &[1; 100], None);
    put(&heap, PLAIN, b"b", &[1; 100], None);
    let mut page = heap.lock(P).page_bytes(0).expect("a page").to_vec();
    change(&mut page);
    let copy = bare_heap(1);
    copy.lock(P).load_page(0, &page);
    copy.lock(P).build_indexes(&ordered, None)
}

#[test]
fn damage_is_an_error_that_names_page_and_slot() {
    assert_eq!(with_page(|_| ()).expect("sound").rows, 2);
    let slot_1 = 64
        + 8 * 3
        + perdura_page::SlotClass::for_bytes(104)
            .expect("a class")
            .bytes();
    type Change = (&'static str, Box<dyn FnOnce(&mut [u8])>);
    let changes: Vec<Change> = vec![
        ("duplicate", Box::new(move |p| p[slot_1 + 3] = b'a')),
        ("flags", Box::new(move |p| p[slot_1] = 0xff)),
        ("kind", Box::new(|p| p[22] = 9)),
        ("class", Box::new(|p| p[20] = 200)),
        ("reserved", Box::new(|p| p[40] = 1)),
        ("bit beyond", Box::new(|p| p[64 + 23] = 0x80)),
        ("page id", Box::new(|p| p[12] = 3)),
    ];
    for (name, change) in changes {
        let error = with_page(change).expect_err(name);
        assert!(matches!(error, Error::Corrupt(_)), "{name}: {error}");
        assert!(error.to_string().contains("page 0"), "{name}: {error}");
    }
}

#[test]
fn random_bytes_in_pages_never_panic() {
    let mut rng = fastrand::Rng::with_seed(9);
    for _ in 0..3000 {
        let outcome = with_page(|page| {
            for _ in 0..rng.usize(1..4) {
                let at = rng.usize(16..400);
                page[at] = rng.u8(..);
            }
        });
        if let Err(error) = outcome {
            assert!(matches!(error, Error::Corrupt(_)));
        }
    }
}

#[test]
fn a_record_of_another_partition_is_refused() {
    let heap = new_heap(2);
    let (key, p) = (0..)
        .map(|i: u32| i.to_le_bytes())
        .map(|k| (k, heap.geometry().partition_of(heap.geometry().hash(&k))))
        .find(|(_, p)| *p == PartitionId(1))
        .expect("a key of partition 1");
    let group = put(&heap, PLAIN, &key, b"v", None);
    let record = decode_group(&group)
        .expect("a group")
        .records()
        .next()
        .expect("a record");
    assert_eq!(heap.geometry().partition_of_page(record.page), p);
    assert!(matches!(
        heap.lock(PartitionId(0)).apply(&record),
        Err(Error::Corrupt(_))
    ));
}

#[test]
fn the_catalog_is_indexed_before_the_others_are_known() {
    use perdura_base::TableId;
    let heap = new_heap(1);
    heap.lock(P).attach_table(TableId(0), false);
    put(&heap, TableId(0), b"table 1", b"plain", None);
    put(&heap, PLAIN, b"a", b"1", None);
    let copy = bare_heap(1);
    load_pages(&heap, &copy);
    let mut part = copy.lock(P);
    part.build_catalog_index().expect("sound");
    assert_eq!((part.len(TableId(0)), part.len(PLAIN)), (1, 0));
    let all = |t: TableId| (t.0 < 2).then(TableForm::default);
    let stats = part.build_indexes(&all, None).expect("sound");
    assert_eq!((stats.rows, stats.pages, stats.orphan_pages), (2, 2, 0));
    assert_eq!((part.len(TableId(0)), part.len(PLAIN)), (1, 1));
}

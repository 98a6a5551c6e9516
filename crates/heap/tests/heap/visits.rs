//! Histories of a page, with the expected result of each checkpoint's visit.

use perdura_base::{CkptEpoch, ImageSlot, PartitionId};
use perdura_heap::{Heap, TableKey, Undo, Visit, decode_group};

use crate::harness::*;

const P: PartitionId = PartitionId(0);
const A: ImageSlot = ImageSlot::A;
const B: ImageSlot = ImageSlot::B;

fn visit(heap: &Heap, slot: ImageSlot, k: u64) -> &'static str {
    match heap.lock(P).visit(0, slot, CkptEpoch(k)) {
        Visit::Born => "born",
        Visit::Untouched => "untouched",
        Visit::Clean => "clean",
        Visit::Dirty(bytes) => {
            assert_eq!(
                bytes[..8],
                k.to_le_bytes(),
                "the copy carries the new epoch"
            );
            "dirty"
        }
    }
}

/// Writes a row. Returns the tag of the write's record, or 0 if the write has no record.
fn write(heap: &Heap, byte: u8) -> u64 {
    let group = put(heap, PLAIN, b"k", &[byte; 9], None);
    if group.is_empty() {
        0
    } else {
        decode_group(&group).expect("a group").tag_max.0
    }
}

#[test]
fn each_visit_finds_what_happened_since_the_last_one_into_its_slot() {
    let heap = new_heap(1);
    assert_eq!(visit(&heap, A, 2), "untouched");
    heap.set_ckpt_epoch(CkptEpoch(2));
    assert_eq!(write(&heap, 1), 2, "born within sweep 2");
    assert_eq!(visit(&heap, A, 2), "born");
    heap.set_ckpt_epoch(CkptEpoch(3));
    assert_eq!(write(&heap, 2), 2, "the tag is the page's, not the clock's");
    assert_eq!(visit(&heap, B, 3), "dirty");
    assert_eq!(write(&heap, 3), 3);
    assert_eq!(visit(&heap, A, 4), "dirty");
    assert_eq!(visit(&heap, B, 5), "dirty");
    assert_eq!(visit(&heap, A, 6), "clean");
    assert_eq!(visit(&heap, B, 7), "clean");
    assert_eq!(write(&heap, 3), 0, "the same bytes again: no record");
    assert_eq!(visit(&heap, A, 8), "clean");
    assert_eq!(write(&heap, 4), 8);
    assert_eq!(visit(&heap, A, 9), "dirty");
    heap.lock(P).mark_dirty(0, A);
    assert_eq!(visit(&heap, A, 10), "dirty", "its write had failed");
    assert_eq!(visit(&heap, B, 11), "dirty");
}

#[test]
fn a_rolled_back_birth_leaves_a_page_of_zeros_that_images_get_to_know() {
    let heap = new_heap(1);
    let mut undo = Undo::new();
    let hash = heap.geometry().hash(b"k");
    heap.lock(P)
        .put(&mut undo, TableKey::new(PLAIN, b"k", hash), b"v", None)
        .expect("room");
    heap.lock(P).rollback(&undo);
    assert_eq!(logged_bytes(&heap), []);
    assert_eq!(visit(&heap, A, 2), "dirty");
    heap.set_ckpt_epoch(CkptEpoch(2));
    assert_eq!(write(&heap, 1), 2);
}

#[cfg(feature = "flaws")]
#[test]
fn armed_flaws_change_the_table() {
    use perdura_base::flaw::{Flaw, arm};
    let heap = new_heap(1);
    heap.set_ckpt_epoch(CkptEpoch(2));
    write(&heap, 1);
    arm(Some(Flaw::BornPagesSwept));
    assert_eq!(visit(&heap, A, 2), "dirty");
    heap.set_ckpt_epoch(CkptEpoch(5));
    arm(Some(Flaw::TagFromClock));
    assert_eq!(write(&heap, 2), 5);
    arm(Some(Flaw::OtherImageTrusted));
    let copy = new_heap(1);
    load_pages(&heap, &copy);
    copy.lock(P).finish_restart(CkptEpoch(2), Some(A));
    assert!(!copy.lock(P).is_dirty(0, B));
    arm(Some(Flaw::RestartChangesClean));
    let group = put(&heap, PLAIN, b"k", b"again", None);
    for record in decode_group(&group).expect("a group").records() {
        copy.lock(P)
            .load_page(0, heap.lock(P).page_bytes(0).expect("a page"));
        copy.lock(P).apply(&record).expect("a page");
    }
    copy.lock(P).finish_restart(CkptEpoch(2), Some(A));
    assert!(!copy.lock(P).is_dirty(0, A));
    arm(None);
}

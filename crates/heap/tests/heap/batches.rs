//! Batches compared with records played one by one. Some records are differences of bytes. The remaining records assign
//! bytes, so their order matters.

use perdura_base::{CkptEpoch, ImageSlot, PageId, TxnId};
use perdura_heap::{Batch, Heap, PageRecord, SlotChange, decode_group};
use perdura_page::txn_record::{self, Range, UpdateHead, encode_images};
use perdura_page::{TxnRecord, decode_txn_record};

use crate::harness::*;

/// Ends the restart and returns the bytes of all pages.
fn outcome(heap: &Heap) -> Vec<Vec<u8>> {
    let mut out = Vec::new();
    for p in ids(heap) {
        let mut part = heap.lock(p);
        assert_eq!(part.useq_gaps(), []);
        part.finish_restart(CkptEpoch(3), Some(ImageSlot::A));
        let pages = (0..part.pages()).map(|l| part.page_bytes(l).expect("a page").to_vec());
        out.extend(pages);
    }
    out
}

#[test]
fn batches_of_any_size_play_what_single_records_play() {
    let heap = new_heap(4);
    let groups: Vec<Vec<u8>> = (0..400u32)
        .map(|i| {
            let bytes = if i % 40 == 0 { 30_000 } else { 300 };
            let fill = i.to_le_bytes()[0];
            put(
                &heap,
                PLAIN,
                &(i % 37).to_le_bytes(),
                &vec![fill; bytes],
                None,
            )
        })
        .collect();
    let single = bare_heap(4);
    for group in &groups {
        for record in decode_group(group).expect("a group").records() {
            let p = heap.geometry().partition_of_page(record.page);
            single.lock(p).apply(&record).expect("a page");
        }
    }
    let want = outcome(&single);
    for per_batch in [1, 3, 50, 400] {
        let copy = bare_heap(4);
        let mut batch: Batch<PageRecord<'_>> = Batch::new();
        for some in groups.chunks(per_batch) {
            for group in some {
                let records = decode_group(group).expect("a group");
                records
                    .records()
                    .for_each(|record| batch.push(copy.geometry(), record));
            }
            assert!(!batch.is_empty());
            batch.play(&copy).expect("pages of this heap");
            assert_eq!(batch.len(), 0);
        }
        assert!(outcome(&copy) == want, "{per_batch} groups a batch");
    }
}

/// Returns records that assign bytes. Each record overwrites a slot with the record's number. The slot is chosen at
/// random from the first three slots of forty pages.
fn image_records(rng: &mut fastrand::Rng, count: u8) -> Vec<Vec<u8>> {
    let mut now = std::collections::BTreeMap::new();
    let mut scratch = Vec::new();
    (1..=count)
        .map(|i| {
            let (page, slot) = (rng.u32(0..40), rng.u16(0..3));
            let before = now.insert((page, slot), i).unwrap_or(0);
            let head = UpdateHead {
                txn: TxnId(1),
                compensation: false,
                page: PageId(page),
                tag: CkptEpoch(1),
            };
            let change = txn_record::SlotChange {
                gseq: u64::from(i),
                slot,
                taken: (before != 0, true),
            };
            let ranges = [Range {
                offset: 1000 + 100 * usize::from(slot),
                before: &[before; 100],
                after: &[i; 100],
                whole: true,
            }];
            let mut out = Vec::new();
            assert!(encode_images(
                &mut out,
                &head,
                &change,
                &ranges,
                &mut scratch
            ));
            out
        })
        .collect()
}

fn change_of(record: &[u8], undo: bool) -> SlotChange<'_> {
    match decode_txn_record(record) {
        Some(TxnRecord::Update(update)) => SlotChange {
            page: update.page,
            change: update.change,
            undo,
        },
        other => panic!("an update, not {other:?}"),
    }
}

#[test]
fn images_of_one_page_are_played_in_the_order_they_were_pushed_forward_and_back() {
    let mut rng = fastrand::Rng::with_seed(5);
    let records = image_records(&mut rng, 250);
    let (single, batched) = (bare_heap(4), bare_heap(4));
    let mut batch = Batch::new();
    for record in &records {
        let slot = change_of(record, false);
        let p = single.geometry().partition_of_page(slot.page);
        let mut part = single.lock(p);
        part.apply_change(slot.page, &slot.change, true)
            .expect("a page");
        batch.push(single.geometry(), slot);
    }
    batch.play(&batched).expect("pages of this heap");
    assert!(logged_bytes(&single) == logged_bytes(&batched));
    assert_eq!(
        ids(&batched)
            .map(|p| batched.lock(p).touched_pages())
            .sum::<u64>(),
        40
    );

    for record in records.iter().rev() {
        batch.push(batched.geometry(), change_of(record, true));
    }
    batch.play(&batched).expect("pages of this heap");
    assert_eq!(logged_bytes(&batched), []);
    let mut part = batched.lock(perdura_base::PartitionId(0));
    part.finish_restart(CkptEpoch(3), Some(ImageSlot::A));
    assert!(part.is_dirty(0, ImageSlot::A), "undone is changed, too");
}

#[test]
fn a_page_beyond_the_heap_is_refused() {
    let heap = bare_heap(1);
    let records = image_records(&mut fastrand::Rng::with_seed(1), 1);
    let mut slot = change_of(&records[0], false);
    slot.page = PageId(u32::MAX);
    let mut batch = Batch::new();
    batch.push(heap.geometry(), slot);
    let error = batch.play(&heap).expect_err("no such page");
    assert!(error.to_string().contains("log record"), "{error}");
}

//! Tests that apply image pages and records in any order. The resulting pages must be equal, and every gap must be
//! detected.

use perdura_base::{CkptEpoch, ImageSlot, PartitionId};
use perdura_heap::{Heap, decode_group};

use crate::harness::*;

/// A page of an image, or a record that the image does not contain.
#[derive(Clone)]
enum Part<'a> {
    Image(PartitionId, u32, &'a [u8]),
    Record(perdura_heap::PageRecord<'a>),
}

/// The pages of an image. Each page has the state from the middle of the history. Pages that were unused then are
/// missing.
type Image = Vec<(PartitionId, u32, Vec<u8>)>;

/// Plays a random history. Returns the heap, an image, and every group since the visit of the image's first page.
/// Transactions run between the visits of the image's pages.
fn history(rng: &mut fastrand::Rng) -> (Heap, Image, Vec<Vec<u8>>) {
    let heap = new_heap(2);
    let (mut image, mut groups) = (Image::new(), Vec::new());
    let write = |rng: &mut fastrand::Rng| {
        let key = [b'k', rng.u8(0..12)];
        let bytes = if rng.u8(..) < 30 {
            20_000
        } else {
            rng.usize(0..400)
        };
        put(&heap, PLAIN, &key, &vec![rng.u8(..); bytes], None)
    };
    for _ in 0..rng.usize(0..30) {
        write(rng);
    }
    // The sweep: a few transactions run between visits.
    for p in ids(&heap) {
        let count = heap.lock(p).pages();
        for local in 0..count {
            let mut part = heap.lock(p);
            if part.visit(local, ImageSlot::A, CkptEpoch(2)) != perdura_heap::Visit::Untouched {
                let bytes = part.page_bytes(local).expect("a page").to_vec();
                image.push((p, local, bytes));
            }
            drop(part);
            if rng.bool() {
                groups.push(write(rng));
            }
        }
    }
    heap.set_ckpt_epoch(CkptEpoch(2));
    for _ in 0..rng.usize(0..30) {
        groups.push(write(rng));
    }
    (heap, image, groups)
}

fn play(parts: &[Part<'_>]) -> Heap {
    let heap = bare_heap(2);
    for part in parts {
        match part {
            Part::Image(p, local, bytes) => heap.lock(*p).load_page(*local, bytes),
            Part::Record(record) => {
                let p = heap.geometry().partition_of_page(record.page);
                heap.lock(p)
                    .apply(record)
                    .expect("a page of this partition");
            }
        }
    }
    heap
}

/// Returns the bytes of every page, and its dirty bits, after the end of a restart.
fn outcome(heap: &Heap) -> Vec<(Vec<u8>, [bool; 2])> {
    let mut out = Vec::new();
    for p in ids(heap) {
        let mut part = heap.lock(p);
        part.finish_restart(CkptEpoch(2), Some(ImageSlot::A));
        for local in 0..part.pages() {
            let bits = ImageSlot::ALL.map(|slot| part.is_dirty(local, slot));
            out.push((part.page_bytes(local).expect("a page").to_vec(), bits));
        }
    }
    out
}

fn gaps(heap: &Heap) -> Vec<perdura_heap::UseqGap> {
    ids(heap).flat_map(|p| heap.lock(p).useq_gaps()).collect()
}

#[test]
fn any_order_of_image_pages_and_records_gives_the_same_pages_and_notices_the_same_gaps() {
    let mut rng = fastrand::Rng::with_seed(11);
    for round in 0..60 {
        let (heap, image, groups) = history(&mut rng);
        let images = image.iter().map(|(p, local, b)| Part::Image(*p, *local, b));
        let decoded: Vec<_> = groups
            .iter()
            .map(|g| decode_group(g).expect("sound"))
            .collect();
        // The image contains a record if the record's tag is below the image's epoch. A page that the image lacks was
        // first used after the sweep had passed it.
        let records: Vec<_> = decoded
            .iter()
            .flat_map(|g| g.records())
            .filter(|record| {
                let at = heap.geometry().local_index(record.page);
                let p = heap.geometry().partition_of_page(record.page);
                record.tag >= CkptEpoch(2) || !image.iter().any(|(q, l, _)| (*q, *l) == (p, at))
            })
            .map(Part::Record)
            .collect();
        let mut parts: Vec<Part<'_>> = images.chain(records).collect();
        let first = play(&parts);
        assert_eq!(gaps(&first), [], "round {round}");
        assert_eq!(logged_bytes(&first), logged_bytes(&heap), "round {round}");
        let want = outcome(&first);
        for _ in 0..6 {
            rng.shuffle(&mut parts);
            let other = play(&parts);
            assert_eq!(gaps(&other), []);
            assert!(outcome(&other) == want, "round {round}");
        }
        lost_and_doubled(&mut rng, &parts);
    }
}

/// Plays the parts in random orders in two ways: one record is applied twice, or it is left out. Checks that both
/// faults are found. A missing last record of a page may stay unnoticed.
fn lost_and_doubled(rng: &mut fastrand::Rng, parts: &[Part<'_>]) {
    let records: Vec<usize> = (0..parts.len())
        .filter(|i| matches!(parts[*i], Part::Record(_)))
        .collect();
    let Some(victim) = rng.choice(records) else {
        return;
    };
    let Part::Record(hit) = parts[victim].clone() else {
        return;
    };
    let is_last = parts.iter().all(|part| match part {
        Part::Record(r) => r.page != hit.page || !r.useq.is_after(hit.useq),
        Part::Image(..) => true,
    });
    for doubled in [true, false] {
        let mut broken = parts.to_vec();
        if doubled {
            broken.push(Part::Record(hit));
        } else {
            broken.swap_remove(victim);
        }
        rng.shuffle(&mut broken);
        let found: Vec<_> = gaps(&play(&broken)).iter().map(|gap| gap.page).collect();
        let want = if doubled || !is_last {
            vec![hit.page]
        } else {
            vec![]
        };
        assert_eq!(found, want, "doubled: {doubled}");
    }
}

#[test]
#[should_panic(expected = "one image")]
fn a_changed_page_is_not_loaded_twice() {
    let heap = new_heap(1);
    let group = put(&heap, PLAIN, b"k", b"v", None);
    let page = heap
        .lock(PartitionId(0))
        .page_bytes(0)
        .expect("a page")
        .to_vec();
    let copy = bare_heap(1);
    let mut part = copy.lock(PartitionId(0));
    part.load_page(0, &page);
    for record in decode_group(&group).expect("a group").records() {
        part.apply(&record).expect("a page");
    }
    part.load_page(0, &page);
}

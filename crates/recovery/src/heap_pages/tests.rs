//! Tests of the heap's code that a restart, a checkpoint or a listing of contents uses.

use std::collections::BTreeMap;
use std::sync::Arc;

use perdura_base::{Gsn, TableId};
use perdura_heap::build::check_page;
use perdura_heap::{
    Geometry, GroupBuilder, MemoryAccount, TableForm, TableKey, Undo, decode_group,
};

use super::*;
use crate::component::{Data, Value};
use crate::tables::{KeyOrder, TableKind};

const A: ImageSlot = ImageSlot::A;
const B: ImageSlot = ImageSlot::B;

const TABLE: TableId = TableId(1);

fn empty() -> Heap {
    let geometry = Geometry {
        partitions: 2,
        chunk_pages: 2,
        hash_seed: 5,
    };
    let heap = Heap::new(geometry, Arc::new(MemoryAccount::new(u64::MAX)));
    for id in partitions() {
        heap.lock(id).attach_table(TABLE, false);
    }
    heap
}

/// A heap, with operations on its rows for the tests.
struct Tested(Heap);

impl Tested {
    /// Sets a key's value and returns the change's log record.
    fn write(&self, key: u8, value: u8) -> Vec<u8> {
        // Key and value are so long that a few rows fill a page.
        let (key, value) = ([key; 600], [value; 4000]);
        let hash = self.0.geometry().hash(&key);
        let mut part = self.0.lock(self.0.geometry().partition_of(hash));
        let (mut undo, mut group) = (Undo::new(), GroupBuilder::new());
        let _no_collection = part
            .put(&mut undo, TableKey::new(TABLE, &key, hash), &value, None)
            .expect("room");
        part.encode(&undo, &mut group);
        group.finish().to_vec()
    }

    /// Replays a record.
    fn redo(&self, record: &[u8]) {
        for record in decode_group(record).expect("a group").records() {
            let id = self.0.geometry().partition_of_page(record.page);
            self.0.lock(id).apply(&record).expect("a page of this heap");
        }
    }

    /// Returns every key that the index lists, with its value.
    fn rows(&self) -> BTreeMap<u8, u8> {
        let mut rows = BTreeMap::new();
        for id in partitions() {
            self.0.lock(id).for_each(TABLE, |row| {
                rows.insert(row.key()[0], row.value()[0]);
            });
        }
        rows
    }
}

/// The pages that a sweep copied, and each partition's sidecar.
#[derive(Default)]
struct Image {
    pages: BTreeMap<(PartitionId, u32), Vec<u8>>,
    sidecars: BTreeMap<PartitionId, Vec<u8>>,
    born: usize,
}

fn tested() -> Tested {
    Tested(empty())
}

fn partitions() -> impl Iterator<Item = PartitionId> {
    (0..2).map(PartitionId)
}

impl Tested {
    /// Runs a whole sweep, which visits at most three pages each time it holds the latch. `image` holds the slot's old
    /// contents, which the sweep overwrites.
    fn sweep_into(&self, image: &mut Image, slot: ImageSlot, k: CkptEpoch) {
        self.0.set_ckpt_epoch(k);
        self.visit_all(image, slot, k);
    }

    fn visit_all(&self, image: &mut Image, slot: ImageSlot, k: CkptEpoch) {
        for id in partitions() {
            let (mut next, mut sidecar) = (Some(0), Vec::new());
            while let Some(local) = next {
                assert!(sidecar.is_empty(), "the sidecar comes with the last page");
                let take = |local, page, visit: Visit<'_>| {
                    let geometry = self.0.geometry();
                    assert_eq!(geometry.page_id(id, local), Some(page));
                    match visit {
                        Visit::Dirty(bytes) => {
                            image.pages.insert((id, local), bytes.to_vec());
                        }
                        Visit::Born => {
                            image.born += 1;
                            image.pages.remove(&(id, local));
                        }
                        Visit::Untouched => drop(image.pages.remove(&(id, local))),
                        Visit::Clean => {}
                    }
                };
                let pages = local..local + 3;
                next = visit(&self.0, (id, pages), (slot, k), &mut sidecar, take);
                assert!(next.is_none_or(|next| next == local + 3), "in order");
            }
            image.sidecars.insert(id, sidecar);
        }
    }

    fn sweep(&self, slot: ImageSlot, k: u64) -> Image {
        let mut image = Image::default();
        self.sweep_into(&mut image, slot, CkptEpoch(k));
        image
    }

    fn load(&self, image: &Image) {
        for ((id, local), bytes) in &image.pages {
            load_pages(&self.0, *id, &[(*local, bytes)]);
        }
    }

    fn finish(&self, image: &Image, k: u64, slot: Option<ImageSlot>, with_sidecar: bool) {
        for id in partitions() {
            self.0.lock(id).finish_restart(CkptEpoch(k), slot);
            let catalog = self.0.lock(id).build_catalog_index();
            catalog.expect("a catalog");
        }
        for id in partitions() {
            let sidecar = image.sidecars.get(&id).filter(|_| with_sidecar);
            let sidecar = sidecar.filter(|bytes| !bytes.is_empty());
            let sidecar = sidecar.map(|bytes| self.0.read_sidecar(id, bytes));
            let form = |table: TableId| -> Option<TableForm> {
                (table == TABLE).then(|| TableKind::heap(KeyOrder::Hashed).form())
            };
            let built = self.0.lock(id).build_indexes(&form, sidecar);
            built.expect("sound pages");
        }
        self.0.settle_collections().expect("sound rows");
    }
}

#[test]
fn a_sweep_copies_each_page_that_its_slot_lacks_once() {
    let t = tested();
    for key in 0..20 {
        t.write(key, 1);
    }
    let all = t.sweep(A, 1).pages;
    assert!(!all.is_empty(), "written pages are dirty");
    let other = t.sweep(B, 2).pages;
    assert!(other.keys().eq(all.keys()), "each slot lacks them");
    assert_eq!(t.sweep(A, 3).pages.len(), 0, "nothing changed since");
    let ((id, local), _) = all.first_key_value().expect("a page");
    t.0.lock(*id).mark_dirty(*local, A);
    let again = t.sweep(A, 4).pages;
    assert_eq!(again.keys().collect::<Vec<_>>(), [&(*id, *local)]);
    let part = t.0.lock(*id);
    let page = part.page_bytes(*local).expect("a page");
    assert_eq!(again[&(*id, *local)], page, "what was copied is the page");
}

#[test]
fn a_page_born_within_a_sweep_is_not_in_its_image() {
    let t = tested();
    t.0.set_ckpt_epoch(CkptEpoch(1));
    assert_eq!(t.0.ckpt_epoch(), CkptEpoch(1));
    t.write(1, 1);
    let mut image = Image::default();
    t.visit_all(&mut image, A, CkptEpoch(1));
    assert_eq!((image.pages.len(), image.born > 0), (0, true));
    assert!(!t.sweep(B, 2).pages.is_empty(), "the next one has it");
}

#[test]
fn image_and_records_come_in_any_order() {
    let source = tested();
    for key in 0..20 {
        source.write(key, 1);
    }
    let image = source.sweep(A, 1);
    let records: Vec<_> = (10..30).map(|key| source.write(key, key + 100)).collect();
    for image_first in [true, false] {
        for with_sidecar in [true, false] {
            let t = tested();
            if image_first {
                t.load(&image);
            }
            records.iter().rev().for_each(|r| t.redo(r));
            if !image_first {
                t.load(&image);
            }
            check_replayed(&t.0).expect("each update once");
            t.finish(&image, 1, Some(A), with_sidecar);
            assert_eq!(t.rows(), source.rows());
        }
    }
}

#[test]
fn a_lost_or_doubled_record_is_named() {
    let source = tested();
    source.write(1, 1);
    let image = source.sweep(A, 1);
    let records: Vec<_> = (2..5).map(|value| source.write(1, value)).collect();
    for order in [&[0, 2][..], &[1, 2], &[0, 1, 1, 2], &[0, 1, 2, 2]] {
        let t = tested();
        t.load(&image);
        order.iter().for_each(|i| t.redo(&records[*i]));
        let error = check_replayed(&t.0).expect_err("a gap");
        assert!(error.to_string().contains("page"), "{error}");
    }
}

#[test]
fn after_a_restart_the_other_image_lacks_every_page_and_this_one_the_changed() {
    let source = tested();
    for key in 0..20 {
        source.write(key, 1);
    }
    let image = source.sweep(A, 1);
    let record = source.write(3, 9);
    let changed = source.sweep(A, 2).pages.len();
    let restarted = |slot| {
        let t = tested();
        t.load(&image);
        t.redo(&record);
        t.finish(&image, 1, slot, true);
        t
    };
    assert_eq!(restarted(Some(A)).sweep(A, 3).pages.len(), changed);
    assert_eq!(
        restarted(Some(A)).sweep(B, 3).pages.len(),
        image.pages.len()
    );
    assert_eq!(restarted(None).sweep(A, 3).pages.len(), image.pages.len());
}

#[test]
fn its_contents_are_every_key_with_what_a_client_reads() {
    let source = tested();
    for key in 0..20 {
        source.write(key, key + 1);
    }
    assert_eq!(listed(&source.0), source.rows());
    let image = source.sweep(A, 1);
    let record = source.write(7, 99);
    let t = tested();
    t.load(&image);
    t.redo(&record);
    t.finish(&image, 1, Some(A), true);
    assert_eq!(listed(&t.0), source.rows());
    let mut taken = 0;
    let stopped = data(&t.0).contents(&mut |_, _| {
        taken += 1;
        Err(perdura_base::Error::Stopped(String::new()))
    });
    assert!(matches!(stopped, Err(perdura_base::Error::Stopped(_))));
    assert_eq!(taken, 1, "an error of the reader ends the list");
}

fn data(heap: &Heap) -> Data<'_> {
    Data {
        heap,
        trees: Vec::new(),
        eosl: Gsn(0),
    }
}

/// Returns the rows that [`Data::contents`] lists. Only the first byte of each key and each value is returned.
fn listed(heap: &Heap) -> BTreeMap<u8, u8> {
    let mut rows = BTreeMap::new();
    let listed = data(heap).contents(&mut |_, content| {
        let Some(Value::String(value)) = &content.value else {
            panic!("the suite writes strings");
        };
        let twin = rows.insert(content.key[0], value[0]);
        assert_eq!(twin, None, "a key comes once");
        Ok(())
    });
    listed.expect("sound rows");
    rows
}

#[test]
fn a_page_is_sound_under_its_own_id_only() {
    let t = tested();
    for key in 0..20 {
        t.write(key, 1);
    }
    let image = t.sweep(A, 1);
    for ((id, local), bytes) in &image.pages {
        let page = |local| t.0.geometry().page_id(*id, local);
        let (own, other) = (
            page(*local).expect("an id"),
            page(local ^ 1).expect("an id"),
        );
        check_page(own, bytes).expect("as it was copied");
        let error = check_page(other, bytes).expect_err("another's");
        assert!(
            error.to_string().contains(&format!("page {other}")),
            "{error}"
        );
    }
}

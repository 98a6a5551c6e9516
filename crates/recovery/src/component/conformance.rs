//! What every component must do with the verbs of [`Contract`]. The verbs are called through
//! [`Component`], so that the forwarding is tested with them.

use std::collections::BTreeMap;

use perdura_base::limits::PAGE_BYTES;
use perdura_heap::{GroupBuilder, MemoryAccount, TableKey, Undo, decode_group};

use super::dummy::Dummy;
use super::*;
use crate::tables::{Catalog, KeyOrder, TableKind};

const A: ImageSlot = ImageSlot::A;
const B: ImageSlot = ImageSlot::B;

/// What the suite needs of a component beyond the contract: rows.
pub(super) trait Subject: Contract {
    /// A component without pages. Its checkpoint epoch is 0.
    fn empty() -> Self;

    /// It, as the closed set knows it.
    fn component(self: &Arc<Self>) -> Component;

    /// Sets a key's value and returns the change's log record.
    fn write(&self, key: u8, value: u8) -> Vec<u8>;

    /// Replays a record.
    fn redo(&self, record: &[u8]);

    /// Every key with its value, by what a client would read.
    fn rows(&self) -> BTreeMap<u8, u8>;

    /// The tables of the rows.
    fn catalog() -> Catalog;
}

/// A component and its place in the closed set.
struct Tested<S> {
    subject: Arc<S>,
    component: Component,
}

/// What a sweep copied, and each partition's sidecar.
#[derive(Default)]
struct Image {
    pages: BTreeMap<(PartitionId, u32), Vec<u8>>,
    sidecars: BTreeMap<PartitionId, Vec<u8>>,
    born: usize,
}

fn tested<S: Subject>() -> Tested<S> {
    let subject = Arc::new(S::empty());
    let component = subject.component();
    Tested { subject, component }
}

fn partitions(component: &Component) -> impl Iterator<Item = PartitionId> + use<> {
    (0..component.geometry().partitions).map(PartitionId)
}

impl<S: Subject> Tested<S> {
    /// A whole sweep, three pages under a latch, into what `image` holds of the slot already.
    fn sweep_into(&self, image: &mut Image, slot: ImageSlot, k: CkptEpoch) {
        self.component.set_ckpt_epoch(k);
        self.visit_all(image, slot, k);
    }

    fn visit_all(&self, image: &mut Image, slot: ImageSlot, k: CkptEpoch) {
        for id in partitions(&self.component) {
            let (mut next, mut sidecar) = (Some(0), Vec::new());
            while let Some(local) = next {
                assert!(sidecar.is_empty(), "the sidecar comes with the last page");
                let take = |local, page, visit: Visit<'_>| {
                    let geometry = self.component.geometry();
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
                next = self
                    .component
                    .visit(id, pages, (slot, k), &mut sidecar, take);
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
            self.component.load_pages(*id, &[(*local, bytes)]);
        }
    }

    fn finish(&self, image: &Image, k: u64, slot: Option<ImageSlot>, with_sidecar: bool) {
        for id in partitions(&self.component) {
            self.component.end_replay(id, CkptEpoch(k), slot);
            self.component.index_catalog(id).expect("a catalog");
        }
        for id in partitions(&self.component) {
            let sidecar = image.sidecars.get(&id).filter(|_| with_sidecar);
            let sidecar = sidecar.filter(|bytes| !bytes.is_empty());
            let sidecar = sidecar.map(|bytes| self.component.read_sidecar(id, bytes));
            let catalog = S::catalog();
            let form = |table: TableId| catalog.get(&table).map(|kind| kind.form());
            self.component
                .index(id, &form, sidecar)
                .expect("sound pages");
        }
        self.component.settle().expect("sound rows");
    }
}

fn a_sweep_copies_each_page_that_its_slot_lacks_once<S: Subject>() {
    let t = tested::<S>();
    for key in 0..20 {
        t.subject.write(key, 1);
    }
    let all = t.sweep(A, 1).pages;
    assert!(!all.is_empty(), "written pages are dirty");
    let other = t.sweep(B, 2).pages;
    assert!(other.keys().eq(all.keys()), "each slot lacks them");
    assert_eq!(t.sweep(A, 3).pages.len(), 0, "nothing changed since");
    let ((id, local), _) = all.first_key_value().expect("a page");
    t.component.mark_dirty(*id, *local, A);
    let again = t.sweep(A, 4).pages;
    assert_eq!(again.keys().collect::<Vec<_>>(), [&(*id, *local)]);
    let mut copy = vec![0; PAGE_BYTES];
    assert!(t.component.copy_page(*id, *local, &mut copy));
    assert_eq!(again[&(*id, *local)], copy, "what was copied is the page");
    assert!(!t.component.copy_page(*id, u32::MAX, &mut copy));
}

fn a_page_born_within_a_sweep_is_not_in_its_image<S: Subject>() {
    let t = tested::<S>();
    t.component.set_ckpt_epoch(CkptEpoch(1));
    assert_eq!(t.component.ckpt_epoch(), CkptEpoch(1));
    t.subject.write(1, 1);
    let mut image = Image::default();
    t.visit_all(&mut image, A, CkptEpoch(1));
    assert_eq!((image.pages.len(), image.born > 0), (0, true));
    assert!(!t.sweep(B, 2).pages.is_empty(), "the next one has it");
}

fn image_and_records_come_in_any_order<S: Subject>() {
    let source = tested::<S>();
    for key in 0..20 {
        source.subject.write(key, 1);
    }
    let image = source.sweep(A, 1);
    let records: Vec<_> = (10..30)
        .map(|key| source.subject.write(key, key + 100))
        .collect();
    for image_first in [true, false] {
        for with_sidecar in [true, false] {
            let t = tested::<S>();
            if image_first {
                t.load(&image);
            }
            records.iter().rev().for_each(|r| t.subject.redo(r));
            if !image_first {
                t.load(&image);
            }
            t.component.check_replayed().expect("each update once");
            t.finish(&image, 1, Some(A), with_sidecar);
            assert_eq!(t.subject.rows(), source.subject.rows());
        }
    }
}

fn a_lost_or_doubled_record_is_named<S: Subject>() {
    let source = tested::<S>();
    source.subject.write(1, 1);
    let image = source.sweep(A, 1);
    let records: Vec<_> = (2..5).map(|value| source.subject.write(1, value)).collect();
    for order in [&[0, 2][..], &[1, 2], &[0, 1, 1, 2], &[0, 1, 2, 2]] {
        let t = tested::<S>();
        t.load(&image);
        order.iter().for_each(|i| t.subject.redo(&records[*i]));
        let error = t.component.check_replayed().expect_err("a gap");
        assert!(error.to_string().contains("page"), "{error}");
    }
}

fn after_a_restart_the_other_image_lacks_every_page_and_this_one_the_changed<S: Subject>() {
    let source = tested::<S>();
    for key in 0..20 {
        source.subject.write(key, 1);
    }
    let image = source.sweep(A, 1);
    let record = source.subject.write(3, 9);
    let changed = source.sweep(A, 2).pages.len();
    let restarted = |slot| {
        let t = tested::<S>();
        t.load(&image);
        t.subject.redo(&record);
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

fn its_contents_are_every_key_with_what_a_client_reads<S: Subject>() {
    let source = tested::<S>();
    for key in 0..20 {
        source.subject.write(key, key + 1);
    }
    assert_eq!(contents(&source.component), source.subject.rows());
    let image = source.sweep(A, 1);
    let record = source.subject.write(7, 99);
    let t = tested::<S>();
    t.load(&image);
    t.subject.redo(&record);
    t.finish(&image, 1, Some(A), true);
    assert_eq!(contents(&t.component), source.subject.rows());
    let mut taken = 0;
    let stopped = t.component.contents(|_, _| {
        taken += 1;
        Err(perdura_base::Error::Stopped(String::new()))
    });
    assert!(matches!(stopped, Err(perdura_base::Error::Stopped(_))));
    assert_eq!(taken, 1, "an error of the reader ends the list");
}

/// What [`Contract::contents`] lists, by the first byte of each key and value.
fn contents(component: &Component) -> BTreeMap<u8, u8> {
    let mut rows = BTreeMap::new();
    let listed = component.contents(|_, content| {
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

fn a_page_is_sound_under_its_own_id_only<S: Subject>() {
    let t = tested::<S>();
    for key in 0..20 {
        t.subject.write(key, 1);
    }
    let image = t.sweep(A, 1);
    for ((id, local), bytes) in &image.pages {
        let page = |local| t.component.geometry().page_id(*id, local);
        let (own, other) = (
            page(*local).expect("an id"),
            page(local ^ 1).expect("an id"),
        );
        t.component
            .check_page(own, bytes)
            .expect("as it was copied");
        let error = t.component.check_page(other, bytes).expect_err("another's");
        assert!(
            error.to_string().contains(&format!("page {other}")),
            "{error}"
        );
    }
}

macro_rules! suite {
    ($name:ident, $subject:ty: $($test:ident)*) => {
        mod $name {
            $(
                #[test]
                fn $test() {
                    super::$test::<$subject>();
                }
            )*
        }
    };
    ($($name:ident: $subject:ty),*) => {
        $(suite! { $name, $subject:
            a_sweep_copies_each_page_that_its_slot_lacks_once
            a_page_born_within_a_sweep_is_not_in_its_image
            image_and_records_come_in_any_order
            a_lost_or_doubled_record_is_named
            after_a_restart_the_other_image_lacks_every_page_and_this_one_the_changed
            its_contents_are_every_key_with_what_a_client_reads
            a_page_is_sound_under_its_own_id_only
        })*
    };
}

suite! { heap: perdura_heap::Heap, dummy: super::super::dummy::Dummy }

const TABLE: perdura_base::TableId = perdura_base::TableId(1);

impl Subject for Heap {
    fn empty() -> Heap {
        let geometry = Geometry {
            partitions: 2,
            chunk_pages: 2,
            hash_seed: 5,
        };
        let heap = Heap::new(geometry, Arc::new(MemoryAccount::new(u64::MAX)));
        for id in (0..2).map(PartitionId) {
            heap.lock(id).attach_table(TABLE, false);
        }
        heap
    }

    fn component(self: &Arc<Self>) -> Component {
        Component::Heap(Arc::clone(self))
    }

    fn write(&self, key: u8, value: u8) -> Vec<u8> {
        // Long enough that a few rows fill a page.
        let (key, value) = ([key; 600], [value; 4000]);
        let hash = Heap::geometry(self).hash(&key);
        let mut part = self.lock(Heap::geometry(self).partition_of(hash));
        let (mut undo, mut group) = (Undo::new(), GroupBuilder::new());
        let _no_collection = part
            .put(&mut undo, TableKey::new(TABLE, &key, hash), &value, None)
            .expect("room");
        part.encode(&undo, &mut group);
        group.finish().to_vec()
    }

    fn redo(&self, record: &[u8]) {
        for record in decode_group(record).expect("a group").records() {
            let id = Heap::geometry(self).partition_of_page(record.page);
            self.lock(id).apply(&record).expect("a page of this heap");
        }
    }

    fn rows(&self) -> BTreeMap<u8, u8> {
        let mut rows = BTreeMap::new();
        for id in (0..Heap::geometry(self).partitions).map(PartitionId) {
            self.lock(id).for_each(TABLE, |row| {
                rows.insert(row.key()[0], row.value()[0]);
            });
        }
        rows
    }

    fn catalog() -> Catalog {
        Catalog::from([(TABLE, TableKind::heap(KeyOrder::Hashed))])
    }
}

impl Subject for Dummy {
    fn empty() -> Dummy {
        Dummy::new()
    }

    fn component(self: &Arc<Self>) -> Component {
        Component::Dummy(Arc::clone(self))
    }

    fn write(&self, key: u8, value: u8) -> Vec<u8> {
        Dummy::write(self, key, value)
    }

    fn redo(&self, record: &[u8]) {
        Dummy::redo(self, record);
    }

    fn rows(&self) -> BTreeMap<u8, u8> {
        Dummy::rows(self)
    }

    fn catalog() -> Catalog {
        Catalog::new()
    }
}

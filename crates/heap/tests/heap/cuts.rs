//! Tests of the cuts of checkpoints and of snapshots. Cuts are opened, read and closed at random between random
//! transactions. When a cut is opened, all pages are copied. The pages that are later read through the cut are compared
//! with this copy.

use std::collections::BTreeMap;
use std::sync::Arc;

use perdura_base::{CkptEpoch, ImageSlot, PartitionId, TableId};
use perdura_heap::{
    Cut, GroupBuilder, Heap, MemoryUse, Reader, Snapshot, SnapshotMode, TableForm, TableKey, Undo,
    Visit, decode_group,
};
use perdura_page::{PageKind, layout};

use crate::harness::*;

const PARTITIONS: u16 = 2;
/// A key-addressed table. Its changes are in no record.
const KEYED: TableId = TableId(3);
const TABLES: [TableId; 3] = [PLAIN, ORDERED, KEYED];

/// Pages without their checkpoint epochs, by partition and local index.
type Pages = BTreeMap<(PartitionId, u32), Vec<u8>>;

fn copy_pages(heap: &Heap) -> Pages {
    let mut out = Pages::new();
    for p in ids(heap) {
        let part = heap.lock(p);
        for local in 0..part.pages() {
            let page = part.page_bytes(local).expect("a page");
            if page.iter().any(|byte| *byte != 0) {
                out.insert((p, local), page[8..].to_vec());
            }
        }
    }
    out
}

/// Returns every key of every table with its value.
fn rows(heap: &Heap) -> Contents {
    let mut out = Contents::new();
    for p in ids(heap) {
        let part = heap.lock(p);
        for table in TABLES {
            part.for_each(table, |row| {
                let value = row.value().into_owned();
                out.insert((table, row.key().into_owned()), (value, row.expiry_ms()));
            });
        }
    }
    out
}

/// Returns the pages, with zeros for bytes that may differ in key-addressed tables. These bytes lie in free slots, in
/// free pages, and after the end of a long value's piece.
fn rows_of(mut pages: Pages) -> Pages {
    for ((_, local), bytes) in &mut pages {
        if local / 4 % 2 == 0 {
            continue;
        }
        let mut page = [&[0; 8], bytes.as_slice()].concat();
        match layout::kind(&page) {
            Some(PageKind::Slotted) => {
                let class = layout::class(&page).expect("a class");
                for slot in 0..class.slots() {
                    if !layout::is_taken(&page, slot) {
                        page[class.slot_range(slot)].fill(0);
                    }
                }
            }
            Some(PageKind::Large) => {
                let used = usize::try_from(layout::used(&page)).expect("its bytes");
                page[layout::HEADER_BYTES + used..].fill(0);
            }
            _ => page[layout::HEADER_BYTES..].fill(0),
        }
        *bytes = page[8..].to_vec();
    }
    pages
}

/// Returns the pages with changes recorded in the log.
fn recorded(heap: &Heap) -> Vec<(PartitionId, u32, Vec<u8>)> {
    let chunk_pages = u32::from(heap.geometry().chunk_pages);
    let mut pages = logged_bytes(heap);
    pages.retain(|(_, local, _)| local / chunk_pages % 2 == 0);
    pages
}

fn pseqs(heap: &Heap) -> Vec<u64> {
    ids(heap).map(|p| heap.lock(p).pseq()).collect()
}

/// A checkpoint in progress.
struct Sweep {
    cut: Cut,
    k: CkptEpoch,
    slot: ImageSlot,
    at: (u16, u32),
    pages: Pages,
}

struct Read {
    snapshot: Snapshot,
    pages: Pages,
    rows: Contents,
}

struct World {
    rng: fastrand::Rng,
    heap: Arc<Heap>,
    log: Vec<Vec<u8>>,
    images: [Pages; 2],
    newest: Option<(CkptEpoch, ImageSlot)>,
    sweep: Option<Sweep>,
    mode: SnapshotMode,
    reads: Vec<Read>,
    completed: u32,
    compared: u32,
}

impl World {
    fn new(seed: u64, mode: SnapshotMode) -> World {
        let heap = new_heap(PARTITIONS);
        for p in ids(&heap) {
            let form = TableForm {
                keyed: true,
                ..TableForm::default()
            };
            heap.lock(p).attach_table(KEYED, form);
        }
        assert!(heap.has_keyed());
        heap.set_snapshot_mode(mode);
        World {
            rng: fastrand::Rng::with_seed(seed),
            heap: Arc::new(heap),
            log: Vec::new(),
            images: [Pages::new(), Pages::new()],
            newest: None,
            sweep: None,
            mode,
            reads: Vec::new(),
            completed: 0,
            compared: 0,
        }
    }

    fn transaction(&mut self) {
        let (mut undo, mut group) = (Undo::new(), GroupBuilder::new());
        let heap = Arc::clone(&self.heap);
        let mut parts: Vec<_> = ids(&heap).map(|p| heap.lock(p)).collect();
        for _ in 0..self.rng.usize(1..5) {
            let key = [self.rng.u8(..40)];
            let table = TABLES[self.rng.usize(..3)];
            let hash = heap.geometry().hash(&key);
            let part = &mut parts[usize::from(heap.geometry().partition_of(hash).0)];
            match self.rng.u8(..8) {
                0 | 1 => {
                    part.delete(&mut undo, table, &key, hash);
                }
                _ => {
                    let bytes = [4, 20, 150, 900, 4000, 9000, 40_000][self.rng.usize(..7)];
                    let value = vec![self.rng.u8(..); bytes];
                    part.put(&mut undo, TableKey::new(table, &key, hash), &value, None)
                        .expect("room");
                }
            }
        }
        if self.rng.u8(..5) == 0 {
            parts.iter_mut().for_each(|part| part.rollback(&undo));
            return;
        }
        for part in &mut parts {
            part.encode(&undo, &mut group);
            if undo.partitions().contains(part.id()) {
                let pseq = part.pseq();
                part.set_pseq(pseq + 1);
            }
        }
        let group = group.finish().to_vec();
        self.log.extend(Some(group).filter(|g| !g.is_empty()));
    }

    fn begin_checkpoint(&mut self) {
        let k = CkptEpoch(self.heap.ckpt_epoch().0 + 1);
        let slot = self.newest.map_or(ImageSlot::A, |(_, slot)| slot.other());
        let (pages, pseq) = (copy_pages(&self.heap), pseqs(&self.heap));
        let heap = Arc::clone(&self.heap);
        let (cut, ()) = heap.cut(Reader::Checkpoint { k, slot }, || {
            assert!(
                ids(&heap).all(|p| heap.try_lock(p).is_none()),
                "all latches"
            );
            heap.set_ckpt_epoch(k);
        });
        assert_eq!(cut.pseq(), pseq);
        self.sweep = Some(Sweep {
            cut,
            k,
            slot,
            at: (0, 0),
            pages,
        });
    }

    /// Visits some pages. Returns `false` if the finished image is not the state at the cut.
    fn step_checkpoint(&mut self) -> bool {
        let Some(sweep) = &mut self.sweep else {
            return true;
        };
        let (partition, first) = sweep.at;
        let id = PartitionId(partition);
        let mut part = self.heap.lock(id);
        let image = &mut self.images[sweep.slot.index()];
        let end = part.pages().min(first + self.rng.u32(1..6));
        for local in first..end {
            match part.visit(local, sweep.slot, sweep.k) {
                Visit::Born | Visit::Untouched => drop(image.remove(&(id, local))),
                Visit::Clean => {}
                Visit::Dirty(bytes) => {
                    assert_eq!(bytes[..8], sweep.k.0.to_le_bytes());
                    image.insert((id, local), bytes[8..].to_vec());
                    if self.rng.u8(..100) == 0 {
                        part.mark_dirty(local, sweep.slot);
                        image.remove(&(id, local));
                        drop(part);
                        self.sweep = None;
                        return true;
                    }
                }
            }
        }
        sweep.at = (partition, end);
        if end < part.pages() {
            return true;
        }
        part.close_checkpoint_cut();
        drop(part);
        sweep.at = (partition + 1, 0);
        if partition + 1 < PARTITIONS {
            return true;
        }
        let Some(sweep) = self.sweep.take() else {
            return true;
        };
        self.completed += 1;
        self.newest = Some((sweep.k, sweep.slot));
        drop(sweep.cut);
        let image = self.images[sweep.slot.index()].clone();
        if self.mode == SnapshotMode::Rows {
            return rows_of(image) == rows_of(sweep.pages);
        }
        image == sweep.pages
    }

    fn begin_read(&mut self) -> bool {
        let (pages, rows, pseq) = (copy_pages(&self.heap), rows(&self.heap), pseqs(&self.heap));
        let epoch = self.heap.ckpt_epoch();
        let snapshot = self.heap.snapshot();
        assert_eq!(snapshot.pseq(), pseq);
        self.reads.push(Read {
            snapshot,
            pages,
            rows,
        });
        self.heap.ckpt_epoch() == epoch
    }

    /// Reads a whole snapshot. Returns `false` if the result is not the state at the snapshot's instant.
    fn read(&mut self) -> bool {
        if self.reads.is_empty() {
            return true;
        }
        let at = self.rng.usize(..self.reads.len());
        let Read {
            snapshot,
            pages,
            rows,
        } = &self.reads[at];
        let (mut found, mut stray) = (Pages::new(), false);
        for p in ids(&self.heap) {
            let mut next = Some(0);
            while let Some(from) = next {
                let n = self.rng.u32(1..40);
                let take = |local, bytes: &[u8]| {
                    stray |= local < from || local >= from + n;
                    if bytes.iter().any(|byte| *byte != 0) {
                        found.insert((p, local), bytes[8..].to_vec());
                    }
                };
                next = snapshot.for_each_page(p, from, n, take).expect("open");
            }
        }
        assert!(!stray);
        self.compared += 1;
        if found != *pages {
            return false;
        }
        for table in TABLES {
            let mut found = BTreeMap::new();
            let each = |key: &[u8], value: &[u8]| {
                found.insert((table, key.to_vec()), (value.to_vec(), None));
                Ok(())
            };
            snapshot.each_row(table, each).expect("rows");
            let mut want = rows.clone();
            want.retain(|(of, _), _| *of == table);
            if found != want {
                return false;
            }
        }
        true
    }

    /// Returns whether a restart gives the present pages. It plays the newest image and the records that the image
    /// lacks.
    fn restarts(&mut self) -> bool {
        let Some((k, slot)) = self.newest.filter(|_| self.sweep.is_none()) else {
            return true;
        };
        let heap = bare_heap(PARTITIONS);
        heap.set_ckpt_epoch(self.heap.ckpt_epoch());
        for ((p, local), bytes) in &self.images[slot.index()] {
            let page = [&[0; 8], bytes.as_slice()].concat();
            heap.lock(*p).load_page(*local, &page);
        }
        for group in &self.log {
            let group = decode_group(group).expect("a group");
            for record in group.records().filter(|record| record.tag >= k) {
                let p = heap.geometry().partition_of_page(record.page);
                heap.lock(p).apply(&record).expect("a page");
            }
        }
        if ids(&heap).any(|p| !heap.lock(p).useq_gaps().is_empty()) {
            return false;
        }
        ids(&heap).for_each(|p| heap.lock(p).finish_restart(k, Some(slot)));
        recorded(&heap) == recorded(&self.heap)
    }

    fn step(&mut self) -> bool {
        match self.rng.u8(..24) {
            0 if self.sweep.is_none() => self.begin_checkpoint(),
            1 if self.reads.len() < 3 => return self.begin_read(),
            2 => return self.read(),
            3 if !self.reads.is_empty() => {
                let at = self.rng.usize(..self.reads.len());
                self.reads.swap_remove(at);
            }
            4..=13 => return self.step_checkpoint(),
            14 if self.rng.u8(..20) == 0 => self.sweep = None,
            15 if self.rng.u8(..8) == 0 => return self.restarts(),
            _ => self.transaction(),
        }
        true
    }
}

/// Returns how many images were completed and how many snapshots were compared; `None` if a state was wrong.
fn holds(seed: u64, mode: SnapshotMode) -> Option<(u32, u32)> {
    let mut world = World::new(seed, mode);
    for _ in 0..1200 {
        if !world.step() {
            return None;
        }
    }
    world.sweep = None;
    world.reads.clear();
    let kept = world.heap.memory().get(MemoryUse::Kept);
    assert_eq!(kept, 0, "nothing is kept without a cut");
    world
        .restarts()
        .then_some((world.completed, world.compared))
}

#[test]
fn every_cut_is_read_as_it_was_whatever_is_open_beside_it() {
    let (mut completed, mut compared) = (0, 0);
    for seed in 0u64..40 {
        let mode = [SnapshotMode::Pages, SnapshotMode::Rows][usize::from(seed % 2 == 1)];
        let done = holds(seed, mode);
        let (images, reads) = done.unwrap_or_else(|| panic!("seed {seed}"));
        completed += images;
        compared += reads;
    }
    assert!(completed > 120 && compared > 300, "{completed}, {compared}");
}

#[test]
fn a_snapshot_may_be_dropped_under_a_latch() {
    let heap = Arc::new(new_heap(1));
    put(&heap, PLAIN, b"k", b"v", None);
    let snapshot = heap.snapshot();
    put(&heap, PLAIN, b"k", b"w", None);
    let kept = || heap.memory().get(MemoryUse::Kept);
    assert!(kept() > 0);
    let part = heap.lock(PartitionId(0));
    drop(snapshot);
    drop(part);
    put(&heap, PLAIN, b"k", b"x", None);
    assert_eq!(kept(), 0, "the next commit closes it");
}

#[test]
fn beyond_the_bound_the_oldest_snapshot_ends_and_the_younger_goes_on() {
    let heap = Arc::new(new_heap(1));
    let value = |byte| vec![byte; 100_000];
    for key in 0..250u8 {
        put(&heap, PLAIN, &[key], &value(1), None);
    }
    let pages = |snapshot: &Snapshot| snapshot.for_each_page(PartitionId(0), 0, 1, |_, _| ());
    let older = heap.snapshot();
    for key in 0..70 {
        put(&heap, PLAIN, &[key], &value(2), None);
    }
    let younger = heap.snapshot();
    assert!(pages(&older).is_ok());
    for key in 0..250 {
        put(&heap, PLAIN, &[key], &value(3), None);
        if pages(&older).is_err() {
            break;
        }
    }
    assert!(pages(&older).is_err(), "too much was kept for it");
    assert!(pages(&younger).is_ok(), "the younger one has room now");
    let mut changed = 0;
    let each = |key: &[u8], found: &[u8]| {
        let want = if key[0] < 70 { value(2) } else { value(1) };
        assert!(found == want, "key {key:?}");
        changed += 1;
        Ok(())
    };
    younger.each_row(PLAIN, each).expect("rows");
    assert_eq!(changed, 250);
    drop((older, younger));
    assert_eq!(heap.memory().get(MemoryUse::Kept), 0);
    let idle = heap.snapshot();
    for key in 0..250 {
        put(&heap, PLAIN, &[key], &value(4), None);
    }
    heap.make_room();
    assert!(pages(&idle).is_err() && !heap.kept_over_bound());
    drop(idle);
    assert_eq!(heap.memory().get(MemoryUse::Kept), 0);
}

#[test]
fn a_checkpoint_over_the_bound_visits_what_is_kept_first() {
    let heap = Arc::new(new_heap(2));
    let value = |byte| vec![byte; 100_000];
    for key in 0..250u8 {
        put(&heap, PLAIN, &[key], &value(1), None);
    }
    let (k, slot) = (CkptEpoch(2), ImageSlot::A);
    let (cut, ()) = heap.cut(Reader::Checkpoint { k, slot }, || heap.set_ckpt_epoch(k));
    let truth = copy_pages(&heap);
    assert_eq!(heap.visit_kept(16, slot, k, |_, _, _| ()), None);
    for key in 0..250u8 {
        put(&heap, PLAIN, &[key], &value(2), None);
    }
    assert!(heap.kept_over_bound());
    let mut pages = 0;
    while heap.kept_over_bound() {
        let mut visited = Vec::new();
        let take = |local, _, visit: Visit<'_>| match visit {
            Visit::Dirty(bytes) => visited.push((local, bytes[8..].to_vec())),
            other => panic!("{other:?}"),
        };
        let p = heap.visit_kept(16, slot, k, take).expect("kept pages");
        pages += visited.len();
        for (local, bytes) in visited {
            assert!(truth[&(p, local)] == bytes, "page {local} of {p}");
            let again = heap.lock(p).visit(local, slot, k) == Visit::Clean;
            assert!(again, "a page is written once");
        }
    }
    assert!(pages > 100, "{pages}");
    drop(cut);
    assert_eq!(heap.memory().get(MemoryUse::Kept), 0);
}

#[cfg(feature = "flaws")]
#[test]
fn seeded_flaws_of_cuts_are_caught() {
    use perdura_base::flaw::{Flaw, arm};
    for flaw in [
        Flaw::CleanAtCutTakenForBorn,
        Flaw::KeptVisitClearsDirty,
        Flaw::SecondCutOverwritesKept,
        Flaw::SnapshotRaisesG,
    ] {
        arm(Some(flaw));
        let caught = (0..60).any(|seed| holds(seed, SnapshotMode::Pages).is_none());
        arm(None);
        assert!(caught, "{flaw:?}");
    }
}

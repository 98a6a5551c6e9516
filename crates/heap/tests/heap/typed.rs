//! Tests of tables with secondary indexes. The log records of a table contain either page numbers or keys. After random
//! transactions with savepoints, the rows are compared with a map. After a rollback, the pages are compared byte for
//! byte with earlier copies of the pages. The tests also check the log records and the restart.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::ops::Bound;
use std::sync::Arc;

use perdura_base::{CkptEpoch, ImageSlot, PartitionId, TableId};
use perdura_heap::{
    Derive, Geometry, GroupBuilder, Heap, MemoryAccount, MemoryUse, Partition, Savepoint,
    TableForm, TableKey, Undo, Visit, Which, decode_group,
};

use crate::harness::{ids, load_pages, logged_bytes};

const KEYED: TableId = TableId(3);
const PAGED: TableId = TableId(4);
const PARTITIONS: u16 = 2;
const CHUNK_PAGES: u16 = 2;
const ALL: (Bound<&[u8]>, Bound<&[u8]>) = (Bound::Unbounded, Bound::Unbounded);

/// Two indexes of a table: one by the first two bytes of a value, one by the value's length.
#[derive(Debug)]
struct Columns;

impl Derive for Columns {
    fn indexes(&self) -> usize {
        2
    }

    fn index_key(&self, index: usize, _: &[u8], value: &[u8], out: &mut Vec<u8>) {
        match index {
            0 => out.extend_from_slice(&value[..2]),
            _ => out.extend_from_slice(&u32::try_from(value.len()).expect("short").to_be_bytes()),
        }
    }
}

fn form(table: TableId) -> Option<TableForm> {
    (table == KEYED || table == PAGED).then(|| TableForm {
        ordered: table == KEYED,
        keyed: table == KEYED,
        placed: true,
        derive: Some(Arc::new(Columns)),
    })
}

fn bare() -> Heap {
    let geometry = Geometry {
        partitions: PARTITIONS,
        chunk_pages: CHUNK_PAGES,
        hash_seed: 5,
    };
    let heap = Heap::new(geometry, Arc::new(MemoryAccount::new(u64::MAX)));
    heap.set_ckpt_epoch(CkptEpoch(1));
    heap
}

fn new_heap() -> Heap {
    let heap = bare();
    for id in ids(&heap) {
        for table in [KEYED, PAGED] {
            heap.lock(id)
                .attach_table(table, form(table).expect("a table"));
        }
    }
    heap
}

type Model = BTreeMap<(PartitionId, TableId, Vec<u8>), Vec<u8>>;

fn check(heap: &Heap, model: &Model) {
    for id in ids(heap) {
        let part = heap.lock(id);
        for table in [KEYED, PAGED] {
            let of = model.range((id, table, Vec::new())..(id, TableId(table.0 + 1), Vec::new()));
            let rows: Vec<(&[u8], &[u8])> = of.map(|((_, _, k), v)| (&**k, &**v)).collect();
            assert_eq!(part.len(table), u64::try_from(rows.len()).expect("few"));
            for (key, value) in &rows {
                let found = part.peek(table, key, heap.geometry().hash_in(id, key));
                assert_eq!(found.expect("a row").value(), *value);
            }
            if table == KEYED {
                assert_eq!(walked(&part, table, Which::Primary, ALL), owned(&rows));
            }
            for index in 0..2 {
                let mut expected = BTreeMap::new();
                for (key, value) in &rows {
                    let mut by = Vec::new();
                    Columns.index_key(index, key, value, &mut by);
                    by.extend_from_slice(key);
                    expected.insert(by, (*key, *value));
                }
                let sorted: Vec<_> = expected.values().copied().collect();
                let which = Which::Secondary(index);
                assert_eq!(walked(&part, table, which, ALL), owned(&sorted));
                let low: &[u8] = &[7];
                let from = (Bound::Included(low), Bound::Unbounded);
                let above: Vec<_> = expected
                    .range(low.to_vec()..)
                    .map(|(_, row)| *row)
                    .collect();
                assert_eq!(walked(&part, table, which, from), owned(&above));
            }
            assert_eq!(
                part.rows(table, Which::Secondary(2), ALL.0, ALL.1).count(),
                0
            );
        }
    }
}

type Bytes = Vec<(PartitionId, u32, Vec<u8>)>;
type Rows = Vec<(Vec<u8>, Vec<u8>)>;

fn owned(rows: &[(&[u8], &[u8])]) -> Rows {
    rows.iter().map(|(k, v)| (k.to_vec(), v.to_vec())).collect()
}

/// Returns the rows of a walk. Checks that a walk from the opposite end returns the same rows in reverse order.
fn walked(
    part: &Partition,
    table: TableId,
    which: Which,
    range: (Bound<&[u8]>, Bound<&[u8]>),
) -> Rows {
    let copy = |row: perdura_heap::RowRef<'_>| (row.key().into_owned(), row.value().into_owned());
    let rows: Rows = part
        .rows(table, which, range.0, range.1)
        .map(copy)
        .collect();
    let mut back: Rows = part
        .rows(table, which, range.0, range.1)
        .rev()
        .map(copy)
        .collect();
    back.reverse();
    assert_eq!(rows, back);
    rows
}

fn is_odd(local: u32) -> bool {
    local / u32::from(CHUNK_PAGES) % 2 == 1
}

/// Returns the pages with logged changes.
fn even(heap: &Heap) -> Bytes {
    let mut pages = logged_bytes(heap);
    pages.retain(|(_, local, _)| !is_odd(*local));
    pages
}

struct Run {
    rng: fastrand::Rng,
    heap: Heap,
    model: Model,
    undo: Undo,
    pending: Model,
    savepoints: Vec<(Savepoint, Model, Bytes)>,
    groups: Vec<Vec<u8>>,
}

impl Run {
    fn value(&mut self) -> Vec<u8> {
        let len = match self.rng.u8(0..40) {
            0 => self.rng.usize(3000..40_000),
            1..5 => self.rng.usize(200..3000),
            _ => [40, 44, 130][self.rng.usize(0..3)],
        };
        let mut value = vec![self.rng.u8(..); len];
        value[0] = self.rng.u8(5..9);
        value
    }

    fn step(&mut self) {
        let id = PartitionId(self.rng.u16(0..PARTITIONS));
        let table = [KEYED, PAGED][self.rng.usize(0..2)];
        let key = format!("{:03}", self.rng.u8(0..60)).into_bytes();
        let key = if self.rng.u8(0..20) == 0 {
            vec![key[2]; 1200]
        } else {
            key
        };
        let hash = self.heap.geometry().hash_in(id, &key);
        let at = (id, table, key.clone());
        match self.rng.u8(0..100) {
            0..30 => {
                let value = self.value();
                let mut part = self.heap.lock(id);
                part.put(
                    &mut self.undo,
                    TableKey::new(table, &key, hash),
                    &value,
                    None,
                )
                .expect("room");
                self.pending.insert(at, value);
            }
            30..70 => {
                let mut value = self.pending.get(&at).cloned().unwrap_or(vec![1; 40]);
                for _ in 0..self.rng.usize(0..4) {
                    let byte = self.rng.usize(0..value.len());
                    value[byte] = self.rng.u8(5..9);
                }
                let mut part = self.heap.lock(id);
                let found =
                    part.overwrite(&mut self.undo, TableKey::new(table, &key, hash), &value);
                assert_eq!(found.expect("room"), self.pending.contains_key(&at));
                self.pending.entry(at).and_modify(|old| *old = value);
            }
            70..85 => {
                let gone = self.heap.lock(id).delete(&mut self.undo, table, &key, hash);
                assert_eq!(gone.is_some(), self.pending.remove(&at).is_some());
            }
            85..91 => {
                let point = self.undo.savepoint();
                self.savepoints
                    .push((point, self.pending.clone(), logged_bytes(&self.heap)));
            }
            91..96 if !self.savepoints.is_empty() => {
                let back = self.rng.usize(0..self.savepoints.len());
                self.savepoints.truncate(back + 1);
                let (point, model, bytes) = &self.savepoints[back];
                for id in ids(&self.heap) {
                    self.heap.lock(id).rollback_to(&mut self.undo, point);
                }
                self.pending = model.clone();
                assert!(logged_bytes(&self.heap) == *bytes, "bytes of a savepoint");
                check(&self.heap, &self.pending);
            }
            _ => {}
        }
    }

    /// Runs a transaction of some steps, and commits it or rolls it back.
    fn transaction(&mut self) {
        let before = logged_bytes(&self.heap);
        let used = self.heap.memory().get(MemoryUse::Indexes);
        self.pending = self.model.clone();
        for _ in 0..self.rng.usize(1..60) {
            self.step();
        }
        self.savepoints.clear();
        if self.rng.u8(0..3) == 0 {
            for id in ids(&self.heap) {
                self.heap.lock(id).rollback(&self.undo);
            }
            assert!(logged_bytes(&self.heap) == before, "bytes as before");
            check(&self.heap, &self.model);
            let now = self.heap.memory().get(MemoryUse::Indexes);
            assert!(now <= used + 100_000, "what was added is off the account");
        } else {
            let mut group = GroupBuilder::new();
            for id in ids(&self.heap) {
                self.heap.lock(id).encode(&self.undo, &mut group);
            }
            let group = group.finish().to_vec();
            if !group.is_empty() {
                assert!(self.undo.wrote_page_addressed());
                let decoded = decode_group(&group).expect("a group");
                for record in decoded.records() {
                    let local = self.heap.geometry().local_index(record.page);
                    assert!(!is_odd(local), "a record of page {local}");
                }
                self.groups.push(group);
            }
            self.model = std::mem::take(&mut self.pending);
        }
        self.undo.clear();
        assert!(!self.undo.wrote_page_addressed() && !self.undo.wrote_keyed());
    }

    /// Checks that a restart from the records gives the same pages. Checks that the pages give the same indexes, with
    /// and without a sidecar.
    fn restarts(&self) {
        check(&self.heap, &self.model);
        let replica = bare();
        for group in &self.groups {
            for record in decode_group(group).expect("a group").records() {
                let id = replica.geometry().partition_of_page(record.page);
                replica.lock(id).apply(&record).expect("a page");
            }
        }
        for id in ids(&replica) {
            assert_eq!(replica.lock(id).useq_gaps(), []);
        }
        assert!(even(&replica) == even(&self.heap), "pages differ");
        for with_sidecar in [false, true] {
            let copy = bare();
            load_pages(&self.heap, &copy);
            for id in ids(&copy) {
                let mut bytes = Vec::new();
                self.heap.lock(id).sidecar(&mut bytes);
                let sidecar = with_sidecar.then(|| copy.read_sidecar(id, &bytes));
                let mut part = copy.lock(id);
                part.finish_restart(CkptEpoch(1), Some(ImageSlot::A));
                let stats = part.build_indexes(&form, sidecar).expect("sound pages");
                assert!(!stats.sidecar_refused);
                let listed = self
                    .model
                    .keys()
                    .filter(|(part, table, _)| with_sidecar && *part == id && *table == PAGED);
                assert_eq!(
                    stats.from_sidecar,
                    u64::try_from(listed.count()).expect("few")
                );
                for table in [KEYED, PAGED] {
                    part.attach_table(table, form(table).expect("a table"));
                }
            }
            check(&copy, &self.model);
        }
    }
}

fn run(seed: u64) {
    let mut run = Run {
        rng: fastrand::Rng::with_seed(seed),
        heap: new_heap(),
        model: Model::new(),
        undo: Undo::new(),
        pending: Model::new(),
        savepoints: Vec::new(),
        groups: Vec::new(),
    };
    for _ in 0..12 {
        run.transaction();
    }
    run.restarts();
}

#[test]
fn typed_rows_equal_a_map_under_savepoints_rollbacks_and_restarts() {
    for seed in 0..60 {
        run(seed);
    }
}

#[cfg(feature = "flaws")]
#[test]
fn each_seeded_bug_of_pools_saves_and_indexes_is_caught() {
    use perdura_base::flaw::{Flaw, arm};
    let mine = [
        Flaw::IndexEntryKeptAfterAbort,
        Flaw::PoolsShared,
        Flaw::RangeInsideSave,
    ];
    for flaw in mine {
        arm(Some(flaw));
        let caught = (0..60).any(|seed| std::panic::catch_unwind(|| run(seed)).is_err());
        arm(None);
        assert!(caught, "{flaw:?}");
    }
}

fn commit(heap: &Heap, id: PartitionId, f: impl FnOnce(&mut Partition, &mut Undo)) -> Vec<u8> {
    let (mut undo, mut group) = (Undo::new(), GroupBuilder::new());
    let mut part = heap.lock(id);
    f(&mut part, &mut undo);
    part.encode(&undo, &mut group);
    group.finish().to_vec()
}

/// Fills pages of a table, one row in each. Returns the transaction's group.
fn fill(heap: &Heap, table: TableId, names: std::ops::Range<u8>) -> Vec<u8> {
    let id = PartitionId(0);
    commit(heap, id, |part, undo| {
        for name in names {
            let hash = heap.geometry().hash_in(id, &[name]);
            part.put(
                undo,
                TableKey::new(table, &[name], hash),
                &[name; 15_000],
                None,
            )
            .expect("room");
        }
    })
}

/// Returns the local pages that a table uses.
fn locals(heap: &Heap, table: TableId) -> Vec<u32> {
    let part = heap.lock(PartitionId(0));
    let holds = |local: &u32| {
        let page = part.page_bytes(*local).expect("a page");
        u32::from_le_bytes(page[16..20].try_into().expect("four")) == table.0
            && page[16..] != [0; 16368]
    };
    (0..part.pages()).filter(holds).collect()
}

/// Returns a heap in the form that databases had before pools existed. A page-addressed table has pages in odd chunks.
fn older() -> Heap {
    let source = new_heap();
    fill(&source, KEYED, 0..4);
    let heap = bare();
    load_pages(&source, &heap);
    let old_form = |table: TableId| {
        (table == KEYED).then(|| TableForm {
            placed: true,
            ..false.into()
        })
    };
    let mut part = heap.lock(PartitionId(0));
    part.finish_restart(CkptEpoch(1), Some(ImageSlot::A));
    part.build_indexes(&old_form, None).expect("sound pages");
    // From here on the key-addressed table is table 9.
    part.attach_table(
        TableId(9),
        TableForm {
            keyed: true,
            ..form(KEYED).expect("a table")
        },
    );
    drop(part);
    heap
}

#[test]
fn pages_in_odd_chunks_of_an_older_database_stay_logged_until_a_keyed_table_has_them() {
    let heap = older();
    let id = PartitionId(0);
    let old = locals(&heap, KEYED);
    assert!(old.len() == 4 && old.iter().all(|local| is_odd(*local)));
    let change = commit(&heap, id, |part, undo| {
        let hash = heap.geometry().hash_in(id, &[1]);
        assert!(
            part.overwrite(undo, TableKey::new(KEYED, &[1], hash), &[9; 15_000])
                .expect("room")
        );
        assert!(undo.wrote_page_addressed() && !undo.wrote_keyed());
    });
    assert_eq!(decode_group(&change).expect("a group").records().count(), 1);
    // One transaction frees the page, and then needs a page for a key-addressed table. Its group must have a record
    // that says that the first page is free.
    let freed = commit(&heap, id, |part, undo| {
        let hash = heap.geometry().hash_in(id, &[1]);
        part.delete(undo, KEYED, &[1], hash).expect("a row");
        part.put(
            undo,
            TableKey::new(TableId(9), &[1], hash),
            &[5; 15_000],
            None,
        )
        .expect("room");
        assert!(undo.wrote_page_addressed() && undo.wrote_keyed());
    });
    let group = decode_group(&freed).expect("a group");
    let pages: Vec<u32> = group
        .records()
        .map(|record| heap.geometry().local_index(record.page))
        .collect();
    let free: Vec<u32> = old
        .iter()
        .copied()
        .filter(|l| !locals(&heap, KEYED).contains(l))
        .collect();
    assert_eq!(pages, free, "one page, which is free");
    assert!(!locals(&heap, TableId(9)).contains(&free[0]));
    let taken = fill(&heap, TableId(9), 2..3);
    assert!(
        taken.is_empty(),
        "pages of key-addressed tables have no records"
    );
    assert!(
        locals(&heap, TableId(9)).contains(&free[0]),
        "a later transaction has it"
    );
    assert!(locals(&heap, TableId(9)).iter().all(|local| is_odd(*local)));
    // Here the records of table `KEYED` name pages, so its new pages come from even chunks.
    fill(&heap, KEYED, 10..15);
    let new = locals(&heap, KEYED);
    assert_eq!(new.iter().filter(|local| !is_odd(**local)).count(), 5);
}

#[test]
fn a_page_of_a_keyed_table_is_dirty_for_both_images_and_its_update_number_stays() {
    let heap = new_heap();
    let id = PartitionId(0);
    assert!(fill(&heap, KEYED, 0..1).is_empty());
    let local = locals(&heap, KEYED)[0];
    assert!(is_odd(local));
    let mut part = heap.lock(id);
    for (slot, k) in [(ImageSlot::A, 2), (ImageSlot::B, 3)] {
        assert!(matches!(
            part.visit(local, slot, CkptEpoch(k)),
            Visit::Dirty(_)
        ));
    }
    let before = part.page_bytes(local).expect("a page")[..16].to_vec();
    drop(part);
    commit(&heap, id, |part, undo| {
        let hash = heap.geometry().hash_in(id, &[0]);
        let mut value = vec![0; 15_000];
        value[100] = 1;
        assert!(
            part.overwrite(undo, TableKey::new(KEYED, &[0], hash), &value)
                .expect("room")
        );
    });
    let part = heap.lock(id);
    assert!(part.is_dirty(local, ImageSlot::A) && part.is_dirty(local, ImageSlot::B));
    assert_eq!(part.page_bytes(local).expect("a page")[..16], before);
}

#[test]
fn transactions_are_counted_by_partition() {
    let heap = new_heap();
    heap.lock(PartitionId(1)).set_pseq(7);
    assert_eq!([0, 1].map(|id| heap.lock(PartitionId(id)).pseq()), [0, 7]);
}

//! Tests of consistent checkpoints while transactions run. The image holds every key-addressed row and every sequence
//! number as they were at the image's cut. A restart also plays the page records of the log. So the page-addressed rows
//! are as they were at the end of the log.

use std::collections::BTreeMap;
use std::sync::Arc;

use perdura_base::{ImageSlot, PartitionId, Result, StreamId, TableId, Uuid};
use perdura_device::{Access, Disk, ManualClock, MemDisk};
use perdura_heap::{
    Geometry, GroupBuilder, Heap, MemoryUse, SnapshotMode, TableForm, TableKey, Undo,
};
use perdura_recovery::image::pages_path;
use perdura_recovery::indexing::ReadCatalog;
use perdura_recovery::window::ExecutorWindow;
use perdura_recovery::{
    Addressing, Catalog, CheckpointProgress, Disks, KeyOrder, Level, Life, LogMemory, Method,
    NewDatabase, RestartOptions, RestartReport, Schedule, TableKind, create, flush_all, restart,
};
use perdura_wal::{FrameKind, Scheme, SegmentSizes, Wal};

const GEOMETRY: Geometry = Geometry {
    partitions: 4,
    chunk_pages: 2,
    hash_seed: 1,
};
/// A table with changes in the log.
const PAGED: TableId = TableId(1);
/// A table whose changes are not in the log. After a restart it has the rows of the image.
const KEYED: TableId = TableId(2);

#[derive(Clone)]
struct Tables {
    keyed: bool,
}

impl Tables {
    fn form_of(&self, table: TableId) -> TableForm {
        TableForm {
            keyed: table == KEYED,
            placed: self.keyed || table == KEYED,
            ..TableForm::default()
        }
    }
}

impl ReadCatalog for Tables {
    fn read_catalog(&self, _: &Heap) -> Result<Catalog> {
        let paged = TableKind::heap(KeyOrder::Hashed);
        let keyed = TableKind {
            addressing: Addressing::Key,
            ..paged
        };
        let tables = [(PAGED, paged), (KEYED, keyed)].into_iter();
        Ok(tables.take(if self.keyed { 2 } else { 1 }).collect())
    }

    fn form(&self, table: TableId, _: TableKind) -> TableForm {
        self.form_of(table)
    }
}

type Rows = BTreeMap<(PartitionId, Vec<u8>), Vec<u8>>;

fn ids() -> impl Iterator<Item = PartitionId> {
    (0..GEOMETRY.partitions).map(PartitionId)
}

fn rows(heap: &Heap, table: TableId) -> Rows {
    let mut out = Rows::new();
    for p in ids() {
        let part = heap.lock(p);
        part.for_each(table, |row| {
            out.insert((p, row.key().into_owned()), row.value().into_owned());
        });
    }
    out
}

struct World {
    rng: fastrand::Rng,
    disk: Arc<dyn Disk>,
    cuts: bool,
    tables: Tables,
    mode: SnapshotMode,
    /// An entry for each complete image, the newest image last. The entry has the transaction count and the
    /// key-addressed rows at the image's cut.
    images: Vec<(u64, Rows)>,
    count: u64,
}

impl World {
    fn new(seed: u64, cuts: bool) -> World {
        let disk: Arc<dyn Disk> = Arc::new(MemDisk::new());
        let new = NewDatabase {
            uuid: Uuid([3; 16]),
            geometry: GEOMETRY,
            streams: 1,
            segments: SegmentSizes::fixed(1 << 20),
            scheme: Scheme::Differential,
        };
        let disks = Disks::on_one(Arc::clone(&disk), 1);
        create(&disks, &ManualClock::at(1), &new, None).expect("a database");
        World {
            rng: fastrand::Rng::with_seed(seed),
            disk,
            cuts,
            tables: Tables { keyed: true },
            mode: [SnapshotMode::Pages, SnapshotMode::Rows][usize::from(seed % 2 == 1)],
            images: Vec::new(),
            count: 0,
        }
    }

    fn open(&self) -> Life {
        let options = RestartOptions {
            catalog: Arc::new(self.tables.clone()),
            ..RestartOptions::of_records(
                Disks::on_one(Arc::clone(&self.disk), 1),
                Arc::new(ManualClock::at(1)),
                Schedule::inline(Level::Four, 0),
                Method::of(Scheme::Differential),
            )
        };
        let restarted = restart(&options).expect("a restart").expect("a database");
        let memory = LogMemory {
            block_bytes_max: 1 << 16,
            queue_bytes_max: 8 << 20,
            lanes: 1,
            mirror: None,
        };
        let window = Arc::new(ExecutorWindow { cuts: self.cuts });
        let db = Life::begin(restarted, &options, memory, window).expect("a log");
        db.heap.set_snapshot_mode(self.mode);
        for p in ids() {
            let tables = self.tables.read_catalog(&db.heap).expect("the tables");
            for table in tables.into_keys() {
                db.heap
                    .lock(p)
                    .attach_table(table, self.tables.form_of(table));
            }
        }
        db
    }

    /// Runs a transaction. In every partition of each table it writes the transaction count to one row, and changes a
    /// random row.
    fn transaction(&mut self, heap: &Heap, wal: &Wal) {
        let (mut undo, mut group) = (Undo::new(), GroupBuilder::new());
        let mut parts: Vec<_> = ids().map(|p| heap.lock(p)).collect();
        self.count += 1;
        for part in &mut parts {
            for table in part.table_ids().collect::<Vec<_>>() {
                for key in [b'n', self.rng.u8(..20)] {
                    let hash = GEOMETRY.hash_in(part.id(), &[key]);
                    let mut value = self.count.to_le_bytes().to_vec();
                    if key != b'n' {
                        value.resize(self.rng.usize(8..4000), 7);
                    }
                    part.put(&mut undo, TableKey::new(table, &[key], hash), &value, None)
                        .expect("room");
                }
            }
            part.encode(&undo, &mut group);
            part.set_pseq(self.count);
        }
        let (partitions, tag) = (group.partitions(), group.tag_max());
        wal.append(
            StreamId(0),
            FrameKind::Group,
            group.finish(),
            &partitions,
            tag,
        );
    }

    fn transactions(&mut self, db: &Life, up_to: usize) {
        for _ in 0..self.rng.usize(..=up_to) {
            self.transaction(&db.heap, &db.wal);
        }
    }

    /// Runs a checkpoint to the end or to a crash. Transactions run between the checkpoint's steps.
    fn checkpoint(&mut self, db: &Life, crashes: bool) {
        let at = (self.count, rows(&db.heap, KEYED));
        db.checkpoints.begin().expect("a checkpoint");
        loop {
            self.transactions(db, 2);
            match db.checkpoints.step().expect("a step") {
                CheckpointProgress::Done => break,
                CheckpointProgress::Idle => panic!("it ends once"),
                CheckpointProgress::Working(_) if crashes && self.rng.u8(..40) == 0 => return,
                CheckpointProgress::Working(_) => {}
                CheckpointProgress::Waiting => flush_all(&db.wal).expect("a sync"),
            }
        }
        assert_eq!(db.heap.memory().get(MemoryUse::Kept), 0);
        self.images.push(at);
    }

    /// Restarts the database. Returns the report if the page-addressed rows equal `paged` and the key-addressed rows
    /// equal the rows in `image`, otherwise `None`.
    fn restarts(&self, paged: &Rows, image: Option<&(u64, Rows)>) -> Option<RestartReport> {
        let db = self.open();
        let none = (0, Rows::new());
        let (count, keyed) = image.unwrap_or(&none);
        let pseq_is = |p| db.heap.lock(p).pseq() == *count;
        let holds = rows(&db.heap, PAGED) == *paged
            && rows(&db.heap, KEYED) == *keyed
            && ids().all(pseq_is);
        holds.then_some(db.report)
    }
}

fn holds(seed: u64) -> bool {
    let mut world = World::new(seed, false);
    let db = world.open();
    assert!(db.heap.has_keyed());
    for _ in 0..3 {
        world.transactions(&db, 20);
        world.checkpoint(&db, false);
    }
    world.transactions(&db, 20);
    world.checkpoint(&db, true);
    world.transactions(&db, 5);
    flush_all(&db.wal).expect("a sync");
    let paged = rows(&db.heap, PAGED);
    drop(db);
    world.restarts(&paged, world.images.last()).is_some()
}

#[test]
fn a_restart_has_all_rows_that_no_record_names_as_of_one_instant() {
    for seed in 0..40 {
        assert!(holds(seed), "seed {seed}");
    }
}

#[cfg(feature = "flaws")]
#[test]
fn seeded_bugs_of_the_instant_are_caught() {
    use perdura_base::flaw::{Flaw, arm};
    for flaw in Flaw::ORDERED {
        arm(Some(flaw));
        let caught = (0..20).any(|seed| !holds(seed));
        arm(None);
        assert!(caught, "{flaw:?}");
    }
}

/// A damaged page cannot be taken from the older image, which holds the page as it was at an earlier instant. So the
/// restart loads the whole older image.
#[test]
fn damage_in_an_image_of_one_instant_brings_the_older_one_back_as_a_whole() {
    for seed in 0..10 {
        let mut world = World::new(seed, true);
        let db = world.open();
        for _ in 0..2 {
            world.transactions(&db, 20);
            world.checkpoint(&db, false);
        }
        world.transactions(&db, 20);
        flush_all(&db.wal).expect("a sync");
        let (paged, k) = (rows(&db.heap, PAGED), db.checkpoints.stats().last_k);
        drop(db);
        let path = pages_path(ImageSlot::B);
        let file = world.disk.open(&path, Access::Buffered).expect("image B");
        let bytes = file.len().expect("its length");
        for at in (4096..bytes).step_by(16384) {
            file.write_at(at + 5000, &[0xa5; 3]).expect("room");
        }
        let report = world.restarts(&paged, world.images.first());
        let report = report.unwrap_or_else(|| panic!("seed {seed}"));
        assert_eq!((report.checkpoint, report.pages_rebuilt), (k - 1, 0));
        // The next checkpoint overwrites the damaged image.
        let db = world.open();
        world.count += 1000;
        world.checkpoint(&db, false);
        let slot = db.anchor.get().newest_image();
        assert_eq!(slot, Some(ImageSlot::B));
    }
}

#[test]
fn the_first_key_addressed_table_ends_a_fuzzy_sweep_and_later_checkpoints_are_cuts() {
    let mut world = World::new(1, false);
    world.tables = Tables { keyed: false };
    let db = world.open();
    assert!(!db.heap.has_keyed());
    let is_cut = || {
        let anchor = db.anchor.get();
        let newest = anchor.newest_image().expect("an image");
        anchor.image(newest).consistent
    };
    world.checkpoint(&db, false);
    assert!(!is_cut());
    db.checkpoints.begin().expect("a checkpoint");
    for p in ids() {
        db.heap
            .lock(p)
            .attach_table(KEYED, world.tables.form_of(KEYED));
    }
    assert!(db.heap.has_keyed());
    db.checkpoints.require_cuts();
    assert!(!db.checkpoints.is_running(), "the sweep was fuzzy");
    world.checkpoint(&db, false);
    assert!(is_cut());
    db.checkpoints.begin().expect("a checkpoint");
    db.checkpoints.require_cuts();
    assert!(db.checkpoints.is_running(), "it is a cut");
    world.transactions(&db, 9);
    assert!(db.checkpoints.abandon());
    assert_eq!(db.heap.memory().get(MemoryUse::Kept), 0);
}

//! A database with an archive. Each durable record gets into the archive exactly once. A failing archive
//! does no harm, except that the log grows.

use std::sync::Arc;
use std::time::{Duration, Instant};

use perdura::{
    Archiving, Core, CoreOptions, Db, Disks, Env, EpochEnds, Error, Merging, MergingStep, Options,
    Progress, Rung,
};
use perdura_archive::{ArchiverStep, MergerOptions, Retention, Store};
use perdura_base::{CkptEpoch, Epoch};
use perdura_device::{Clock, CrashProfile, Disk, FaultPlan, ManualClock, MemDisk, SimDisk};
use perdura_page::RegionDigest;
use perdura_recovery::read_anchor;

use crate::archiver::any_fault;
use crate::archiver::{Record, begin, read_log, read_run};
use crate::core_steps::{put, small};
use crate::with_threads::set;

pub const LIFE: u64 = 1;

/// A database, its archive on a separate disk, and all records ever logged.
struct World {
    rng: fastrand::Rng,
    streams: usize,
    clock: Arc<ManualClock>,
    log: Arc<SimDisk>,
    store: Arc<SimDisk>,
    core: Core,
    archiving: Archiving,
    merging: Merging,
    /// The end of the log in `records`.
    at: EpochEnds,
    records: Vec<Record>,
    fails: bool,
    /// The newest image when archiving began.
    first_image: Option<CkptEpoch>,
    seen: Seen,
}

#[derive(Debug, Default)]
struct Seen {
    runs: usize,
    merges: usize,
    errors: usize,
    power_cuts: usize,
    lives: usize,
    truncated: usize,
}

/// Returns a merger that merges when the archive has two runs.
fn merging(archiving: &Archiving) -> Merging {
    let options = MergerOptions {
        fan_in: 2,
        ..MergerOptions::default()
    };
    Merging::new(archiving.lent(), options, Retention::default())
}

pub fn logs(log: &Arc<SimDisk>) -> Vec<Arc<dyn Disk>> {
    vec![log.life()]
}

fn open_core(
    (log, streams): (&Arc<SimDisk>, usize),
    clock: &Arc<ManualClock>,
    archived: Option<EpochEnds>,
) -> Core {
    let life: Arc<dyn Disk> = log.life();
    let env = Env {
        disks: Disks::on_one(life, streams),
        clock: Arc::clone(clock) as Arc<dyn Clock>,
        seed: 7,
        nodes: None,
        accept_loss: false,
    };
    let options = CoreOptions {
        archived,
        ..small()
    };
    Core::open(env, options, Arc::new(Progress::default())).expect("it opens")
}

impl World {
    fn new(seed: u64) -> World {
        let mut rng = fastrand::Rng::with_seed(seed);
        let streams = rng.usize(1..4);
        let (log, store) = (SimDisk::new(seed), SimDisk::new(seed));
        let clock = Arc::new(ManualClock::at(1_000_000));
        let core = open_core((&log, streams), &clock, None);
        let archiving = Archiving::new(store.life(), LIFE);
        World {
            rng,
            streams,
            merging: merging(&archiving),
            archiving,
            clock,
            log,
            store,
            core,
            at: begin(streams),
            records: Vec::new(),
            fails: false,
            first_image: None,
            seen: Seen::default(),
        }
    }

    fn write(&mut self) {
        for _ in 0..self.rng.usize(1..20) {
            let (key, byte) = (self.rng.u8(..), self.rng.u8(..));
            let len = self.rng.usize(0..3000);
            put(&self.core, &format!("key{key}"), &vec![byte; len]);
        }
        self.core.flush_all().unwrap();
        self.read();
    }

    /// Reads the new part of the log, before the log can be cut.
    fn read(&mut self) {
        self.records
            .extend(read_log(&self.core, &mut self.at).unwrap());
    }

    fn step(&mut self) -> ArchiverStep {
        if self.core.archived().is_none() {
            let anchor = self.core.anchor().get();
            self.first_image = anchor.newest_image().map(|slot| anchor.image(slot).k);
        }
        match self.archiving.step(&self.core) {
            Ok(step) => {
                self.seen.runs += usize::from(matches!(step, ArchiverStep::Run(_)));
                step
            }
            Err(error) => {
                self.failed(&error);
                ArchiverStep::Working
            }
        }
    }

    fn merge(&mut self) {
        match self.merging.step(0) {
            Ok(step) => {
                self.seen.merges += usize::from(matches!(step, MergingStep::Merged(_)));
                assert!(!matches!(step, MergingStep::Elsewhere));
            }
            Err(error) => self.failed(&error),
        }
    }

    fn failed(&mut self, error: &Error) {
        // If the merger does not know whether its manifest is durable, the archiver stops too.
        let is_known = matches!(error, Error::Stopped(_));
        assert!(self.fails || is_known, "{error}");
        self.seen.errors += 1;
        self.repower();
        self.store.set_plan(FaultPlan::default());
        self.fails = false;
        if self.archiving.lent().get().is_none() {
            // The archiver cannot open the archive again before the merger has dropped it.
            let step = self.merging.step(0);
            assert!(matches!(step, Ok(MergingStep::Idle)), "{step:?}");
        }
    }

    /// If the archive's machine has lost power, begins its next life. A power cut during a proof only defers the
    /// proof, without an error.
    fn repower(&mut self) {
        if !self.store.has_power() {
            self.seen.power_cuts += 1;
            let profile = self.rng.choice(CrashProfile::ALL).unwrap();
            self.store.crash(profile, self.rng.u64(..));
            self.begin_archiving();
        }
    }

    fn begin_archiving(&mut self) {
        self.archiving = Archiving::new(self.store.life(), self.rng.u64(..));
        self.merging = merging(&self.archiving);
    }

    fn plan_fault(&mut self) {
        self.fails = true;
        self.store.set_plan(any_fault(&mut self.rng, 25, 6));
    }

    /// Crashes the database's machine, and sometimes also the archive's machine.
    fn next_life(&mut self) {
        self.seen.lives += 1;
        self.log.crash(CrashProfile::Worst, self.rng.u64(..));
        self.repower();
        if self.rng.bool() {
            self.store.crash(CrashProfile::Worst, self.rng.u64(..));
            self.fails = false;
        }
        self.begin_archiving();
        let anchor = read_anchor(self.log.life().as_ref()).unwrap().unwrap();
        let declared = anchor.archived.is_some() && !self.fails;
        let end = declared.then(|| {
            self.archiving
                .end_of(&anchor.uuid, &logs(&self.log))
                .unwrap()
        });
        self.core = open_core((&self.log, self.streams), &self.clock, end.flatten());
        self.read();
    }

    /// Archives everything and compares the archive with all records that were ever in the log.
    fn judge(&mut self) {
        self.repower();
        self.store.set_plan(FaultPlan::default());
        self.core.flush_all().unwrap();
        self.read();
        let durable = self.core.wal().durable_end(Rung::Disk);
        while self
            .core
            .archived()
            .is_none_or(|end| end.epoch < durable.epoch)
        {
            self.archiving.cut_at(durable.epoch);
            self.step();
        }
        let uuid = self.core.anchor().get().uuid;
        assert_eq!(
            self.archiving.end_of(&uuid, &logs(&self.log)).unwrap(),
            self.core.archived()
        );
        let store = Store::read_only(self.store.life(), &uuid).unwrap();
        let (manifest, mut found) = (store.manifest(), Vec::new());
        let (mut next, mut wall_us, mut back) = (manifest.begin, 0, 0);
        for id in manifest.runs() {
            assert_eq!(id.epochs.begin, next, "runs tile");
            next = id.epochs.end;
            let run = store.open_run(id).unwrap();
            run.verify(&RegionDigest::new()).unwrap();
            for moment in run.moments().list() {
                back += usize::from(moment.wall_us + 1_000_000 < wall_us);
                wall_us = moment.wall_us;
            }
            read_run(&run, &mut found).unwrap();
        }
        assert_eq!(next, Epoch(durable.epoch.0 + 1));
        assert!(back <= manifest.clock.steps.len());
        found.sort();
        self.records.retain(|record| record.2 >= manifest.begin);
        self.records.sort();
        let mut archived = found.iter().peekable();
        for record in &self.records {
            if archived.next_if_eq(&record).is_none() {
                // The record is from before the start of the image with which the archive begins.
                let (epoch, tag) = (record.2, record.4);
                assert!(epoch == manifest.begin && Some(tag) < self.first_image);
            }
        }
        assert_eq!(archived.next(), None);
        // The log is cut up to the end of the archive, and no further.
        self.core.checkpoint_now().unwrap();
        self.core.checkpoint_now().unwrap();
        let from_begin = read_log(&self.core, &mut begin(self.streams));
        self.seen.truncated += usize::from(matches!(from_begin, Err(Error::Truncated { .. })));
        let mut end = self.core.archived().unwrap();
        read_log(&self.core, &mut end).unwrap();
    }
}

fn history(seed: u64) -> Seen {
    let mut world = World::new(seed);
    for _ in 0..60 {
        match world.rng.u8(0..16) {
            0..5 => world.write(),
            5 => world.core.checkpoint_now().unwrap(),
            6 => world.plan_fault(),
            7 => world.next_life(),
            8 => {
                let durable = world.core.wal().durable(Rung::Disk);
                world.archiving.cut_at(durable);
            }
            9 => world.clock.advance_us(world.rng.u64(0..2_000_000)),
            10 => world.clock.set_wall_us(world.rng.u64(0..9_000_000)),
            11 => {
                for _ in 0..world.rng.usize(0..150) {
                    world.merge();
                }
            }
            _ => {
                for _ in 0..world.rng.usize(0..60) {
                    world.step();
                }
            }
        }
        world.read();
    }
    world.judge();
    world.seen
}

#[test]
fn the_archive_has_what_the_log_had_whatever_fails_on_either_disk() {
    let mut sum = Seen::default();
    for seed in 0..200 {
        let seen = history(seed);
        sum.runs += seen.runs;
        sum.merges += seen.merges;
        sum.errors += seen.errors;
        sum.power_cuts += seen.power_cuts;
        sum.lives += seen.lives;
        sum.truncated += seen.truncated;
    }
    assert!(
        sum.runs > 500 && sum.errors > 100 && sum.power_cuts > 50 && sum.lives > 400,
        "{sum:?}"
    );
    assert!(sum.truncated > 150 && sum.merges > 50, "{sum:?}");
}

/// The archiver makes one run a second for an hour, and the merger merges them. The archive always has few runs.
#[test]
fn runs_of_an_hour_are_few_at_any_time() {
    let mut world = World::new(5);
    world.merging = Merging::new(
        world.archiving.lent(),
        MergerOptions::default(),
        Retention::default(),
    );
    let mut most = 0;
    for second in 1..=3600u32 {
        put(
            &world.core,
            &format!("key{}", second % 97),
            &second.to_le_bytes(),
        );
        world.core.flush_all().unwrap();
        if second % 600 == 0 {
            world.read();
            world.core.checkpoint_now().unwrap();
        }
        world.clock.advance_us(1_000_000);
        world.archiving.cut_at(world.core.wal().durable(Rung::Disk));
        while world.step() != ArchiverStep::Idle {}
        loop {
            let step = world.merging.step(0).unwrap();
            if matches!(step, MergingStep::Idle) {
                break;
            }
        }
        let store = world.archiving.lent().get().expect("it is open");
        most = most.max(store.manifest().runs().count());
    }
    assert!(
        most <= 40,
        "{most} runs, nine of each of four tiers and one"
    );
    world.judge();
}

/// Steps the archiver until it is idle. Returns the number of runs made.
pub fn drain(core: &Core, archiving: &mut Archiving) -> usize {
    let mut runs = 0;
    loop {
        archiving.cut_at(core.wal().durable(Rung::Disk));
        match archiving.step(core).unwrap() {
            ArchiverStep::Idle => return runs,
            ArchiverStep::Run(_) => runs += 1,
            ArchiverStep::Working => {}
        }
    }
}

/// Found by the simulator: an archive ended earlier than the anchor said. A killed process had published a manifest
/// without making it durable. The database's next life relied on this manifest and removed the old part of the log.
/// Then a power cut of the archive's machine removed the manifest.
#[test]
fn the_log_is_cut_behind_what_a_killed_process_left_only_when_that_is_durable() {
    for steps in 1.. {
        let (log, store) = (SimDisk::new(1), SimDisk::new(1));
        let clock = Arc::new(ManualClock::at(1_000_000));
        let core = open_core((&log, 1), &clock, None);
        put(&core, "key", b"value");
        core.flush_all().unwrap();
        let uuid = core.anchor().get().uuid;
        let mut archiving = Archiving::new(store.life(), LIFE);
        archiving.step(&core).unwrap();
        archiving.cut_at(core.wal().durable(Rung::Disk));
        let made = (0..steps).any(|_| archiving.step(&core).unwrap() == ArchiverStep::Idle);
        drop((core, archiving));
        log.crash(CrashProfile::Killed, 1);
        let archiving = Archiving::new(store.life(), LIFE);
        let end = archiving.end_of(&uuid, &logs(&log)).unwrap();
        let core = open_core((&log, 1), &clock, end);
        core.checkpoint_now().unwrap();
        core.checkpoint_now().unwrap();
        let named = core.anchor().get().archived.clone().unwrap();
        store.crash(CrashProfile::Nothing, 1);
        let end = Archiving::new(store.life(), LIFE)
            .end_of(&uuid, &logs(&log))
            .unwrap();
        assert!(end.unwrap().epoch >= named.epoch, "step {steps}");
        if made {
            assert!(named.epoch > Epoch(0) && steps > 10, "{steps}");
            break;
        }
    }
}

/// Waits until the archive has everything that is durable.
fn wait_for_archive(db: &Db) {
    let begin = Instant::now();
    let durable = db.durable();
    while db.stats().archive.unwrap().archived_epoch < Some(durable.0) {
        assert!(
            begin.elapsed() < Duration::from_secs(30),
            "{:?}",
            db.delayed()
        );
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_directory_is_named_and_the_log_goes_there_by_itself() {
    let dir = tempfile::tempdir().unwrap();
    let archive = dir.path().join("archive");
    let options = || {
        let data = dir.path().join("data");
        Db::builder(data).archive(&archive).into_options()
    };
    let db = Db::open(options()).unwrap();
    db.wait(set(&db, b"one", b"1")).unwrap();
    wait_for_archive(&db);
    let stats = db.stats().archive.unwrap();
    assert!(
        stats.runs > 0 && stats.records > 0 && stats.bytes > 0,
        "{stats:?}"
    );
    assert_eq!((stats.ordered_frames, db.delayed()), (0, vec![]));
    db.wait(set(&db, b"two", b"2")).unwrap();
    let uuid = db.stats().uuid;
    db.close().unwrap();

    // A clean end leaves nothing to archive.
    let db = Db::open(options()).unwrap();
    assert_eq!(db.stats().uuid, uuid);
    let archived = db.stats().archive.unwrap().archived_epoch;
    assert!(archived >= Some(db.report().durable_epoch), "{archived:?}");
    wait_for_archive(&db);
    db.abandon();
    let unarchived = Options::new(dir.path().join("data"));
    let db = Db::open(unarchived).unwrap();
    assert!(
        db.stats().archive.unwrap().archived_epoch.is_some(),
        "the anchor says so"
    );
    db.abandon();
}

#[test]
fn runs_are_merged_by_themselves_unless_that_is_switched_off() {
    for is_on in [true, false] {
        let disks = Disks::on_one(Arc::new(MemDisk::new()), 1);
        let mut options = Options::new("in memory");
        options.archive_merge = is_on;
        let archive: Arc<dyn Disk> = Arc::new(MemDisk::new());
        let progress = Arc::new(Progress::default());
        let db = Db::open_archived(options, disks, Vec::new(), progress, Some(archive)).unwrap();
        let stats = || db.stats().archive.unwrap();
        let begin = Instant::now();
        let mut round = 0u32;
        // A checkpoint ends a run.
        while stats().runs < 25 {
            round += 1;
            db.wait(set(&db, b"one", &round.to_le_bytes())).unwrap();
            db.checkpoint().unwrap();
            assert!(begin.elapsed() < Duration::from_secs(60), "{:?}", stats());
        }
        let has_merged = || stats().runs_now.unwrap() < 10 && stats().merges > 1;
        while is_on && !has_merged() {
            assert!(begin.elapsed() < Duration::from_secs(60), "{:?}", stats());
            std::thread::sleep(Duration::from_millis(5));
        }
        let end = stats();
        assert_eq!(db.delayed(), vec![]);
        assert_eq!(end.merges > 0, is_on, "{end:?}");
        if is_on {
            assert_eq!(end.merged_runs, 10 * end.merges);
            assert!(end.merged_bytes_in > end.merged_bytes_out && end.merged_bytes_out > 0);
        } else {
            assert_eq!(end.runs_now, Some(end.runs));
        }
        db.abandon();
    }
}

#[test]
fn a_backup_that_is_gone_is_an_alarm_and_archiving_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let archive = dir.path().join("archive");
    let options = || {
        let data = dir.path().join("data");
        Db::builder(data).archive(&archive).into_options()
    };
    let db = Db::open(options()).unwrap();
    db.wait(set(&db, b"one", b"1")).unwrap();
    let name = db.back_up().unwrap().header.id.name();
    db.close().unwrap();
    let home = std::fs::read_dir(&archive)
        .unwrap()
        .next()
        .unwrap()
        .unwrap();
    std::fs::remove_file(home.path().join("backups").join(&name)).unwrap();
    let db = Db::open(options()).unwrap();
    db.wait(set(&db, b"two", b"2")).unwrap();
    wait_for_archive(&db);
    let delayed = db.delayed();
    assert_eq!(delayed.len(), 1, "{delayed:?}");
    assert!(delayed[0].error.contains(&name), "{delayed:?}");
    db.close().unwrap();
}

#[test]
fn an_archive_that_fails_is_reported_tried_again_and_stops_nothing() {
    let store = SimDisk::new(3);
    let disks = Disks::on_one(Arc::new(MemDisk::new()), 1);
    let progress = Arc::new(Progress::default());
    let options = Options {
        first_backup: false,
        ..Options::new("in memory")
    };
    let archive: Arc<dyn Disk> = store.life();
    let db = Db::open_archived(options, disks, Vec::new(), progress, Some(archive)).unwrap();
    db.wait(set(&db, b"one", b"1")).unwrap();
    wait_for_archive(&db);
    store.set_plan(FaultPlan {
        capacity_bytes: Some(1),
        ..FaultPlan::default()
    });
    db.wait(set(&db, b"two", b"2")).unwrap();
    let begin = Instant::now();
    while db.delayed().is_empty() {
        assert!(begin.elapsed() < Duration::from_secs(30));
        std::thread::sleep(Duration::from_millis(5));
    }
    let delayed = db.delayed();
    assert_eq!(delayed[0].work, "archiving the log", "{delayed:?}");
    db.wait(set(&db, b"three", b"3")).unwrap();
    db.checkpoint().unwrap();
    store.set_plan(FaultPlan::default());
    wait_for_archive(&db);
    assert_eq!(db.delayed(), vec![]);
    db.close().unwrap();
}

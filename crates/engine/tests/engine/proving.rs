//! The standing proof over whole histories. Each image must agree with the archive, and an archive that does not agree
//! with the pages must be found.

use std::sync::Arc;

use perdura::{
    Archiving, Core, CoreOptions, Db, Disks, Env, Error, LogForm, Progress, ProofStats, Rung,
};
use perdura_archive::report::{newest_report, reports};
use perdura_archive::{ArchiverStep, Merger, MergerOptions, Object, ObjectId, ReportKind};
use perdura_base::ImageSlot;
use perdura_device::{Access, Clock, CrashProfile, Disk, FaultPlan, ManualClock, SimDisk};
use perdura_page::RegionDigest;
use perdura_recovery::image::directory_path;
use perdura_recovery::{CheckpointProgress, read_anchor};
use perdura_restore::backup::BackupCopy;

use crate::archiver::any_fault;
use crate::core_steps::small;
use crate::restore_typed::open_account;
use crate::typed::Account;

pub const STREAMS: usize = 2;
const KEYS: usize = 40;

/// A database with an archive and proofs, in a history with crashes.
pub struct World {
    rng: fastrand::Rng,
    clock: Arc<ManualClock>,
    log: Arc<SimDisk>,
    pub store: Arc<SimDisk>,
    core: Option<Core>,
    pub archiving: Archiving,
    keyed: bool,
    accounts: u64,
    under_way: bool,
    seen: Seen,
}

#[derive(Debug, Default)]
struct Seen {
    lives: usize,
    older: usize,
    half: usize,
    merged: usize,
    faults: usize,
    held: u64,
}

impl World {
    pub fn new(seed: u64, keyed: bool) -> World {
        let (log, store) = (SimDisk::new(seed), SimDisk::new(seed + 1));
        let mut world = World {
            rng: fastrand::Rng::with_seed(seed),
            clock: Arc::new(ManualClock::at(1_000_000)),
            archiving: Archiving::new(store.life(), seed),
            log,
            store,
            core: None,
            keyed,
            accounts: 0,
            under_way: false,
            seen: Seen::default(),
        };
        world.open();
        world
    }

    pub fn core(&self) -> &Core {
        self.core.as_ref().expect("it is open")
    }

    fn open(&mut self) {
        let life: Arc<dyn Disk> = self.log.life();
        let anchor = read_anchor(life.as_ref()).expect("a disk");
        let archived = anchor.filter(|anchor| anchor.archived.is_some());
        let disks = Disks::on_one(life, STREAMS);
        let archived = archived.and_then(|anchor| {
            let end = self.archiving.end_of(&anchor.uuid, &disks.logs);
            end.expect("it is read")
        });
        let env = Env {
            disks,
            clock: Arc::clone(&self.clock) as Arc<dyn Clock>,
            seed: 7,
            nodes: None,
            accept_loss: false,
        };
        let mut options = CoreOptions {
            archived,
            ..small()
        };
        if self.keyed {
            let declared = Db::builder("").table::<Account>().procedure(open_account);
            options.typed = declared.log(LogForm::Command).into_options().typed;
        }
        let core = Core::open(env, options, Arc::new(Progress::default()));
        self.core = Some(core.expect("it opens"));
    }

    pub fn write(&mut self) {
        for _ in 0..self.rng.usize(1..12) {
            let key = format!("key{}", self.rng.usize(..KEYS));
            let len = [10, 100, 3000, 40_000][self.rng.usize(..4)] / self.rng.usize(1..4);
            let value = (self.rng.u8(..5) > 0).then(|| vec![self.rng.u8(..); len]);
            let core = self.core();
            let parts = [core.partition_of(key.as_bytes())].into_iter().collect();
            let done = core.transact(&parts, |tx| {
                match &value {
                    Some(value) => tx.put(core.database(0), key.as_bytes(), value, None)?,
                    None => drop(tx.delete(core.database(0), key.as_bytes())?),
                }
                Ok::<_, Error>(())
            });
            let _flushed_later = done.expect("a change");
            if self.keyed {
                self.accounts += 1;
                let id = self.accounts;
                let _flushed_later = self.core().call::<open_account>(&(id,));
            }
        }
    }

    /// Takes a step of archiving. Errors of the archive's disk do not end archiving.
    pub fn step(&mut self) -> ArchiverStep {
        self.clock.advance_us(50_000);
        let core = self.core.as_ref().expect("it is open");
        let step = self.archiving.step(core);
        if !self.store.has_power() {
            self.crash_store();
        }
        step.unwrap_or_else(|_| {
            self.store.set_plan(FaultPlan::default());
            ArchiverStep::Working
        })
    }

    fn crash_store(&mut self) {
        self.seen.faults += 1;
        let profile = self.rng.choice(CrashProfile::ALL).expect("some");
        self.store.crash(profile, self.rng.u64(..));
        self.store.set_plan(FaultPlan::default());
        self.archiving = Archiving::new(self.store.life(), self.rng.u64(..));
    }

    /// Merges all runs, and combines records wherever this is allowed.
    fn merge(&mut self) {
        let Some(store) = self.archiving.lent().get() else {
            return;
        };
        let options = MergerOptions {
            fan_in: 2,
            policy: Arc::new(|_, _| perdura_archive::Verdict::Only(Vec::new())),
            ..MergerOptions::default()
        };
        let merger = Merger::new(store, options, Arc::new(RegionDigest::new()));
        let merged = merger.and_then(|mut merger| merger.run());
        self.seen.merged += merged.map_or(0, |merged| merged.len());
    }

    /// Makes a power cut, and begins the next life, sometimes from the older image.
    fn crash(&mut self) {
        self.seen.lives += 1;
        self.seen.half += usize::from(self.under_way);
        self.under_way = false;
        let anchor = self.core().anchor().get();
        self.core = None;
        self.log.crash(CrashProfile::Worst, self.rng.u64(..));
        let both = ImageSlot::ALL
            .iter()
            .all(|slot| anchor.image(*slot).is_complete());
        if let Some(slot) = anchor.newest_image().filter(|_| both && self.rng.bool()) {
            let path = directory_path(slot, anchor.image(slot).k);
            let life = self.log.life();
            let file = life.open(&path, Access::Buffered).expect("a directory");
            file.write_at(100, &[0xff; 8]).expect("a disk");
            file.sync().expect("a disk");
            self.seen.older += 1;
        }
        if self.rng.bool() || !self.store.has_power() {
            self.crash_store();
        } else {
            self.store.set_plan(FaultPlan::default());
            self.archiving = Archiving::new(self.store.life(), self.rng.u64(..));
        }
        self.open();
    }

    /// Copies the newest image into the archive.
    pub fn back_up(&self) {
        let store = self.archiving.lent().get().expect("it is open");
        let pin = self.core().pin_newest().expect("an image");
        let disks = Disks::on_one(self.log.life(), STREAMS);
        let (anchor, archive) = (Arc::clone(pin.anchor()), Arc::clone(store.disk()));
        let copy = BackupCopy::begin(&disks, anchor, archive, &store.backups_dir());
        let made = copy.and_then(BackupCopy::run).expect("a backup");
        let backup = Object {
            id: ObjectId::Sweep(made.header.id),
            bytes: made.bytes,
            crc: made.crc,
        };
        store.add_backup(backup).expect("it is new");
    }

    fn checkpoint_steps(&mut self) {
        for _ in 0..self.rng.usize(1..8) {
            let step = self.core().checkpoint_step().expect("a step");
            if matches!(step, CheckpointProgress::Done | CheckpointProgress::Idle) {
                self.under_way = false;
                return;
            }
            if self.rng.bool() {
                self.write();
            }
            self.core().flush_all().expect("a flush");
        }
    }

    fn run(&mut self, steps: usize) {
        for _ in 0..steps {
            match self.rng.u8(0..100) {
                0..40 => self.write(),
                40..50 => self.core().flush_all().expect("a flush"),
                50..65 if self.under_way => self.checkpoint_steps(),
                50..54 => {
                    self.core().checkpoint_begin().expect("it begins");
                    self.under_way = true;
                }
                65..90 => {
                    self.core().flush_all().expect("a flush");
                    let durable = self.core().wal().durable(Rung::Disk);
                    self.archiving.cut_at(durable);
                    for _ in 0..self.rng.usize(..40) {
                        self.step();
                    }
                }
                90..93 => self.merge(),
                93..95 => self.store.set_plan(any_fault(&mut self.rng, 25, 6)),
                95..97 => self.crash(),
                54..65 => {}
                _ if self.under_way => {}
                _ => self.core().checkpoint_now().expect("an image"),
            }
            let stats = self.archiving.proof_stats();
            assert_eq!((stats.failed, &stats.alarm), (0, &None), "{stats:?}");
        }
    }

    /// Makes one more image and proves it.
    pub fn finish(&mut self) -> ProofStats {
        self.store.set_plan(FaultPlan::default());
        if self.under_way {
            self.core().checkpoint_now().expect("an image");
            self.under_way = false;
        }
        self.core().checkpoint_now().expect("an image");
        self.core().flush_all().expect("a flush");
        let (mut idle, k) = (0, self.core().checkpoint_stats().last_k);
        for _ in 0..20_000 {
            let durable = self.core().wal().durable(Rung::Disk);
            self.archiving.cut_at(durable);
            idle = if matches!(self.step(), ArchiverStep::Idle) {
                idle + 1
            } else {
                0
            };
            let stats = self.archiving.proof_stats();
            if idle > 3 && (stats.image == Some(k) || stats.alarm.is_some()) {
                return stats;
            }
        }
        panic!("image {k}: {:?}", self.archiving.proof_stats());
    }
}

fn history(seed: u64, keyed: bool) -> (ProofStats, Seen) {
    let mut world = World::new(seed, keyed);
    world.run(250);
    // Makes two images. The proof of the second one starts from the first.
    world.finish();
    world.write();
    let stats = world.finish();
    let uuid = world.core().anchor().get().uuid;
    let store = world.store.life();
    let ids = reports(store.as_ref(), &uuid).expect("they are listed");
    world.seen.held = u64::try_from(ids.len()).expect("few");
    let newest = newest_report(store.as_ref(), &uuid, ReportKind::Proof).expect("it is read");
    assert_eq!(newest.map(|report| report.to.0), stats.image, "seed {seed}");
    (stats, world.seen)
}

#[test]
fn every_image_is_what_the_archive_says_over_histories_with_crashes_merges_and_half_checkpoints() {
    let mut sum = Seen::default();
    for seed in 0..60 {
        let (stats, seen) = history(seed, seed % 4 == 3);
        assert_eq!(
            (stats.result, stats.failed),
            ("holds", 0),
            "seed {seed}: {stats:?}"
        );
        sum.lives += seen.lives;
        sum.older += seen.older;
        sum.half += seen.half;
        sum.merged += seen.merged;
        sum.faults += seen.faults;
        sum.held += seen.held;
    }
    assert!(sum.lives > 150 && sum.older > 5 && sum.half > 50, "{sum:?}");
    assert!(
        sum.merged > 100 && sum.faults > 50 && sum.held > 200,
        "{sum:?}"
    );
}

/// The simulator found that a proof compared an image with itself. The archive had failed after the first report was
/// written and before the database noticed the report.
#[test]
fn an_archive_that_fails_just_behind_the_first_report_is_gone_on_with() {
    let mut failed = 0;
    for seed in 0..100 {
        let mut world = World::new(seed, false);
        (0..=seed % 5).for_each(|_| world.write());
        world.core().checkpoint_now().expect("an image");
        let uuid = world.core().anchor().get().uuid;
        let mut steps = 0;
        while reports(world.store.life().as_ref(), &uuid).map_or(0, |all| all.len()) == 0 {
            // Write something now and then, so that the archiver usually has work.
            if world.rng.u8(..14) == 0 {
                world.write();
                world.core().flush_all().expect("a flush");
            }
            let durable = world.core().wal().durable(Rung::Disk);
            world.archiving.cut_at(durable);
            world.step();
            steps += 1;
            assert!(steps < 10_000, "the first report is written");
        }
        world.store.set_plan(FaultPlan {
            refuse_write_at: Some((1, 50)),
            enospc_at: Some((1, 50)),
            ..FaultPlan::default()
        });
        for _ in 0..6 {
            failed += usize::from(
                world
                    .archiving
                    .step(world.core.as_ref().expect("open"))
                    .is_err(),
            );
        }
        let stats = world.finish();
        assert_eq!(
            (stats.result, stats.unproven),
            ("holds", 0),
            "{seed}: {stats:?}"
        );
    }
    assert!(failed > 5, "{failed} failures of the archive");
}

/// The next proof begins with the image of the failed proof. A restart finds the report about that image.
#[test]
fn a_proof_that_fails_is_told_stops_nothing_and_the_next_one_goes_on_behind_it() {
    let mut world = World::new(9, false);
    for _ in 0..10 {
        world.write();
    }
    let first = world.finish();
    assert_eq!(
        (first.result, first.by_image),
        ("begun", 0),
        "nothing was proven before"
    );
    for _ in 0..10 {
        world.write();
    }
    world.core().flush_all().expect("a flush");
    world
        .archiving
        .cut_at(world.core().wal().durable(Rung::Disk));
    while !matches!(world.step(), ArchiverStep::Idle) {}
    let store = world.archiving.lent().get().expect("it is open");
    let last = store.manifest().runs().last().expect("a run");
    let path = last.path(&store.runs_dir());
    world.store.life().remove(&path).expect("it is there");
    let failed = world.finish();
    assert_eq!((failed.result, failed.failed), ("fails", 1), "{failed:?}");
    assert!(
        failed
            .alarm
            .as_ref()
            .is_some_and(|alarm| alarm.contains(&last.name())),
        "{failed:?}"
    );
    world.write();
    let next = world.finish();
    assert_eq!(
        (next.result, next.by_image),
        ("holds", failed.image.unwrap_or(0))
    );
    assert_eq!(next.alarm, None, "{next:?}");
    let uuid = world.core().anchor().get().uuid;
    let ids = reports(world.store.life().as_ref(), &uuid).expect("they are listed");
    assert_eq!(ids.len(), 3, "each proof left its report");
}

#[cfg(feature = "flaws")]
mod seeded_bugs {
    use perdura_base::flaw::{Flaw, arm};

    use super::*;

    #[test]
    fn a_proof_over_both_pools_is_caught() {
        let caught = (0..20).find(|seed| {
            arm(Some(Flaw::ProofOverBothPools));
            let mut world = World::new(*seed, true);
            world.write();
            let first = world.finish();
            world.write();
            let second = world.finish();
            arm(None);
            [first, second].iter().any(|stats| stats.result == "fails")
        });
        assert!(caught.is_some());
    }
}

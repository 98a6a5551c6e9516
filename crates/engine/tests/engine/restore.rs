//! Tests of restores: every moment of whole histories is restored from backups and runs.

use std::collections::BTreeMap;
use std::sync::Arc;

use perdura::{Core, CoreOptions, EpochEnds, Error, Progress, Rung};
use perdura_archive::backup::{Backup, BackupId};
use perdura_archive::{
    Archiver, ArchiverOptions, ArchiverStep, Codec, Run, RunId, RunTarget, RunWriter, Scope,
};
use perdura_base::{Epoch, ImageSlot, Pos, Uuid};
use perdura_device::{Access, Clock, CrashProfile, Disk, ManualClock, MemDisk, SimDisk};
use perdura_page::RegionDigest;
use perdura_recovery::Disks;
use perdura_recovery::image::directory_path;
use perdura_restore::backup::BackupCopy;
use perdura_restore::{
    Deadlines, RestoreMeans, RestorePlan, RestoreProgress, RestoreReport, restore,
};
use perdura_wal::Archived;

use crate::core_steps::{env, get, open, small};

pub const STREAMS: usize = 2;
pub const KEYS: usize = 40;
pub const DIR: &str = "archive";

/// The epoch, the key and the value of each change. `None`: the key was removed.
type Changes = Vec<(Epoch, usize, Option<Vec<u8>>)>;

pub fn key(number: usize) -> String {
    format!("key{number}")
}

pub fn set(core: &Core, number: usize, value: Option<&[u8]>) -> Epoch {
    let key = key(number);
    let parts = [core.partition_of(key.as_bytes())].into_iter().collect();
    let done = core.transact(&parts, |tx| {
        match value {
            Some(value) => tx.put(core.database(0), key.as_bytes(), value, None)?,
            None => drop(tx.delete(core.database(0), key.as_bytes())?),
        }
        Ok::<_, Error>(())
    });
    done.expect("a change").1.epoch
}

/// Archives the log from `from` up to D, the durable end. Returns the run's id and the run's end.
fn archive_log(
    core: &Core,
    from: &EpochEnds,
    (archive, region): (&Arc<dyn Disk>, Arc<RegionDigest>),
    uuid: Uuid,
) -> (RunId, EpochEnds) {
    let durable = core.wal().durable_end(Rung::Disk);
    let source = core.log_source(from).expect("the log is kept");
    let anchor = core.anchor().get();
    let target = RunTarget {
        disk: Arc::clone(archive) as _,
        dir: DIR.to_owned(),
        digest: region,
    };
    let options = ArchiverOptions {
        carries_frames: anchor.archive() == Archived::Carried,
        ..ArchiverOptions::new(uuid, anchor.geometry.chunks())
    };
    let mut archiver = Archiver::new(source, target, options);
    archiver.cut_at(durable.epoch);
    loop {
        match archiver.step(&durable, 0).expect("the log") {
            ArchiverStep::Run(run) => return (run.summary.id, run.end),
            ArchiverStep::Working => {}
            ArchiverStep::Idle => panic!("a run was asked for"),
        }
    }
}

/// A database with an archive, and all changes with the epochs of the changes.
pub struct History {
    pub disk: Arc<SimDisk>,
    pub core: Option<Core>,
    archive: Arc<dyn Disk>,
    pub uuid: Uuid,
    pub at: EpochEnds,
    pub runs: Vec<RunId>,
    pub backups: Vec<BackupId>,
    pub changes: Changes,
    region: Arc<RegionDigest>,
    /// The number of lives that began from the older image, because the newest one was damaged.
    older: usize,
}

impl History {
    pub fn new(seed: u64) -> History {
        History::with(seed, small())
    }

    pub fn with(seed: u64, options: CoreOptions) -> History {
        let disk = SimDisk::new(seed);
        let progress = Arc::new(Progress::default());
        let core = Core::open(env(&disk, STREAMS), options, progress).expect("it opens");
        let at = EpochEnds {
            epoch: Epoch(0),
            ends: vec![Pos(0); STREAMS],
        };
        core.set_archived(&at).expect("archiving begins");
        History::of(disk, core, at)
    }

    pub fn of(disk: Arc<SimDisk>, core: Core, at: EpochEnds) -> History {
        let archive: Arc<dyn Disk> = Arc::new(MemDisk::new());
        archive.make_dir(DIR).expect("memory");
        History {
            uuid: core.anchor().get().uuid,
            disk,
            core: Some(core),
            archive,
            at,
            runs: Vec::new(),
            backups: Vec::new(),
            changes: Vec::new(),
            region: Arc::new(RegionDigest::new()),
            older: 0,
        }
    }

    pub fn archive_disk(&self) -> &dyn Disk {
        self.archive.as_ref()
    }

    pub fn core(&self) -> &Core {
        self.core.as_ref().expect("it is open")
    }

    /// Archives the log up to D, the durable end.
    pub fn archive(&mut self) {
        let core = self.core.as_ref().expect("it is open");
        if core.wal().durable(Rung::Disk) <= self.at.epoch {
            return;
        }
        let to = (&self.archive, Arc::clone(&self.region));
        let (run, at) = archive_log(core, &self.at, to, self.uuid);
        self.runs.push(run);
        core.set_archived(&at).expect("it is durable");
        self.at = at;
    }

    pub fn back_up(&mut self) {
        let core = self.core.as_ref().expect("it is open");
        let disks = Disks::on_one(self.disk.life(), STREAMS);
        let archive = Arc::clone(&self.archive);
        let copy = BackupCopy::begin(&disks, core.anchor().get(), archive, DIR);
        match copy.and_then(BackupCopy::run) {
            Ok(summary) => self.backups.push(summary.header.id),
            // No image exists yet, or it was already copied as a backup.
            Err(Error::Usage(_)) => {}
            Err(error) => panic!("{error}"),
        }
    }

    /// Makes a power cut, and begins the next life. If both images are whole, sometimes damages the newest image
    /// between the two lives. The next life then continues from the older image, but backups of the newest image
    /// remain.
    fn crash(&mut self, seed: u64) {
        let anchor = self.core().anchor().get();
        self.core = None;
        self.disk.crash(CrashProfile::Worst, seed);
        let newest = anchor.newest_image();
        let both = ImageSlot::ALL
            .iter()
            .all(|slot| anchor.image(*slot).is_complete());
        if let Some(slot) = newest.filter(|_| both && !seed.is_multiple_of(4)) {
            let path = directory_path(slot, anchor.image(slot).k);
            let life = self.disk.life();
            let file = life.open(&path, Access::Buffered).expect("a directory");
            file.write_at(100, &[0xff; 8]).expect("a disk");
            file.sync().expect("a disk");
            self.older += 1;
        }
        let core = open(&self.disk, STREAMS);
        let durable = Epoch(core.report().durable_epoch);
        self.changes.retain(|(epoch, ..)| *epoch <= durable);
        self.core = Some(core);
    }

    pub fn run(&mut self, rng: &mut fastrand::Rng, steps: usize) {
        let mut under_way = false;
        for _ in 0..steps {
            match rng.u8(0..100) {
                0..60 => {
                    let number = rng.usize(..KEYS);
                    let len = [10, 100, 3000, 40_000][rng.usize(..4)] / rng.usize(1..4);
                    let value = (rng.u8(..5) > 0).then(|| vec![rng.u8(..); len]);
                    let epoch = set(self.core(), number, value.as_deref());
                    // A write that changed nothing has no epoch.
                    if epoch > Epoch(0) {
                        self.changes.push((epoch, number, value));
                    }
                }
                60..75 => self.core().flush_all().expect("a flush"),
                75..85 if under_way => {
                    use perdura_recovery::checkpoint::CheckpointProgress as On;
                    for _ in 0..rng.usize(1..8) {
                        let step = self.core().checkpoint_step().expect("a step");
                        if matches!(step, On::Done | On::Idle) {
                            under_way = false;
                            break;
                        }
                        self.core().flush_all().expect("a flush");
                    }
                }
                75..85 => {
                    self.core().checkpoint_begin().expect("it begins");
                    under_way = true;
                }
                85..92 => {
                    self.core().flush_all().expect("a flush");
                    self.archive();
                }
                92..97 if !under_way => self.back_up(),
                97 if !under_way => self.core().checkpoint_now().expect("an image"),
                97..100 => {
                    self.crash(rng.u64(..));
                    under_way = false;
                }
                _ => {}
            }
        }
        self.core().flush_all().expect("a flush");
        self.archive();
    }

    /// Returns the state of an epoch.
    pub fn state(&self, target: Epoch) -> BTreeMap<usize, Vec<u8>> {
        let mut state = BTreeMap::new();
        let until = self.changes.iter().filter(|(epoch, ..)| *epoch <= target);
        for (_, number, value) in until {
            match value {
                Some(value) => state.insert(*number, value.clone()),
                None => state.remove(number),
            };
        }
        state
    }

    pub fn plan(&self, id: BackupId, target: Option<Epoch>) -> Result<RestorePlan, Error> {
        RestorePlan::new(self.backup(id)?, self.open_runs()?, target)
    }

    pub fn backup(&self, id: BackupId) -> Result<Arc<Backup>, Error> {
        Backup::open(self.archive.as_ref(), DIR, id, &self.uuid).map(Arc::new)
    }

    pub fn open_runs(&self) -> Result<Vec<Arc<Run>>, Error> {
        let archive = self.archive.as_ref();
        let open = |id: &RunId| Ok(Arc::new(Run::open(archive, DIR, *id, &self.uuid)?));
        self.runs.iter().map(open).collect()
    }

    pub fn restore(
        &self,
        id: BackupId,
        target: Option<Epoch>,
    ) -> Result<(Core, RestoreReport), Error> {
        let disk = SimDisk::new(1);
        let means = RestoreMeans {
            disks: Disks::on_one(disk.life(), STREAMS),
            uuid: Uuid([9; 16]),
            threads: if cfg!(feature = "flaws") { 1 } else { 2 },
            clock: &(Arc::new(ManualClock::at(5)) as Arc<dyn Clock>),
            progress: &RestoreProgress::default(),
            deadlines: Deadlines::Keep,
        };
        let report = restore(&self.plan(id, target)?, &means)?;
        let core = Core::open(env(&disk, STREAMS), small(), Arc::new(Progress::default()))?;
        Ok((core, report))
    }
}

pub fn values(core: &Core) -> BTreeMap<usize, Vec<u8>> {
    let all = (0..KEYS).filter_map(|number| Some((number, get(core, &key(number))?)));
    all.collect()
}

/// Restores a history from each backup to some epochs, or to all epochs if `every` is true. Returns three counts: all
/// these restores, those to a moment before the end of the backup's sweep, and lives that began from the older image.
/// Returns the first wrong result as an error.
fn check(seed: u64, steps: usize, every: bool) -> Result<(usize, usize, usize), String> {
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut history = History::new(seed);
    history.run(&mut rng, steps);
    let (last, mut restored, mut rewound) = (history.at.epoch, 0, 0);
    for backup in history.backups.clone() {
        for target in 1..=last.0 {
            if !every && rng.u8(..8) > 0 {
                continue;
            }
            let target = Epoch(target);
            let what = |what: String| format!("seed {seed}, {backup:?}, {target}: {what}");
            match history.restore(backup, Some(target)) {
                Ok((core, report)) => {
                    if values(&core) != history.state(target) {
                        return Err(what("other values".into()));
                    }
                    restored += 1;
                    rewound += usize::from(report.taken_out > 0);
                    let epoch = set(&core, 0, Some(b"life goes on"));
                    assert!(epoch > target);
                    core.checkpoint_now().map_err(|e| what(e.to_string()))?;
                }
                Err(error) => return Err(what(error.to_string())),
            }
        }
        let (core, _) = history.restore(backup, None).map_err(|e| e.to_string())?;
        let live = history.core().digest().expect("a digest");
        if core.digest().expect("a digest") != live {
            return Err(format!("seed {seed}: another digest than the live one"));
        }
    }
    Ok((restored, rewound, history.older))
}

#[test]
fn every_moment_of_small_histories_is_restored_from_every_backup() {
    let (mut restored, mut rewound, mut older) = (0, 0, 0);
    for seed in 0..60 {
        let counts = check(seed, 300, true).unwrap_or_else(|wrong| panic!("{wrong}"));
        restored += counts.0;
        rewound += counts.1;
        older += counts.2;
    }
    assert!(restored > 300, "{restored} moments");
    assert!(older > 5, "{older} lives from the older image");
    assert!(rewound > 30, "{rewound} of them before their backup's end");
}

#[cfg(feature = "flaws")]
mod seeded_bugs {
    use perdura_base::flaw::{Flaw, arm};

    use super::*;

    /// A single thread does the merges and the restarts, because a bug is armed for one thread only.
    #[test]
    fn each_seeded_bug_of_a_restore_is_caught() {
        for flaw in [
            Flaw::TagBelowKeptBackup,
            Flaw::LaterEpochsKept,
            Flaw::RunsReadUpToTarget,
            Flaw::PageBeyondBackupKept,
        ] {
            let caught = (0..60).find(|seed| {
                arm(Some(flaw));
                let wrong = check(*seed, 300, true).is_err();
                arm(None);
                wrong
            });
            assert!(caught.is_some(), "{flaw:?}");
        }
    }
}

#[test]
fn what_cannot_be_restored_is_refused_and_says_why() {
    let mut history = History::new(3);
    let mut rng = fastrand::Rng::with_seed(3);
    history.run(&mut rng, 60);
    history.core().checkpoint_now().expect("an image");
    history.back_up();
    history.core().flush_all().expect("a flush");
    history.archive();
    let backup = *history.backups.last().expect("a backup");
    let last = history.at.epoch;
    let refused = |history: &History, target| history.plan(backup, target).map(drop).unwrap_err();
    let beyond = refused(&history, Some(Epoch(last.0 + 1)));
    assert!(beyond.to_string().contains("but only those of"), "{beyond}");
    assert!(history.runs.len() > 2);
    let lost = history.runs.remove(1);
    let hole = refused(&history, None);
    assert!(matches!(&hole, Error::Corrupt(_)), "{hole}");
    assert!(
        hole.to_string().contains(&lost.epochs.begin.to_string()),
        "{hole}"
    );
    history.runs.clear();
    let none = refused(&history, None);
    assert!(matches!(&none, Error::Corrupt(_)), "{none}");
}

/// Replaces each run by one without its ordered frames. Earlier builds made such runs.
pub fn leave_frames_out(history: &mut History) {
    let runs = history.open_runs().expect("the runs");
    for (run, id) in runs.iter().zip(&mut history.runs) {
        let mut header = *run.header();
        header.carries_frames = false;
        header.id.generation += 1;
        let (disk, region) = (Arc::clone(&history.archive), Arc::clone(&history.region));
        let writer = RunWriter::create(disk, DIR, header, Codec::None, region);
        let (mut writer, mut cursor) = (writer.expect("memory"), run.cursor(&Scope::All));
        while cursor.advance().expect("a run") {
            writer.push(&cursor.record()).expect("memory");
        }
        let tail = writer.finish(run.moments(), run.ends());
        *id = tail.and_then(|tail| tail.run()).expect("a run").id;
    }
}

/// Returns a copy of a run that lacks the `nth` record. If `twice` is true, the copy has that record twice instead.
pub fn tampered(history: &History, run: &Arc<Run>, nth: usize, twice: bool) -> Arc<Run> {
    let disk = Arc::clone(&history.archive);
    let dir = format!("tampered-{nth}-{twice}");
    disk.make_dir(&dir).expect("memory");
    let region = Arc::clone(&history.region);
    let writer = RunWriter::create(Arc::clone(&disk), &dir, *run.header(), Codec::None, region);
    let (mut writer, mut cursor) = (writer.expect("memory"), run.cursor(&Scope::All));
    let mut at = 0;
    while cursor.advance().expect("a run") {
        let times = match (at == nth, twice) {
            (false, _) => 1,
            (true, false) => 0,
            (true, true) => 2,
        };
        for _ in 0..times {
            writer.push(&cursor.record()).expect("memory");
        }
        at += 1;
    }
    let tail = writer.finish(run.moments(), run.ends());
    tail.and_then(|tail| tail.run()).expect("a run");
    Arc::new(Run::open(disk.as_ref(), &dir, run.id(), &history.uuid).expect("a run"))
}

#[test]
fn a_record_that_is_missing_or_doubled_ends_the_restore_and_names_the_page() {
    let mut history = History::new(3);
    let mut rng = fastrand::Rng::with_seed(3);
    history.run(&mut rng, 60);
    history.core().checkpoint_now().expect("an image");
    history.back_up();
    for round in 0..2 {
        for number in 0..KEYS {
            set(history.core(), number, Some(&[round; 100]));
        }
    }
    history.core().flush_all().expect("a flush");
    history.archive();
    let backup = *history.backups.last().expect("a backup");
    let runs = history.open_runs().expect("the runs");
    let last = runs.len() - 1;
    let mut cursor = runs[last].cursor(&Scope::All);
    let mut records = Vec::new();
    while cursor.advance().expect("a run") {
        let record = cursor.record();
        records.push((record.at, record.updates.last, record.tag >= backup.k));
    }
    // A missing last update of a page is found only with the digests of a later image.
    let is_followed = |nth: usize| {
        let (at, useq, _) = records[nth];
        let mut later = records.iter();
        later.any(|(page, other, _)| *page == at && other.is_after(useq))
    };
    let applied = (0..records.len()).filter(|nth| records[*nth].2);
    let lost = applied
        .clone()
        .filter(|nth| is_followed(*nth))
        .map(|nth| (nth, false));
    let cases: Vec<(usize, bool)> = applied.map(|nth| (nth, true)).chain(lost).collect();
    assert!(cases.len() > 60, "{} cases", cases.len());
    for (nth, twice) in cases {
        let mut runs = runs.clone();
        runs[last] = tampered(&history, &runs[last], nth, twice);
        let of = history.backup(backup);
        let plan = of.and_then(|backup| RestorePlan::new(backup, runs, None));
        let disk = SimDisk::new(1);
        let means = RestoreMeans {
            disks: Disks::on_one(disk.life(), STREAMS),
            uuid: Uuid([9; 16]),
            threads: 1,
            clock: &(Arc::new(ManualClock::at(5)) as Arc<dyn Clock>),
            progress: &RestoreProgress::default(),
            deadlines: Deadlines::Keep,
        };
        let restored = restore(&plan.expect("the runs tile"), &means).expect_err("a gap");
        assert!(
            restored.to_string().contains("the updates of page"),
            "{restored}"
        );
        let opened = Core::open(env(&disk, STREAMS), small(), Arc::new(Progress::default()));
        let half = opened.map(drop).expect_err("it is not whole");
        assert!(half.to_string().contains("interrupted"), "{half}");
    }
}

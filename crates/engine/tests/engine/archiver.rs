//! The archiver's runs contain each page record of the durable epochs exactly once, whatever fails on the log's disk or
//! the archive's disk.

use std::sync::Arc;

use perdura::{Core, EpochEnds, Error, Rung, SourceStep};
use perdura_archive::{
    ArchivedRun, Archiver, ArchiverOptions, ArchiverStep, Generation, Run, RunId, RunTarget, Scope,
};
use perdura_base::{CkptEpoch, Epoch, PartitionId, PartitionSet, Pos, StreamId};
use perdura_device::{CrashProfile, Disk, FaultPlan, SimDisk, SyncFailure};
use perdura_page::{RegionDigest, for_each_record};
use perdura_wal::{Archived, FrameKind};

use crate::core_steps::{open, put};

const DIR: &str = "archive";
const SECOND_NS: u64 = 1_000_000_000;

/// A page record: partition, local page, epoch, update number, tag (checkpoint epoch), fragments.
pub type Record = (PartitionId, u32, Epoch, u32, CkptEpoch, Vec<u8>);

pub fn begin(streams: usize) -> EpochEnds {
    EpochEnds {
        epoch: Epoch(0),
        ends: vec![Pos(0); streams],
    }
}

/// Reads the page records of the durable epochs after `from`. Then sets `from` to the end of the last durable epoch.
pub fn read_log(core: &Core, from: &mut EpochEnds) -> Result<Vec<Record>, Error> {
    let chunks = core.heap().geometry().chunks();
    let durable = core.wal().durable_end(Rung::Disk);
    let mut source = core.log_source(from)?;
    let mut records = Vec::new();
    loop {
        let step = source.step(&durable, |frame, origin| {
            if frame.kind != FrameKind::Group {
                return Ok(());
            }
            let whole = for_each_record(frame.payload, |record| {
                records.push((
                    chunks.partition_of(record.page),
                    chunks.local_index(record.page),
                    origin.epoch,
                    record.useq.0,
                    record.tag,
                    record.encoded_fragments().1.to_vec(),
                ));
            });
            assert!(whole.is_some());
            Ok(())
        });
        if step? == SourceStep::Idle {
            from.clone_from(source.at());
            return Ok(records);
        }
    }
}

/// Reads the records of a run.
pub fn read_run(run: &Arc<Run>, records: &mut Vec<Record>) -> Result<(), Error> {
    let mut cursor = run.cursor(&Scope::All);
    while cursor.advance()? {
        let record = cursor.record();
        records.push((
            record.at.partition,
            record.at.local,
            record.epochs.first,
            record.updates.first.0,
            record.tag,
            record.fragment_bytes().to_vec(),
        ));
    }
    Ok(())
}

/// Returns the runs that a restart of the archive finds. Each run begins at the end of the previous run. Of several
/// runs with the same first epoch, only the newest is used.
fn runs(core: &Core, store: &Arc<SimDisk>) -> Vec<Arc<Run>> {
    let uuid = core.anchor().get().uuid;
    let disk = store.life();
    let mut ids: Vec<RunId> = (disk.list(DIR).unwrap().iter())
        .filter_map(|name| RunId::parse(name))
        .collect();
    ids.sort_by_key(|id| (id.epochs.begin, id.generation));
    let mut tiling: Vec<Arc<Run>> = Vec::new();
    for (i, id) in ids.iter().enumerate() {
        let next = ids.get(i + 1).map(|id| id.epochs.begin);
        let at = tiling.last().map_or(Epoch(1), |run| run.id().epochs.end);
        if next != Some(id.epochs.begin) && id.epochs.begin == at {
            tiling.push(Arc::new(Run::open(disk.as_ref(), DIR, *id, &uuid).unwrap()));
        }
    }
    tiling
}

/// Returns the end of the last run.
fn end_of(runs: &[Arc<Run>], streams: usize) -> EpochEnds {
    runs.last().map_or_else(
        || begin(streams),
        |run| EpochEnds {
            epoch: run.id().epochs.last(),
            ends: run.ends().to_vec(),
        },
    )
}

fn store(seed: u64) -> Arc<SimDisk> {
    let disk = SimDisk::new(seed);
    disk.make_dir(DIR).unwrap();
    disk.sync_dir("").unwrap();
    disk
}

/// Returns an archiver that continues from `end`.
fn archiver(core: &Core, store: &Arc<SimDisk>, end: &EpochEnds) -> Archiver {
    let source = core.log_source(end).unwrap();
    let options = ArchiverOptions {
        workspace_bytes: 20_000,
        // One archive may have runs of both `Generation` methods.
        row: match end.epoch.0 % 2 {
            0 => Generation::Quick,
            _ => Generation::Selection,
        },
        carries_frames: core.anchor().get().archive() == Archived::Carried,
        ..ArchiverOptions::new(core.anchor().get().uuid, core.heap().geometry().chunks())
    };
    let target = RunTarget {
        disk: store.life(),
        dir: DIR.to_owned(),
        digest: Arc::new(RegionDigest::new()),
    };
    Archiver::new(source, target, options)
}

/// A log, and an archive of it on a separate disk.
struct World {
    rng: fastrand::Rng,
    streams: usize,
    log: Arc<SimDisk>,
    store: Arc<SimDisk>,
    core: Core,
    archiver: Archiver,
    /// The end of the last run that the archiver reported.
    told: EpochEnds,
    now_ns: u64,
    /// True if a fault of the store is planned.
    fails: bool,
    /// The profile of the store's next crash.
    profile: CrashProfile,
    seen: Seen,
}

#[derive(Debug, Default)]
struct Seen {
    runs: usize,
    power_cuts: usize,
    errors: usize,
    lives: usize,
    behind_told: usize,
}

impl World {
    fn new(seed: u64) -> World {
        let mut rng = fastrand::Rng::with_seed(seed);
        let streams = rng.usize(1..4);
        let (log, store) = (SimDisk::new(seed), store(seed));
        let core = open(&log, streams);
        core.set_archived(&begin(streams)).unwrap();
        let told = begin(streams);
        World {
            archiver: archiver(&core, &store, &told),
            rng,
            streams,
            log,
            store,
            core,
            told,
            now_ns: 0,
            fails: false,
            profile: CrashProfile::Worst,
            seen: Seen::default(),
        }
    }

    fn write(&mut self) {
        for _ in 0..self.rng.usize(1..9) {
            let (key, byte) = (self.rng.u8(..), self.rng.u8(..));
            let len = self.rng.usize(0..3000);
            put(&self.core, &format!("key{key}"), &vec![byte; len]);
        }
        if self.rng.u8(0..4) > 0 {
            self.core.flush_all().unwrap();
        }
    }

    /// Takes a step. After an error, replaces the archiver by a new one.
    fn step(&mut self) -> Result<ArchiverStep, String> {
        let durable = self.core.wal().durable_end(Rung::Disk);
        match self.archiver.step(&durable, self.now_ns) {
            Ok(ArchiverStep::Run(run)) => {
                self.seen.runs += 1;
                let all = runs(&self.core, &self.store);
                let ArchivedRun { end, .. } = run;
                if end_of(&all, self.streams) != end {
                    return Err(format!("the run to {end:?} is not the last one"));
                }
                self.told = end;
                Ok(ArchiverStep::Idle)
            }
            Err(error) if !self.fails => Err(error.to_string()),
            Err(_) => {
                self.seen.errors += 1;
                let again = self.archiver.step(&durable, self.now_ns);
                assert!(matches!(again, Err(Error::Stopped(_))), "{again:?}");
                self.recover();
                Ok(ArchiverStep::Working)
            }
            Ok(step) => Ok(step),
        }
    }

    /// Begins a new archiver at the end of the existing runs. If the store has lost its power, crashes the store first.
    fn recover(&mut self) {
        if !self.store.has_power() {
            self.seen.power_cuts += 1;
            self.store.crash(self.profile, self.rng.u64(..));
            self.profile = self.rng.choice(CrashProfile::ALL).unwrap();
            // If only the process was killed, the folder's entries are visible but may not be
            // durable. So sync the folder.
            self.store.life().sync_dir(DIR).unwrap();
            let found = end_of(&runs(&self.core, &self.store), self.streams);
            assert!(found.epoch >= self.told.epoch, "what was told of is there");
            self.seen.behind_told += usize::from(found != self.told);
            self.told = found;
        }
        self.store.set_plan(FaultPlan::default());
        self.fails = false;
        self.archiver = archiver(&self.core, &self.store, &self.told);
    }

    fn plan_fault(&mut self) {
        self.fails = true;
        self.store.set_plan(any_fault(&mut self.rng, 12, 3));
    }

    fn next_life(&mut self) {
        self.seen.lives += 1;
        self.log.crash(CrashProfile::Worst, self.rng.u64(..));
        self.core = open(&self.log, self.streams);
        let durable = self.core.wal().durable_end(Rung::Disk);
        self.told.check_durable(&durable).unwrap();
        self.archiver = archiver(&self.core, &self.store, &self.told);
    }

    /// Archives everything that is durable and compares the runs with the log.
    fn judge(&mut self) -> Result<(), String> {
        self.core.flush_all().unwrap();
        let durable = self.core.wal().durable_end(Rung::Disk);
        while self.told.epoch < durable.epoch {
            self.archiver.cut_at(durable.epoch);
            self.step()?;
        }
        if self.told.ends != durable.ends {
            return Err("the runs do not reach D".into());
        }
        let runs = runs(&self.core, &self.store);
        if end_of(&runs, self.streams) != self.told {
            return Err("the runs do not tile the epochs".into());
        }
        let region = RegionDigest::new();
        let mut found = Vec::new();
        for run in &runs {
            run.verify(&region).map_err(|error| error.to_string())?;
            read_run(run, &mut found).map_err(|error| error.to_string())?;
        }
        found.sort();
        let whole = read_log(&self.core, &mut begin(self.streams));
        let mut records = whole.map_err(|error| error.to_string())?;
        records.sort();
        match found == records {
            true => Ok(()),
            false => Err(format!("{} records of {}", found.len(), records.len())),
        }
    }
}

fn history(seed: u64) -> Result<Seen, String> {
    let mut world = World::new(seed);
    for _ in 0..60 {
        match world.rng.u8(0..16) {
            0..5 => world.write(),
            5 => world.core.checkpoint_now().unwrap(),
            6 => world.plan_fault(),
            7 => world.next_life(),
            8 => {
                let durable = world.core.wal().durable(Rung::Disk);
                world.archiver.cut_at(durable);
            }
            9 => world.now_ns += world.rng.u64(0..2 * SECOND_NS),
            _ => {
                for _ in 0..world.rng.usize(0..30) {
                    world.step()?;
                }
            }
        }
    }
    world.judge()?;
    Ok(world.seen)
}

#[test]
fn runs_have_the_records_of_the_durable_epochs_once_whatever_fails() {
    let mut sum = Seen::default();
    for seed in 0..300 {
        let seen = history(seed).unwrap_or_else(|why| panic!("seed {seed}: {why}"));
        sum.runs += seen.runs;
        sum.power_cuts += seen.power_cuts;
        sum.errors += seen.errors;
        sum.lives += seen.lives;
        sum.behind_told += seen.behind_told;
    }
    assert!(
        sum.runs > 1500 && sum.power_cuts > 200 && sum.errors > sum.power_cuts + 100,
        "{sum:?}"
    );
    assert!(sum.lives > 500 && sum.behind_told > 10, "{sum:?}");
}

/// Repeats a history many times. Each time, the power is cut at a different operation on the archive's disk, until
/// every operation has had its turn.
#[test]
fn a_crash_at_each_io_of_the_archiver_loses_and_doubles_nothing() {
    for profile in [
        CrashProfile::Nothing,
        CrashProfile::Everything,
        CrashProfile::Worst,
    ] {
        let mut at = 1;
        loop {
            let mut world = World::new(7);
            world.profile = profile;
            world.fails = true;
            world.store.set_plan(FaultPlan {
                cut_after_ops: Some(at),
                ..FaultPlan::default()
            });
            for _ in 0..4 {
                world.write();
                world.core.flush_all().unwrap();
                let durable = world.core.wal().durable(Rung::Disk);
                world.archiver.cut_at(durable);
                for _ in 0..40 {
                    world.step().unwrap();
                }
            }
            world
                .judge()
                .unwrap_or_else(|why| panic!("operation {at}: {why}"));
            if world.seen.power_cuts == 0 {
                assert!(at > 20, "{at} operations");
                break;
            }
            at += 1;
        }
    }
}

#[cfg(feature = "flaws")]
#[test]
fn the_seeded_bug_of_a_run_that_is_cut_inside_an_epoch_is_caught() {
    use perdura_base::flaw::{Flaw, arm};
    arm(Some(Flaw::RunCutInsideEpoch));
    let seen = std::panic::catch_unwind(|| (0..30).find_map(|seed| history(seed).err()));
    arm(None);
    let panic = seen.expect_err("an assertion catches it");
    let why = panic.downcast_ref::<&str>().copied().unwrap_or_default();
    assert_eq!(why, "a run ends where an epoch does");
}

/// Steps the archiver until it is idle. Returns the runs made.
fn drain(core: &Core, archiver: &mut Archiver, now_ns: u64) -> Vec<ArchivedRun> {
    let mut made = Vec::new();
    loop {
        let durable = core.wal().durable_end(Rung::Disk);
        match archiver.step(&durable, now_ns).unwrap() {
            ArchiverStep::Idle => return made,
            ArchiverStep::Working => {}
            ArchiverStep::Run(run) => made.push(run),
        }
    }
}

#[test]
fn a_run_is_cut_by_age_by_size_and_when_asked_for_and_none_is_while_the_database_is_idle() {
    let (log, store) = (SimDisk::new(1), store(1));
    let core = open(&log, 1);
    let mut archiver = archiver(&core, &store, &begin(1));
    put(&core, "key", b"value");
    core.flush_all().unwrap();
    assert_eq!(drain(&core, &mut archiver, 5 * SECOND_NS), []);
    assert!(archiver.is_collecting());
    assert_eq!(drain(&core, &mut archiver, 6 * SECOND_NS - 1), []);
    let made = drain(&core, &mut archiver, 6 * SECOND_NS);
    let durable = core.wal().durable_end(Rung::Disk);
    assert_eq!(made.len(), 1);
    assert_eq!(
        (made[0].end.epoch, &made[0].end.ends),
        (durable.epoch, &durable.ends)
    );
    assert!(!archiver.is_collecting());

    // Nothing new is in the log. So the archiver writes nothing, although much time passes and a
    // run is requested.
    let before = store.ops();
    archiver.cut_at(durable.epoch);
    assert_eq!(drain(&core, &mut archiver, 99 * SECOND_NS), []);
    assert_eq!(store.ops(), before);

    put(&core, "key", b"other");
    core.flush_all().unwrap();
    archiver.cut_at(core.wal().durable(Rung::Disk));
    let made = drain(&core, &mut archiver, 99 * SECOND_NS);
    assert_eq!(made.len(), 1);
    assert_eq!(made[0].summary.id.epochs.begin, Epoch(durable.epoch.0 + 1));

    // Marks of a checkpoint are not archived as records, but they move the end of the log.
    core.checkpoint_now().unwrap();
    drain(&core, &mut archiver, 99 * SECOND_NS);
    let made = drain(&core, &mut archiver, 100 * SECOND_NS);
    assert_eq!((made.len(), made[0].summary.frames), (1, 0));

    for round in 0..9 {
        put(&core, "key", &[round; 12_000]);
        core.flush_all().unwrap();
    }
    assert!(drain(&core, &mut archiver, 100 * SECOND_NS).len() > 2);
}

#[test]
fn ordered_frames_are_carried_and_what_no_archive_can_hold_is_refused() {
    let none = PartitionSet::empty();
    let append = |core: &Core, kind, payload: &[u8]| {
        core.wal()
            .append(StreamId(0), kind, payload, &none, CkptEpoch(0));
        core.flush_all().unwrap();
    };
    for (kind, named) in [
        (FrameKind::Record, "steal mode"),
        (FrameKind::Group, "a whole group"),
        (FrameKind::Effects, "flags that this build knows"),
    ] {
        let (log, store) = (SimDisk::new(1), store(1));
        let core = open(&log, 1);
        let mut archiver = archiver(&core, &store, &begin(1));
        // Frames without effects and arguments, as number 1 of partition 0 and as number 2.
        append(&core, FrameKind::Effects, &[0, 1, 0, 1]);
        append(&core, FrameKind::Command, &[0, 1, 0, 2, 7, 1]);
        archiver.cut_at(core.wal().durable(Rung::Disk));
        let made = drain(&core, &mut archiver, 0);
        assert_eq!(made.iter().map(|run| run.summary.frames).sum::<u64>(), 2);
        append(&core, kind, b"\xff");
        let durable = core.wal().durable_end(Rung::Disk);
        let refused = loop {
            if let Err(error) = archiver.step(&durable, 0) {
                break error.to_string();
            }
        };
        assert!(refused.contains(named), "{refused}");
    }
}

/// Returns a random fault: an error or a power cut. It strikes one of the next `ios` I/Os, or one of the next `few`
/// syncs or operations on file names.
pub fn any_fault(rng: &mut fastrand::Rng, ios: u64, few: u64) -> FaultPlan {
    let (at, plan) = (rng.u64(1..ios), FaultPlan::default());
    match rng.u8(0..6) {
        0 => FaultPlan {
            fail_write_at: Some(at),
            ..plan
        },
        1 => FaultPlan {
            fail_name_at: Some(1 + at % few),
            ..plan
        },
        2 => FaultPlan {
            fail_sync_at: Some((1 + at % few, SyncFailure::KeepsNew)),
            ..plan
        },
        _ => FaultPlan {
            cut_after_ops: Some(at),
            ..plan
        },
    }
}

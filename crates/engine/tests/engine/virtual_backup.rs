//! Virtual backups of whole histories: contents, restores, and the files of an unfinished virtual backup after a crash.

use std::collections::BTreeSet;
use std::sync::Arc;

use perdura::{Core, Error, Progress};
use perdura_archive::backup::{Backup, BackupHeader, BackupKind, BackupTail, BackupWriter};
use perdura_archive::store::{Creation, Lease};
use perdura_archive::{
    BackupId, Edit, Images, Merger, MergerOptions, Object, ObjectId, Role, Run, RunId, Store,
    Verdict, Writer,
};
use perdura_base::checksum::crc32c;
use perdura_base::limits::PAGE_BYTES;
use perdura_base::num::to_u64;
use perdura_base::{CkptEpoch, Epoch, PartitionId, Pos, Uuid};
use perdura_device::{
    Access, AlignedBuf, Clock, CrashProfile, Disk, ManualClock, MemDisk, SimDisk,
};
use perdura_page::RegionDigest;
use perdura_recovery::Disks;
use perdura_restore::virtual_backup::{VirtualBackup, VirtualSummary};
use perdura_restore::{
    Deadlines, RestoreMeans, RestorePlan, RestoreProgress, RunMoments, restore, served,
};

use crate::core_steps::{env, small};
use crate::restore::{DIR, History, STREAMS, values};
use crate::restore_typed::{later_typed_history, typed_history};

fn moments_of(runs: &[Arc<Run>]) -> Vec<RunMoments> {
    runs.iter().map(|run| RunMoments::of(run)).collect()
}

fn copy(from: &dyn Disk, name: &str, to: &dyn Disk, path: &str) -> (u64, u32) {
    let file = from.open(&format!("{DIR}/{name}"), Access::Buffered);
    let file = file.expect("a file of the history");
    let len = file.len().expect("memory");
    let mut bytes = vec![0; usize::try_from(len).expect("small")];
    file.read_at(0, &mut bytes).expect("memory");
    let copied = to.create(path, Access::Buffered).expect("a disk");
    copied.write_at(0, &bytes).expect("a disk");
    copied.sync().expect("a disk");
    (len, crc32c(&bytes))
}

/// Makes an archive of a history on a disk, with the given backups.
pub fn stored(history: &History, backups: &[BackupId], disk: &Arc<dyn Disk>) -> Arc<Store> {
    let creation = Creation {
        uuid: history.uuid,
        life: 1,
        begin: Epoch(1),
        positions: vec![Pos(0); STREAMS],
        images: Images::default(),
        parent: None,
        is_whole: true,
        anchor: Vec::new(),
    };
    let store = Store::create(Arc::clone(disk), creation).expect("a disk");
    let from = history.archive_disk();
    for run in history.open_runs().expect("the runs") {
        let id = run.id();
        let path = id.path(&store.runs_dir());
        let (bytes, crc) = copy(from, &id.name(), disk.as_ref(), &path);
        let edit = Edit::AddRun {
            run: Object {
                id: ObjectId::Run(id),
                bytes,
                crc,
            },
            ends: run.ends().to_vec(),
            images: None,
            moments: run.moments().clone(),
        };
        store.publish(edit).run().expect("the next run");
    }
    for id in backups {
        let path = id.path(&store.backups_dir());
        let (bytes, crc) = copy(from, &id.name(), disk.as_ref(), &path);
        let id = ObjectId::Sweep(*id);
        store
            .add_backup(Object { id, bytes, crc })
            .expect("a backup");
    }
    for dir in [store.runs_dir(), store.backups_dir()] {
        disk.sync_dir(&dir).expect("a disk");
    }
    store
}

fn memory() -> Arc<dyn Disk> {
    Arc::new(MemDisk::new())
}

fn begin(store: &Arc<Store>, target: Option<Epoch>) -> Result<VirtualBackup, Error> {
    let progress = Arc::new(RestoreProgress::default());
    VirtualBackup::begin(store, target, progress, |_, _| ())
}

fn make(store: &Arc<Store>, target: Option<Epoch>) -> Result<VirtualSummary, Error> {
    begin(store, target)?.run()
}

fn open(store: &Store, id: BackupId) -> Arc<Backup> {
    store.open_backup(id).expect("a backup")
}

/// Returns four values for each page of a backup: the partition, the local index, the update number and the digest.
fn pages(backup: &Backup) -> Vec<(u16, u32, u32, u64)> {
    let partitions = 0..backup.header().chunks.partitions;
    let of = |partition: u16| {
        let section = backup.section(PartitionId(partition)).expect("a section");
        let pages = section.pages.into_iter();
        pages.map(move |page| (partition, page.local, page.useq.0, page.digest))
    };
    partitions.flat_map(of).collect()
}

fn restored(plan: &RestorePlan) -> Result<Core, Error> {
    let disk = SimDisk::new(1);
    let means = RestoreMeans {
        disks: Disks::on_one(disk.life(), STREAMS),
        uuid: Uuid([9; 16]),
        threads: 1,
        clock: &(Arc::new(ManualClock::at(5)) as Arc<dyn Clock>),
        progress: &RestoreProgress::default(),
        deadlines: Deadlines::Keep,
    };
    restore(plan, &means)?;
    Core::open(env(&disk, STREAMS), small(), Arc::new(Progress::default()))
}

/// Makes virtual backups of some epochs of a history, each from the nearest backup, and restores every epoch from each
/// virtual backup. Returns the number of epochs restored, and the number of backups made from a virtual backup. Returns
/// the first wrong restore as an error.
fn check(seed: u64, steps: usize) -> Result<(usize, usize), String> {
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut history = History::new(seed);
    history.run(&mut rng, steps);
    if history.backups.is_empty() {
        return Ok((0, 0));
    }
    let store = stored(&history, &history.backups, &memory());
    let (mut count, mut chained) = (0, 0);
    let last = history.at.epoch;
    let epochs: BTreeSet<u64> = (0..4).map(|_| rng.u64(1..=last.0)).collect();
    for end in epochs {
        let end = Epoch(end);
        let what = |why: String| format!("seed {seed}, cut {end}: {why}");
        let made = make(&store, Some(end)).map_err(|e| what(e.to_string()))?;
        let id = made.backup.header.id;
        assert_eq!(
            (id, made.backup.header.kind),
            (BackupId::cut(end), BackupKind::Cut)
        );
        chained += usize::from(made.base.k == CkptEpoch(0));
        let cut = open(&store, id);
        let region = RegionDigest::new();
        cut.verify(|page| region.of_page(page))
            .expect("its digests");
        let runs = history.open_runs().expect("the runs");
        let serves =
            served(cut.header(), &moments_of(&runs)).map(|s| (s.from.0, s.to.0, s.moments));
        assert_eq!(serves, Some((1, last.0, last.0)));
        for target in 1..=last.0 {
            let what = |why: String| what(format!("{target}: {why}"));
            let runs = runs.clone();
            let plan = RestorePlan::new(Arc::clone(&cut), runs, Some(Epoch(target)));
            let core = plan.and_then(|plan| restored(&plan));
            let core = core.map_err(|e| what(e.to_string()))?;
            if values(&core) != history.state(Epoch(target)) {
                return Err(what("other values".into()));
            }
            count += 1;
        }
    }
    let verified = store.verify(&RegionDigest::new()).expect("an archive");
    assert!(verified.faults.is_empty(), "{:?}", verified.faults);
    Ok((count, chained))
}

#[test]
fn every_moment_is_restored_from_virtual_backups_and_chains_of_them() {
    let (mut count, mut chained) = (0, 0);
    for seed in 0..20 {
        let (more, of_virtual) = check(seed, 150).unwrap_or_else(|wrong| panic!("{wrong}"));
        count += more;
        chained += of_virtual;
    }
    assert!(count > 300, "{count} moments");
    assert!(chained > 5, "{chained} made of a virtual backup");
}

#[cfg(feature = "flaws")]
#[test]
fn the_seeded_bug_of_a_cut_that_is_judged_by_tag_is_caught() {
    use perdura_base::flaw::{Flaw, arm};
    let caught = (0..20).find(|seed| {
        arm(Some(Flaw::CutJudgedByTag));
        let wrong = check(*seed, 150).is_err();
        arm(None);
        wrong
    });
    assert!(caught.is_some());
}

#[test]
fn a_virtual_backup_has_the_pages_of_the_paused_database_whatever_it_was_made_of() {
    let mut compared = 0;
    for seed in 0..20 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut history = History::new(seed);
        history.run(&mut rng, 200);
        let backups = history.backups.clone();
        let mut cuts: Vec<(Arc<Store>, BackupId)> = Vec::new();
        for backup in backups {
            let store = stored(&history, &[backup], &memory());
            let made = make(&store, None).expect("a virtual backup");
            assert_eq!(made.backup.header.id.end, history.at.epoch);
            assert_eq!(made.base, backup);
            cuts.push((store, made.backup.header.id));
        }
        // Nothing has been written since. A checkpoint may still be under way, so take two: the second one begins
        // after the last write.
        for _ in 0..2 {
            history.core().checkpoint_now().expect("an image");
        }
        history.back_up();
        let image = history.backup(*history.backups.last().expect("a backup"));
        let image = pages(&image.expect("a backup"));
        for (store, id) in &cuts {
            assert_eq!(pages(&open(store, *id)), image, "seed {seed}");
            compared += 1;
        }
    }
    assert!(compared > 10, "{compared} compared");
}

/// Returns a history with a backup.
fn history(seed: u64) -> History {
    let mut history = History::new(seed);
    let mut rng = fastrand::Rng::with_seed(seed);
    history.run(&mut rng, 60);
    history.core().checkpoint_now().expect("an image");
    history.back_up();
    history.run(&mut rng, 40);
    history
}

/// Marks a backup as a copy of a consistent image.
fn make_consistent(store: &Store, id: BackupId) {
    let plain = open(store, id);
    let header = BackupHeader {
        consistent: true,
        ..*plain.header()
    };
    let disk = store.disk();
    disk.remove(&id.path(&store.backups_dir())).expect("memory");
    let writer = BackupWriter::create(Arc::clone(disk), &store.backups_dir(), header);
    let mut writer = writer.expect("memory");
    for partition in (0..header.chunks.partitions).map(PartitionId) {
        let section = plain.section(partition).expect("a section");
        for (nth, some) in section.pages.chunks(1).enumerate() {
            let mut page = AlignedBuf::zeroed(PAGE_BYTES);
            let read = plain.read_pages(partition, nth, some, &mut page);
            read.expect("a page");
            writer.push(some[0], &page).expect("memory");
        }
        writer.end_partition(Some(7), section.sidecar);
    }
    writer.finish().and_then(BackupTail::run).expect("memory");
}

#[test]
fn a_cut_is_also_made_of_a_consistent_image_of_a_database_without_key_addressed_tables() {
    let history = history(6);
    let backup = history.backups[..1].to_vec();
    let expected = stored(&history, &backup, &memory());
    let of_plain = make(&expected, None).expect("a virtual backup");
    let store = stored(&history, &backup, &memory());
    make_consistent(&store, backup[0]);
    assert!(open(&store, backup[0]).header().consistent);
    let made = make(&store, None).expect("a virtual backup");
    assert!(!made.backup.header.consistent);
    assert_eq!(made.base, backup[0]);
    assert_eq!(made.backup.proof, of_plain.backup.proof);
    let (one, other) = (made.backup.header.id, of_plain.backup.header.id);
    assert_eq!(pages(&open(&store, one)), pages(&open(&expected, other)));
}

#[test]
fn an_archive_from_the_first_epoch_on_needs_no_backup() {
    let mut restored_from_runs = 0;
    for seed in 0..4 {
        let mut history = History::new(seed);
        history.run(&mut fastrand::Rng::with_seed(seed), 100);
        let store = stored(&history, &[], &memory());
        store.note_anchor(history.core().anchor_for_archive());
        store.publish(Edit::Open).run().expect("memory");
        for target in 0..=history.at.epoch.0 {
            let plan = RestorePlan::from_archive(&store, Some(Epoch(target)), |_, _| ());
            let core = restored(&plan.expect("the runs")).expect("a restore");
            assert_eq!(
                values(&core),
                history.state(Epoch(target)),
                "{seed}, {target}"
            );
            restored_from_runs += 1;
        }
        assert!(store.manifest().has_all());
        let made = make(&store, None).expect("the first backup");
        assert_eq!(made.base, BackupId::cut(Epoch(0)));
        let beyond = RestorePlan::from_archive(&store, Some(Epoch(9999)), |_, _| ());
        let beyond = beyond.map(drop).expect_err("beyond").to_string();
        assert!(beyond.contains("but only those of"), "{beyond}");
    }
    assert!(restored_from_runs > 50, "{restored_from_runs}");
}

#[test]
fn what_cannot_be_made_is_refused_and_says_why() {
    let history = history(3);
    let store = stored(&history, &history.backups, &memory());
    let refused = |target| {
        make(&store, target)
            .map(drop)
            .expect_err("refused")
            .to_string()
    };
    let last = history.at.epoch;
    let beyond = refused(Some(Epoch(last.0 + 1)));
    assert!(beyond.contains("but only those of"), "{beyond}");
    make(&store, None).expect("a virtual backup");
    for target in [None, Some(last)] {
        let twice = refused(target);
        assert!(twice.contains("already"), "{twice}");
    }
    let lease = store.lease_backups().expect("nobody has it");
    let locked = make(&store, Some(Epoch(1))).map(drop).expect_err("alone");
    assert!(matches!(locked, Error::Locked { .. }), "{locked}");
    drop::<Lease>(lease);
    let none = stored(&history, &[], &memory());
    assert!(none.manifest().anchor.is_empty());
    let none = make(&none, None)
        .map(drop)
        .expect_err("no backup")
        .to_string();
    assert!(none.contains("has no backup"), "{none}");
    let names = || store.disk().list(&store.backups_dir()).expect("memory");
    assert!(
        names().iter().all(|name| !name.ends_with(".tmp")),
        "{:?}",
        names()
    );
}

#[test]
fn a_database_with_key_addressed_tables_is_refused() {
    let (history, end) = typed_history().expect("a history");
    let store = stored(&history, &history.backups, &memory());
    for target in [None, Some(Epoch(end.0 + 1))] {
        let refused = make(&store, target).map(drop).expect_err("refused");
        assert!(refused.to_string().contains("key-addressed"), "{refused}");
    }
}

/// A virtual backup would lack the frames after its base, and say that it needs none.
#[test]
fn no_virtual_backup_is_made_behind_the_first_key_addressed_table() {
    let (history, end) = later_typed_history().expect("a history");
    let store = stored(&history, &history.backups, &memory());
    let plan = |target| RestorePlan::from_archive(&store, target, |_, _| ());
    assert!(history.at.epoch > end, "there is a log behind the backup");
    store.note_anchor(history.core().anchor_for_archive());
    store.publish(Edit::Open).run().expect("memory");
    for target in [None, Some(history.at.epoch)] {
        assert!(plan(target).is_ok(), "the runs have the frames");
        let refused = make(&store, target)
            .map(drop)
            .expect_err("refused")
            .to_string();
        assert!(refused.contains("key-addressed"), "{refused}");
    }
    for target in [Epoch(1), end] {
        assert!(plan(Some(target)).is_ok(), "epoch {target}");
    }
    make(&store, Some(end)).expect("a virtual backup of a moment before");
}

/// Merges all runs into one run. The merged run has only the last moment, so no earlier moment can be restored from it.
fn merge(store: &Arc<Store>) -> RunId {
    let options = MergerOptions {
        fan_in: store.manifest().runs().count(),
        policy: Arc::new(|_, _| Verdict::Only(Vec::new())),
        ..MergerOptions::default()
    };
    let region = Arc::new(RegionDigest::new());
    let mut merger = Merger::new(Arc::clone(store), options, region).expect("the lease");
    merger.run().expect("memory")[0]
}

#[test]
fn a_moment_that_a_merge_gave_up_while_it_was_backed_up_ends_the_backup() {
    let history = history(3);
    let store = stored(&history, &history.backups, &memory());
    let middle = Epoch(history.at.epoch.0 - 1);
    let kept = make(&store, Some(Epoch(history.at.epoch.0 - 2))).expect("a backup");
    let making = begin(&store, Some(middle)).expect("the runs have it");
    let merged = merge(&store);
    let run = store.open_run(merged).expect("a run");
    assert!(!run.has_moment(middle) && run.has_moment(kept.backup.header.id.end));
    let given_up = making.run().map(drop).expect_err("it came too late");
    assert!(
        given_up.to_string().contains("can no longer be restored"),
        "{given_up}"
    );
    let names = store.disk().list(&store.backups_dir()).expect("memory");
    assert_eq!(names.len(), store.manifest().backups().count(), "{names:?}");
    let late = begin(&store, Some(middle))
        .map(drop)
        .expect_err("it has gone");
    assert!(
        late.to_string().contains("can no longer be restored"),
        "{late}"
    );
    // The backup that was kept can still be restored to the end.
    let cut = open(&store, kept.backup.header.id);
    let plan = RestorePlan::new(cut, vec![run], None).expect("a plan");
    let core = restored(&plan).expect("a restore");
    assert_eq!(values(&core), history.state(history.at.epoch));
}

#[test]
fn a_crash_at_any_step_leaves_the_whole_backup_or_none_and_the_next_one_is_made() {
    let history = history(4);
    let (mut with, mut without) = (0, 0);
    for steps in 0.. {
        let disk = SimDisk::new(steps);
        let life: Arc<dyn Disk> = disk.life();
        let store = stored(&history, &history.backups, &life);
        let mut making = begin(&store, None).expect("a virtual backup");
        let mut is_done = false;
        for _ in 0..steps {
            if let perdura_archive::Progress::Done(_) = making.step().expect("a disk") {
                is_done = true;
                break;
            }
        }
        drop((making, store));
        disk.crash(CrashProfile::Worst, steps);
        let writer = Writer {
            role: Role::Agent,
            life: steps + 2,
        };
        let life: Arc<dyn Disk> = disk.life();
        let (store, _) = Store::open(life, &history.uuid, writer, None).expect("an archive");
        let verified = store.verify(&RegionDigest::new()).expect("an archive");
        assert!(verified.faults.is_empty(), "{steps}: {:?}", verified.faults);
        let has = store
            .manifest()
            .backups()
            .any(|id| id == BackupId::cut(history.at.epoch));
        assert!(has || !is_done, "{steps}: what was done is there");
        if has {
            with += 1;
        } else {
            // The file may be whole, although no manifest names it. Then it is added.
            let next = make(&store, None).map(drop);
            let is_there = store
                .manifest()
                .backups()
                .any(|id| id == BackupId::cut(history.at.epoch));
            assert!(is_there, "{steps}: {next:?}");
            without += 1;
        }
        let names = store.disk().list(&store.backups_dir()).expect("a disk");
        assert_eq!(names.len(), store.manifest().backups().count(), "{names:?}");
        if is_done {
            break;
        }
    }
    assert!(with > 0 && without > 10, "{with} with, {without} without");
}

#[test]
fn what_a_backup_serves_is_what_can_be_restored_from_it() {
    let mut history = history(5);
    history.run(&mut fastrand::Rng::with_seed(5), 40);
    let store = stored(&history, &history.backups, &memory());
    let last = history.at.epoch.0;
    make(&store, Some(Epoch(last / 2))).expect("a virtual backup");
    let all = history.open_runs().expect("the runs");
    let mut partly = 0;
    for from in 0..all.len() {
        for to in from..=all.len() {
            let runs = &all[from..to];
            for id in store.manifest().backups() {
                let backup = open(&store, id);
                let can = |target: &u64| {
                    let plan =
                        RestorePlan::new(Arc::clone(&backup), runs.to_vec(), Some(Epoch(*target)));
                    plan.is_ok()
                };
                let found: Vec<u64> = (0..=last).filter(can).collect();
                let served = served(backup.header(), &moments_of(runs));
                let expected = served.map(|s| (s.from.0..=s.to.0).collect::<Vec<u64>>());
                assert_eq!(
                    found,
                    expected.unwrap_or_default(),
                    "{id:?}, runs {from} to {to}"
                );
                assert_eq!(to_u64(found.len()), served.map_or(0, |s| s.moments));
                partly += usize::from(!found.is_empty() && to_u64(found.len()) <= last);
            }
        }
    }
    assert!(partly > 10, "{partly}");
    let before = served(
        open(&store, BackupId::cut(Epoch(last / 2))).header(),
        &moments_of(&all),
    )
    .expect("all");
    let run = store.open_run(merge(&store)).expect("a run");
    let cut = open(&store, BackupId::cut(Epoch(last / 2)));
    let after = served(cut.header(), &[RunMoments::of(&run)]).expect("all");
    assert_eq!((after.from, after.to), (before.from, before.to));
    let target =
        |epoch: u64| RestorePlan::new(Arc::clone(&cut), vec![Arc::clone(&run)], Some(Epoch(epoch)));
    let can = (0..=last).filter(|epoch| target(*epoch).is_ok()).count();
    assert_eq!(to_u64(can), after.moments);
    assert!(after.moments < before.moments && after.moments >= 2);
}

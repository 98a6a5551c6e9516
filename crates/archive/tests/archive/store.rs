//! Tests of archives: which processes may write them, and what an opening does with the files in the folder.

use std::sync::Arc;

use perdura_archive::manifest::Writer;
use perdura_archive::store::restart::plan;
use perdura_archive::store::{Creation, Duty, KEPT, Opened, Own};
use perdura_archive::{
    Codec, Edit, EpochRange, Images, Manifest, Merger, MergerOptions, Moment, Moments, Object,
    ObjectId, Role, RunId, RunWriter, Scope, Store, list_archives,
};
use perdura_base::{CkptEpoch, Epoch, Error, Pos, Result, Uuid};
use perdura_device::{Access, Disk, DiskLayer, FaultPlan, FileDisk, MemDisk, SimDisk, SyncFailure};
use perdura_page::RegionDigest;

use crate::common::{Owned, UUID, header, id, random, records};

/// The name of the archive's folder.
pub const HOME: &str = "000102030405060708090a0b0c0d0e0f";

pub fn images() -> Images {
    Images {
        retained: vec![CkptEpoch(5), CkptEpoch(6)],
        building: None,
    }
}

pub fn create(disk: &Arc<dyn Disk>) -> Result<Arc<Store>> {
    create_from(disk, 1)
}

/// Makes an archive that begins with epoch `begin`.
pub fn create_from(disk: &Arc<dyn Disk>, begin: u64) -> Result<Arc<Store>> {
    let creation = Creation {
        uuid: UUID,
        life: 1,
        begin: Epoch(begin),
        positions: vec![Pos(100 * begin)],
        images: images(),
        parent: None,
        is_whole: false,
        anchor: Vec::new(),
    };
    Store::create(Arc::clone(disk), creation)
}

pub fn database(life: u64) -> Writer {
    Writer {
        role: Role::Database,
        life,
    }
}

pub fn agent(life: u64) -> Writer {
    Writer {
        role: Role::Agent,
        life,
    }
}

pub fn open(disk: &Arc<dyn Disk>, writer: Writer) -> Result<(Arc<Store>, Opened)> {
    let own = Own {
        images: &images(),
        anchor: &[],
    };
    Store::open(Arc::clone(disk), &UUID, writer, Some(own))
}

/// Returns a log of 45 epochs, enough for nine runs.
pub fn log() -> Vec<Owned> {
    random(&mut fastrand::Rng::with_seed(21), 1..46, 200)
}

/// Writes the file of run `id`, with the log's records.
pub fn write(store: &Store, log: &[Owned], id: RunId) -> Result<perdura_archive::RunSummary> {
    let digest = Arc::new(RegionDigest::new());
    let disk = Arc::clone(store.disk());
    let mut writer = RunWriter::create(disk, &store.runs_dir(), header(id), Codec::Lz4, digest)?;
    for record in log.iter().filter(|r| id.epochs.contains(r.epochs.first)) {
        writer.push(&record.record())?;
    }
    let end = id.epochs.last();
    let moments = Moments::sampled(&[Moment {
        epoch: end,
        wall_us: end.0,
    }]);
    writer.finish(&moments, &[position(id)])?.run()
}

/// Returns the position of a run's end in the log.
fn position(id: RunId) -> Pos {
    Pos(100 * id.epochs.end.0)
}

/// Archives the epochs of the log from the archive's end up to the epoch before `end`.
pub fn archive(store: &Arc<Store>, log: &[Owned], end: u64) -> Result<()> {
    let next = id(store.manifest().end.0, end, 0, 0);
    let run = write(store, log, next)?;
    store.add_run(&run, &[position(next)], &images())?;
    Ok(())
}

/// Verifies each run of the archive. Returns all their records, sorted.
pub fn contents(store: &Store) -> Result<Vec<Owned>> {
    let mut all = Vec::new();
    let manifest = store.manifest();
    let Some(epochs) = manifest.epochs() else {
        return Ok(all);
    };
    for id in store.tiling(epochs)? {
        let run = store.open_run(id)?;
        run.verify(&RegionDigest::new())?;
        all.extend(records(&run, &Scope::All)?);
    }
    all.sort_by_key(|r| (r.key(), r.tag, r.bytes.clone()));
    Ok(all)
}

/// Threads of one process change an archive through one store. Each change must get its own manifest number.
#[test]
fn threads_share_a_store() {
    let disk: Arc<dyn Disk> = Arc::new(MemDisk::new());
    let store = create(&disk).expect("memory");
    let (threads, changes) = (4, 200);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                for _ in 0..changes {
                    store.publish(Edit::Open).run().expect("memory");
                }
            });
        }
    });
    assert_eq!(store.manifest().number, 1 + threads * changes);
    store.verify(&RegionDigest::new()).expect("a chain");
}

/// Returns the log's records of the archived epochs, in the order of [`contents`].
pub fn of_log(log: &[Owned], store: &Store) -> Vec<Owned> {
    let manifest = store.manifest();
    let is_in = |r: &&Owned| manifest.begin <= r.epochs.first && r.epochs.first < manifest.end;
    let mut own: Vec<Owned> = log.iter().filter(is_in).cloned().collect();
    own.sort_by_key(|r| (r.key(), r.tag, r.bytes.clone()));
    own
}

#[test]
fn an_archive_is_made_once_and_opened_by_one_database_and_one_agent() {
    let disk: Arc<dyn Disk> = Arc::new(MemDisk::new());
    let none = open(&disk, database(1)).err();
    assert!(matches!(none, Some(Error::Usage(_))), "{none:?}");
    assert_eq!(list_archives(disk.as_ref()).expect("memory"), []);
    let store = create(&disk).expect("memory");
    assert_eq!(list_archives(disk.as_ref()).expect("memory"), [UUID]);
    let locked = |writer| matches!(open(&disk, writer), Err(Error::Locked { .. }));
    assert!(locked(database(2)), "the second database");
    let (helper, _) = open(&disk, agent(3)).expect("an agent");
    assert!(locked(agent(4)), "the second agent");
    let lease = helper.lease_merging().expect("the first merger");
    let second = store.lease_merging();
    assert!(matches!(second, Err(Error::Locked { .. })));
    drop(lease);
    store.lease_merging().expect("the lease is free");
    drop((store, helper));
    assert!(matches!(create(&disk), Err(Error::Usage(_))));
    let (store, _) = open(&disk, database(2)).expect("the lock is free");
    assert_eq!(store.manifest().number, 3);
    let reader = Store::read_only(disk, &UUID).expect("a reader");
    let refused = reader.publish(Edit::Open).run();
    assert!(matches!(refused, Err(Error::Usage(_))));
}

/// The archive is on a real file system, beside a file and a folder that are no archives.
#[test]
fn an_archive_on_a_real_disk_is_merged_and_opened_again() {
    let home = tempfile::tempdir().expect("a temporary directory");
    let disk: Arc<dyn Disk> = Arc::new(FileDisk::new(home.path()).expect("a disk"));
    let other = "f".repeat(32);
    disk.create(&other, Access::Buffered).expect("a file");
    disk.make_dir(&"e".repeat(32)).expect("a folder");
    let log = log();
    let store = create(&disk).expect("a new archive");
    let digest = Arc::new(RegionDigest::new());
    let options = MergerOptions {
        fan_in: 2,
        ..MergerOptions::default()
    };
    let mut merger = Merger::new(Arc::clone(&store), options, digest).expect("the lease");
    for end in [10, 20, 30, 46] {
        archive(&store, &log, end).expect("a run");
        merger.run().expect("merged");
    }
    drop((store, merger));
    assert_eq!(list_archives(disk.as_ref()).expect("names"), [UUID]);
    let (store, opened) = open(&disk, database(2)).expect("an archive");
    assert_eq!(opened, Opened::default());
    let runs: Vec<RunId> = store.manifest().runs().collect();
    assert_eq!(runs, [id(1, 46, 2, 0)]);
    let files = disk.list(&store.runs_dir()).expect("names");
    assert_eq!(files, [runs[0].name()]);
    assert_eq!(contents(&store).expect("a run"), of_log(&log, &store));
    let verified = store.verify(&RegionDigest::new()).expect("manifests");
    assert_eq!(verified.faults.len(), 0);
}

/// A change fails because the disk is full or has one error. The archive must stay unchanged, without temporary
/// manifests, and a later change must succeed.
#[test]
fn a_change_that_fails_is_made_later() {
    let sim = SimDisk::new(3);
    let disk: Arc<dyn Disk> = sim.life();
    let store = create(&disk).expect("a disk");
    let number = store.manifest().number;
    for plan in [
        FaultPlan {
            enospc_at: Some((1, 1)),
            ..FaultPlan::default()
        },
        FaultPlan {
            fail_write_at: Some(1),
            ..FaultPlan::default()
        },
        FaultPlan {
            fail_sync_at: Some((1, SyncFailure::KeepsNew)),
            ..FaultPlan::default()
        },
    ] {
        sim.set_plan(plan);
        let failed = store.publish(Edit::Open).run();
        assert!(matches!(failed, Err(Error::Io { .. })), "{failed:?}");
        let names = disk.list(HOME).expect("a disk");
        assert!(
            !names.iter().any(|name| name.ends_with(".tmp")),
            "{names:?}"
        );
        assert_eq!(store.manifest().number, number);
    }
    store.publish(Edit::Open).run().expect("the disk works");
    // The sync of the folder fails. Then it is unknown which manifest is the newest, so this store makes no more
    // changes.
    sim.set_plan(FaultPlan {
        fail_name_at: Some(1),
        ..FaultPlan::default()
    });
    assert!(store.publish(Edit::Open).run().is_err());
    let stopped = store.publish(Edit::Open).run();
    assert!(matches!(stopped, Err(Error::Stopped(_))), "{stopped:?}");
    drop(store);
    open(&disk, database(2)).expect("an opening finds out");
}

/// A disk with ineffective locks, as on some network file systems.
struct Lockless(MemDisk);

impl DiskLayer for Lockless {
    fn behind(&self) -> &dyn Disk {
        &self.0
    }

    fn in_front(
        &self,
        _: &str,
        file: Arc<dyn perdura_device::File>,
    ) -> Arc<dyn perdura_device::File> {
        file
    }

    fn lock(&self, _: &str) -> Result<Box<dyn std::any::Any + Send + Sync>> {
        Ok(Box::new(()))
    }
}

#[test]
fn a_lost_race_is_repeated_and_a_second_writer_of_a_role_stops_the_first() {
    let disk: Arc<dyn Disk> = Arc::new(Lockless(MemDisk::new()));
    let log = log();
    let first = create(&disk).expect("memory");
    archive(&first, &log, 10).expect("memory");
    // An agent publishes a manifest in between. The database's next manifest must follow it.
    let (helper, _) = open(&disk, agent(7)).expect("an agent");
    assert_eq!((helper.manifest().number, first.manifest().number), (3, 2));
    archive(&first, &log, 20).expect("memory");
    assert_eq!(first.manifest().number, 4);
    helper
        .publish(Edit::Open)
        .run()
        .expect("the race is repeated");
    assert_eq!(helper.manifest().number, 5);
    assert_eq!(helper.manifest().runs().count(), 2, "nothing was lost");
    // Another process takes the database's role.
    let (second, _) = open(&disk, database(2)).expect("no lock holds it");
    for _ in 0..2 {
        let stopped = archive(&first, &log, 30);
        assert!(
            matches!(&stopped, Err(Error::ArchiveTaken { role: "database", manifest }) if manifest.ends_with("6")),
            "{stopped:?}"
        );
        disk.remove(&format!("{HOME}/{}", id(20, 30, 0, 0).path("runs")))
            .ok();
    }
    archive(&second, &log, 30).expect("the second goes on");
    assert_eq!(contents(&second).expect("runs"), of_log(&log, &second));
    drop(open(&disk, agent(8)).expect("no lock holds it"));
    let stopped = helper.publish(Edit::Open).run();
    assert!(matches!(
        stopped,
        Err(Error::ArchiveTaken { role: "agent", .. })
    ));
}

/// A change is about to publish a manifest. Another writer has already used the manifest's number, and the other
/// manifest was removed as too old. So the number is free again. But a manifest with this number would have no
/// successor.
#[test]
fn a_change_that_more_manifests_overtake_than_are_kept_is_made_in_the_newest_one() {
    for steps in 0..5 {
        let disk: Arc<dyn Disk> = Arc::new(MemDisk::new());
        let (store, log) = (create(&disk).unwrap(), log());
        archive(&store, &log, 6).unwrap();
        let next = id(6, 11, 0, 0);
        let run = write(&store, &log, next).unwrap();
        let mut change = store.publish(Edit::AddRun {
            run: Object::of(&run),
            ends: vec![position(next)],
            images: None,
            moments: Moments::default(),
        });
        for _ in 0..steps {
            change.step().unwrap();
        }
        for _ in 0..3 * KEPT {
            store.publish(Edit::Open).run().unwrap();
        }
        change.run().unwrap();
        let manifest = store.manifest();
        assert_eq!(
            (manifest.end, store.refresh().unwrap()),
            (Epoch(11), manifest.clone())
        );
        drop(store);
        let (again, _) = open(&disk, database(2)).unwrap();
        assert_eq!(again.manifest().end, Epoch(11), "after {steps} steps");
        assert_eq!(contents(&again).unwrap(), of_log(&log, &again));
    }
}

#[test]
fn old_manifests_go_and_a_replaced_one_is_found() {
    let disk: Arc<dyn Disk> = Arc::new(MemDisk::new());
    let store = create(&disk).expect("memory");
    for _ in 0..40 {
        store.publish(Edit::Open).run().expect("memory");
    }
    drop(store);
    let names = || -> Vec<String> {
        let all = disk.list(HOME).expect("memory");
        all.into_iter()
            .filter(|n| n.starts_with("manifest-"))
            .collect()
    };
    let kept = names();
    assert_eq!(u64::try_from(kept.len()), Ok(KEPT));
    assert!(kept[0].ends_with("26") && kept[15].ends_with("41"));
    let path = |name: &str| format!("{HOME}/{name}");
    // A crash during the removal of old manifests has left a manifest that is older than the kept ones.
    let left = format!("manifest-{:020}", 9);
    disk.create(&path(&left), Access::Buffered).expect("memory");
    let (store, opened) = open(&disk, database(2)).expect("an archive");
    assert!(opened.removed.contains(&left) && !names().contains(&left));
    drop(store);
    let reader = Store::read_only(Arc::clone(&disk), &UUID).expect("an archive");
    let kept = names();
    for name in &kept[..15] {
        disk.rename(&path(name), "aside").expect("memory");
        // Put another valid manifest in the place of the renamed one. Its checksum differs from the checksum that the
        // next manifest stores.
        let mut bytes = vec![0; 4096];
        let file = disk.open("aside", Access::Buffered).expect("memory");
        let len = file.read_at(0, &mut bytes).expect("memory");
        let number = name[9..].parse().expect("a number");
        let (mut other, _) =
            Manifest::decode(name, &bytes[..len], number, &UUID).expect("a manifest");
        other.writer.life ^= 1;
        let file = disk.create(&path(name), Access::Buffered).expect("memory");
        file.write_at(0, &other.encode()).expect("memory");
        let verified = reader
            .verify(&RegionDigest::new())
            .expect("the newest is whole");
        let paths: Vec<&str> = verified
            .faults
            .iter()
            .map(|fault| fault.path.as_str())
            .collect();
        assert_eq!(paths, [path(name)]);
        disk.rename("aside", &path(name)).expect("memory");
    }
    open(&disk, database(4)).expect("all are back");
    for name in names() {
        disk.remove(&path(&name)).expect("memory");
    }
    let store = open(&disk, database(5)).err();
    assert!(matches!(store, Some(Error::Usage(_))), "{store:?}");
}

#[test]
fn a_whole_run_that_continues_the_archive_is_adopted_and_a_damaged_one_goes() {
    let log = log();
    for damage in [false, true] {
        let disk: Arc<dyn Disk> = Arc::new(MemDisk::new());
        let store = create(&disk).expect("memory");
        archive(&store, &log, 10).expect("memory");
        for next in [
            id(10, 20, 0, 0),
            id(10, 20, 0, 1),
            id(10, 15, 0, 2),
            id(20, 30, 0, 0),
        ] {
            write(&store, &log, next).expect("memory");
        }
        let runs = store.runs_dir();
        drop(store);
        if damage {
            let file = disk.open(&id(10, 20, 0, 1).path(&runs), Access::Buffered);
            let file = file.expect("the run");
            let mut byte = [0];
            file.read_at(300, &mut byte).expect("memory");
            file.write_at(300, &[byte[0] ^ 1]).expect("memory");
        }
        // A reader uses the runs that an opening would adopt, and changes no file.
        let reader = Store::read_only(Arc::clone(&disk), &UUID).expect("an archive");
        let before = disk.list(&runs).expect("memory");
        let readable = reader.readable_runs().expect("runs");
        let ends = readable.last().map(|run| run.id().epochs.end);
        assert_eq!(ends, Some(Epoch(if damage { 10 } else { 30 })));
        assert_eq!(disk.list(&runs).expect("memory"), before);
        let (store, opened) = open(&disk, database(2)).expect("an archive");
        let whole = vec![id(10, 20, 0, 1), id(20, 30, 0, 0)];
        assert_eq!(opened.adopted, if damage { vec![] } else { whole });
        let end = if damage { 10 } else { 30 };
        assert_eq!(store.manifest().end, Epoch(end));
        assert_eq!(store.manifest().positions, [Pos(100 * end)]);
        assert_eq!(contents(&store).expect("runs"), of_log(&log, &store));
        assert_eq!(
            disk.list(&runs).expect("memory").len(),
            store.manifest().runs().count()
        );
    }
}

/// The folder has files of each kind. The opening must keep, adopt, remove or refuse each file according to the file's
/// kind.
#[test]
fn files_are_judged_by_the_newest_manifest() {
    let disk: Arc<dyn Disk> = Arc::new(MemDisk::new());
    let store = create(&disk).expect("memory");
    let log = log();
    for end in [10, 20, 30] {
        archive(&store, &log, end).expect("memory");
    }
    let backup = perdura_archive::BackupId {
        end: Epoch(12),
        k: CkptEpoch(6),
    };
    let object = Object {
        id: ObjectId::Sweep(backup),
        bytes: 4096,
        crc: 1,
    };
    store.add_backup(object).expect("memory");
    let manifest = store.manifest();
    let named: Vec<String> = manifest.runs().map(|id| id.name()).collect();
    let judge = |more: &[String], backups: &[&str]| {
        let runs: Vec<String> = named.iter().chain(more).cloned().collect();
        let mut all = vec![backup.name()];
        all.extend(backups.iter().map(|name| (*name).to_owned()));
        plan(&manifest, HOME, &runs, &all)
    };
    let name = |begin, end, level, generation| id(begin, end, level, generation).name();
    for (more, duty) in [
        (name(1, 10, 0, 1), Duty::Any),
        (name(1, 10, 1, 0), Duty::Merging),
        (name(1, 30, 1, 0), Duty::Merging),
        (name(5, 15, 1, 0), Duty::Merging),
        (format!("{}.tmp", name(30, 40, 0, 0)), Duty::Archiving),
        (format!("{}.tmp", name(1, 30, 1, 0)), Duty::Merging),
    ] {
        let judged = judge(std::slice::from_ref(&more), &[]).expect("a crash leaves it");
        assert_eq!(judged.remove, [(duty, format!("runs/{more}"))]);
        assert_eq!(judged.adopt, []);
    }
    let judged = judge(
        &[
            name(30, 40, 0, 0),
            name(30, 35, 0, 9),
            name(40, 41, 0, 0),
            "notes".into(),
        ],
        &[
            "backup-00000000000000000013-00000000000000000006",
            "lost+found",
        ],
    )
    .expect("a crash leaves it");
    assert_eq!(judged.adopt, [id(30, 40, 0, 0), id(40, 41, 0, 0)]);
    assert_eq!(judged.remove.len(), 2);
    let damaged = |judged: Result<_>, file: &str| match judged {
        Err(Error::Corrupt(at)) => assert!(at.file.ends_with(file), "{at}"),
        other => panic!("{file}: {other:?}"),
    };
    damaged(judge(&[name(25, 40, 0, 0)], &[]), &name(25, 40, 0, 0));
    damaged(judge(&[name(31, 40, 0, 0)], &[]), &name(31, 40, 0, 0));
    damaged(
        judge(&[name(30, 40, 0, 0), name(41, 50, 0, 0)], &[]),
        &name(41, 50, 0, 0),
    );
    for gone in 0..3 {
        let mut runs = named.clone();
        let run = RunId::parse(&runs.remove(gone)).expect("a run");
        let without = plan(&manifest, HOME, &runs, &[backup.name()]).expect("other runs serve");
        assert_eq!(without.lost, [ObjectId::Run(run)]);
    }
    let without = plan(&manifest, HOME, &named, &[]).expect("another backup serves");
    assert_eq!(without.lost, [ObjectId::Sweep(backup)]);
}

#[test]
fn objects_that_are_missing_short_or_changed_are_named() {
    let disk: Arc<dyn Disk> = Arc::new(MemDisk::new());
    let store = create(&disk).expect("memory");
    let log = log();
    for end in [10, 20, 30] {
        archive(&store, &log, end).expect("memory");
    }
    let region = RegionDigest::new();
    assert_eq!(store.verify(&region).expect("manifests").faults.len(), 0);
    let path = |id: RunId| id.path(&store.runs_dir());
    let middle = id(10, 20, 0, 0);
    let named = |what: &str| {
        let verified = store.verify(&region).expect("manifests");
        assert_eq!(verified.faults.len(), 1, "{what}");
        assert_eq!(verified.faults[0].path, middle.path("runs"), "{what}");
    };
    let len = disk
        .open(&path(middle), Access::Buffered)
        .and_then(|f| f.len());
    let len = len.expect("a run");
    let mut rng = fastrand::Rng::with_seed(5);
    for _ in 0..300 {
        let file = disk.open(&path(middle), Access::Buffered).expect("a run");
        let (at, bit) = (rng.u64(0..len), rng.u8(0..8));
        let mut byte = [0];
        file.read_at(at, &mut byte).expect("memory");
        file.write_at(at, &[byte[0] ^ 1 << bit]).expect("memory");
        named("a flipped bit");
        file.write_at(at, &byte).expect("memory");
    }
    // Replace the run by an undamaged run of the same name with other records.
    disk.rename(&path(middle), "aside").expect("memory");
    named("missing");
    let fewer: Vec<Owned> = log.iter().filter(|r| r.at.local != 3).cloned().collect();
    write(&store, &fewer, middle).expect("memory");
    named("replaced");
    disk.rename("aside", &path(middle)).expect("memory");
    assert_eq!(store.verify(&region).expect("manifests").faults.len(), 0);
    disk.open(&path(middle), Access::Buffered)
        .and_then(|file| file.set_len(len - 4096))
        .expect("memory");
    named("short");
    drop(store);
    let (_, opened) = open(&disk, database(2)).expect("it continues");
    assert_eq!(opened.damaged.len(), 1, "{opened:?}");
    assert!(opened.damaged[0].contains(&middle.name()), "{opened:?}");
}

#[test]
fn a_range_is_tiled_or_refused_with_what_there_is() {
    let disk: Arc<dyn Disk> = Arc::new(MemDisk::new());
    let store = create(&disk).expect("memory");
    let log = log();
    for end in [10, 20, 30] {
        archive(&store, &log, end).expect("memory");
    }
    let tiling =
        |begin, end| store.tiling(EpochRange::new(Epoch(begin), Epoch(end)).expect("a range"));
    assert_eq!(tiling(9, 10).expect("held"), [id(1, 10, 0, 0)]);
    assert_eq!(tiling(9, 11).expect("held").len(), 2);
    assert_eq!(tiling(1, 30).expect("held").len(), 3);
    let refused = tiling(9, 31).expect_err("beyond").to_string();
    assert!(refused.contains("epochs 1 to 30"), "{refused}");
    assert!(tiling(0, 5).is_err());
    assert_ne!(UUID, Uuid::default());
}

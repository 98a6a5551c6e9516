//! Tests of archives with damaged or missing manifests. Damage of one manifest must cost nothing: every run and every
//! backup of the archive is still found.

use std::sync::Arc;

use perdura_archive::backup::{BackupHeader, BackupKind, BackupSummary, BackupWriter};
use perdura_archive::store::Opened;
use perdura_archive::{
    BackupId, Edit, Images, Manifest, Merger, MergerOptions, Object, ObjectId, RunId, Store,
    list_archives,
};
use perdura_base::{CkptEpoch, Epoch, Error, Result};
use perdura_device::{Access, Disk, MemDisk};
use perdura_page::RegionDigest;

use crate::common::{Owned, UUID, id};
use crate::store::{HOME, agent, archive, contents, create, database, log, of_log, open};

/// Returns the names of an archive's manifests, the oldest first.
fn manifests(disk: &Arc<dyn Disk>) -> Vec<String> {
    let all = disk.list(HOME).expect("memory").into_iter();
    let mut names: Vec<String> = all.filter(|name| name.starts_with("manifest-")).collect();
    names.sort_unstable();
    names
}

fn path(name: &str) -> String {
    format!("{HOME}/{name}")
}

fn bytes_of(disk: &Arc<dyn Disk>, path: &str) -> Vec<u8> {
    let file = disk.open(path, Access::Buffered).expect("it exists");
    let len = usize::try_from(file.len().expect("memory")).expect("small");
    let mut bytes = vec![0; len];
    file.read_at(0, &mut bytes).expect("memory");
    bytes
}

fn put(disk: &Arc<dyn Disk>, path: &str, bytes: &[u8]) {
    if disk.open(path, Access::Buffered).is_ok() {
        disk.remove(path).expect("memory");
    }
    let file = disk.create(path, Access::Buffered).expect("memory");
    file.write_at(0, bytes).expect("memory");
}

/// Returns an equal disk. It has copies of all files of the archive.
fn copy(from: &Arc<dyn Disk>) -> Arc<dyn Disk> {
    let to: Arc<dyn Disk> = Arc::new(MemDisk::new());
    for folder in ["runs", "backups"] {
        to.make_dir(&path(folder)).expect("memory");
        for name in from.list(&path(folder)).expect("memory") {
            let file = path(&format!("{folder}/{name}"));
            put(&to, &file, &bytes_of(from, &file));
        }
    }
    for name in manifests(from) {
        put(&to, &path(&name), &bytes_of(from, &path(&name)));
    }
    to
}

/// Writes an empty backup. No manifest names it.
fn write_backup(store: &Arc<Store>, header: BackupHeader) -> BackupSummary {
    let disk = Arc::clone(store.disk());
    let mut writer = BackupWriter::create(disk, &store.backups_dir(), header).expect("memory");
    for _ in 0..header.chunks.partitions {
        writer.end_partition(None, Vec::new());
    }
    writer.finish().expect("memory").run().expect("memory")
}

/// Writes an empty backup of the epoch `end` and adds it to the archive.
fn add_cut(store: &Arc<Store>, end: u64) {
    let header = BackupHeader {
        kind: BackupKind::Cut,
        begin: Epoch(end + 1),
        families: 0,
        id: BackupId::cut(Epoch(end)),
        ..crate::backup::header(false)
    };
    let made = write_backup(store, header);
    let edit = Edit::AddCut {
        cut: Object {
            id: ObjectId::Cut(header.id),
            bytes: made.bytes,
            crc: made.crc,
        },
        within: store.manifest().run_around(Epoch(end)),
    };
    store.publish(edit).run().expect("its moment is there");
}

/// Makes an archive with merged and new runs and a backup. More manifests were made than are kept.
fn archived(log: &[Owned]) -> (Arc<dyn Disk>, Arc<Store>) {
    let disk: Arc<dyn Disk> = Arc::new(MemDisk::new());
    let store = create(&disk).expect("memory");
    for end in (3..=30).step_by(3) {
        archive(&store, log, end).expect("memory");
    }
    let region = Arc::new(RegionDigest::new());
    let options = MergerOptions {
        fan_in: 4,
        ..MergerOptions::default()
    };
    let mut merger = Merger::new(Arc::clone(&store), options, region).expect("a lease");
    assert!(!merger.run().expect("memory").is_empty());
    drop(merger);
    add_cut(&store, 20);
    for end in (33..=45).step_by(3) {
        archive(&store, log, end).expect("memory");
    }
    (disk, store)
}

fn objects(manifest: &Manifest) -> Vec<Object> {
    manifest.objects.clone()
}

/// Opens a damaged archive as a reader and as the database. Both must find the objects of `whole`.
fn assert_found(disk: &Arc<dyn Disk>, whole: &Manifest, log: &[Owned], what: &str) -> Opened {
    let reader = Store::read_only(Arc::clone(disk), &UUID).expect(what);
    let manifest = reader.refresh().expect(what);
    let runs = reader.readable_runs().expect(what);
    let runs: Vec<RunId> = runs.iter().map(|run| run.id()).collect();
    assert_eq!(runs, whole.runs().collect::<Vec<_>>(), "{what}");
    assert!(manifest.backups().eq(whole.backups()), "{what}");
    let before = manifests(disk);
    let (store, opened) = open(disk, database(7)).expect(what);
    let manifest = store.manifest();
    let runs: Vec<RunId> = manifest.runs().collect();
    assert_eq!(runs, whole.runs().collect::<Vec<_>>(), "{what}");
    assert_eq!(contents(&store).expect(what), of_log(log, &store), "{what}");
    drop(store.lease_backups().expect(what));
    assert!(store.manifest().backups().eq(whole.backups()), "{what}");
    assert_eq!(
        (manifest.begin, manifest.end),
        (whole.begin, whole.end),
        "{what}"
    );
    assert_eq!(manifest.positions, whole.positions, "{what}");
    let newest = manifests(disk).pop().expect("one");
    assert!(
        before.iter().all(|name| *name < newest),
        "{what}: {newest} is the highest"
    );
    archive(&store, log, whole.end.0 + 1).expect("it continues");
    opened
}

/// One flipped bit in any of about 16 manifests, 15 of them history, used to block every verb of the archive.
#[test]
fn a_flipped_bit_in_any_manifest_costs_nothing() {
    let log = log();
    let (disk, store) = archived(&log);
    let whole = store.manifest();
    drop(store);
    let names = manifests(&disk);
    assert_eq!(names.len(), 16);
    let mut rng = fastrand::Rng::with_seed(43);
    for (nth, name) in names.iter().enumerate() {
        let is_newest = nth + 1 == names.len();
        for _ in 0..8 {
            let disk = copy(&disk);
            let mut bytes = bytes_of(&disk, &path(name));
            let at = rng.usize(0..bytes.len());
            bytes[at] ^= 1 << rng.u8(0..8);
            put(&disk, &path(name), &bytes);
            let what = format!("byte {at} of {name}");
            let opened = assert_found(&disk, &whole, &log, &what);
            assert_eq!(
                opened.damaged.len(),
                usize::from(is_newest),
                "{what}: {opened:?}"
            );
        }
    }
}

#[test]
fn the_newest_manifests_may_be_damaged_missing_or_of_another_database() {
    let log = log();
    let (disk, store) = archived(&log);
    let whole = store.manifest();
    drop(store);
    let names = manifests(&disk);
    let mut foreign = Manifest::clone(&whole);
    foreign.uuid = perdura_base::Uuid([9; 16]);
    let ways: [(&str, Option<Vec<u8>>); 4] = [
        ("missing", None),
        ("empty", Some(Vec::new())),
        ("zeros", Some(vec![0; 4096])),
        ("foreign", Some(foreign.encode())),
    ];
    for gone in 1..=names.len() - 1 {
        for (what, bytes) in &ways {
            let disk = copy(&disk);
            for name in &names[names.len() - gone..] {
                match bytes {
                    Some(bytes) => put(&disk, &path(name), bytes),
                    None => disk.remove(&path(name)).expect("memory"),
                }
            }
            let what = format!("the newest {gone} are {what}");
            let missing = bytes.is_none();
            let opened = assert_found(&disk, &whole, &log, &what);
            assert_eq!(
                opened.damaged.len(),
                if missing { 0 } else { gone },
                "{what}"
            );
        }
    }
}

/// A manifest cannot show that a newer one with later runs is missing. The names of these runs show it.
#[test]
fn an_older_manifest_never_hides_later_epochs_behind_a_gap() {
    let log = log();
    let (disk, store) = archived(&log);
    drop(store);
    let names = manifests(&disk);
    for name in &names[names.len() - 3..] {
        disk.remove(&path(name)).expect("memory");
    }
    let gap = id(36, 39, 0, 0).path(&path("runs"));
    disk.remove(&gap).expect("memory");
    let refused = Store::read_only(Arc::clone(&disk), &UUID).err();
    let by_database = open(&disk, database(2)).map(drop).err();
    // Either the store refuses, or its runs do.
    for error in [refused, by_database].into_iter().flatten() {
        assert!(
            matches!(&error, Error::Corrupt(at) if at.file.contains("run-")),
            "{error}"
        );
    }
    let reader = Store::read_only(disk, &UUID);
    let runs = reader.and_then(|reader| reader.readable_runs());
    assert!(
        matches!(runs, Err(Error::Corrupt(_))),
        "later epochs are not left out"
    );
}

/// The newest manifest is damaged, and files show epochs behind a gap. Neither a reader nor the database may go by the
/// older manifest, and nothing is changed.
#[test]
fn a_damaged_manifest_never_hides_epochs_that_the_names_of_files_show() {
    let log = log();
    let (intact, store) = archived(&log);
    let runs: Vec<RunId> = store.manifest().runs().collect();
    drop(store);
    let names = manifests(&intact);
    let of = |begin: u64| {
        *runs
            .iter()
            .find(|run| run.epochs.begin.0 == begin)
            .expect("a run")
    };
    // A run before the last one is gone, or all runs that lead to the cut of epoch 20.
    let gone: [Vec<RunId>; 2] = [vec![of(39)], runs.clone()];
    for gone in gone {
        let disk = copy(&intact);
        for name in &names[names.len() - 12..] {
            put(&disk, &path(name), &[]);
        }
        for name in &names[..names.len() - 12] {
            let bytes = bytes_of(&disk, &path(name));
            let number = name[9..].parse().expect("a number");
            let manifest = Manifest::decode(name, &bytes, number, &UUID)
                .expect("whole")
                .0;
            assert!(manifest.end.0 < 42, "it does not know the last run");
        }
        for run in &gone {
            disk.remove(&run.path(&path("runs"))).expect("memory");
        }
        let before = (manifests(&disk), disk.list(&path("runs")).expect("memory"));
        let read = Store::read_only(Arc::clone(&disk), &UUID).map(drop);
        let opened = open(&disk, database(2)).map(drop);
        for refused in [read, opened] {
            assert!(matches!(&refused, Err(Error::Corrupt(_))), "{refused:?}");
        }
        let after = (manifests(&disk), disk.list(&path("runs")).expect("memory"));
        assert_eq!(after, before, "nothing was changed");
    }
}

#[test]
fn an_agent_waits_until_the_database_has_mended_the_archive() {
    let log = log();
    let (disk, store) = archived(&log);
    let whole = store.manifest();
    drop(store);
    let newest = manifests(&disk).pop().expect("one");
    put(&disk, &path(&newest), &[]);
    let refused = open(&disk, agent(3)).map(drop).expect_err("not its work");
    assert!(
        matches!(&refused, Error::Corrupt(at) if at.file == path(&newest)),
        "{refused}"
    );
    assert!(refused.to_string().contains("archive rebuild"), "{refused}");
    drop(open(&disk, database(2)).expect("it mends"));
    let (store, _) = open(&disk, agent(3)).expect("mended");
    assert_eq!(objects(&store.manifest()), objects(&whole));
}

#[test]
fn a_damaged_manifest_stops_a_store_that_is_open_until_it_is_opened_again() {
    let log = log();
    let (disk, store) = archived(&log);
    let (beside, _) = open(&disk, agent(3)).expect("an agent");
    beside.publish(Edit::Open).run().expect("memory");
    let newest = manifests(&disk).pop().expect("one");
    put(&disk, &path(&newest), &[1, 2, 3]);
    let refused = store.refresh().expect_err("not read");
    assert!(
        matches!(&refused, Error::Corrupt(at) if at.file == path(&newest)),
        "{refused}"
    );
    drop(store);
    let (store, opened) = open(&disk, database(2)).expect("it mends");
    assert_eq!(opened.damaged.len(), 1, "{opened:?}");
    beside.refresh().expect("the database's manifest is newer");
    archive(&store, &log, 46).expect("it continues");
}

/// Removes all manifests. A manifest made of the files must name them all.
#[test]
fn a_manifest_is_made_of_the_files() {
    let log = log();
    let (disk, store) = archived(&log);
    let whole = store.manifest();
    drop(store);
    for name in manifests(&disk) {
        disk.remove(&path(&name)).expect("memory");
    }
    assert_eq!(list_archives(disk.as_ref()).expect("memory"), [UUID]);
    let refused = Store::read_only(Arc::clone(&disk), &UUID).err();
    let refused = refused.expect("no manifest").to_string();
    assert!(refused.contains("archive rebuild"), "{refused}");
    let (store, opened) = Store::rebuild(Arc::clone(&disk), &UUID, 5).expect("its files are whole");
    assert_eq!(objects(&store.manifest()), objects(&whole));
    assert_eq!(store.manifest().positions, whole.positions);
    assert!(!opened.damaged.is_empty(), "{opened:?}");
    assert_eq!(contents(&store).expect("whole"), of_log(&log, &store));
    let busy = Store::rebuild(Arc::clone(&disk), &UUID, 6).map(drop);
    assert!(matches!(busy, Err(Error::Locked { .. })), "{busy:?}");
    drop(store);
    assert_found(&disk, &whole, &log, "made of the files");
}

#[test]
fn nothing_is_made_of_an_archive_without_a_run() {
    let disk: Arc<dyn Disk> = Arc::new(MemDisk::new());
    drop(create(&disk).expect("memory"));
    for name in manifests(&disk) {
        disk.remove(&path(&name)).expect("memory");
    }
    let refused: Result<_> = Store::rebuild(disk, &UUID, 5).map(drop);
    let refused = refused.expect_err("nothing to go by").to_string();
    assert!(refused.contains("has no run"), "{refused}");
}

/// A run that is lost costs its own epochs. The archive continues, and the opening names the run.
#[test]
fn a_lost_run_is_named_and_the_archive_continues() {
    let log = log();
    let (disk, store) = archived(&log);
    let whole = store.manifest();
    drop(store);
    let runs: Vec<_> = whole.runs().collect();
    let intact = Arc::clone(&disk);
    for run in &runs {
        let disk = copy(&disk);
        let file = run.path(&path("runs"));
        disk.remove(&file).expect("memory");
        let (store, opened) = open(&disk, database(2)).expect("it continues");
        assert_eq!(opened.damaged.len(), 1, "{opened:?}");
        assert!(opened.damaged[0].contains(&file), "{opened:?}");
        let manifest = store.manifest();
        assert_eq!((manifest.begin, manifest.end), (whole.begin, whole.end));
        assert_eq!(manifest.runs().collect::<Vec<_>>(), runs, "it stays named");
        archive(&store, &log, 46).expect("the next run");
        assert_eq!(store.manifest().backups().count(), 1);
        drop(store);
        // A file that comes back is the archive's, and is not removed.
        let (from, to) = (bytes_of(&intact, &file), file);
        put(&disk, &to, &from);
        let (store, opened) = open(&disk, database(3)).expect("all are there");
        assert!(
            opened.damaged.is_empty() && opened.removed.iter().all(|path| !path.contains("run-"))
        );
        assert_eq!(contents(&store).expect("whole"), of_log(&log, &store));
    }
}

/// A folder of runs that is empty for a time, such as one of a mount that is not there, must not cost the runs.
#[test]
fn runs_that_are_away_for_a_time_are_not_removed_when_they_come_back() {
    let log = log();
    let (disk, store) = archived(&log);
    let whole = store.manifest();
    drop(store);
    let away = copy(&disk);
    for run in whole.runs() {
        disk.remove(&run.path(&path("runs"))).expect("memory");
    }
    let (store, opened) = open(&disk, database(2)).expect("it continues");
    assert_eq!(opened.damaged.len(), whole.runs().count());
    archive(&store, &log, 46).expect("the next run");
    drop(store);
    for run in whole.runs() {
        let file = run.path(&path("runs"));
        put(&disk, &file, &bytes_of(&away, &file));
    }
    let (store, opened) = open(&disk, database(3)).expect("all are there");
    assert!(opened.damaged.is_empty(), "{opened:?}");
    assert_eq!(store.manifest().begin, whole.begin, "none was left out");
    assert_eq!(contents(&store).expect("whole"), of_log(&log, &store));
}

/// A process was killed before a manifest named its last run. The next holder of the right to make backups added a
/// backup that needs this run. A power cut then took the run, which was not durable, and the backup could not be
/// restored. Crash run 17216 of archive mode found this.
#[test]
fn a_backup_joins_the_archive_only_after_its_runs() {
    let log = log();
    let disk: Arc<dyn Disk> = Arc::new(MemDisk::new());
    let store = create(&disk).expect("memory");
    archive(&store, &log, 10).expect("memory");
    let images = Images {
        retained: vec![CkptEpoch(5)],
        building: None,
    };
    store.publish(Edit::Images(images)).run().expect("memory");
    let id = BackupId {
        end: Epoch(12),
        k: CkptEpoch(5),
    };
    write_backup(
        &store,
        BackupHeader {
            kind: BackupKind::Sweep,
            begin: Epoch(9),
            families: 0,
            id,
            ..crate::backup::header(false)
        },
    );
    let before = copy(&disk);
    archive(&store, &log, 20).expect("memory");
    let last = store.manifest().runs().last().expect("a run");
    let run = path(&last.path("runs"));
    put(&before, &run, &bytes_of(&disk, &run));
    drop(store);
    let unnamed = copy(&before);
    let (store, _) = open(&unnamed, agent(7)).expect("it is whole");
    assert_eq!(store.manifest().end, Epoch(10), "an agent adopts no run");
    drop(store.lease_backups().expect("memory"));
    assert_eq!(
        store.manifest().backups().count(),
        0,
        "its run has no entry"
    );
    let (store, opened) = open(&before, database(7)).expect("it is whole");
    assert_eq!(opened.adopted, [last]);
    drop(store.lease_backups().expect("memory"));
    assert!(store.manifest().backups().eq([id]), "its run has an entry");
}

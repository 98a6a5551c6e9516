//! Increments: later cuts of key-addressed tables, which shorten the replay after a restore.

use std::collections::BTreeSet;
use std::sync::Arc;

use perdura::{Cx, Error, LogForm};
use perdura_archive::backup::{
    Backup, BackupHeader, BackupWriter, READ_PAGES, Section, UsedPage, encode_used,
};
use perdura_archive::{BackupId, Edit, ObjectId, Store};
use perdura_base::limits::PAGE_BYTES;
use perdura_base::num::to_u64;
use perdura_base::{CkptEpoch, Epoch, PartitionId, Result};
use perdura_device::{Access, AlignedBuf, Disk};
use perdura_page::RegionDigest;
use perdura_recovery::{Disks, read_anchor};
use perdura_restore::drill::judge;
use perdura_restore::last_cut::HOLDERS_MAX;
use perdura_restore::reachable::Reachable;
use perdura_restore::{RestorePlan, Sources};
use perdura_wal::Archived;

use crate::keyed_moments::{Purse, Rows, Tables, options};
use crate::lost_disk::carry_out;
use crate::restore_faults::damaged_everywhere;

/// Makes a backup and some increments, with calls between them and after the last one.
fn tables(log: LogForm) -> Tables {
    let mut tables = Tables::new(11, log);
    (0..6).for_each(|_| tables.call());
    tables.world.back_up();
    for _ in 0..3 {
        (0..6).for_each(|_| tables.call());
        assert!(tables.world.add_increment(), "calls change rows");
    }
    (0..6).for_each(|_| tables.call());
    tables.world.flush();
    tables.world.archive();
    tables
}

/// Restores a plan, opens the new database, and returns its rows.
fn rows(tables: &Tables, plan: &RestorePlan) -> Result<Rows, Error> {
    let (disks, _) = carry_out(plan)?;
    let core = disks.open_with(options(tables.log()))?;
    Ok(Rows::read(&core))
}

fn newest_plan(store: &Store) -> RestorePlan {
    RestorePlan::from_archive(store, None, |id, why| panic!("{}: {why}", id.name()))
        .expect("a plan")
}

#[test]
fn a_restore_begins_with_the_newest_increment_and_replays_the_calls_after_it() {
    for log in [LogForm::Command, LogForm::Value] {
        let tables = tables(log);
        let store = tables.world.store().expect("an archive");
        let plan = newest_plan(&store);
        assert_eq!(plan.increment(), store.manifest().increments().last());
        let (disks, report) = carry_out(&plan).expect("a restore");
        assert_eq!(report.carried.frames(), 6, "the calls after the increment");
        let core = disks.open_with(options(log)).expect("it opens");
        assert_eq!(Rows::read(&core), tables.live());
    }
}

#[test]
fn a_damaged_increment_is_passed_over_for_the_older_cut() {
    let tables = tables(LogForm::Command);
    let store = tables.world.store().expect("an archive");
    let (mut refused, mut passed_over) = (0, 0);
    for id in store.manifest().increments() {
        damage_increment(&tables, &store, id, (&mut refused, &mut passed_over));
    }
    assert!(
        refused > 20 && passed_over > 4,
        "{refused} refused, {passed_over} passed over"
    );
}

/// Damages each sector of an increment in turn. Restores without it.
fn damage_increment(
    tables: &Tables,
    store: &Store,
    id: BackupId,
    (refused, passed_over): (&mut u32, &mut u32),
) {
    let path = format!("{}/{}", store.backups_dir(), id.increment_name());
    damaged_everywhere(&tables.world.archive, &path, |byte| {
        let mut sources = Sources::archive(store);
        let plan = sources
            .plan(None, |_, _| *passed_over += 1)
            .expect("a plan");
        let error = match rows(tables, &plan) {
            Ok(found) => return assert_eq!(found, tables.live(), "byte {byte}"),
            Err(error) => error,
        };
        assert!(error.to_string().contains(&id.increment_name()), "{error}");
        let damaged = plan.damaged_object(&error).expect("the increment");
        assert_eq!(damaged, ObjectId::Increment(id));
        sources.without.push(damaged);
        // Newer increments may need its pages as well.
        let plan = sources.plan(None, |_, _| {}).expect("a plan");
        assert!(
            plan.increment().is_none_or(|other| other.k < id.k),
            "byte {byte}"
        );
        assert_eq!(rows(tables, &plan).expect("a restore"), tables.live());
        *refused += 1;
    });
}

/// Each checkpoint of a small database changes few pages, so a cut would have its pages in ever more files.
#[test]
fn a_cut_has_its_pages_in_a_bounded_number_of_files() {
    let mut tables = Tables::new(12, LogForm::Value);
    let rows_of_pages = to_u64(HOLDERS_MAX) * 5 / 2;
    (0..rows_of_pages).for_each(|id| put(&tables, id, 0));
    tables.world.flush();
    tables.world.back_up();
    let mut most = 0;
    for id in 0..rows_of_pages {
        put(&tables, id, 1);
        tables.world.flush();
        assert!(tables.world.add_increment(), "a row changes");
        let store = tables.world.store().expect("an archive");
        let newest = store.manifest().increments().last().expect("an increment");
        most = most.max(holders(&store, newest).len());
        let stored = store.open_increment(newest).expect("it is there").pages();
        // One is of the row, and a later one of the file that holds the fewest pages.
        assert!((1..=4).contains(&stored), "{stored} pages for one row");
    }
    assert_eq!(most, HOLDERS_MAX, "as many files as may be");
    let store = tables.world.store().expect("an archive");
    assert_eq!(
        rows(&tables, &newest_plan(&store)).expect("a restore"),
        Rows::read(tables.world.core())
    );
}

/// Puts a purse whose row has half of a page.
fn put(tables: &Tables, id: u64, balance: i64) {
    let core = tables.world.core();
    let done = core.transact(&core.all_partitions(), |tx| {
        let mut cx = Cx::new(tx, core.registry());
        let owner = "a long name ".repeat(600);
        let purse = Purse { id, owner, balance };
        match cx.contains::<Purse>(id)? {
            true => cx.update(&purse),
            false => cx.insert(&purse),
        }
    });
    let _ticket = done.expect("a transaction");
}

/// Returns the checkpoint epochs of the files that hold the pages of a cut.
fn holders(store: &Store, id: BackupId) -> BTreeSet<CkptEpoch> {
    let cut = store.open_increment(id).expect("it is there");
    let partitions = (0..cut.header().chunks.partitions).map(PartitionId);
    let used = partitions.flat_map(|partition| cut.used(partition).expect("it is whole").1);
    used.map(|page| page.holder).collect()
}

/// Two later checkpoints overwrite the image. The copy finds that, and makes no file.
#[test]
fn the_copy_of_an_image_that_is_overwritten_makes_no_increment() {
    let mut tables = Tables::new(13, LogForm::Command);
    (0..20).for_each(|_| tables.call());
    tables.world.back_up();
    (0..20).for_each(|_| tables.call());
    tables.world.core().checkpoint_now().expect("an image");
    tables.world.archive();
    let (copy, _) = tables.world.begin_increment().expect("rows changed");
    for _ in 0..2 {
        (0..20).for_each(|_| tables.call());
        tables.world.core().checkpoint_now().expect("an image");
    }
    let refused = copy.run().map(drop).expect_err("the image has other pages");
    assert!(refused.to_string().contains("cancelled"), "{refused}");
    let store = tables.world.store_to_write();
    let files = store.disk().list(&store.backups_dir()).expect("memory");
    let is_increment = |name: &String| BackupId::parse_increment(name).is_some();
    assert!(!files.iter().any(is_increment), "{files:?}");
}

#[test]
fn an_increment_leaves_the_archive_with_its_backup() {
    let mut tables = tables(LogForm::Value);
    let store = tables.world.store().expect("an archive");
    let first = store.manifest().backups().next().expect("a backup");
    assert_eq!(store.manifest().increments().count(), 3);
    tables.world.back_up();
    tables.call();
    assert!(tables.world.add_increment());
    let store = tables.world.store_to_write();
    store
        .publish(Edit::RemoveBackup(ObjectId::Sweep(first)))
        .run()
        .expect("it is there");
    let manifest = store.manifest();
    assert_eq!(
        (manifest.backups().count(), manifest.increments().count()),
        (1, 1)
    );
    let files = store.disk().list(&store.backups_dir()).expect("memory");
    assert_eq!(files.len(), 2, "{files:?}");
    assert_eq!(
        rows(&tables, &newest_plan(&store)).expect("a restore"),
        tables.live()
    );
}

/// A process dies between the increment and its manifest. The next one that may make backups adds it.
#[test]
fn a_whole_increment_that_no_manifest_names_is_added() {
    let mut tables = tables(LogForm::Command);
    tables.call();
    tables.world.core().checkpoint_now().expect("an image");
    tables.world.archive();
    let id = tables
        .world
        .write_increment()
        .expect("rows changed")
        .0
        .header
        .id;
    tables.world.crash(5);
    tables.world.archive();
    let store = tables.world.store_to_write();
    assert!(store.manifest().increments().all(|one| one != id));
    drop(store.lease_backups().expect("nobody else makes backups"));
    assert_eq!(store.manifest().increments().last(), Some(id));
    assert_eq!(newest_plan(&store).increment(), Some(id));
}

/// A change of one partition of an increment: its list of used pages, and its number.
type Doctor = fn(&Section, &mut Vec<UsedPage>, &mut u64);

/// Writes an increment again with other lists. Stores the pages that it still holds.
fn doctored(store: &Store, id: BackupId, doctor: Doctor) {
    let header = *store.open_increment(id).expect("it is there").header();
    rewritten(store, &header, doctor);
}

/// Writes an increment again with another header and other lists.
fn rewritten(store: &Store, header: &BackupHeader, doctor: Doctor) {
    let id = header.id;
    let cut = store.open_increment(id).expect("it is there");
    let backup = base_of(store, cut.header());
    let path = format!("{}/{}", store.backups_dir(), id.increment_name());
    let disk = Arc::clone(store.disk());
    disk.remove(&path).expect("memory");
    let writer = BackupWriter::create(disk, &store.backups_dir(), *header);
    let mut writer = writer.expect("memory");
    for partition in (0..cut.header().chunks.partitions).map(PartitionId) {
        let (section, mut used) = cut.used(partition).expect("it is whole");
        let mut number = section.pseq.expect("a cut has numbers");
        let of_backup = backup.section(partition).expect("it is whole");
        doctor(&of_backup, &mut used, &mut number);
        let is_own = |local| {
            used.iter()
                .any(|page| page.entry.local == local && page.holder == id.k)
        };
        let mut buf = AlignedBuf::zeroed(READ_PAGES * PAGE_BYTES);
        for (nth, entry) in section.pages.iter().enumerate() {
            if is_own(entry.local) {
                let one = std::slice::from_ref(entry);
                cut.read_pages(partition, nth, one, &mut buf)
                    .expect("it is whole");
                writer.push(*entry, &buf[..PAGE_BYTES]).expect("memory");
            }
        }
        writer.end_partition(Some(number), encode_used(&used));
    }
    writer.finish().and_then(|tail| tail.run()).expect("memory");
}

fn base_of(store: &Store, header: &BackupHeader) -> Arc<Backup> {
    let base = header.continues().expect("an increment continues a backup");
    store.open_backup(base).expect("it is there")
}

/// A wrong increment would be a silent loss, so each of these is seen in the rows, or refused.
#[test]
fn the_seeded_bugs_of_increments_are_caught() {
    let bugs: [(&str, Doctor); 4] = [
        ("a list that lacks a page", |_, used, _| {
            used.truncate(used.len().saturating_sub(1))
        }),
        ("a page of another instant", |of_backup, used, _| {
            for page in used {
                let older = of_backup
                    .pages
                    .iter()
                    .find(|old| old.local == page.entry.local);
                if let Some(older) = older.filter(|older| **older != page.entry) {
                    (page.entry, page.holder) = (*older, CkptEpoch(1));
                }
            }
        }),
        ("the numbers of the backup", |of_backup, _, number| {
            *number = of_backup.pseq.expect("a cut has numbers");
        }),
        ("a call counted in one of its partitions", |_, _, number| {
            *number += 1
        }),
    ];
    for (what, doctor) in bugs {
        for log in [LogForm::Command, LogForm::Value] {
            let tables = tables(log);
            let store = tables.world.store().expect("an archive");
            let newest = store.manifest().increments().last().expect("an increment");
            let k = base_of(
                &store,
                store.open_increment(newest).expect("it is there").header(),
            );
            assert_eq!(
                k.header().id.k,
                CkptEpoch(1),
                "the first image was backed up"
            );
            let plan = newest_plan(&store);
            assert_eq!(rows(&tables, &plan).expect("a restore"), tables.live());
            doctored(&store, newest, |_, _, _| {});
            assert_eq!(
                rows(&tables, &newest_plan(&store)).expect("a restore"),
                tables.live()
            );
            doctored(&store, newest, doctor);
            let plan = RestorePlan::from_archive(&store, None, |_, _| {}).expect("a plan");
            assert_eq!(plan.increment(), Some(newest), "{what}");
            let found = rows(&tables, &plan);
            assert!(
                !matches!(found, Ok(rows) if rows == tables.live()),
                "{what} under {log:?}"
            );
        }
    }
}

/// The list of such an increment names pages of files that do not belong to this backup.
#[test]
fn a_new_increment_passes_over_one_that_continues_another_backup() {
    let mut tables = Tables::new(14, LogForm::Value);
    (0..8).for_each(|id| put(&tables, id, 0));
    tables.world.flush();
    tables.world.back_up();
    (0..8).for_each(|id| put(&tables, id, 1));
    tables.world.flush();
    assert!(tables.world.add_increment(), "rows changed");
    let store = tables.world.store_to_write();
    let foreign = store.manifest().increments().last().expect("an increment");
    let mut header = *store.open_increment(foreign).expect("it is there").header();
    let base = header.base.as_mut().expect("it continues a backup");
    base.end = Epoch(base.end.0 - 1);
    rewritten(&store, &header, |_, _, _| {});
    put(&tables, 0, 2);
    tables.world.flush();
    assert!(tables.world.add_increment(), "a row changed");
    let newest = store.manifest().increments().last().expect("an increment");
    assert!(!holders(&store, newest).contains(&foreign.k));
    let plan = RestorePlan::from_archive(&store, None, |_, _| {}).expect("a plan");
    assert_eq!(plan.increment(), Some(newest));
    assert_eq!(
        rows(&tables, &plan).expect("a restore"),
        Rows::read(tables.world.core())
    );
}

/// The backup is older than the first key-addressed table. A drill compared the tables' pages with digests that leave them
/// out, and raised an alarm.
#[test]
fn a_backup_before_the_first_table_has_increments_and_passes_a_drill() {
    let mut tables = Tables::later(14, LogForm::Command);
    (0..6).for_each(|_| tables.call());
    assert!(tables.world.add_increment(), "calls change rows");
    tables.world.archive();
    let store = tables.world.store().expect("an archive");
    let plan = newest_plan(&store);
    assert!(plan.increment().is_some());
    let (disks, report) = carry_out(&plan).expect("a restore");
    let disk: Arc<dyn Disk> = disks.data.life();
    let judged = judge(&store, &plan, &report, &Disks::on_one(disk, 1)).expect("memory");
    assert_eq!(judged.fails, None);
    let anchor = read_anchor(disks.data.life().as_ref())
        .expect("memory")
        .expect("an anchor");
    assert_eq!(
        anchor.archive(),
        Archived::Carried,
        "it declares the frames"
    );
    let core = disks.open_with(options(tables.log())).expect("it opens");
    assert_eq!(Rows::read(&core), tables.live());
}

/// A restart from the older image replays a row into another page than the earlier life. So a page of the cut may be of a
/// life that was lost, although no later checkpoint wrote that page into the older image.
#[test]
fn a_page_of_an_image_that_was_lost_is_not_held() {
    let mut tables = Tables::new(15, LogForm::Value);
    (0..400).for_each(|id| put(&tables, id, 0));
    tables.world.flush();
    tables.world.back_up();
    // Rows go to the page that got room last. A restart knows no such order, and fills the first page.
    let gone = (0..400).filter(|id| id % 3 == 0);
    gone.for_each(|id| remove(&tables, id));
    tables.world.flush();
    tables
        .world
        .core()
        .checkpoint_now()
        .expect("the older image");
    (1000..1040).for_each(|id| put(&tables, id, 1));
    tables.world.flush();
    assert!(tables.world.add_increment(), "rows change");
    assert!(tables.world.rot_newest_image());
    tables.world.crash(6);
    tables
        .world
        .core()
        .checkpoint_now()
        .expect("the image of the next life");
    (1000..1040).for_each(|id| remove(&tables, id));
    tables.world.flush();
    tables.world.archive();
    assert!(tables.world.add_increment(), "rows change");
    let store = tables.world.store().expect("an archive");
    let found = rows(&tables, &newest_plan(&store)).expect("a restore");
    assert_eq!(found, Rows::read(tables.world.core()));
}

fn remove(tables: &Tables, id: u64) {
    let core = tables.world.core();
    let done = core.transact(&core.all_partitions(), |tx| {
        Cx::new(tx, core.registry()).remove::<Purse>(id)
    });
    let _ticket = done.expect("a transaction");
}

/// Retention leaves a virtual backup alone: its sweep, the sweep's increments and the runs before it are gone.
#[test]
fn a_virtual_backup_of_an_increment_serves_all_later_moments() {
    for log in [LogForm::Command, LogForm::Value] {
        let mut tables = tables(log);
        let store = tables.world.store_to_write();
        let newest = store.manifest().increments().last().expect("an increment");
        let moment = store
            .open_increment(newest)
            .expect("it is there")
            .header()
            .moment();
        assert!(tables.world.back_up_virtually());
        assert!(!tables.world.back_up_virtually(), "that epoch has one");
        let made = store.manifest().backups().last().expect("a backup");
        assert_eq!(made, BackupId::cut(moment));
        let header = *store.open_backup(made).expect("it is there").header();
        assert_eq!((header.rows_k(), header.moment()), (newest.k, moment));
        let sweep = store.manifest().backups().next().expect("a backup");
        let edits = [
            Edit::RemoveBackup(ObjectId::Sweep(sweep)),
            Edit::RemoveRuns {
                before: header.begin,
            },
        ];
        for edit in edits {
            store.publish(edit).run().expect("it is there");
        }
        assert_eq!(store.manifest().increments().count(), 0);
        let plan = newest_plan(&store);
        assert_eq!((plan.backup(), plan.increment()), (made, None));
        let later = tables.epochs().into_iter().filter(|epoch| *epoch >= moment);
        let reports: Vec<_> = later.map(|epoch| tables.check(epoch)).collect();
        assert!(reports.len() > 6, "{} moments", reports.len());
        let before = RestorePlan::from_archive(&store, Some(Epoch(moment.0 - 1)), |_, _| {});
        assert!(before.is_err(), "its rows are of a later epoch");
        let reachable = Reachable::of(&store).expect("memory");
        let first = reachable.ranges.first().expect("a range");
        assert_eq!((first.first, reachable.ranges.len()), (moment, 1));
        let faults = store.verify(&RegionDigest::new()).expect("memory").faults;
        assert!(faults.is_empty(), "{:?}", faults[0].error);
    }
}

/// The sweep's newest increment is damaged. The sweep then leads to an older cut than the virtual backup.
#[test]
fn a_virtual_backup_is_nearer_than_a_sweep_whose_increment_is_damaged() {
    let mut tables = tables(LogForm::Command);
    assert!(tables.world.back_up_virtually());
    let store = tables.world.store().expect("an archive");
    let made = store.manifest().backups().last().expect("a backup");
    let newest = store.manifest().increments().last().expect("an increment");
    let mut sources = Sources::archive(&store);
    sources.without.push(ObjectId::Increment(newest));
    let plan = sources.plan(None, |_, _| {}).expect("a plan");
    assert_eq!((plan.backup(), plan.increment()), (made, None));
    assert_eq!(rows(&tables, &plan).expect("a restore"), tables.live());
}

/// Only a virtual backup is left, and a table was dropped after it. Calls before the drop use the table. So its row stays in
/// the catalog, and leaves it when the virtual backup is gone.
#[test]
fn a_virtual_backup_keeps_the_row_of_a_table_that_was_dropped_later() {
    let mut tables = tables(LogForm::Command);
    assert!(tables.world.back_up_virtually());
    let store = tables.world.store_to_write();
    let sweep = store.manifest().backups().next().expect("a backup");
    let remove = Edit::RemoveBackup(ObjectId::Sweep(sweep));
    store.publish(remove).run().expect("it is there");
    (0..8).for_each(|_| tables.call());
    let core = tables.world.core();
    let dropped = core.drop_table("purses").expect("it is there");
    let (flushed, _ticket) = dropped.expect("it is there");
    core.reclaim_flushed(flushed);
    for _ in 0..3 {
        tables.world.core().checkpoint_now().expect("an image");
        tables.world.archive();
        for _ in 0..40 {
            tables.world.core().purge_step().expect("a step");
        }
    }
    tables.world.archive();
    let found = rows(&tables, &newest_plan(&store)).expect("a restore");
    let mut expected = tables.live();
    expected.purses.clear();
    assert_eq!(found, expected);
}

/// A removed sweep comes back after a power cut, between another sweep and its increment.
#[test]
fn a_sweep_that_comes_back_does_not_join_before_an_increment() {
    let mut tables = Tables::new(16, LogForm::Command);
    (0..6).for_each(|_| tables.call());
    tables.world.back_up();
    (0..6).for_each(|_| tables.call());
    tables.world.back_up();
    let store = tables.world.store_to_write();
    let second = store.manifest().backups().last().expect("a backup");
    let path = format!("{}/{}", store.backups_dir(), second.name());
    let bytes = tables.world.archive.read_all(&path).expect("it is there");
    let remove = Edit::RemoveBackup(ObjectId::Sweep(second));
    store.publish(remove).run().expect("it is there");
    (0..6).for_each(|_| tables.call());
    assert!(tables.world.add_increment(), "calls change rows");
    let file = store
        .disk()
        .create(&path, Access::Buffered)
        .expect("memory");
    file.write_at(0, &bytes).expect("memory");
    file.sync().expect("memory");
    store.disk().sync_dir(&store.backups_dir()).expect("memory");
    drop(store.lease_backups().expect("nobody else makes backups"));
    let store = tables.world.store().expect("an archive");
    assert_eq!(store.manifest().backups().count(), 1);
    let plan = newest_plan(&store);
    assert!(plan.increment().is_some());
    assert_eq!(rows(&tables, &plan).expect("a restore"), tables.live());
    let faults = store.verify(&RegionDigest::new()).expect("memory").faults;
    assert!(faults.is_empty(), "{:?}", faults[0].error);
}

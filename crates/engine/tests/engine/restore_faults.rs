//! Restores with a failure or an interruption at each I/O, and restores from damaged or failing sources.

use std::sync::Arc;

use perdura::Error;
use perdura_archive::ObjectId;
use perdura_base::Epoch;
use perdura_device::{CrashProfile, Disk, FaultPlan, SimDisk, SyncFailure};
use perdura_restore::{Scratch, Sources, Surviving, read_tail};

use crate::lost_disk::{Restored, STREAMS, World, carry_out_onto, values};

/// Returns a world with two backups. The log continues after the end of the archive.
fn world() -> World {
    let mut rng = fastrand::Rng::with_seed(8);
    let mut world = World::new(8);
    world.back_up();
    for round in 0..24 {
        world.set_any(&mut rng);
        world.flush();
        match round {
            6 | 9 | 18 => world.archive(),
            12 => world.back_up(),
            _ => {}
        }
    }
    world.kill();
    world
}

/// Restores everything. The restore reads only two runs at a time, so the restore first merges runs.
fn restored(world: &World, disks: &Restored) -> Result<(), Error> {
    let store = world.store()?;
    let logs = || world.log.life() as Arc<dyn Disk>;
    let logs: Vec<Arc<dyn Disk>> = (0..STREAMS).map(|_| logs()).collect();
    let scratch = Scratch::begin(disks.data.life())?;
    let sources = Sources {
        tail: read_tail(&store, &Surviving::on(&logs), &scratch)?.runs,
        scratch: Some(scratch),
        runs_max: 2,
        ..Sources::archive(&store)
    };
    let plan = sources.plan(None, |_, _| {})?;
    carry_out_onto(disks, &plan).map(drop)
}

/// Checks that the disks hold the whole database as of its last epoch, or no database. Returns whether the disks hold
/// the database.
fn is_whole_or_nothing(world: &World, disks: &Restored, what: &str) -> bool {
    is_as_of(world, Epoch(u64::MAX), disks, what)
}

/// Like [`is_whole_or_nothing`], but as of an epoch.
fn is_as_of(world: &World, target: Epoch, disks: &Restored, what: &str) -> bool {
    let files = disks.data.files();
    let is_begun = files
        .iter()
        .any(|(name, _)| name == "VERSION" || name == "anchor");
    match disks.open() {
        Ok(core) if is_begun => {
            assert!(values(&core) == world.state(target), "{what}: other values");
            true
        }
        Ok(core) => {
            // Nothing was restored, so the open made a new database.
            assert!(values(&core).is_empty(), "{what}");
            false
        }
        Err(error) => {
            let text = error.to_string();
            let says_so = text.contains("VERSION") || text.contains("interrupted");
            assert!(says_so, "{what}: {text}");
            false
        }
    }
}

#[test]
fn a_power_cut_at_any_io_of_a_restore_leaves_the_whole_database_or_nothing_and_the_next_one_works()
{
    let world = world();
    let profiles = CrashProfile::ALL;
    let (mut cuts, mut whole) = (0, 0);
    for on_log in [false, true] {
        for op in 1.. {
            let disks = Restored::new();
            let plan = FaultPlan {
                cut_after_ops: Some(op),
                ..FaultPlan::default()
            };
            let cut = if on_log { &disks.log } else { &disks.data };
            cut.set_plan(plan);
            let done = restored(&world, &disks);
            let has_power = cut.has_power();
            assert_eq!(done.is_ok(), has_power, "the {op}th I/O: {done:?}");
            let profile = profiles[usize::try_from(op).unwrap_or(0) % profiles.len()];
            disks.data.crash(profile, op);
            disks.log.crash(profile, op);
            let what = format!("the {op}th I/O, {profile:?}, on the log's disk: {on_log}");
            let is_whole = is_whole_or_nothing(&world, &disks, &what);
            assert!(is_whole || !has_power, "{what}: what was done is durable");
            if has_power {
                break;
            }
            cuts += 1;
            whole += u32::from(is_whole);
            let again = Restored::new();
            restored(&world, &again).unwrap_or_else(|error| panic!("{what}, again: {error}"));
        }
    }
    assert!(
        cuts > 60 && whole < 6,
        "{cuts} cuts, {whole} of them behind the last change"
    );
}

#[test]
fn a_target_that_fails_at_any_io_ends_the_restore_with_an_error_and_leaves_nothing_that_opens() {
    let world = world();
    let (mut failures, mut ended) = (0, 0);
    for kind in 0..5 {
        for nth in 1.. {
            let disks = Restored::new();
            let none = FaultPlan::default();
            disks.data.set_plan(match kind {
                0 => FaultPlan {
                    fail_write_at: Some(nth),
                    ..none
                },
                1 => FaultPlan {
                    fail_name_at: Some(nth),
                    ..none
                },
                2 => FaultPlan {
                    fail_read_at: Some(nth),
                    ..none
                },
                3 => FaultPlan {
                    enospc_at: Some((nth, u64::MAX)),
                    ..none
                },
                _ => FaultPlan {
                    fail_sync_at: Some((nth, SyncFailure::KeepsNew)),
                    ..none
                },
            });
            let before = disks.data.faults_struck();
            let done = restored(&world, &disks);
            let has_failed = disks.data.faults_struck() > before;
            disks.data.set_plan(FaultPlan::default());
            let what = format!("kind {kind}, the {nth}th: {done:?}");
            let is_whole = is_whole_or_nothing(&world, &disks, &what);
            // A restore may succeed despite the fault: if a merge of runs fails, the restore begins again
            // with another backup.
            assert!(is_whole || done.is_err(), "{what}");
            ended += u32::from(done.is_err());
            if !has_failed {
                break;
            }
            failures += 1;
        }
    }
    assert!(ended > 60, "{ended} of {failures} failures ended it");
}

#[test]
fn an_archive_whose_disk_fails_at_any_read_is_told_or_passed_over() {
    let world = world();
    let (mut told, mut passed_over) = (0, 0);
    for nth in 1.. {
        let disks = Restored::new();
        world.archive.set_plan(FaultPlan {
            fail_read_at: Some(nth),
            ..FaultPlan::default()
        });
        let before = world.archive.faults_struck();
        let done = restored(&world, &disks);
        let has_failed = world.archive.faults_struck() > before;
        world.archive.set_plan(FaultPlan::default());
        if !has_failed {
            done.expect("a restore");
            break;
        }
        let is_whole = is_whole_or_nothing(&world, &disks, "a failing archive");
        match done {
            // The restore has used the other backup.
            Ok(()) => {
                assert!(is_whole);
                passed_over += 1;
            }
            Err(error) => {
                assert!(!is_whole);
                let names = ["run-", "backup-", "manifest-"];
                let text = error.to_string();
                assert!(names.iter().any(|name| text.contains(name)), "{text}");
                told += 1;
            }
        }
    }
    assert!(
        told > 5 && passed_over > 0,
        "{told} told, {passed_over} passed over"
    );
}

/// For each sector of a file, flips one bit, calls `each`, and flips the bit back.
pub fn damaged_everywhere(disk: &SimDisk, path: &str, mut each: impl FnMut(u64)) {
    let files = disk.files();
    let (_, len) = files.iter().find(|(name, _)| name == path).expect("a file");
    for at in (0..*len).step_by(512) {
        let byte = (at + at / 512 * 7 % 512).min(*len - 1);
        disk.flip(path, byte, 3);
        each(byte);
        disk.flip(path, byte, 3);
    }
}

#[test]
fn a_backup_that_is_damaged_anywhere_is_passed_over_for_the_older_one() {
    let world = world();
    let store = world.store().expect("an archive");
    let newest = store.manifest().backups().last().expect("a backup");
    let end = store.manifest().held().0;
    let path = format!("{}/{}", store.backups_dir(), newest.name());
    let mut refused = 0;
    damaged_everywhere(&world.archive, &path, |byte| {
        let mut sources = Sources::archive(&store);
        let plan = sources.plan(None, |_, _| {}).expect("one of them opens");
        let disks = Restored::new();
        let done = carry_out_onto(&disks, &plan);
        let Err(error) = done else {
            assert!(is_as_of(
                &world,
                end,
                &disks,
                "another one serves, or it is not read"
            ));
            return;
        };
        assert!(
            error.to_string().contains(&newest.name()),
            "byte {byte}: {error}"
        );
        refused += 1;
        let newest_object = ObjectId::Sweep(newest);
        assert_eq!(plan.damaged_object(&error), Some(newest_object));
        sources.without.push(newest_object);
        let plan = sources.plan(None, |_, _| {}).expect("the older one");
        assert_ne!(plan.backup(), newest);
        carry_out_onto(&Restored::new(), &plan).expect("a restore");
        let backups = store
            .manifest()
            .backups()
            .map(ObjectId::Sweep)
            .collect::<Vec<_>>();
        sources.without.extend(backups);
        // This archive has everything that was ever logged, so it needs no backup.
        let plan = sources.plan(None, |_, _| {}).expect("the runs alone");
        carry_out_onto(&Restored::new(), &plan).expect("a restore");
    });
    assert!(refused > 100, "{refused} refused");
}

#[test]
fn a_run_that_is_damaged_between_the_plan_and_its_use_is_named() {
    let world = world();
    let store = world.store().expect("an archive");
    let objects = store.manifest();
    let runs = objects
        .objects
        .iter()
        .filter(|object| matches!(object.id, ObjectId::Run(_)));
    let mut named = 0;
    for run in runs {
        let ObjectId::Run(id) = run.id else { continue };
        let path = id.path(&store.runs_dir());
        let plan = Sources::archive(&store)
            .plan(None, |_, _| {})
            .expect("a plan");
        // Damages the first block. The data after the blocks was already read when the plan was
        // made.
        world.archive.flip(&path, 128 + 60, 1);
        let disks = Restored::new();
        if let Err(error) = carry_out_onto(&disks, &plan) {
            assert!(error.to_string().contains(&id.name()), "{error}");
            assert!(!is_whole_or_nothing(&world, &disks, "half of it"));
            named += 1;
        }
        world.archive.flip(&path, 128 + 60, 1);
    }
    assert!(named > 1, "{named} runs");
}

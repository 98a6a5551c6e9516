//! Tests of draining a backlog into the archive. Afterwards the archive must have each record once. The tests vary the
//! epochs that the archive has before, and the I/O at which a disk fails.

use std::sync::Arc;

use perdura_archive::{
    Drain, DrainStep, Edit, Merger, MergerOptions, Object, RunId, Store, list_archives,
};
use perdura_base::{Epoch, Error, Pos, Result};
use perdura_device::{CrashProfile, Disk, FaultPlan, Folder, MemDisk, SimDisk};
use perdura_page::RegionDigest;
use perdura_wal::EpochEnds;

use crate::common::{Owned, UUID};
use crate::store::{archive, contents, create, create_from, database, log, of_log, open};

/// The epoch after the last one of the log.
const END: u64 = 46;

/// Makes a backlog of the log's epochs from `begin` to the log's end, in runs of five epochs. Some of the runs are
/// merged.
fn backlog(disk: &Arc<dyn Disk>, log: &[Owned], begin: u64) -> Result<Arc<Store>> {
    let store = create_from(disk, begin)?;
    while store.manifest().end.0 < END {
        let end = (store.manifest().end.0 + 5).min(END);
        archive(&store, log, end)?;
        let options = MergerOptions {
            fan_in: 3,
            ..MergerOptions::default()
        };
        let region = Arc::new(RegionDigest::new());
        Merger::new(Arc::clone(&store), options, region)?.run()?;
    }
    Ok(store)
}

/// Moves all runs of the backlog into the archive.
fn drain(waiting: &Arc<Store>, into: &Arc<Store>) -> Result<Vec<RunId>> {
    let region = Arc::new(RegionDigest::new());
    let mut drain = Drain::new(Arc::clone(waiting), Arc::clone(into), region)?;
    let mut moved = Vec::new();
    loop {
        match drain.step()? {
            DrainStep::Working => {}
            DrainStep::Empty => return Ok(moved),
            DrainStep::Run(drained) => {
                let edit = Edit::AddRun {
                    run: Object::of(&drained.summary),
                    ends: drained.ends,
                    images: None,
                    moments: drained.moments,
                };
                into.publish(edit).run()?;
                moved.push(drained.summary.id);
                drain.added();
            }
        }
    }
}

#[test]
fn an_archive_gets_what_it_lacks_wherever_it_ends() {
    let log = log();
    for has in 21..=END {
        let (disk, other): (Arc<dyn Disk>, Arc<dyn Disk>) =
            (Arc::new(MemDisk::new()), Arc::new(MemDisk::new()));
        let store = create(&disk).expect("memory");
        archive(&store, &log, has).expect("memory");
        let waiting = backlog(&other, &log, 21).expect("memory");
        assert!(waiting.manifest().runs().any(|run| run.level > 0));
        let moved = drain(&waiting, &store).expect("memory");
        assert_eq!(store.manifest().end, Epoch(END));
        assert_eq!(
            contents(&store).expect("runs"),
            of_log(&log, &store),
            "{has}"
        );
        assert!(moved.iter().all(|run| run.level == 0), "{moved:?}");
        let manifest = waiting.manifest();
        assert_eq!(manifest.runs().count(), 0, "nothing waits any more");
        let files = other.list(&waiting.runs_dir()).expect("the folder");
        assert!(files.is_empty(), "{files:?}");
    }
}

/// The moments keep the clock's readings, although the archive has a later one. The manifest lists the step.
#[test]
fn a_clock_that_was_set_back_while_the_archive_was_away_is_a_step() {
    let log = log();
    let disk: Arc<dyn Disk> = Arc::new(MemDisk::new());
    let store = create(&disk).expect("memory");
    archive(&store, &log, 21).expect("memory");
    let later = 1_000_000_000;
    let note = Edit::CaughtUp {
        epoch: Epoch(20),
        wall_us: later,
    };
    store.publish(note).run().expect("memory");
    // In this test the wall clock of a moment is its epoch.
    let waiting = backlog(&(Arc::new(MemDisk::new()) as Arc<dyn Disk>), &log, 21).expect("memory");
    drain(&waiting, &store).expect("it follows");
    let manifest = store.manifest();
    let steps = &manifest.clock.steps;
    assert_eq!(steps.len(), 1, "{steps:?}");
    assert!(steps[0].is_back() && steps[0].from_us == later, "{steps:?}");
    assert_eq!(steps[0].epoch, Epoch(25), "the first moment after it");
    for run in manifest.runs() {
        let run = store.open_run(run).expect("it exists");
        let mut moments = run.moments().list().iter();
        assert!(moments.all(|moment| moment.wall_us == moment.epoch.0));
    }
}

#[test]
fn a_hole_between_archive_and_backlog_is_named() {
    let log = log();
    let disk: Arc<dyn Disk> = Arc::new(MemDisk::new());
    let store = create(&disk).expect("memory");
    archive(&store, &log, 19).expect("memory");
    let waiting = backlog(&(Arc::new(MemDisk::new()) as Arc<dyn Disk>), &log, 21).expect("memory");
    let refused = drain(&waiting, &store).expect_err("epochs 19 and 20 are missing");
    assert!(
        matches!(
            refused,
            Error::ArchiveBehind {
                archived: Epoch(18),
                anchor: Epoch(20)
            }
        ),
        "{refused}"
    );
    assert_eq!(store.manifest().end, Epoch(19), "nothing was changed");
}

#[test]
fn an_empty_archive_goes_on_further_ahead_and_one_with_runs_does_not() {
    let log = log();
    let disk: Arc<dyn Disk> = Arc::new(MemDisk::new());
    let store = create_from(&disk, 10).expect("memory");
    let to = |epoch: u64, pos: u64| {
        Edit::Skip(EpochEnds {
            epoch: Epoch(epoch),
            ends: vec![Pos(pos)],
        })
    };
    store.publish(to(19, 2000)).run().expect("it is empty");
    assert_eq!(store.manifest().begin, Epoch(20));
    let back = store.publish(to(12, 1300)).run().expect_err("back");
    assert!(matches!(back, Error::Usage(_)), "{back}");
    archive(&store, &log, 25).expect("it goes on there");
    let refused = store.publish(to(30, 3100)).run().expect_err("it has runs");
    assert!(refused.to_string().contains("1 objects"), "{refused}");
}

/// The two disks of a drain.
struct Disks {
    archive: Arc<SimDisk>,
    log: Arc<SimDisk>,
}

impl Disks {
    fn stores(&self, life: u64) -> Result<(Arc<Store>, Arc<Store>)> {
        let archive: Arc<dyn Disk> = self.archive.life();
        let other: Arc<dyn Disk> = Arc::new(Folder::new(self.log.life(), "backlog")?);
        assert_eq!(list_archives(other.as_ref())?, [UUID]);
        Ok((
            open(&archive, database(life))?.0,
            open(&other, database(life))?.0,
        ))
    }
}

/// Drains until a disk fails at the disk's `n`th I/O, crashes the two disks, and drains the rest. Returns whether the
/// first drain finished before that I/O.
fn crash_at(
    n: u64,
    of_archive: bool,
    profile: CrashProfile,
    log: &[Owned],
) -> Result<bool, String> {
    let disks = Disks {
        archive: SimDisk::new(n),
        log: SimDisk::new(n + 1),
    };
    let archive_disk: Arc<dyn Disk> = disks.archive.life();
    let store = create(&archive_disk).expect("a disk");
    archive(&store, log, 23).expect("a disk");
    let folder = Folder::new(disks.log.life(), "backlog").expect("a name");
    folder.make_dir("").expect("a disk");
    let waiting = backlog(&(Arc::new(folder) as Arc<dyn Disk>), log, 21).expect("a disk");
    let fails = if of_archive {
        &disks.archive
    } else {
        &disks.log
    };
    fails.set_plan(FaultPlan {
        cut_after_ops: Some(n),
        ..FaultPlan::default()
    });
    let done = drain(&waiting, &store).is_ok();
    drop((store, waiting));
    disks.archive.crash(profile, n);
    disks.log.crash(profile, n);
    let wrong = |error: Error| format!("{profile:?}, I/O {n}: {error}");
    let (store, waiting) = disks.stores(2).map_err(wrong)?;
    drain(&waiting, &store).map_err(wrong)?;
    if store.manifest().end != Epoch(END) {
        return Err(format!("it ends at {}", store.manifest().end));
    }
    match contents(&store).map_err(wrong)? == of_log(log, &store) {
        true => Ok(done),
        false => Err(format!("{profile:?}, I/O {n}: other records")),
    }
}

/// Crashes at each I/O of the first disk, then at each I/O of the other disk. Returns a description of the first fault,
/// and the number of crashes.
fn first_wrong() -> (Option<String>, u64) {
    let (log, mut crashes) = (log(), 0);
    for profile in CrashProfile::ALL {
        for of_archive in [true, false] {
            for n in 1.. {
                crashes += 1;
                match crash_at(n, of_archive, profile, &log) {
                    Ok(true) => break,
                    Ok(false) => {}
                    Err(wrong) => return (Some(wrong), crashes),
                }
            }
        }
    }
    (None, crashes)
}

#[test]
fn after_a_crash_at_any_io_of_either_disk_the_archive_gets_each_record_once() {
    let (wrong, crashes) = first_wrong();
    assert_eq!(wrong, None);
    assert!(crashes > 200, "{crashes} crashes");
}

#[cfg(feature = "flaws")]
#[test]
fn the_seeded_bug_of_a_backlog_that_is_forgotten_early_is_caught() {
    use perdura_base::flaw::{Flaw, arm};
    arm(Some(Flaw::BacklogForgottenEarly));
    let (wrong, _) = first_wrong();
    arm(None);
    assert!(wrong.is_some());
}

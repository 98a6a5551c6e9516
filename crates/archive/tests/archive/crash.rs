//! Crashes of an archive at every I/O. After each crash, the runs must have the log's records, without a gap.

use std::sync::Arc;

use perdura_archive::{Edit, Merger, MergerOptions, Object, list_archives};
use perdura_base::{Error, Result};
use perdura_device::{CrashProfile, Disk, FaultPlan, MemDisk, SimDisk};
use perdura_page::RegionDigest;

use crate::common::{Owned, UUID, id};
use crate::store::{HOME, agent, archive, contents, create, database, log, of_log, open, write};

/// The number of epochs in a run; the last run may have fewer.
const STEP: u64 = 5;

/// The epochs that the archive has acknowledged: from `begin` inclusive to `end` exclusive.
#[derive(Debug, Default, Clone, Copy)]
struct Acknowledged {
    end: u64,
    begin: u64,
    was_created: bool,
}

/// Adds, merges and removes runs of an archive until an I/O fails.
fn work(disk: &Arc<dyn Disk>, log: &[Owned], done: &mut Acknowledged) -> Result<()> {
    let store = if list_archives(disk.as_ref())?.contains(&UUID) {
        open(disk, database(2))?.0
    } else {
        create(disk)?
    };
    done.was_created = true;
    let options = || MergerOptions {
        fan_in: 3,
        ..MergerOptions::default()
    };
    let mut merger = Merger::new(Arc::clone(&store), options(), Arc::new(RegionDigest::new()))?;
    let end = log.iter().map(|r| r.epochs.first.0).max().unwrap_or(0) + 1;
    let mut removed = false;
    while store.manifest().end.0 < end {
        archive(&store, log, (store.manifest().end.0 + STEP).min(end))?;
        done.end = store.manifest().end.0;
        merger.run()?;
        if !removed && store.manifest().runs().count() == 4 {
            let before = store.manifest().runs().next().expect("a run").epochs.end;
            store.publish(Edit::RemoveRuns { before }).run()?;
            done.begin = before.0;
            removed = true;
        }
    }
    Ok(())
}

/// Opens the archive after a crash. Returns a description of the fault. `None`: the archive is correct.
fn wrong(disk: &Arc<dyn Disk>, log: &[Owned], done: &Acknowledged) -> Option<String> {
    let store = match open(disk, database(3)) {
        Ok((store, opened)) if opened.damaged.is_empty() => store,
        Ok((_, opened)) => return Some(format!("a crash is no damage: {opened:?}")),
        Err(Error::Usage(_)) if !done.was_created => return None,
        Err(error) => return Some(format!("the archive does not open: {error}")),
    };
    let manifest = store.manifest();
    if manifest.end.0 < done.end || manifest.begin.0 < done.begin {
        let (begin, end) = (manifest.begin, manifest.end);
        return Some(format!("epochs {begin} to {end} where {done:?}"));
    }
    if let Err(error) = store.lease_merging() {
        return Some(format!("no lease: {error}"));
    }
    let files = disk.list(&store.runs_dir()).expect("the folder");
    let named: Vec<String> = manifest.runs().map(|id| id.name()).collect();
    if files != named {
        return Some(format!("files {files:?}, and {named:?} in the manifest"));
    }
    match contents(&store) {
        Err(error) => Some(error.to_string()),
        Ok(found) if found != of_log(log, &store) => Some(format!(
            "{} records where the log has {}",
            found.len(),
            of_log(log, &store).len()
        )),
        Ok(_) => {
            let verified = store.verify(&RegionDigest::new()).expect("manifests");
            let fault = verified.faults.first();
            fault.map(|fault| format!("{}: {}", fault.path, fault.error))
        }
    }
}

/// Crashes at each I/O in turn. Returns a description of the first fault, and the number of crashes.
fn first_wrong(log: &[Owned]) -> (Option<String>, u64) {
    let mut crashes = 0;
    for profile in CrashProfile::ALL {
        for n in 1.. {
            let sim = SimDisk::new(n);
            sim.set_plan(FaultPlan {
                cut_after_ops: Some(n),
                ..FaultPlan::default()
            });
            let mut done = Acknowledged::default();
            let life: Arc<dyn Disk> = sim.life();
            let is_done = work(&life, log, &mut done).is_ok();
            sim.crash(profile, n);
            crashes += 1;
            let disk: Arc<dyn Disk> = sim.life();
            if let Some(wrong) = wrong(&disk, log, &done) {
                return (Some(format!("{profile:?}, I/O {n}: {wrong}")), crashes);
            }
            if is_done {
                break;
            }
            // Work on the archive can continue after the crash. In the end the archive holds the whole log.
            let after: Arc<dyn Disk> = sim.life();
            let rest = work(&after, log, &mut done);
            if let Some(wrong) = rest.err().map(|e| e.to_string()).or_else(|| {
                sim.crash(CrashProfile::Nothing, n);
                wrong(&(sim.life() as Arc<dyn Disk>), log, &done)
            }) {
                return (
                    Some(format!("after {profile:?}, I/O {n}: {wrong}")),
                    crashes,
                );
            }
        }
    }
    (None, crashes)
}

#[test]
fn after_a_crash_at_any_io_the_runs_tile_and_have_the_logs_records() {
    let (wrong, crashes) = first_wrong(&log());
    assert_eq!(wrong, None);
    assert!(crashes > 500, "{crashes} crashes");
}

#[cfg(feature = "flaws")]
#[test]
fn the_seeded_bug_of_removing_inputs_early_is_caught() {
    use perdura_base::flaw::{Flaw, arm};
    arm(Some(Flaw::InputsRemovedBeforeManifest));
    let (wrong, _) = first_wrong(&log());
    arm(None);
    assert!(wrong.is_some());
}

/// Simulates a crash in a merge of a single run: the output has been published, but no manifest names it. So two runs
/// with the same epochs exist. Returns the number of removed runs, and whether the archive still has the records of the
/// log.
fn twins(log: &[Owned]) -> Result<(usize, bool)> {
    let disk: Arc<dyn Disk> = Arc::new(MemDisk::new());
    let store = create(&disk)?;
    archive(&store, log, 10)?;
    write(&store, log, id(1, 10, 1, 0))?;
    drop(store);
    let (store, _) = open(&disk, database(2))?;
    let lease = store.lease_merging()?;
    let is_the_log = contents(&store)? == of_log(log, &store);
    Ok((lease.removed.len(), is_the_log))
}

#[test]
fn of_two_runs_of_equal_ranges_one_is_read() {
    assert_eq!(twins(&log()).expect("memory"), (1, true));
}

#[cfg(feature = "flaws")]
#[test]
fn the_seeded_bug_of_equal_ranges_is_caught() {
    use perdura_base::flaw::{Flaw, arm};
    arm(Some(Flaw::EqualRangesBothRead));
    let adopted = std::panic::catch_unwind(|| twins(&log()));
    arm(None);
    let panic = adopted.expect_err("an assertion catches it");
    let why = panic.downcast_ref::<&str>().copied().unwrap_or_default();
    assert_eq!(why, "a run that is adopted continues the archive");
}

/// A merger dies after publishing a manifest and before syncing the folder. Another merger takes the lease and removes
/// the inputs of the merge. Then the power fails. The manifest that names the inputs must not become the newest again.
#[test]
fn inputs_outlive_a_manifest_that_is_not_durable() {
    let log = log();
    let sim = SimDisk::new(1);
    let disk: Arc<dyn Disk> = sim.life();
    let store = create(&disk).expect("a disk");
    for end in [10, 20] {
        archive(&store, &log, end).expect("a disk");
    }
    let (helper, _) = open(&disk, agent(7)).expect("a disk");
    let lease = helper.lease_merging().expect("a disk");
    let output = write(&helper, &log, id(1, 20, 1, 0)).expect("a disk");
    let mut replacing = helper.publish(Edit::Replace {
        inputs: vec![id(1, 10, 0, 0), id(10, 20, 0, 0)],
        output: Object::of(&output),
        kept: None,
    });
    let name = format!("manifest-{:020}", helper.manifest().number + 1);
    while !disk.list(HOME).expect("a disk").contains(&name) {
        replacing.step().expect("a disk");
    }
    drop((replacing, lease, helper));
    let lease = store.lease_merging().expect("it is free");
    assert_eq!(lease.removed.len(), 2, "the inputs");
    drop((lease, store));
    let before = sim.snapshot();
    for seed in 0..50 {
        sim.restore(&before);
        sim.crash(CrashProfile::Worst, seed);
        let disk: Arc<dyn Disk> = sim.life();
        let (store, _) = open(&disk, database(2)).expect("the inputs or the merged run");
        assert_eq!(contents(&store).expect("runs"), of_log(&log, &store));
    }
}

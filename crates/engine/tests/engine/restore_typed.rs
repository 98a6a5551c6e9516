//! Tests of restores of typed tables: key-addressed ones have only their backups' moments, page-addressed ones have all.

use std::sync::Arc;

use perdura::{Core, Db, EpochEnds, Error, LogForm, Progress, procedure};
use perdura_archive::{Edit, Merger, MergerOptions};
use perdura_base::{Epoch, Pos, Uuid};
use perdura_device::{Clock, Disk, ManualClock, MemDisk, SimDisk};
use perdura_page::RegionDigest;
use perdura_recovery::Disks;
use perdura_restore::reachable::Reachable;
use perdura_restore::{Deadlines, RestoreMeans, RestorePlan, RestoreProgress, restore};

use crate::core_steps::{env, get, small};
use crate::restore::{History, STREAMS, key, leave_frames_out, set};
use crate::typed::Account;

/// Opens a database with typed tables.
fn open_typed(disk: &Arc<SimDisk>) -> Result<Core, Error> {
    let mut options = small();
    let declared = Db::builder("").table::<Account>().procedure(open_account);
    options.typed = declared.log(LogForm::Command).into_options().typed;
    Core::open(env(disk, STREAMS), options, Arc::new(Progress::default()))
}

procedure! {
    /// Opens an account.
    pub fn open_account(cx, id: u64) -> (), on [Account(id)] {
        cx.insert(&Account { id, owner: "Ann".into(), balance: 1 })?;
        Ok(())
    }
}

/// Returns the number of accounts, which are key-addressed, and the value of a page-addressed row.
fn seen(core: &Core) -> (usize, Option<Vec<u8>>) {
    let again = |id: &u64| core.call::<open_account>(&(*id,)).is_err();
    ((1..3).filter(again).count(), get(core, &key(0)))
}

/// Returns a database with key-addressed and page-addressed rows, written before and after the image of the backup.
/// Also returns the backup's moment.
pub fn typed_history() -> Result<(History, Epoch), Error> {
    let disk = SimDisk::new(1);
    let core = open_typed(&disk)?;
    let open = |id: u64| core.call::<open_account>(&(id,)).expect("a call").1;
    let begin = EpochEnds {
        epoch: Epoch(0),
        ends: vec![Pos(0); STREAMS],
    };
    core.set_archived(&begin)?;
    let _flushed = (open(1), set(&core, 0, Some(b"old")));
    core.checkpoint_now()?;
    let _flushed = (open(2), set(&core, 0, Some(b"new")));
    core.flush_all()?;
    let mut history = History::of(disk, core, begin);
    history.back_up();
    history.archive();
    let moment = history.backup(history.backups[0])?.header().moment();
    Ok((history, moment))
}

/// Returns a database with a backup, and the backup's moment. The first key-addressed row is written after the backup.
pub fn later_typed_history() -> Result<(History, Epoch), Error> {
    let mut history = History::new(1);
    let _flushed = set(history.core(), 0, Some(b"old"));
    history.core().checkpoint_now()?;
    history.back_up();
    history.core().flush_all()?;
    history.archive();
    history.core = None;
    history.core = Some(open_typed(&history.disk)?);
    let open = history.core().call::<open_account>(&(1,));
    let _flushed = (
        open.expect("a call").1,
        set(history.core(), 0, Some(b"new")),
    );
    history.core().flush_all()?;
    history.archive();
    let moment = history.backup(history.backups[0])?.header().moment();
    Ok((history, moment))
}

/// Restores the last state of the database of `typed_history` from a backup and runs.
fn typed_restored() -> Result<(usize, Option<Vec<u8>>), Error> {
    let (history, _) = typed_history()?;
    let (backup, runs) = (history.backup(history.backups[0])?, history.open_runs()?);
    let other = RestorePlan::new(Arc::clone(&backup), runs.clone(), Some(Epoch(1)));
    if let Err(refused) = other.map(drop) {
        assert!(refused.to_string().contains("key-addressed"), "{refused}");
    }
    let new = SimDisk::new(2);
    let means = RestoreMeans {
        disks: Disks::on_one(new.life(), STREAMS),
        uuid: Uuid([9; 16]),
        threads: 1,
        clock: &(Arc::new(ManualClock::at(5)) as Arc<dyn Clock>),
        progress: &RestoreProgress::default(),
        deadlines: Deadlines::Keep,
    };
    restore(&RestorePlan::new(backup, runs, None)?, &means)?;
    let core = open_typed(&new)?;
    let found = seen(&core);
    core.flush_all()?;
    core.checkpoint_now()?;
    Ok(found)
}

#[test]
fn a_database_with_key_addressed_tables_is_restored_to_its_last_state() {
    let found = typed_restored().expect("it is restored");
    assert_eq!(found, (2, Some(b"new".to_vec())));
}

/// A call between a checkpoint's cut and its end mark was not in the image. A restore of the backup named the epoch of the
/// end mark, and lacked the call.
#[test]
fn a_backup_of_a_cut_names_the_last_epoch_that_it_has() {
    let disk = SimDisk::new(1);
    let core = open_typed(&disk).expect("it opens");
    let begin = EpochEnds {
        epoch: Epoch(0),
        ends: vec![Pos(0); STREAMS],
    };
    core.set_archived(&begin).expect("archiving begins");
    let epoch_of = |id: u64| core.call::<open_account>(&(id,)).expect("a call").1.epoch;
    let before = epoch_of(1);
    core.checkpoints().begin().expect("the cut");
    let after = epoch_of(2);
    core.flush_all().expect("both calls are acknowledged");
    core.checkpoint_now().expect("the rest of the checkpoint");
    let mut history = History::of(disk, core, begin);
    history.back_up();
    history.archive();
    assert!(before < after && after <= history.backups[0].end);
    let backup = history.backup(history.backups[0]).expect("a backup");
    let plan = RestorePlan::new(backup, Vec::new(), None).expect("a plan");
    assert_eq!(plan.target(), before, "the last epoch that the image has");
    let refused = |target: Epoch| {
        let backup = history.backup(history.backups[0]).expect("a backup");
        RestorePlan::new(backup, Vec::new(), Some(target)).map(drop)
    };
    refused(after).expect_err("the image lacks the second call");
    refused(history.backups[0].end).expect_err("and so the end of the sweep");
    refused(before).expect("the cut's own epoch");
}

/// Acknowledged calls vanished with exit code 0: a restore of the last state gave the state of the backup.
#[test]
fn calls_after_the_backup_never_vanish_from_a_restore_in_silence() {
    let (history, moment) = typed_history().expect("a history");
    let disk: Arc<dyn Disk> = Arc::new(MemDisk::new());
    let store = crate::virtual_backup::stored(&history, &history.backups, &disk);
    let reachable = Reachable::of(&store).expect("memory");
    assert!(reachable.known > moment, "{}", reachable.known);
    assert_eq!(reachable.last(), Some(reachable.known));
    for target in [None, Some(moment), Some(reachable.known)] {
        let plan = RestorePlan::from_archive(&store, target, |_, _| ()).expect("a plan");
        assert_eq!(plan.target(), target.unwrap_or(reachable.known));
    }
    let earlier = RestorePlan::from_archive(&store, Some(Epoch(moment.0 - 1)), |_, _| ());
    let refused = earlier.map(drop).expect_err("before the backup's cut");
    assert!(refused.to_string().contains("key-addressed"), "{refused}");
}

/// Runs of an earlier build lack the frames. A restore across them gave page-addressed tables of the target, and
/// key-addressed tables of the backup or none, with exit code 0.
#[test]
fn no_restore_leads_across_runs_of_an_earlier_build() {
    for is_later in [false, true] {
        let made = match is_later {
            false => typed_history(),
            true => later_typed_history(),
        };
        let (mut history, moment) = made.expect("a history");
        leave_frames_out(&mut history);
        let disk: Arc<dyn Disk> = Arc::new(MemDisk::new());
        let store = crate::virtual_backup::stored(&history, &history.backups, &disk);
        store.note_anchor(history.core().anchor_for_archive());
        store.publish(Edit::Open).run().expect("memory");
        let plan = |target| RestorePlan::from_archive(&store, target, |_, _| ());
        let known = history.at.epoch;
        for target in [None, Some(known)] {
            let refused = plan(target).map(drop).expect_err("the frames are missing");
            let text = refused.to_string();
            assert!(
                text.contains("earlier build") || text.contains("older"),
                "{text}"
            );
        }
        assert_eq!(plan(Some(moment)).expect("the backup").target(), moment);
        let reachable = Reachable::of(&store).expect("memory");
        assert_eq!((reachable.last(), reachable.known), (Some(moment), known));
    }
}

/// A merged run would claim to carry the frames of epochs whose run lacks them.
#[test]
fn runs_with_and_without_frames_are_not_merged_with_each_other() {
    let (history, _) = later_typed_history().expect("a history");
    let disk: Arc<dyn Disk> = Arc::new(MemDisk::new());
    let store = crate::virtual_backup::stored(&history, &history.backups, &disk);
    let options = MergerOptions {
        fan_in: 2,
        all: true,
        ..MergerOptions::default()
    };
    let region = Arc::new(RegionDigest::new());
    let merger = Merger::new(Arc::clone(&store), options, region);
    merger.expect("the lease").run().expect("memory");
    let runs: Vec<_> = store.manifest().runs().collect();
    let carry = |id| store.open_run(id).expect("a run").header().carries_frames;
    let carry: Vec<bool> = runs.into_iter().map(carry).collect();
    assert_eq!(carry, [false, true]);
}

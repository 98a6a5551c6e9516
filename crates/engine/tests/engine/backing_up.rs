//! Backups of an open database. The first backup is made without a request. A checkpoint that would overwrite the
//! image waits while the image is copied. A close does not wait: it ends the copy.

use std::sync::Arc;
use std::time::{Duration, Instant};

use perdura::{ArchiveStats, Core, Db, Disks, Error, Options, Progress};
use perdura_archive::Progress as Copying;
use perdura_device::{Disk, MemDisk, ModelDisk, SimDisk, SystemClock};
use perdura_recovery::CheckpointProgress;
use perdura_restore::backup::BackupCopy;

use crate::core_steps::{open, put};
use crate::with_threads::set;

/// Copies the newest image while two checkpoints are taken. Returns the result of the copy, and how often a checkpoint
/// was delayed.
fn copied_under_checkpoints(log: &Arc<SimDisk>, core: &Core) -> (Result<u64, Error>, usize) {
    let archive: Arc<dyn Disk> = Arc::new(MemDisk::new());
    archive.make_dir("archive").unwrap();
    let pin = core.pin_newest().expect("an image");
    let disks = Disks::on_one(log.life(), 1);
    let anchor = Arc::clone(pin.anchor());
    let mut copy = BackupCopy::begin(&disks, anchor, Arc::clone(&archive), "archive").unwrap();
    let (mut held, mut taken) = (0, 0);
    let ended = loop {
        for key in 0..20 {
            put(core, &format!("key{key}"), &[taken; 3000]);
        }
        taken = taken.wrapping_add(1);
        core.flush_all().unwrap();
        match core.checkpoint_begin() {
            Ok(()) => loop {
                match core.checkpoint_step().unwrap() {
                    CheckpointProgress::Done | CheckpointProgress::Idle => break,
                    _ => core.flush_all().unwrap(),
                }
            },
            Err(Error::Cancelled(why)) => {
                assert!(core.checkpoint_is_held(), "{why}");
                held += 1;
            }
            Err(other) => panic!("{other}"),
        }
        match copy.step() {
            Ok(Copying::More) => {}
            Ok(Copying::Done(summary)) => break Ok(summary.pages),
            Err(error) => break Err(error),
        }
    };
    drop(pin);
    assert!(!core.checkpoint_is_held());
    core.checkpoint_now().unwrap();
    (ended, held)
}

/// Returns a database with an image of some hundred pages.
fn with_an_image() -> (Arc<SimDisk>, Core) {
    let log = SimDisk::new(1);
    let core = open(&log, 1);
    for key in 0..400 {
        put(&core, &format!("key{key}"), &[7; 3000]);
        core.flush_all().unwrap();
    }
    core.checkpoint_now().unwrap();
    (log, core)
}

#[test]
fn an_image_that_is_copied_is_not_overwritten_and_the_checkpoint_that_would_waits() {
    let (log, core) = with_an_image();
    let (copied, held) = copied_under_checkpoints(&log, &core);
    assert!(copied.unwrap() > 50);
    assert!(held > 3, "{held} checkpoints were held");
}

#[cfg(feature = "flaws")]
#[test]
fn the_seeded_bug_of_an_image_overwritten_while_it_is_copied_is_caught() {
    use perdura_base::flaw::{Flaw, arm};
    let (log, core) = with_an_image();
    arm(Some(Flaw::PinnedSlotOverwritten));
    let (copied, held) = copied_under_checkpoints(&log, &core);
    arm(None);
    assert_eq!(held, 0);
    assert!(matches!(copied, Err(Error::Corrupt(_))), "{copied:?}");
}

fn open_on(disk: &Arc<MemDisk>, archive: Option<Arc<dyn Disk>>, first_backup: bool) -> Db {
    let options = Options {
        first_backup,
        ..Options::new("in memory")
    };
    let disks = Disks::on_one(Arc::clone(disk) as Arc<dyn Disk>, 1);
    let progress = Arc::new(Progress::default());
    Db::open_archived(options, disks, Vec::new(), progress, archive).unwrap()
}

fn open_db(archive: Arc<dyn Disk>, first_backup: bool) -> Db {
    open_on(&Arc::new(MemDisk::new()), Some(archive), first_backup)
}

fn wait_until(db: &Db, holds: impl Fn(&ArchiveStats) -> bool) -> ArchiveStats {
    let begin = Instant::now();
    loop {
        let stats = db.stats().archive.unwrap();
        if holds(&stats) {
            return stats;
        }
        assert!(begin.elapsed() < Duration::from_secs(30), "{stats:?}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn archiving_begins_with_a_backup_and_until_then_nothing_is_restorable() {
    let restorable = |db: &Db| {
        db.wait(set(db, b"one", b"1")).unwrap();
        let caught_up = |stats: &ArchiveStats| stats.lag_epochs == 0 && stats.runs > 0;
        wait_until(db, caught_up).restorable
    };
    // This archive has everything that was ever logged.
    let db = open_db(Arc::new(MemDisk::new()), false);
    assert!(restorable(&db).starts_with("yes, from the whole log"));
    db.abandon();
    // This archive begins at an image of which it has no copy.
    let disk = Arc::new(MemDisk::new());
    let db = open_on(&disk, None, false);
    db.wait(set(&db, b"zero", b"0")).unwrap();
    db.close().unwrap();
    let db = open_on(&disk, Some(Arc::new(MemDisk::new())), false);
    assert_eq!(restorable(&db), "no: there is no backup yet");
    db.abandon();

    let archive: Arc<dyn Disk> = Arc::new(MemDisk::new());
    let db = open_db(archive, true);
    db.wait(set(&db, b"one", b"1")).unwrap();
    let first = wait_until(&db, |stats| stats.backups == 1);
    assert_eq!(first.restorable, "yes");
    assert_eq!((first.backup.made, first.backup.error), (1, None));
    assert!(first.run_bytes > 0 && first.backup_bytes > 0);
    // Proofs begin with the backup's image, so the next checkpoint's image is proven.
    db.wait(set(&db, b"two", b"2")).unwrap();
    db.checkpoint().unwrap();
    let proven = wait_until(&db, |stats| stats.proof.result == "holds");
    assert_eq!((proven.alarm, proven.proof.failed), (None, 0));
    assert!(proven.proof.age_us.is_some());
    let again = db.back_up().unwrap();
    let second = wait_until(&db, |stats| stats.backups == 2);
    assert_eq!(second.backup.last, Some(again.header.id.name()));
    assert_eq!(second.backup.pages_done, again.pages);
    db.close().unwrap();
}

#[test]
fn a_copy_is_given_up_when_the_database_is_closed_and_its_checkpoint_needs_the_image() {
    let clock = Arc::new(SystemClock::new());
    // The disk moves 60 pages a second.
    let slow = ModelDisk::new(Arc::new(MemDisk::new()), 1, 0, clock, std::thread::sleep);
    let db = open_db(Arc::new(slow), false);
    for key in 0..400_u32 {
        let _flushed_at_the_end = set(&db, &key.to_be_bytes(), &[7; 8000]);
    }
    assert_eq!(db.begin_backup().unwrap(), 1);
    wait_until(&db, |stats| stats.backup.pages > 0);
    db.wait(set(&db, b"one", b"1")).unwrap();
    // This checkpoint goes into the other image. The next one would overwrite the image that is
    // being copied.
    db.checkpoint().unwrap();
    let running = db.backup_state();
    assert!(
        running.running && running.pages_done < running.pages,
        "{running:?}"
    );
    let handle = db.clone();
    let begin = Instant::now();
    db.close().unwrap();
    assert!(
        begin.elapsed() < Duration::from_secs(20),
        "{:?}",
        begin.elapsed()
    );
    let error = handle.backup_state().error.unwrap_or_default();
    assert!(error.contains("cancelled"), "{error}");
}

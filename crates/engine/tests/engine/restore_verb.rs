//! Restoring a database by the program that has its procedures.

use std::path::Path;

use perdura::{At, Builder, Db, Error, LogForm, Result, procedure, table};
use perdura_archive::report::newest_report;
use perdura_archive::{Replay, Report, ReportKind, list_archives};
use perdura_base::Epoch;
use perdura_device::FileDisk;

table! {
    /// A counter, changed by commands.
    pub struct Meter in "meters", addressing = key { key(id: u64), count: u64 }
}

procedure! {
    /// Adds to a meter. The result depends on the meter's row.
    pub fn add(cx, id: u64, by: u64) -> u64, on [Meter(id)] {
        let before = cx.get::<Meter>(id)?.map(|meter| meter.count);
        let count = 3 * before.unwrap_or(0) % 1_000_003 + by;
        match before {
            Some(_) => cx.update(&Meter { id, count })?,
            None => cx.insert(&Meter { id, count })?,
        }
        Ok(count)
    }
}

fn builder(dir: &Path) -> Builder {
    Db::builder(dir)
        .options(|options| options.partitions = 8)
        .table::<Meter>()
        .log(LogForm::Command)
}

fn meters(db: &Db) -> Vec<(u64, u64)> {
    let mut meters = Vec::new();
    let snapshot = db.snapshot().expect("a snapshot");
    let each = snapshot.each::<Meter>(|meter| meters.push((meter.id, meter.count)));
    each.expect("rows");
    meters.sort_unstable();
    meters
}

/// Archives 20,000 durable calls, most of them after the last backup. The archive listed a moment for each epoch, and a
/// restore gave the state of the backup with exit code 0.
#[test]
fn twenty_thousand_calls_are_restored_to_the_last_one_and_to_moments_between() -> Result<()> {
    let dir = tempfile::tempdir().expect("a directory");
    let (data, archive) = (dir.path().join("data"), dir.path().join("archive"));
    let db = builder(&data).procedure(add).archive(&archive).open()?;
    let mut moments = Vec::new();
    for call in 0..20_000u64 {
        let _pending = db.submit(add, (call % 97, call)).expect("a call");
        if call == 500 {
            db.back_up()?;
        }
        if call % 5_000 == 4_999 {
            db.call(add, (1_000, call)).expect("a call");
            moments.push((db.stats().log.durable_epoch, meters(&db)));
        }
    }
    db.call(add, (1_001, 7)).expect("a call");
    let last = meters(&db);
    db.close()?;

    let lost = dir.path().join("restored");
    let refused = builder(&lost).restore(&archive, None).map(drop);
    let refused = refused.expect_err("the program lacks the procedure");
    assert!(refused.to_string().contains("add"), "{refused}");
    let db = builder(&lost).procedure(add).open()?;
    assert_eq!(meters(&db), last, "nothing was changed before");
    db.close()?;
    let twice = builder(&lost)
        .procedure(add)
        .restore(&archive, None)
        .map(drop);
    let twice = twice.expect_err("it has a database");
    assert!(matches!(twice, Error::Foreign { .. }), "{twice}");

    for (number, (epoch, expected)) in moments.into_iter().enumerate() {
        let at = At::Epoch(Epoch(epoch));
        let to = dir.path().join(format!("moment-{number}"));
        let db = builder(&to).procedure(add).restore(&archive, Some(at))?;
        assert_eq!(meters(&db), expected, "epoch {epoch}");
        db.call(add, (3, 3)).expect("a call");
        db.close()?;
    }
    Ok(())
}

/// After a checkpoint, the open database adds an increment by itself. A restore then replays only the calls after it.
#[test]
fn a_checkpoint_is_followed_by_an_increment() -> Result<()> {
    let dir = tempfile::tempdir().expect("a directory");
    let (data, archive) = (dir.path().join("data"), dir.path().join("archive"));
    let db = builder(&data).procedure(add).archive(&archive).open()?;
    db.call(add, (0, 1)).expect("a call");
    db.back_up()?;
    for call in 0..500u64 {
        let _pending = db.submit(add, (call % 7, call)).expect("a call");
    }
    db.checkpoint()?;
    let is_increment = |backup: &perdura::ListedBackup| backup.kind == "increment";
    let begun = std::time::Instant::now();
    while !db.backups().iter().any(is_increment) {
        assert!(begun.elapsed().as_secs() < 60, "{:?}", db.backups());
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    for call in 0..3u64 {
        db.call(add, (call, 9)).expect("a call");
    }
    let last = meters(&db);
    db.close()?;

    let lost = dir.path().join("restored");
    let db = builder(&lost).procedure(add).restore(&archive, None)?;
    assert_eq!(meters(&db), last);
    let replayed = db.report().ordered.as_ref().map_or(0, |pass| pass.played);
    assert_eq!(replayed, 3, "the calls after the increment");
    db.close()
}

/// Returns the report of the newest proof in an archive, if there is one.
fn newest_proof(archive: &Path) -> Option<Report> {
    let disk = FileDisk::at(archive);
    let uuid = list_archives(&disk).ok()?.first().copied()?;
    newest_report(&disk, &uuid, ReportKind::Proof).expect("it is read")
}

/// The first start after a restore is expected to replay as fast as the database's last restart that replayed much. A later
/// restart that replays little does not change this.
#[test]
fn a_proof_says_how_fast_the_last_long_replay_was() -> Result<()> {
    let dir = tempfile::tempdir().expect("a directory");
    let (data, archive) = (dir.path().join("data"), dir.path().join("archive"));
    let open = || builder(&data).procedure(add).archive(&archive).open();
    let db = open()?;
    db.back_up()?;
    for call in 0..1500u64 {
        let _pending = db.submit(add, (call % 97, call)).expect("a call");
    }
    db.call(add, (0, 1)).expect("a call");
    db.abandon();
    let (mut before, mut most) = (0, 0);
    for restart in 0..2 {
        let db = open()?;
        let played = db.report().ordered.map_or(0, |pass| pass.played);
        let is_long = played > 1500;
        assert!(is_long == (restart == 0) && played > 0, "{played} changes");
        most = played.max(most);
        db.call(add, (1, 1)).expect("a call");
        db.checkpoint()?;
        let begun = std::time::Instant::now();
        let proof = loop {
            let newest = newest_proof(&archive).filter(|proof| proof.to.0 > before);
            if let Some(proof) = newest.filter(|proof| proof.replay.changes > 0) {
                break proof;
            }
            assert!(begun.elapsed().as_secs() < 60, "restart {restart}");
            std::thread::sleep(std::time::Duration::from_millis(20));
        };
        let Replay { changes, took_us } = proof.replay;
        assert!(changes == most && took_us > 0, "{:?}", proof.replay);
        before = proof.to.0;
        db.call(add, (2, 1)).expect("a call");
        db.abandon();
    }
    Ok(())
}

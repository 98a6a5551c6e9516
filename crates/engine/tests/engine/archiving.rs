//! The log is kept for an archive, across checkpoints, crashes and restarts, until the archive has
//! it, and no longer.

use std::sync::Arc;

use perdura::{Core, CoreOptions, EpochEnds, EpochSource, Error, Progress, Rung, SourceStep};
use perdura_base::{Epoch, ImageSlot, Pos};
use perdura_device::{CrashProfile, SimDisk};
use perdura_wal::anchor::{AnchorFile, Tag};
use perdura_wal::{FrameKind, Origin};

use crate::core_steps::{env, get, open, put, small};

const STREAMS: usize = 2;

fn begin() -> EpochEnds {
    EpochEnds {
        epoch: Epoch(0),
        ends: vec![Pos(0); STREAMS],
    }
}

fn open_archived(disk: &Arc<SimDisk>, archived: &EpochEnds) -> Result<Core, Error> {
    let options = CoreOptions {
        archived: Some(archived.clone()),
        ..small()
    };
    Core::open(env(disk, STREAMS), options, Arc::new(Progress::default()))
}

/// Reads the durable part of the log. Returns the origin of each group.
fn drain(core: &Core, source: &mut EpochSource) -> Result<Vec<Origin>, Error> {
    let durable = core.wal().durable_end(Rung::Disk);
    let mut groups = Vec::new();
    loop {
        let step = source.step(&durable, |frame, origin| {
            if frame.kind == FrameKind::Group {
                groups.push(*origin);
            }
            Ok(())
        });
        if step? == SourceStep::Idle {
            return Ok(groups);
        }
    }
}

/// Writes about 100 kB, which is less than a segment.
fn write(core: &Core, round: usize) {
    for key in 0..25 {
        put(core, &format!("key{key}"), &vec![key; 4000 + round]);
    }
    core.flush_all().unwrap();
}

/// Runs a history of several lives with a lagging archive. Returns the number of groups that the archive read.
fn history(seed: u64, is_declared: bool) -> Result<usize, Error> {
    let mut rng = fastrand::Rng::with_seed(seed);
    let disk = SimDisk::new(seed);
    let mut core = open(&disk, STREAMS);
    let mut archived = begin();
    if is_declared {
        core.set_archived(&archived)?;
    }
    let mut source = core.log_source(&archived)?;
    let mut groups = 0;
    for round in 0..40 {
        write(&core, round);
        match rng.u8(0..8) {
            0..3 => core.checkpoint_now()?,
            3..5 => {
                groups += drain(&core, &mut source)?.len();
                archived = source.at().clone();
                if is_declared {
                    core.set_archived(&archived)?;
                }
            }
            5 => {
                drop(core);
                disk.crash(CrashProfile::Worst, rng.u64(..));
                core = match is_declared && rng.bool() {
                    true => open_archived(&disk, &archived)?,
                    false => open(&disk, STREAMS),
                };
                source = core.log_source(&archived)?;
            }
            _ => {}
        }
    }
    groups += drain(&core, &mut source)?.len();
    if is_declared {
        // The log is not kept for epochs that are in the archive.
        core.set_archived(source.at())?;
        core.checkpoint_now()?;
        core.checkpoint_now()?;
        let mut from_the_begin = core.log_source(&begin())?;
        let cut = drain(&core, &mut from_the_begin);
        assert!(matches!(cut, Err(Error::Truncated { .. })), "{cut:?}");
        assert_eq!(core.anchor().get().archived.as_ref(), Some(source.at()));
    }
    Ok(groups)
}

#[test]
fn the_log_is_kept_until_the_archive_has_it_over_checkpoints_and_lives() {
    let mut lost = 0;
    for seed in 0..30 {
        // Every round writes 25 keys, each in a transaction.
        let groups = history(seed, true).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        assert!(groups >= 40 * 25, "seed {seed}: {groups}");
        lost += usize::from(matches!(history(seed, false), Err(Error::Truncated { .. })));
    }
    assert!(lost > 8, "without an archive the log is cut: {lost}");
}

#[cfg(feature = "flaws")]
#[test]
fn the_seeded_bug_of_a_log_that_is_cut_before_the_archive_has_it_is_caught() {
    use perdura_base::flaw::{Flaw, arm};
    arm(Some(Flaw::LogCutBeforeRun));
    let seen = std::panic::catch_unwind(|| (0..30).find_map(|seed| history(seed, true).err()));
    arm(None);
    let panic = seen.expect_err("an assertion catches it");
    let why = panic.downcast_ref::<&str>().copied().unwrap_or_default();
    assert_eq!(why, "no log is cut before the archive has it");
}

#[test]
fn the_section_is_written_when_archiving_begins_and_when_the_log_is_cut_and_goes_with_the_archive()
{
    let disk = SimDisk::new(1);
    let core = open(&disk, STREAMS);
    let seq = |core: &Core| core.anchor().get().seq;
    let (before, at) = (seq(&core), begin());
    assert_eq!(core.archived(), None);
    core.set_archived(&at).unwrap();
    assert_eq!(
        (seq(&core), core.archived()),
        (before + 1, Some(at.clone()))
    );
    let mut source = core.log_source(&at).unwrap();
    write(&core, 0);
    drain(&core, &mut source).unwrap();
    core.set_archived(source.at()).unwrap();
    assert_eq!(seq(&core), before + 1, "an advance costs no update");
    assert_eq!(core.archived().as_ref(), Some(source.at()));
    assert_eq!(core.anchor().get().archived, Some(at.clone()));
    let back = core.set_archived(&at).unwrap_err();
    assert!(matches!(back, Error::Corrupt(_)), "{back}");
    let mut ahead = source.at().clone();
    ahead.epoch = Epoch(ahead.epoch.0 + 1);
    let ahead = core.set_archived(&ahead).unwrap_err();
    assert!(matches!(ahead, Error::LostLog { .. }), "{ahead}");
    core.checkpoint_now().unwrap();
    assert_eq!(core.anchor().get().archived.as_ref(), Some(source.at()));

    let section = || {
        let (_, record, _) = AnchorFile::open(disk.life().as_ref()).unwrap().unwrap();
        record.sections.get(Tag(*b"ARCH")).cloned()
    };
    assert!(section().is_some_and(|section| section.required));
    core.end_archive(None).unwrap();
    assert_eq!((section(), core.archived()), (None, None));
}

/// If the chain of lives is long, a restart takes two checkpoints to shorten the chain. If the log is kept for an
/// archive, the restart takes no checkpoint, because the chain would stay long anyway.
#[test]
fn a_restart_takes_no_checkpoints_for_lives_that_the_archive_does_not_hold() {
    for (is_declared, checkpoints) in [(false, 2), (true, 0)] {
        let disk = SimDisk::new(1);
        let mut taken = 0;
        for life in 0..36 {
            let core = open(&disk, STREAMS);
            taken += core.checkpoint_stats().completed;
            if is_declared && life == 0 {
                core.set_archived(&begin()).unwrap();
            }
            put(&core, "key", &[life]);
            core.flush_all().unwrap();
            drop(core);
            disk.crash(CrashProfile::Nothing, 1);
        }
        let core = open(&disk, STREAMS);
        assert_eq!(taken + core.checkpoint_stats().completed, checkpoints);
        let mut source = core.log_source(&begin()).unwrap();
        if is_declared {
            assert!(drain(&core, &mut source).unwrap().len() >= 36);
            let whole = source.at().clone();
            drop(core);
            disk.crash(CrashProfile::Nothing, 1);
            let core = open_archived(&disk, &whole).unwrap();
            assert_eq!(core.checkpoint_stats().completed, 2, "now they go");
            assert!(core.anchor().get().chain.len() < 3);
        }
    }
}

#[test]
fn an_archive_ahead_of_the_log_or_behind_the_anchor_ends_the_opening_and_changes_nothing() {
    let disk = SimDisk::new(1);
    let core = open(&disk, STREAMS);
    write(&core, 0);
    let mut source = core.log_source(&begin()).unwrap();
    drain(&core, &mut source).unwrap();
    let whole = source.at().clone();
    core.set_archived(&whole).unwrap();
    drop(core);
    disk.crash(CrashProfile::Nothing, 1);
    let before = disk.snapshot();
    let refused = |archived: &EpochEnds| {
        disk.restore(&before);
        let files = disk.files();
        let error = open_archived(&disk, archived).map(drop).unwrap_err();
        assert_eq!(disk.files(), files);
        error
    };
    let ahead = EpochEnds {
        epoch: Epoch(whole.epoch.0 + 5),
        ..whole.clone()
    };
    let error = refused(&ahead);
    assert!(
        matches!(&error, Error::LostLog { archived, durable }
            if *archived == ahead.epoch && *durable == whole.epoch),
        "{error}"
    );
    let behind = refused(&begin());
    assert!(behind.to_string().contains("has lost files"), "{behind}");
    disk.restore(&before);
    let core = open_archived(&disk, &whole).unwrap();
    assert!(get(&core, "key0").is_some());

    // The disk has no database, but the archive of a database is given.
    let empty = SimDisk::new(2);
    let lost = open_archived(&empty, &whole).map(drop).unwrap_err();
    assert!(
        matches!(
            lost,
            Error::LostLog {
                durable: Epoch(0),
                ..
            }
        ),
        "{lost}"
    );
    assert!(empty.files().is_empty());
}

#[test]
fn an_image_knows_its_lowest_epoch_and_one_of_an_older_build_does_not() {
    let disk = SimDisk::new(1);
    let core = open(&disk, STREAMS);
    write(&core, 0);
    let before = core.wal().durable(Rung::Disk);
    core.checkpoint_now().unwrap();
    write(&core, 1);
    let anchor = core.anchor().get();
    let image = anchor.image(ImageSlot::A).clone();
    let lowest = image.begin_epoch.expect("this build says it");
    assert!(before < lowest && lowest <= image.cover.end_epoch);
    // An archive that begins with the image.
    let from = EpochEnds {
        epoch: Epoch(lowest.0 - 1),
        ends: image.cover.begin.clone(),
    };
    let mut source = core.log_source(&from).unwrap();
    let groups = drain(&core, &mut source).unwrap();
    assert!(groups.len() >= 25 && groups.iter().all(|group| group.epoch >= lowest));
    drop(core);

    let (file, mut record, _) = AnchorFile::open(disk.life().as_ref()).unwrap().unwrap();
    record.sections.remove(Tag(*b"BEGN"));
    file.write(&record).map_err(Error::from).unwrap();
    drop(file);
    disk.crash(CrashProfile::Everything, 1);
    let core = open(&disk, STREAMS);
    let older = core.anchor().get().image(ImageSlot::A).clone();
    assert_eq!((older.begin_epoch, older.cover), (None, image.cover));
    assert!(get(&core, "key0").is_some());
    core.checkpoint_now().unwrap();
    let anchor = core.anchor().get();
    let known = |slot| anchor.image(slot).begin_epoch.is_some();
    assert_eq!((known(ImageSlot::A), known(ImageSlot::B)), (false, true));
}

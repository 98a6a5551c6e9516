//! A data disk is lost. The log is on a second disk and survives. No acknowledged change is lost.

use std::sync::Arc;

use perdura::Error;
use perdura_base::Epoch;
use perdura_device::{CrashProfile, Disk, SimDisk};
use perdura_restore::{Scratch, Sources, Surviving, read_tail};
use perdura_wal::EpochEnds;
use perdura_wal::drain::DrainLife;
use perdura_wal::segment::LOG_DIR;

use crate::lost_disk::{Restored, STREAMS, World, carry_out_onto, values};

/// Restores all data that archive, backlog and log have. Returns the disks and the last epoch.
pub fn restored(world: &World, logs: &Arc<SimDisk>) -> Result<(Restored, Epoch), Error> {
    let disks = Restored::new();
    let store = world.store()?;
    let scratch = Scratch::begin(disks.data.life())?;
    let logs: Vec<Arc<dyn Disk>> = (0..STREAMS).map(|_| logs.life() as Arc<dyn Disk>).collect();
    let sources = Sources {
        tail: read_tail(&store, &Surviving::on(&logs), &scratch)?.runs,
        scratch: Some(scratch),
        ..Sources::archive(&store)
    };
    let plan = sources.plan(None, |_, _| {})?;
    let report = carry_out_onto(&disks, &plan)?;
    Ok((disks, report.epoch))
}

/// Runs a history that ends with the loss of the data disk. Returns the number of lives that began after the last
/// archiving.
fn lose_the_data_disk(seed: u64) -> Result<usize, String> {
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut world = World::new(seed);
    if rng.bool() {
        world.set_any(&mut rng);
    }
    world.back_up();
    // The archive may fall behind for a while.
    let archives = rng.usize(..3);
    let mut lives = 0;
    for _ in 0..rng.usize(5..40) {
        match rng.u8(..20) {
            0..12 => (0..rng.usize(1..4)).for_each(|_| world.set_any(&mut rng)),
            12..16 => world.flush(),
            16 if archives > 0 => {
                world.archive();
                lives = 0;
            }
            17 => {
                world.crash(rng.u64(..));
                lives += 1;
            }
            18 => world.core().checkpoint_now().expect("an image"),
            19 if archives > 1 => {
                world.back_up();
                lives = 0;
            }
            _ => world.flush(),
        }
    }
    world.end(&mut rng);
    let acknowledged = world
        .changes
        .iter()
        .filter(|change| change.wall_us < u64::MAX);
    let acknowledged = acknowledged
        .map(|change| change.epoch)
        .max()
        .unwrap_or_default();
    let before = world.log.files();
    let what = |what: String| format!("seed {seed}: {what}");
    let (disks, epoch) = restored(&world, &world.log).map_err(|error| what(error.to_string()))?;
    assert_eq!(world.log.files(), before, "the log is only read");
    if epoch < acknowledged {
        return Err(what(format!(
            "epoch {epoch}, and {acknowledged} was acknowledged"
        )));
    }
    let core = disks.open().map_err(|error| what(error.to_string()))?;
    if values(&core) != world.state(epoch) {
        return Err(what(format!("other values at {epoch}")));
    }
    let left: Vec<String> = disks
        .data
        .files()
        .into_iter()
        .map(|(name, _)| name)
        .collect();
    assert!(left.iter().all(|name| !name.contains("run-")), "{left:?}");
    Ok(lives)
}

#[test]
fn everything_acknowledged_is_restored_from_the_archive_and_the_surviving_log() {
    let mut lives = 0;
    for seed in 0..150 {
        lives += lose_the_data_disk(seed).unwrap_or_else(|wrong| panic!("{wrong}"));
    }
    assert!(lives > 60, "{lives} lives behind the archive's end");
}

#[cfg(feature = "flaws")]
#[test]
fn the_seeded_bug_of_later_lives_that_are_not_read_is_caught() {
    use perdura_base::flaw::{Flaw, arm};
    let caught = (0..150).find(|seed| {
        arm(Some(Flaw::LaterLivesIgnored));
        let wrong = lose_the_data_disk(*seed).is_err();
        arm(None);
        wrong
    });
    assert!(caught.is_some());
}

/// Returns a world with several segments of log after the end of the archive.
fn ahead(seed: u64) -> World {
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut world = World::new(seed);
    world.back_up();
    for round in 0..120 {
        world.set_any(&mut rng);
        world.flush();
        if round == 30 {
            world.archive();
        }
    }
    world.kill();
    world
}

#[test]
fn the_log_of_another_database_is_refused_by_its_name() {
    let (world, other) = (ahead(1), ahead(2));
    let before = other.log.files();
    let refused = restored(&world, &other.log).map(drop).unwrap_err();
    assert!(matches!(&refused, Error::Foreign { .. }), "{refused}");
    let refused = refused.to_string();
    for uuid in [world.uuid, other.uuid] {
        assert!(refused.contains(&uuid.to_string()), "{refused}");
    }
    assert_eq!(other.log.files(), before);
    let none = restored(&world, &SimDisk::new(1)).map(drop).unwrap_err();
    assert!(none.to_string().contains("no such directory"), "{none}");
}

#[test]
fn a_log_that_does_not_reach_back_to_the_archive_is_refused_and_the_hole_named() {
    let world = ahead(3);
    let end = world.store().expect("an archive").manifest().held().0;
    let mut holes = 0;
    let names: Vec<String> = world
        .log
        .files()
        .into_iter()
        .map(|(name, _)| name)
        .collect();
    for name in names.iter().filter(|name| name.contains("-i")) {
        let snapshot = world.log.snapshot();
        world.log.life().remove(name).expect("a disk");
        match restored(&world, &world.log) {
            Ok((disks, epoch)) => {
                // The lost segment was not needed: the archive has all of it, or nothing was
                // written to it yet.
                let core = disks.open().expect("it opens");
                assert_eq!(
                    values(&core),
                    world.state(Epoch(u64::MAX)),
                    "without {name}: {epoch}"
                );
            }
            Err(error) => {
                holes += 1;
                assert!(matches!(&error, Error::Corrupt(_)), "{name}: {error}");
                let text = error.to_string();
                if text.contains("a gap") {
                    assert!(text.contains(&format!("epoch {end}")), "{text}");
                }
            }
        }
        world.log.restore(&snapshot);
    }
    assert!(holes > 1, "{holes} of {names:?}");
    let log = world.log.life();
    assert!(log.list(LOG_DIR).is_ok());
}

/// Whichever segments of several lives are lost, the restore gives a state that existed, or reports the loss.
#[test]
fn segments_of_several_lives_may_be_lost() {
    let (mut states, mut refusals) = (0, 0);
    for seed in 0..12 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut world = World::new(seed);
        world.set_any(&mut rng);
        world.back_up();
        for _ in 0..4 {
            (0..rng.usize(1..12)).for_each(|_| world.set_any(&mut rng));
            world.flush();
            if rng.u8(..3) == 0 {
                world.archive();
            }
            world.crash(rng.u64(..));
        }
        world.kill();
        let files = world.log.files();
        let names: Vec<String> = files.into_iter().map(|(name, _)| name).collect();
        let snapshot = world.log.snapshot();
        for _ in 0..40 {
            let lost = names
                .iter()
                .filter(|name| name.contains("-i") && rng.u8(..3) == 0);
            for name in lost {
                world.log.life().remove(name).expect("a disk");
            }
            match restored(&world, &world.log) {
                Ok((disks, epoch)) => {
                    states += 1;
                    let core = disks.open().expect("it opens");
                    assert_eq!(values(&core), world.state(epoch), "seed {seed}");
                }
                Err(Error::Corrupt(_)) => refusals += 1,
                Err(error) => panic!("seed {seed}: {error}"),
            }
            world.log.restore(&snapshot);
        }
    }
    assert!(states > 10 && refusals > 10, "{states} and {refusals}");
}

#[test]
fn a_torn_tail_of_the_log_is_judged_as_a_restart_judges_it() {
    for seed in 0..40 {
        let mut world = ahead(seed);
        let mut rng = fastrand::Rng::with_seed(seed);
        world.reopen();
        (0..5).for_each(|_| world.set_any(&mut rng));
        world.flush_some(&mut rng);
        world.kill();
        let profile = CrashProfile::ALL[rng.usize(..4)];
        world.data.crash(profile, seed);
        world.log.crash(profile, seed);
        let (disks, epoch) = restored(&world, &world.log).expect("a log with a torn tail");
        world.reopen();
        let durable = Epoch(world.core().report().durable_epoch);
        assert_eq!(epoch, durable, "seed {seed}");
        assert_eq!(
            values(&disks.open().expect("it opens")),
            values(world.core())
        );
    }
}

/// An older copy of a log directory passed for the newest one, although the nodes' view knew a later durable epoch.
#[test]
fn a_log_that_ends_before_an_epoch_that_it_had_is_refused_unless_the_loss_is_accepted() {
    let mut world = World::new(3);
    world.back_up();
    world.set(1, Some(b"kept".to_vec()));
    world.flush();
    world.kill();
    let store = world.store().expect("the archive");
    let logs: Vec<Arc<dyn Disk>> = (0..STREAMS)
        .map(|_| world.log.life() as Arc<dyn Disk>)
        .collect();
    let read = |had: Epoch, accept_loss: bool| {
        let complete = |_: Option<Vec<DrainLife>>, _: &EpochEnds| Ok(had);
        let log = Surviving {
            complete: Some(&complete),
            accept_loss,
            ..Surviving::on(&logs)
        };
        let scratch = Scratch::begin(SimDisk::new(1).life())?;
        read_tail(&store, &log, &scratch)
    };
    let whole = read(Epoch(0), false).expect("the whole log");
    let end = whole.runs.last().expect("a run").id().epochs.last();
    assert_eq!(whole.lost_to, None);
    assert_eq!(read(end, false).expect("it has the epoch").lost_to, None);
    let later = Epoch(end.0 + 1);
    let refused = read(later, false).map(drop).expect_err("it is shorter");
    assert!(refused.to_string().contains("--accept-loss"), "{refused}");
    let accepted = read(later, true).expect("the loss is accepted");
    assert_eq!(accepted.lost_to, Some(later));
}

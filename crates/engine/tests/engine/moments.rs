//! Restores to given times.

use perdura_base::Epoch;
use perdura_device::{Clock as _, Disk as _};
use perdura_restore::At;

use crate::lost_disk::{World, carry_out, values};

/// A time in microseconds. Blocks that are sealed together get ascending times, some microseconds apart. This time is
/// longer than any such difference.
const TOLD_US: u64 = 5_000;

/// Returns the epoch, time and values that a restore reaches.
fn restored(world: &World, at: At) -> (Epoch, u64, std::collections::BTreeMap<usize, Vec<u8>>) {
    let plan = world
        .plan(Some(at))
        .unwrap_or_else(|error| panic!("{at}: {error}"));
    let (disks, report) = carry_out(&plan).expect("a restore");
    let core = disks.open().expect("it opens");
    (report.epoch, report.wall_us, values(&core))
}

fn written(seed: u64, rounds: usize) -> World {
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut world = World::new(seed);
    world.back_up();
    for round in 0..rounds {
        (0..rng.usize(1..4)).for_each(|_| world.set_any(&mut rng));
        world.flush();
        match rng.u8(..8) {
            0..2 => world.archive(),
            2 if round % 3 == 0 => world.back_up(),
            3 if round % 2 == 0 => world.crash(rng.u64(..)),
            _ => {}
        }
    }
    world.archive();
    world
}

#[test]
fn a_time_is_the_state_that_was_acknowledged_up_to_then() {
    for seed in 0..6 {
        let world = written(seed, 40);
        let whole = world.plan(None).expect("the archive's end");
        let (last, end_us) = (whole.target(), whole.wall_us());
        assert_eq!(restored(&world, At::BeforeEnd(0)).0, last);
        for change in world.changes.iter().step_by(7) {
            let time = change.wall_us + TOLD_US;
            if time > end_us {
                continue;
            }
            let (epoch, wall_us, found) = restored(&world, At::Time(time));
            assert!(wall_us <= time);
            let by_then = world.changes.iter().filter(|other| other.wall_us <= time);
            let newest = by_then.map(|change| change.epoch).max().expect("a change");
            assert_eq!(
                found,
                world.state(newest),
                "seed {seed}: what was durable by then"
            );
            assert_eq!(found, world.state(epoch), "seed {seed}, {epoch}");
        }
        let refused = |at| {
            world
                .plan(Some(at))
                .map(drop)
                .expect_err("out of range")
                .to_string()
        };
        for at in [
            At::Time(1),
            At::Time(end_us + 1),
            At::Ago(u64::MAX),
            At::BeforeEnd(u64::MAX),
        ] {
            let refused = refused(at);
            let range = refused.contains("Its moments are from 2023-11-14T");
            assert!(
                range && refused.contains(&format!("(epoch {last})")),
                "{refused}"
            );
        }
        let beyond = refused(At::Epoch(Epoch(last.0 + 1)));
        assert!(beyond.contains("but only those of"), "{beyond}");
    }
}

/// The clock is set back twice, once with a crash in between. A time before both is the state at that time. A time that
/// the clock showed again is refused with the epochs that it may mean, and each of them is a state that was there.
#[test]
fn a_time_that_the_clock_showed_twice_names_its_epochs() {
    let mut rng = fastrand::Rng::with_seed(4);
    let mut world = World::new(4);
    world.back_up();
    let mut shown = Vec::new();
    for round in 0..60u64 {
        world.set_any(&mut rng);
        world.flush();
        world.clock.set_wall_us(world.clock.wall_us() + 500_000);
        shown.push(world.changes.last().map_or(0, |change| change.wall_us));
        if round % 4 == 1 {
            world.archive();
        }
        match round {
            20 | 41 => world.clock.set_wall_us(shown[5] + 1_000),
            30 => world.crash(rng.u64(..)),
            _ => {}
        }
    }
    world.archive();
    let before = world
        .changes
        .iter()
        .filter(|change| change.wall_us == shown[3]);
    let before = before.map(|change| change.epoch).max().expect("a change");
    assert_eq!(restored(&world, At::Time(shown[3] + TOLD_US)).0, before);
    let mut ambiguous = 0;
    for time in (shown[6]..shown[20]).step_by(1_000_000) {
        let refused = world.plan(Some(At::Time(time))).map(drop);
        let refused = refused.expect_err("shown twice").to_string();
        assert!(refused.contains("ambiguous"), "{refused}");
        let epochs = refused
            .rsplit("Give one of its epochs: ")
            .next()
            .expect("epochs");
        for epoch in epochs.split("epoch ").skip(1) {
            let digits: String = epoch.chars().take_while(char::is_ascii_digit).collect();
            let epoch = Epoch(digits.parse().expect("an epoch"));
            let (_, wall_us, found) = restored(&world, At::Epoch(epoch));
            assert!(wall_us <= time, "{refused}");
            assert_eq!(found, world.state(epoch));
            ambiguous += 1;
        }
    }
    assert!(ambiguous > 10, "{ambiguous} candidates");
    let steps = world
        .store()
        .expect("an archive")
        .manifest()
        .clock
        .steps
        .clone();
    assert_eq!(
        steps.iter().filter(|step| step.is_back()).count(),
        2,
        "{steps:?}"
    );
}

/// A time at which nothing was written used to be "not in the archive".
#[test]
fn a_time_of_an_idle_hour_is_the_last_state() {
    const MINUTE_US: u64 = 60_000_000;
    let mut world = written(2, 30);
    let end = world.plan(None).expect("the archive's end");
    let (last, end_us) = (end.target(), end.wall_us());
    let beyond = |minutes: u64| At::Time(end_us + minutes * MINUTE_US);
    assert!(
        world.plan(Some(beyond(5))).is_err(),
        "nobody vouches for it yet"
    );
    world.clock.advance_us(10 * MINUTE_US);
    world.archive();
    for minutes in [1, 5, 9] {
        let (epoch, _, found) = restored(&world, beyond(minutes));
        assert_eq!(
            (epoch, found),
            (last, world.state(last)),
            "{minutes} minutes later"
        );
    }
    assert_eq!(restored(&world, At::Ago(5 * MINUTE_US)).0, last);
    let refused = world
        .plan(Some(beyond(11)))
        .map(drop)
        .expect_err("nobody knows");
    assert!(
        refused.to_string().contains("still the last one"),
        "{refused}"
    );

    // Something is written and not archived. So the archive vouches for no later time.
    let mut rng = fastrand::Rng::with_seed(3);
    world.set_any(&mut rng);
    world.flush();
    world.clock.advance_us(10 * MINUTE_US);
    let refused = world.plan(Some(beyond(15))).map(drop);
    assert!(refused.is_err(), "the archive lacks a commit of that time");
    world.archive();
    world.clock.advance_us(MINUTE_US);
    world.archive();
    let newest = world.changes.iter().map(|change| change.epoch).max();
    assert_eq!(restored(&world, beyond(15)).0, newest.expect("a change"));
    assert_eq!(restored(&world, beyond(5)).0, last, "the idle hour stays");
}

/// The clock was set back, and a run followed that no manifest named yet. The manifest's reading of the clock, from
/// before, vouched for that run. So a time before the first moment led to the last state (crash run 829944).
#[test]
fn a_manifest_vouches_for_no_run_that_it_does_not_name() {
    let mut rng = fastrand::Rng::with_seed(4);
    let mut world = World::new(4);
    world.back_up();
    world.set_any(&mut rng);
    world.flush();
    world.archive();
    let named = world.store().expect("an archive").manifest();
    let hour_us = 3_600_000_000;
    let before = world.clock.wall_us() - hour_us;
    world.clock.set_wall_us(before - hour_us);
    world.set_any(&mut rng);
    world.flush();
    world.archive();
    // The disk loses the newer manifests, and keeps the run.
    let later = |path: &str| {
        let number = path
            .rsplit_once("manifest-")
            .map(|(_, number)| number.parse::<u64>());
        matches!(number, Some(Ok(number)) if number > named.number)
    };
    world.kill();
    world.leave();
    world.come_back(perdura_device::CrashProfile::Killed, 1);
    for (path, _) in world.archive.files() {
        if later(&path) {
            world.archive.life().remove(&path).expect("a manifest");
        }
    }
    let store = world.store().expect("an archive");
    assert_eq!(
        store.unnamed_runs(&store.manifest()).expect("a run").len(),
        1
    );
    let refused = At::Time(before).resolve(&store, &[], before + 2 * hour_us);
    let text = refused.expect_err("no moment is known then").to_string();
    assert!(text.contains("is not in the archive"), "{text}");
}

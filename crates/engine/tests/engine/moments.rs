//! Restores to given times.

use perdura_base::Epoch;
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
        for at in [At::Time(1), At::Time(end_us + 1), At::BeforeEnd(u64::MAX)] {
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

#[test]
fn a_clock_that_is_set_back_makes_no_later_moment_earlier() {
    let mut rng = fastrand::Rng::with_seed(4);
    let mut world = World::new(4);
    world.back_up();
    let mut shown = Vec::new();
    for round in 0..60u64 {
        world.set_any(&mut rng);
        world.flush();
        shown.push(world.changes.last().map_or(0, |change| change.wall_us));
        if round % 4 == 1 {
            world.archive();
        }
        match round {
            20 | 41 => world.clock.set_wall_us(shown[5]),
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
    let (mut last, mut epochs) = (Epoch(0), 0);
    let end = shown.iter().max().expect("rounds");
    let mut time = shown[0];
    while let Ok(plan) = world.plan(Some(At::Time(time))) {
        assert!(
            plan.target() >= last,
            "{} after {last} at {time}",
            plan.target()
        );
        assert!(plan.wall_us() <= time);
        epochs += u32::from(plan.target() > last);
        last = plan.target();
        time += 5_000;
    }
    assert!(time >= *end && epochs > 20, "{epochs} epochs up to {time}");
}

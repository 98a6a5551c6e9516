//! Simulations of many lives of a mirrored log, and a check that they find seeded bugs.

use crate::world::{Seen, World};

fn lives(seeds: std::ops::Range<u64>, steps: usize) -> Result<Seen, (u64, String)> {
    let mut all = Seen::default();
    for seed in seeds {
        let mut world = World::new(seed, true);
        world.run(steps).map_err(|why| (seed, why))?;
        all.add(&world.seen);
    }
    Ok(all)
}

#[test]
fn what_was_acknowledged_comes_back_or_the_takeover_says_that_it_cannot() {
    let seeds: Option<u64> = std::env::var("PERDURA_MIRROR_SEEDS")
        .ok()
        .and_then(|text| text.parse().ok());
    let seen = lives(0..seeds.unwrap_or(1000), 600)
        .unwrap_or_else(|(seed, why)| panic!("seed {seed}: {why}"));
    println!("{seen:?}");
    let rare = [
        seen.lives,
        seen.drained,
        seen.mirrored,
        seen.ahead,
        seen.losses,
        seen.views,
        seen.deposed,
        seen.stops,
        seen.damaged,
        seen.leases_over,
    ];
    assert!(rare.iter().all(|count| *count >= 10), "{seen:?}");
}

#[test]
fn every_message_may_be_lost_once() {
    let (mut frames, mut seen) = (0, Seen::default());
    for seed in 0..10 {
        let mut whole = World::new(seed, false);
        whole.run(250).unwrap();
        seen.add(&whole.seen);
        for lost in 0..whole.seen.frames {
            let mut world = World::new(seed, false);
            world.lose_frame(lost);
            world
                .run(250)
                .unwrap_or_else(|why| panic!("seed {seed} without frame {lost}: {why}"));
            frames += 1;
        }
    }
    let rare = [seen.ahead, seen.drained, seen.mirrored, seen.stops];
    assert!(
        frames > 1000 && rare.iter().all(|count| *count > 0),
        "{frames} frames, {seen:?}"
    );
}

/// The maximum number of simulations that the test may run to find one seeded bug. The limit is a count and not a time,
/// so slow and fast machines run the same simulations.
#[cfg(feature = "flaws")]
const HUNT_SEEDS: u64 = 40_000;

/// The simulation creates the conditions under which each seeded bug shows. The test fails if a bug is no longer found.
#[cfg(feature = "flaws")]
#[test]
fn seeded_bugs_are_found() {
    use perdura_base::flaw::{Flaw, arm};
    use std::panic::{catch_unwind, set_hook, take_hook};
    let run = |seed| match catch_unwind(|| lives(seed..seed + 1, 600)) {
        Ok(found) => found.err().map(|(_, why)| why),
        Err(panic) => Some(match panic.downcast::<String>() {
            Ok(why) => format!("an assertion: {why}"),
            Err(_) => "an assertion".to_owned(),
        }),
    };
    let hook = take_hook();
    set_hook(Box::new(|_| {}));
    let mut wrong = Vec::new();
    for flaw in Flaw::MIRROR {
        let begun = std::time::Instant::now();
        arm(Some(flaw));
        let found = (0..HUNT_SEEDS).find_map(|seed| Some((seed, run(seed)?)));
        arm(None);
        let seconds = begun.elapsed().as_secs_f64();
        let Some((seed, why)) = found else {
            wrong.push(format!("{flaw:?} is not found"));
            continue;
        };
        println!("{flaw:?}: {seconds:.2} s, seed {seed}: {why}");
        if let Some(why) = run(seed) {
            wrong.push(format!("seed {seed} fails without {flaw:?}: {why}"));
        }
    }
    set_hook(hook);
    assert!(wrong.is_empty(), "{wrong:#?}");
}

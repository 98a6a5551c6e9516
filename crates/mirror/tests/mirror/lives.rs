//! Many lives of a mirrored log under a seed, and the mistakes that they must find.

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

#[cfg(feature = "flaws")]
#[test]
fn seeded_bugs_are_found() {
    use perdura_base::flaw::{Flaw, arm};
    for flaw in Flaw::MIRROR {
        arm(Some(flaw));
        let found = std::panic::catch_unwind(|| lives(0..40_000, 600));
        arm(None);
        match found {
            Ok(Ok(seen)) => panic!("{flaw:?} is not found: {seen:?}"),
            Ok(Err((seed, why))) => println!("{flaw:?}: seed {seed}: {why}"),
            Err(_) => println!("{flaw:?}: an assertion"),
        }
    }
}

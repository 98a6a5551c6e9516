//! A model of a tree that is changed, written, checkpointed and crashed over several lives. The code under test makes
//! notes (the monitor) and uses the notes at restart (the analyses).
//!
//! The model has streams of a log with commit epochs, pages with keys between fences, splits, page writes that become
//! durable late, kills, power cuts and interrupted restarts. After each crash every method of redo must reach the state
//! that the log describes. If a method skips an operation without reading a page, the operation's page on disk must
//! contain the operation. The model must detect mistakes in the code (`Flaw::TREE`) and around it ([`Mistake`]).

pub mod restart;
pub mod world;

use perdura_base::flaw::{Flaw, arm};
use restart::Counts;
use world::{Mistake, World};

/// Each mistake must show within this many runs. Each run has its own seed. A time limit would make a slow machine try
/// fewer seeds.
const HUNT_RUNS: u64 = 20_000;

/// Count of lives in a run. A life ends with a crash.
const LIVES: usize = 4;

fn run(seed: u64, mistake: Option<Mistake>, counts: &mut Counts) -> Result<(), String> {
    let mut world = World::new(seed, mistake);
    for _ in 0..LIVES {
        world.live();
        world.crash()?;
        world.restart(counts)?;
    }
    Ok(())
}

/// Returns the first seed that fails because of the mistake, and a description of the failure.
fn hunt(flaw: Option<Flaw>, mistake: Option<Mistake>) -> Option<(u64, String)> {
    let found = (0..HUNT_RUNS).find_map(|seed| {
        arm(flaw);
        let ran = run(seed, mistake, &mut Counts::default());
        arm(None);
        Some((seed, ran.err()?))
    });
    if let Some((seed, _)) = found {
        let innocent = run(seed, None, &mut Counts::default());
        assert_eq!(innocent, Ok(()), "seed {seed} without the mistake");
    }
    found
}

fn hold(runs: u64) {
    let mut counts = Counts::default();
    for seed in 0..runs {
        let ran = run(seed, None, &mut counts);
        assert_eq!(ran, Ok(()), "seed {seed}");
    }
    println!("{runs} runs: {counts:?}");
    assert!(
        counts.skipped > runs && counts.redone > runs && counts.interrupted > runs / 20,
        "{counts:?}"
    );
}

#[test]
fn every_method_comes_to_the_state_that_the_log_tells() {
    hold(3_000);
}

#[test]
#[ignore = "a minute: what every change of monitor and analyses should pass"]
fn thirty_thousand_chains_of_lives_hold() {
    hold(30_000);
}

#[test]
fn every_mistake_in_the_code_shows() {
    for flaw in Flaw::TREE {
        let shown = hunt(Some(flaw), None);
        println!("{flaw:?}: {shown:?}");
        assert!(shown.is_some(), "{flaw:?} does not show");
    }
}

#[test]
fn every_mistake_around_it_shows() {
    for mistake in Mistake::ALL {
        let shown = hunt(None, Some(mistake));
        println!("{mistake:?}: {shown:?}");
        assert!(shown.is_some(), "{mistake:?} does not show");
    }
}

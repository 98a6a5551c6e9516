//! Tests of the model of differential logging. The corrected algorithm keeps every promise in every history. Each
//! known mistake breaks a promise in some history.

use crate::tests::model_dl::{Twist, Twists, VARIANTS, run_variant};

/// Each mistake must break a promise within this many runs. The limit counts runs, not time, so that a slow machine
/// tries no fewer seeds.
const HUNT_RUNS: u64 = 10_000;
/// The number of runs in one batch. The test looks for failures after each batch.
const PART: u64 = 500;

fn sound_variants_hold(runs: u64) {
    for variant in VARIANTS.iter().filter(|variant| variant.sound) {
        let outcome = run_variant(variant.twists, 1, runs, 1);
        println!("{}: {outcome:?}", variant.name);
        assert_eq!(outcome.first, None, "{}", variant.name);
        assert_eq!(outcome.runs, runs);
    }
}

#[test]
fn every_sound_variant_keeps_every_promise() {
    sound_variants_hold(2_000);
}

#[test]
fn every_mistake_shows() {
    let mut hidden = Vec::new();
    for variant in VARIANTS.iter().filter(|variant| !variant.sound) {
        let mut seeds = (0..HUNT_RUNS / PART).map(|part| 1 + part * PART);
        let shown = seeds.find_map(|seed| run_variant(variant.twists, seed, PART, 1).first);
        println!("{}: {shown:?}", variant.name);
        if shown.is_none() {
            hidden.push(variant.name);
        }
    }
    assert!(hidden.is_empty(), "not shown: {hidden:?}");
}

#[test]
fn the_same_seed_gives_the_same_verdict() {
    let twists = Twists::of(&[Twist::NoCompensation]);
    let first = run_variant(twists, 1, 200, u64::MAX);
    let again = run_variant(twists, 1, 200, u64::MAX);
    assert!(first.failures > 0);
    assert_eq!((first.failures, first.first), (again.failures, again.first));
}

#[test]
#[ignore = "ten seconds: what every change of the rule should pass"]
fn thirty_thousand_histories_of_every_sound_variant_keep_every_promise() {
    sound_variants_hold(30_000);
}

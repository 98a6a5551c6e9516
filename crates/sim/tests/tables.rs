//! The simulator of typed tables against the engine, and against the engine with seeded bugs.
//!
//! The default is short; `--ignored` runs the long forms.

mod common;

use common::{
    a_violation_is_replayed, each_is_caught, every_promise_is_kept_and_every_fault_strikes,
};
use perdura_base::flaw::Flaw;
use perdura_sim::{CrashOptions, CrashReport, Mode, run};

fn runs(seed: u64, runs: u64) -> CrashReport {
    common::runs(Mode::Tables, seed, runs)
}

/// The seeded bugs of cuts that the product's mode sees too, in half of its runs.
const SHARED: [Flaw; 4] = [
    Flaw::CleanAtCutTakenForBorn,
    Flaw::KeptVisitClearsDirty,
    Flaw::SecondCutOverwritesKept,
    Flaw::SnapshotRaisesG,
];

#[test]
fn random_crash_chains_keep_every_promise() {
    every_promise_is_kept_and_every_fault_strikes(Mode::Tables);
}

#[test]
fn crashes_meet_frames_to_be_played_and_open_snapshots() {
    let report = runs(1, 200);
    for mark in ["frame_played", "snapshot_open"] {
        assert!(report.reached.contains_key(mark), "{mark} never came");
    }
}

#[test]
fn the_same_seeds_give_the_same_trace() {
    let first = runs(77, 40);
    assert_eq!(first.trace, runs(77, 40).trace);
    assert_ne!(first.trace, runs(78, 40).trace);
}

/// What each seeded bug needs to be seen is a property of the simulator: losing the ability to
/// see one fails here.
#[test]
fn every_seeded_bug_of_typed_tables_is_caught() {
    let flaws: Vec<Flaw> = Flaw::TABLES
        .into_iter()
        .chain(Flaw::ORDERED)
        .chain(SHARED)
        .collect();
    each_is_caught(Mode::Tables, &flaws, || None);
}

#[test]
fn a_report_names_the_seed_that_fails_and_one_run_of_it_fails_again() {
    a_violation_is_replayed(Mode::Tables, "tables", Flaw::ReplayReadsClock, 400);
}

#[test]
#[ignore = "minutes: what every change should pass; PERDURA_SEED and PERDURA_RUNS choose others"]
fn twenty_thousand_runs_keep_every_promise() {
    std::panic::set_hook(Box::new(|_| {}));
    let number = |name: &str, usual| {
        std::env::var(name).map_or(usual, |text| text.parse().expect("a number"))
    };
    let options = CrashOptions {
        mode: Mode::Tables,
        seed: number("PERDURA_SEED", 1_000_000),
        runs: number("PERDURA_RUNS", 20_000),
        ..CrashOptions::default()
    };
    let report = run(&options, |_| {});
    println!("{report:#?}");
    assert!(report.violations.is_empty(), "{:#?}", report.violations);
}

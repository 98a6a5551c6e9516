//! Tests of the simulator's steal mode: with the engine as it is, and with seeded bugs in it.
//!
//! The default run is short; `--ignored` runs the long forms.

use crate::tests::common;

use crate::Mode;
use perdura_base::flaw::Flaw;

/// Seeded bugs in code that steal mode shares with the product. Steal mode has no update numbers that would reveal
/// these bugs, so the oracle must find the bugs.
const SHARED: [Flaw; 15] = [
    Flaw::ImpureBlocks,
    Flaw::CutIgnored,
    Flaw::VoidTailRevived,
    Flaw::BornPagesSwept,
    Flaw::OtherImageTrusted,
    Flaw::RestartChangesClean,
    Flaw::CkptEpochReused,
    Flaw::AnchorBeforeLog,
    Flaw::AnchorBeforeImage,
    Flaw::OneStreamSuffices,
    Flaw::NoBuildingMark,
    Flaw::TruncateAtNewer,
    Flaw::CopyAfterLatch,
    Flaw::JunkBeyondDirectory,
    Flaw::FailedWriteClean,
];

#[test]
fn random_crash_chains_keep_every_promise() {
    common::every_promise_is_kept_and_every_fault_strikes(Mode::Steal);
}

#[test]
fn the_same_seeds_give_the_same_trace() {
    common::the_same_seeds_give_the_same_trace(Mode::Steal);
}

/// A seeded bug shows only under conditions that the simulator must create. This test fails if the simulator no
/// longer finds one of the bugs.
#[test]
fn every_seeded_bug_of_steal_mode_is_caught() {
    let flaws: Vec<Flaw> = Flaw::STEAL.into_iter().chain(SHARED).collect();
    common::each_is_caught(Mode::Steal, &flaws, || None);
}

#[test]
fn a_report_names_the_seed_that_fails_and_one_run_of_it_fails_again() {
    common::a_violation_is_replayed(Mode::Steal, "steal", Flaw::NoClr, 400);
}

#[test]
#[ignore = "minutes: what every change should pass; PERDURA_SEED and PERDURA_RUNS choose others"]
fn twenty_thousand_runs_keep_every_promise() {
    common::twenty_thousand_runs_keep_every_promise(Mode::Steal);
}

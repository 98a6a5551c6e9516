//! Tests of the simulator's mirror mode: with the engine as it is, and with seeded bugs in it.
//!
//! The default run is short; `--ignored` runs the long form.

use crate::tests::common;

use crate::Mode;
use perdura_base::flaw::Flaw;

#[test]
fn random_lives_and_takeovers_keep_every_promise() {
    common::every_promise_is_kept_and_every_fault_strikes(Mode::Mirror);
}

#[test]
fn lives_and_takeovers_meet_every_state() {
    let report = common::runs(Mode::Mirror, 1, 400);
    for mark in MARKS {
        assert!(report.reached.contains_key(mark), "{mark} never came");
    }
}

/// The names of rare states. A few hundred runs together must reach all of these states.
const MARKS: [&str; 20] = [
    "acknowledged_asleep",
    "acknowledged_lost",
    "ahead_of_disk",
    "clean_end",
    "deposed_and_fenced",
    "deposed_woken",
    "died_with_both",
    "died_with_one",
    "disk",
    "disks_taken_away",
    "drained",
    "fell_asleep",
    "lease_over",
    "loss_accepted",
    "loss_refused",
    "mirror",
    "open_interrupted",
    "refused_alone",
    "solo",
    "stream_moved",
];

#[test]
fn the_same_seeds_give_the_same_trace() {
    common::the_same_seeds_give_the_same_trace(Mode::Mirror);
}

/// The seeded bugs of the mirror that random runs find soon. The test also arms seeded bugs of the log below the
/// mirror. Other bugs of the mirror show only if frames have a rare order. Only `crates/mirror/tests/mirror/lives.rs`
/// produces this order often enough. That test simulates the mirror alone.
const SEEN: [Flaw; 11] = [
    Flaw::GenerationUnchecked,
    Flaw::SoloBeforeFlush,
    Flaw::MirrorBeforeAnchor,
    Flaw::DiskBeforeTail,
    Flaw::LowAtWrite,
    Flaw::RingsRetiredEarly,
    Flaw::SentCounts,
    Flaw::SealForgotten,
    Flaw::EmptyNodeSuffices,
    Flaw::GenerationKept,
    Flaw::FenceIgnored,
];

/// A seeded bug shows only under conditions that the simulator must create. This test fails if the simulator no
/// longer finds one of the bugs.
#[test]
fn every_seeded_bug_of_the_mirror_is_caught() {
    // This bug makes an image depend on nodes. Only one of thousands of runs finds it.
    let below = Flaw::MIRROR_LOG.into_iter();
    let below = below.filter(|flaw| *flaw != Flaw::ImageOnMirror);
    let flaws: Vec<Flaw> = SEEN.into_iter().chain(below).collect();
    common::each_is_caught(Mode::Mirror, &flaws, || None);
}

#[test]
fn a_report_names_the_seed_that_fails_and_one_run_of_it_fails_again() {
    common::a_violation_is_replayed(Mode::Mirror, "mirror", Flaw::SoloBeforeFlush, 2000);
}

#[test]
#[ignore = "minutes: what every change should pass; PERDURA_SEED and PERDURA_RUNS choose others"]
fn twenty_thousand_runs_keep_every_promise() {
    common::twenty_thousand_runs_keep_every_promise(Mode::Mirror);
}

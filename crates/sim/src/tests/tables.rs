//! Tests of the simulator's tables mode: with the engine as it is, and with seeded bugs in it.
//!
//! The default run is short; `--ignored` runs the long forms.

use crate::tests::common;

use crate::Mode;
use perdura_base::flaw::Flaw;

/// Seeded bugs of cuts. A cut is the instant of a snapshot or a checkpoint. The product's mode also finds these bugs,
/// in half of its runs.
const SHARED: [Flaw; 4] = [
    Flaw::CleanAtCutTakenForBorn,
    Flaw::KeptVisitClearsDirty,
    Flaw::SecondCutOverwritesKept,
    Flaw::SnapshotRaisesG,
];

/// Seeded bugs of the mirror. Only runs with nodes can find them. A quarter of all runs have nodes.
const OF_NODES: [Flaw; 4] = [
    Flaw::SealedAnew,
    Flaw::DrainedFromVouched,
    Flaw::VouchedOnMirror,
    Flaw::RingsRetiredEarly,
];

#[test]
fn random_crash_chains_keep_every_promise() {
    common::every_promise_is_kept_and_every_fault_strikes(Mode::Tables);
}

#[test]
fn crashes_meet_frames_to_be_played_and_open_snapshots() {
    let report = common::runs(Mode::Tables, 1, 200);
    for mark in ["frame_played", "snapshot_open", "mirrored", "ahead_of_disk"] {
        assert!(report.reached.contains_key(mark), "{mark} never came");
    }
}

#[test]
fn the_same_seeds_give_the_same_trace() {
    common::the_same_seeds_give_the_same_trace(Mode::Tables);
}

/// A seeded bug shows only under conditions that the simulator must create. This test fails if the simulator no
/// longer finds one of the bugs.
#[test]
fn every_seeded_bug_of_typed_tables_is_caught() {
    let flaws: Vec<Flaw> = Flaw::TABLES
        .into_iter()
        .chain(Flaw::ORDERED)
        .chain(SHARED)
        .chain(OF_NODES)
        .collect();
    common::each_is_caught(Mode::Tables, &flaws, || None);
}

#[test]
fn a_report_names_the_seed_that_fails_and_one_run_of_it_fails_again() {
    common::a_violation_is_replayed(Mode::Tables, "tables", Flaw::ReplayReadsClock, 400);
}

#[test]
#[ignore = "minutes: what every change should pass; PERDURA_SEED and PERDURA_RUNS choose others"]
fn twenty_thousand_runs_keep_every_promise() {
    common::twenty_thousand_runs_keep_every_promise(Mode::Tables);
}

/// A crash lost an epoch, and the next open reused the epoch's id. Another crash interrupted this open, so the oracle
/// did not compare the state of this open. After the next restart, an earlier version of the oracle wrongly expected a
/// transaction of the lost epoch.
#[test]
fn an_epoch_that_nothing_was_written_of_and_a_failed_open_share_a_number() {
    for seed in [2_023_835, 2_027_269] {
        let report = common::runs(Mode::Tables, seed, 1);
        assert!(report.violations.is_empty(), "seed {seed}");
    }
}

/// A write of a page-addressed row left the page as it was, so it had no record. Its ticket is of the latched
/// partitions, and an earlier version of the oracle took it for the row's epoch.
#[test]
fn a_write_that_changes_nothing_has_no_epoch() {
    let report = common::runs(Mode::Tables, 50_025_574, 1);
    assert!(report.violations.is_empty(), "{:?}", report.violations);
}

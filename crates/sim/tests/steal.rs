//! The simulator of steal mode against the engine, and against the engine with seeded bugs.
//!
//! The default is short; `--ignored` runs the long forms.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use perdura_base::flaw::{Flaw, arm};
use perdura_sim::{CrashOptions, CrashReport, Mode, run};

fn runs(seed: u64, runs: u64) -> CrashReport {
    let options = CrashOptions {
        mode: Mode::Steal,
        seed,
        runs,
        violations_max: 1,
        ..CrashOptions::default()
    };
    run(&options, |_| {})
}

/// Within this time each seeded bug is caught by a release build.
const HUNT: Duration = Duration::from_secs(10);

/// The seeded bugs of parts that both modes share and that this mode's own oracle must notice:
/// there are no update numbers here that would.
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

/// Looks for a contradiction with a bug armed.
fn hunt(limit: Duration) -> Option<String> {
    let start = Instant::now();
    let mut seed = 1;
    while start.elapsed() < limit {
        let report = runs(seed, 50);
        if let Some(violation) = report.violations.first() {
            return Some(format!("seed {}: {}", violation.seed, violation.what));
        }
        seed += 50;
    }
    None
}

#[test]
fn random_crash_chains_keep_every_promise() {
    let report = runs(1, 400);
    assert!(report.violations.is_empty(), "{:#?}", report.violations);
    assert_eq!(report.runs, 400);
    assert!(report.transactions >= 20 * report.runs);
    assert!(report.checkpoints >= report.runs);
    assert!(report.crashes >= report.runs && report.restarts > report.runs);
    for kind in [
        "power_cut",
        "torn_sector",
        "lost_write",
        "lost_name",
        "sync_failed",
        "enospc",
        "rot",
        "write_failed",
        "read_failed",
    ] {
        assert!(report.faults.contains_key(kind), "{kind} never struck");
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
fn every_seeded_bug_of_steal_mode_is_caught() {
    std::panic::set_hook(Box::new(|_| {}));
    // A build without optimization is slower by this.
    let limit = if cfg!(debug_assertions) {
        6 * HUNT
    } else {
        HUNT
    };
    let flaws: Vec<Flaw> = Flaw::STEAL.into_iter().chain(SHARED).collect();
    let (next, escaped) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    // What is armed is armed for one thread only.
    let work = || {
        while let Some(flaw) = flaws.get(next.fetch_add(1, Ordering::Relaxed)) {
            arm(Some(*flaw));
            let start = Instant::now();
            let caught = hunt(limit);
            let seconds = start.elapsed().as_secs_f64();
            println!(
                "{flaw:?}: {seconds:.2} s, {}",
                caught.as_deref().unwrap_or("not caught")
            );
            if caught.is_none() {
                escaped.lock().unwrap().push(*flaw);
            }
        }
    };
    std::thread::scope(|scope| (0..2).for_each(|_| drop(scope.spawn(work))));
    let escaped = escaped.into_inner().unwrap();
    assert!(escaped.is_empty(), "not caught: {escaped:?}");
}

#[test]
fn a_report_names_the_seed_that_fails_and_one_run_of_it_fails_again() {
    arm(Some(Flaw::NoClr));
    let report = runs(1, 400);
    let violation = report.violations.first().expect("the bug is caught");
    let command = format!(
        "perdura crash --mode steal --seed {} --runs 1",
        violation.seed
    );
    assert_eq!(violation.replay_command, command);
    let again = runs(violation.seed, 1);
    assert_eq!(again.violations.first(), Some(violation));
    arm(None);
    assert!(
        runs(violation.seed, 1).violations.is_empty(),
        "it is the bug and not the seed"
    );
}

#[test]
#[ignore = "a minute: what every change should pass"]
fn twenty_thousand_runs_keep_every_promise() {
    let report = runs(1_000_000, 20_000);
    assert!(report.violations.is_empty(), "{:#?}", report.violations);
    println!("{report:#?}");
}

//! The tests that all modes share. They check that random runs show no violation, and that every kind of fault occurs.
//! They also check that a replay of a failed run fails again. Every seeded bug must be found within a limit of runs.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use crate::{CrashOptions, CrashReport, Mode, run};
use perdura_base::flaw::{Flaw, arm};

/// Each seeded bug must be found within this many runs. The limit counts runs, not time, so that a slow machine tries
/// no fewer seeds.
const HUNT_RUNS: u64 = 30_000;
/// The number of runs in one batch. `hunt` looks for violations after each batch.
const BATCH: u64 = 50;
/// Rarely found bugs, each with the seed of a run that finds the bug. `hunt` tries this seed first. If this run no
/// longer finds the bug, `hunt` tries all seeds, which takes minutes. Then replace the seed here by the new seed.
const RARE: [(Mode, Flaw, u64); 21] = [
    (Mode::Executor, Flaw::TruncateBeforeAnchor, 344),
    (Mode::Executor, Flaw::TextKeptByDraft, 334),
    (Mode::Executor, Flaw::LocksNotKept, 778),
    (Mode::Executor, Flaw::DamageForHole, 1426),
    (Mode::Executor, Flaw::KeptVisitClearsDirty, 1918),
    (Mode::Steal, Flaw::FailedWriteClean, 1877),
    (Mode::Tables, Flaw::AbortKeepsDirtyBit, 487),
    (Mode::Archive, Flaw::BacklogForgottenEarly, 672),
    (Mode::Archive, Flaw::TagBelowKeptBackup, 357),
    (Mode::Archive, Flaw::PinnedSlotOverwritten, 724),
    (Mode::Archive, Flaw::LifeEndNotCompared, 66),
    (Mode::Archive, Flaw::JumpCountsAsAge, 100),
    (Mode::Archive, Flaw::IdleHourVouchedEarly, 5718),
    (Mode::Tree, Flaw::RestartTellsWrites, 455),
    (Mode::Tree, Flaw::LastNotRefreshed, 1088),
    (Mode::Tree, Flaw::NoRoomForFence, 441),
    (Mode::Tree, Flaw::NoDoubleWrite, 310),
    (Mode::Tree, Flaw::TreeLogBelievedUnwritten, 4779),
    (Mode::Mirror, Flaw::RecycledUnderNextWriter, 443),
    (Mode::Mirror, Flaw::OldLifeFetched, 443),
    (Mode::Mirror, Flaw::DiskBeforeTail, 1060),
];

pub fn runs(mode: Mode, seed: u64, runs: u64) -> CrashReport {
    let options = CrashOptions {
        mode,
        seed,
        runs,
        violations_max: 1,
        ..CrashOptions::default()
    };
    run(&options, |_| {})
}

/// Runs four hundred seeds, which must lead to no violation. Every kind of fault must strike in these runs.
pub fn every_promise_is_kept_and_every_fault_strikes(mode: Mode) {
    let report = runs(mode, 1, 400);
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
        "write_refused",
        "name_failed",
        "read_failed",
    ] {
        let has_it = kind != "rot" || mode != Mode::Mirror;
        assert!(
            !has_it || report.faults.contains_key(kind),
            "{kind} never struck"
        );
    }
}

/// Checks that the same seeds give the same runs. Also checks that other seeds give other runs.
pub fn the_same_seeds_give_the_same_trace(mode: Mode) {
    let first = runs(mode, 77, 40);
    assert_eq!(first.trace, runs(mode, 77, 40).trace);
    assert_ne!(first.trace, runs(mode, 78, 40).trace);
}

/// Runs the seeds that every change should pass. This takes minutes. The variables `PERDURA_SEED` and `PERDURA_RUNS`
/// choose other seeds.
pub fn twenty_thousand_runs_keep_every_promise(mode: Mode) {
    std::panic::set_hook(Box::new(|_| {}));
    let number = |name: &str, usual| {
        std::env::var(name).map_or(usual, |text| text.parse().expect("a number"))
    };
    let options = CrashOptions {
        mode,
        seed: number("PERDURA_SEED", 1_000_000),
        runs: number("PERDURA_RUNS", 20_000),
        ..CrashOptions::default()
    };
    let report = run(&options, |_| {});
    println!("{report:#?}");
    assert!(report.violations.is_empty(), "{:#?}", report.violations);
}

/// Arms a bug and checks that the report names a failing seed. A second run of this seed must fail again.
pub fn a_violation_is_replayed(mode: Mode, word: &str, flaw: Flaw, tries: u64) {
    arm(Some(flaw));
    let report = runs(mode, 1, tries);
    let violation = report.violations.first().expect("the bug is caught");
    let command = format!(
        "perdura crash --mode {word} --seed {} --runs 1",
        violation.seed
    );
    assert_eq!(violation.replay_command, command);
    let again = runs(mode, violation.seed, 1);
    assert_eq!(again.violations.first(), Some(violation));
    arm(None);
    assert!(
        runs(mode, violation.seed, 1).violations.is_empty(),
        "it is the bug and not the seed"
    );
}

/// Arms each bug in turn and looks for a contradiction in random runs. If the first three hundred runs with a bug show
/// no contradiction, calls `also`. `also` finds bugs that need one exact moment.
pub fn each_is_caught(mode: Mode, flaws: &[Flaw], also: fn() -> Option<String>) {
    std::panic::set_hook(Box::new(|_| {}));
    let (next, escaped) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let innocent = Mutex::new(Vec::new());
    // `arm` arms a bug only for the current thread.
    let work = || {
        while let Some(flaw) = flaws.get(next.fetch_add(1, Ordering::Relaxed)) {
            arm(Some(*flaw));
            let start = Instant::now();
            let caught = hunt(mode, *flaw, also);
            let seconds = start.elapsed().as_secs_f64();
            arm(None);
            let Some((seed, what)) = caught else {
                println!("{flaw:?}: {seconds:.2} s, not caught");
                escaped.lock().unwrap().push(*flaw);
                continue;
            };
            println!("{flaw:?}: {seconds:.2} s, {what}");
            // These lines repeat the run without the bug. A violation that appears again does not count.
            let alone = match seed {
                Some(seed) => runs(mode, seed, 1).violations.is_empty(),
                None => also().is_none(),
            };
            if !alone {
                innocent.lock().unwrap().push(*flaw);
            }
        }
    };
    std::thread::scope(|scope| (0..2).for_each(|_| drop(scope.spawn(work))));
    let (escaped, innocent) = (
        escaped.into_inner().unwrap(),
        innocent.into_inner().unwrap(),
    );
    assert!(escaped.is_empty(), "not caught: {escaped:?}");
    assert!(
        innocent.is_empty(),
        "found without the bug, too: {innocent:?}"
    );
}

/// Returns the first contradiction and the seed of its run, or `None` if no run shows a contradiction. The seed is
/// `None` if `also` found the contradiction.
fn hunt(mode: Mode, flaw: Flaw, also: fn() -> Option<String>) -> Option<(Option<u64>, String)> {
    let found = |seed, count| {
        let report = runs(mode, seed, count);
        let violation = report.violations.first()?;
        let what = format!("seed {}: {}", violation.seed, violation.what);
        Some((Some(violation.seed), what))
    };
    for (_, _, seed) in RARE.iter().filter(|rare| (rare.0, rare.1) == (mode, flaw)) {
        let caught = found(*seed, 1);
        if caught.is_some() {
            return caught;
        }
        println!("{flaw:?}: seed {seed} does not see it any more");
    }
    let mut seed = 1;
    while seed < HUNT_RUNS {
        let caught = found(seed, BATCH);
        if caught.is_some() {
            return caught;
        }
        seed += BATCH;
        if seed == 301
            && let Some(what) = also()
        {
            return Some((None, what));
        }
    }
    None
}

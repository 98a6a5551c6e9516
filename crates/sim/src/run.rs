//! Runs seeds in order, each in its mode, and reports the results.

use perdura_base::num::{to_u64, to_usize};
use perdura_device::{Clock, SystemClock};

use crate::content::scramble;
use crate::lives::run_drawn;
use crate::report::{Check, CrashOptions, CrashReport, Mode, Tally, Violation};
use crate::swarm::Swarm;
use crate::world::World;

/// The number of runs from one progress report to the next.
const PROGRESS_RUNS: u64 = 256;

/// The modes that [`Mode::All`] uses in turn.
const ALL_IN_TURN: [Mode; 4] = [Mode::Steal, Mode::Executor, Mode::Tables, Mode::Mixed];

/// Runs the simulator. Calls `progress` with the report so far, from time to time and at the end.
pub fn run(options: &CrashOptions, mut progress: impl FnMut(&CrashReport)) -> CrashReport {
    let clock = SystemClock::new();
    let seconds = || std::time::Duration::from_nanos(clock.mono_ns()).as_secs_f64();
    let mut report = CrashReport::default();
    for i in 0..options.runs {
        let seed = options.seed.wrapping_add(i);
        let (tally, trace, result) = run_seed(seed, options);
        report.absorb(&tally);
        report.trace = scramble(report.trace ^ trace);
        match result {
            Ok(()) => {
                report.runs += 1;
                let mode = mode_of(seed, options).name();
                *report.runs_by_mode.entry(mode).or_default() += 1;
            }
            Err(what) => report.violations.push(Violation {
                seed,
                what,
                replay_command: replay_command(seed, options),
            }),
        }
        assert_eq!(
            report.runs + to_u64(report.violations.len()),
            i + 1,
            "a run ends well or in a violation"
        );
        report.seconds = seconds();
        if (i + 1) % PROGRESS_RUNS == 0 {
            progress(&report);
        }
        if report.violations.len() >= options.violations_max {
            break;
        }
    }
    assert_eq!(
        report.runs_by_mode.values().sum::<u64>(),
        report.runs,
        "each run is of one mode"
    );
    let runs = f64::from(u32::try_from(report.runs).unwrap_or(u32::MAX));
    report.runs_per_second = runs / report.seconds.max(1e-9);
    progress(&report);
    report
}

fn replay_command(seed: u64, options: &CrashOptions) -> String {
    let mode = mode_of(seed, options).name();
    let mut command = format!("perdura crash --mode {mode} --seed {seed} --runs 1");
    if let Some(streams) = options.streams {
        command += &format!(" --streams {streams}");
    }
    if let Some(profile) = options.profile {
        command += &format!(" --profile {}", format!("{profile:?}").to_lowercase());
    }
    command
}

/// Runs one seed in the requested mode. If the request covers several modes, the seed chooses one mode.
fn run_seed(seed: u64, options: &CrashOptions) -> (Tally, u64, Check) {
    match mode_of(seed, options) {
        Mode::Steal => crate::steal::run_seed(seed, options),
        Mode::Tables => crate::tables::run_seed(seed, options),
        Mode::Mixed => crate::tables::run_mixed(seed, options),
        Mode::Archive => crate::archive::run_seed(seed, options),
        Mode::Tree => crate::tree::run_seed(seed, options),
        Mode::Mirror => crate::mirror::run_seed(seed, options),
        _ => run_executor(seed, options),
    }
}

fn mode_of(seed: u64, options: &CrashOptions) -> Mode {
    match options.mode {
        Mode::Both if seed.is_multiple_of(2) => Mode::Steal,
        Mode::Both => Mode::Executor,
        Mode::All => ALL_IN_TURN[to_usize(seed) % ALL_IN_TURN.len()],
        mode => mode,
    }
}

fn run_executor(seed: u64, options: &CrashOptions) -> (Tally, u64, Check) {
    let make =
        |seed, rng, swarm: Swarm| World::new(seed, rng, swarm.with_scripts_and_streams(seed));
    run_drawn(seed, 0, options, Swarm::draw, make)
}

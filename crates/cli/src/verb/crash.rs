//! `perdura crash`

use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::Parser;
use perdura_base::checksum::mix64;
use perdura_sim::{CrashOptions, CrashReport, Mode, run as simulate};

use crate::exit::{Usage, Violated};
use crate::output;

/// Crash the engine on simulated disks repeatedly, and check what it recovers.
///
/// Each run executes the production code. The run's seed determines the transactions, checkpoints, disk faults and
/// crashes. After every restart the data is compared with an independent model. For each violation the verb prints the
/// command that repeats the run. Exit code 1 if there is a violation.
#[derive(Debug, Parser)]
#[command(after_help = "Examples:\n  \
    perdura crash --seed 1 --runs 20000\n  \
    perdura crash --mode steal --seed 7 --runs 1\n  \
    perdura crash --minutes 60 --progress-file crash.json --json")]
pub struct Args {
    /// The mode of the runs. executor: the product. steal: the paper's setting of interleaved transactions. both:
    /// executor, then steal, in turn. tables: the product's typed tables and procedures. mixed: typed tables beside a
    /// tree. all: executor, steal, tables and mixed in turn. archive: the product with an archive, including merges,
    /// backups, lost disks and restores. tree: interleaved transactions over rows of a tree. mirror: the product with
    /// the newest log in the memory of nodes.
    #[arg(long, value_name = "MODE", value_parser = parse_mode, default_value = "both")]
    mode: Mode,
    /// The first run's seed. Each later run has the previous seed plus one.
    #[arg(long, value_name = "S", default_value_t = 1)]
    seed: u64,
    /// The number of runs [default: 1000, or no limit if --minutes is given].
    #[arg(long, value_name = "N")]
    runs: Option<u64>,
    /// End after this number of minutes.
    #[arg(long, value_name = "M")]
    minutes: Option<u64>,
    /// Number of log streams [default: chosen at random for each run].
    #[arg(long, value_name = "N")]
    streams: Option<u8>,
    /// Number of threads, each with its own runs.
    #[arg(long, value_name = "N", default_value_t = 1)]
    jobs: usize,
    /// Stop after this number of violations.
    #[arg(long, value_name = "N", default_value_t = 10)]
    violations: usize,
    /// During the runs, repeatedly write the current report to this file as JSON.
    #[arg(long, value_name = "FILE")]
    progress_file: Option<PathBuf>,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

fn parse_mode(name: &str) -> Result<Mode, String> {
    let mode = Mode::ALL.into_iter().find(|mode| mode.name() == name);
    mode.ok_or_else(|| {
        "the modes are: executor, steal, both, tables, mixed, archive, tree, mirror, all".to_owned()
    })
}

/// The number of runs that a thread takes at a time. The report has the sum of the traces of all runs. The sum does not
/// depend on the order of the runs, and so not on the number of threads.
const PART_RUNS: u64 = 500;

pub fn run(args: &Args) -> Result<()> {
    let runs = args.runs.unwrap_or(if args.minutes.is_some() {
        u64::MAX
    } else {
        1000
    });
    if args.jobs == 0 || runs == 0 {
        bail!(Usage("--jobs and --runs are at least 1".into()));
    }
    let begin = Instant::now();
    let end = args
        .minutes
        .map(|minutes| begin + Duration::from_secs(minutes * 60));
    let next = AtomicU64::new(0);
    let stop = AtomicBool::new(false);
    let total = Mutex::new(CrashReport::default());
    std::thread::scope(|scope| -> Result<()> {
        let work = || -> Result<()> {
            while !stop.load(Ordering::Relaxed) && end.is_none_or(|end| Instant::now() < end) {
                let first = next.fetch_add(PART_RUNS, Ordering::Relaxed);
                if first >= runs {
                    break;
                }
                let options = CrashOptions {
                    mode: args.mode,
                    seed: args.seed.wrapping_add(first),
                    runs: PART_RUNS.min(runs - first),
                    streams: args.streams,
                    violations_max: args.violations,
                    ..CrashOptions::default()
                };
                let part = simulate(&options, |_| {});
                let mut total = total.lock().expect("no holder panics");
                add(&mut total, part, begin.elapsed());
                let enough = total.violations.len() >= args.violations;
                stop.fetch_or(enough, Ordering::Relaxed);
                save(args, &total)?;
            }
            Ok(())
        };
        let threads: Vec<_> = (0..args.jobs).map(|_| scope.spawn(work)).collect();
        for thread in threads {
            thread
                .join()
                .map_err(|_| anyhow::anyhow!("a run panicked; see above"))??;
        }
        Ok(())
    })?;
    let report = total.into_inner().expect("no holder panics");
    if args.json {
        output::json(&report)?;
    } else {
        output::text(&describe(&report))?;
    }
    match report.violations.len() {
        0 => Ok(()),
        count => bail!(Violated(count)),
    }
}

fn add(total: &mut CrashReport, part: CrashReport, elapsed: Duration) {
    total.runs += part.runs;
    for (mode, runs) in part.runs_by_mode {
        *total.runs_by_mode.entry(mode).or_default() += runs;
    }
    total.crashes += part.crashes;
    total.restarts += part.restarts;
    total.checkpoints += part.checkpoints;
    total.transactions += part.transactions;
    total.acknowledged += part.acknowledged;
    for (kind, count) in part.faults {
        *total.faults.entry(kind).or_default() += count;
    }
    for (mark, count) in part.reached {
        *total.reached.entry(mark).or_default() += count;
    }
    let runs_of_modes: u64 = total.runs_by_mode.values().sum();
    assert_eq!(runs_of_modes, total.runs, "each run is of one mode");
    assert!(
        total.acknowledged <= total.transactions,
        "only what was done is acknowledged"
    );
    total.violations.extend(part.violations);
    total.trace = total.trace.wrapping_add(mix64(part.trace));
    total.seconds = elapsed.as_secs_f64();
    let runs = f64::from(u32::try_from(total.runs).unwrap_or(u32::MAX));
    total.runs_per_second = runs / total.seconds.max(1e-9);
}

/// Replaces the progress file atomically, so that a reader never sees an incomplete one.
fn save(args: &Args, report: &CrashReport) -> Result<()> {
    let Some(path) = &args.progress_file else {
        return Ok(());
    };
    let tmp = path.with_extension("tmp");
    let text = serde_json::to_string_pretty(report)?;
    let written = std::fs::write(&tmp, text + "\n").and_then(|()| std::fs::rename(&tmp, path));
    written.with_context(|| path.display().to_string())
}

fn describe(report: &CrashReport) -> String {
    let mut text = format!(
        "runs          {} in {:.1} s, {:.0} a second\n\
         crashes       {}\nrestarts      {}\ncheckpoints   {}\ntransactions  {}\n\
         acknowledged  {}\n",
        report.runs,
        report.seconds,
        report.runs_per_second,
        report.crashes,
        report.restarts,
        report.checkpoints,
        report.transactions,
        report.acknowledged
    );
    for (mode, runs) in &report.runs_by_mode {
        text += &format!("mode          {runs} {mode}\n");
    }
    for (kind, count) in &report.faults {
        text += &format!("fault         {count} {kind}\n");
    }
    for (mark, count) in &report.reached {
        text += &format!("reached       {count} {mark}\n");
    }
    text += &format!("violations    {}\n", report.violations.len());
    for violation in &report.violations {
        text += &format!(
            "  {}\n  again: {}\n",
            violation.what, violation.replay_command
        );
    }
    text
}

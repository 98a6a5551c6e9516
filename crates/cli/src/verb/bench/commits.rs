//! `perdura bench commits`

use std::fmt::Write as _;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, ensure};
use clap::Parser;
use perdura_server::settings::units;
use perdura_workloads::committing::{CommittingBench, CommittingRow};
use perdura_workloads::turn::VALUE_BYTES_MIN;

use crate::exit::Usage;
use crate::output;
use crate::verb::database::DatabaseArgs;

/// The maximum number of threads that commit.
const THREADS_MAX: usize = 1024;
/// The maximum number of threads that make bare writes. Each has a file of 64 MiB.
const BARE_MAX: usize = 16;

/// Compare the commits of a program's threads with bare durable writes to the same disk.
///
/// Each thread changes one value, waits until the change is durable, and continues with the next. A bare write is a
/// durable write of 4 KiB by the log's method, without a database. Several threads make bare writes at once, each to its
/// own file. All take turns of a quarter of a second. The last two columns are in units of the bare writes of one thread.
///
/// The database is left in the data directory.
#[derive(Debug, Parser)]
#[command(after_help = "Example:\n  \
    perdura bench commits --data bench-data --clients 1,2,4,16,64 --seconds 20")]
#[group(skip)]
pub struct CommitsArgs {
    /// The data directory.
    #[arg(long, value_name = "DIR")]
    data: PathBuf,
    /// Numbers of threads that commit.
    #[arg(
        long,
        value_name = "N,M",
        value_delimiter = ',',
        default_value = "1,2,4,16,64"
    )]
    clients: Vec<NonZeroUsize>,
    /// Numbers of threads that make bare writes. 1 is always measured.
    #[arg(
        long,
        value_name = "N,M",
        value_delimiter = ',',
        default_value = "1,2,4"
    )]
    bare: Vec<NonZeroUsize>,
    /// Bytes of a value.
    #[arg(long, value_name = "B", default_value_t = 100)]
    value_bytes: usize,
    /// The time to measure.
    #[arg(long, value_name = "S", default_value = "10", value_parser = units::duration)]
    seconds: Duration,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    database: DatabaseArgs,
}

/// Runs the verb.
pub fn run(args: &CommitsArgs) -> Result<()> {
    ensure!(
        args.value_bytes >= VALUE_BYTES_MIN,
        Usage(format!(
            "--value-bytes is at least {VALUE_BYTES_MIN}, so that each value differs from the one before"
        ))
    );
    let fits = |all: &[NonZeroUsize], max: usize| all.iter().all(|threads| threads.get() <= max);
    ensure!(
        fits(&args.clients, THREADS_MAX) && fits(&args.bare, BARE_MAX),
        Usage(format!(
            "--clients takes 1 to {THREADS_MAX}, and --bare 1 to {BARE_MAX}"
        ))
    );
    let options = args.database.options(args.data.clone())?;
    let one = NonZeroUsize::MIN;
    let mut bare = args.bare.clone();
    if !bare.contains(&one) {
        bare.insert(0, one);
    }
    let report = CommittingBench {
        options,
        threads: args.clients.clone(),
        bare,
        value_bytes: args.value_bytes,
        duration: args.seconds,
    }
    .run()?;
    if args.json {
        return output::json(&report);
    }
    let mut text = String::new();
    for way in &report.log {
        let _ = writeln!(text, "log       {way}");
    }
    let _ = writeln!(
        text,
        "                  a second   p50 us   p99 us   rate / bare   p50 / bare"
    );
    let mut row = |name: &str, found: &CommittingRow| {
        let _ = writeln!(
            text,
            "{name} {:>4} threads {:>8.0} {:>8} {:>8} {:>13.2} {:>12.2}",
            found.threads,
            found.per_second,
            found.latency_us.p50,
            found.latency_us.p99,
            found.rate_of_bare,
            found.p50_of_bare
        );
    };
    report.bare.iter().for_each(|found| row("bare   ", found));
    report
        .commits
        .iter()
        .for_each(|found| row("commits", found));
    output::text(&text)
}

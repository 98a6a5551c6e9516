//! `perdura bench`

mod commits;
mod drive;
mod mirror;
mod restore;
mod sms;
mod tpcc;
mod typed;
mod update;
mod voter;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, bail};
use clap::{Parser, Subcommand, ValueEnum};
use perdura_workloads::kv::{self, KvOptions, Mix, Target};

use super::database::DatabaseArgs;
use crate::exit::Usage;
use crate::output;
use perdura_server::settings::units;

/// Measure a workload.
#[derive(Debug, Subcommand)]
pub enum Workload {
    Commits(Box<commits::CommitsArgs>),
    Kv(Box<KvArgs>),
    Mirror(Box<mirror::MirrorArgs>),
    Restore(Box<restore::RestoreArgs>),
    Sms(Box<sms::SmsArgs>),
    Tpcc(Box<tpcc::TpccArgs>),
    Update(Box<update::UpdateArgs>),
    Voter(Box<voter::VoterArgs>),
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Durability {
    Mem,
    Disk,
}

/// SET and GET of random keys with values that do not compress.
///
/// Measures a server (Perdura or any other that speaks the Redis protocol) or, with --data, the engine inside this
/// process.
#[derive(Debug, Parser)]
#[command(after_help = "Examples:\n  \
    perdura bench kv --server 127.0.0.1:6379 --clients 50 --pipeline 16 --seconds 5\n  \
    perdura bench kv --data bench-data --clients 4 --pipeline 16 --mix mixed:20\n  \
    perdura bench kv --server 127.0.0.1:6379 --fill 1000000 --seconds 0\n  \
    perdura bench kv --server 127.0.0.1:6379 --check 1000 --seconds 0")]
pub struct KvArgs {
    /// The server to measure, HOST:PORT or the path of a Unix socket [default: 127.0.0.1:6379].
    #[arg(long, value_name = "ADDR", conflicts_with = "data")]
    server: Option<String>,
    /// Measure the engine in this process on this data directory.
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// The server's password (or the variable PERDURA_REQUIREPASS).
    #[arg(long, value_name = "PASSWORD")]
    password: Option<String>,
    /// Connections, or threads with --data.
    #[arg(long, value_name = "C", default_value_t = 50)]
    clients: usize,
    /// Number of requests sent before their replies are awaited.
    #[arg(long, value_name = "P", default_value_t = 1)]
    pipeline: usize,
    /// Threads of the client.
    #[arg(long, value_name = "N", default_value_t = 1)]
    client_threads: usize,
    /// The time to measure. 0 measures nothing.
    #[arg(long, value_name = "S", default_value = "5", value_parser = units::duration)]
    seconds: Duration,
    /// Stop after this number of requests.
    #[arg(long, value_name = "N")]
    txns: Option<u64>,
    /// Distinct keys.
    #[arg(long, value_name = "N", default_value_t = 1_000_000)]
    keys: u64,
    /// Bytes of a value.
    #[arg(long, value_name = "B", default_value_t = 100)]
    value_bytes: usize,
    /// set, get or mixed:PERCENT_OF_SETS.
    #[arg(long, value_name = "MIX", default_value = "set")]
    mix: Mix,
    /// Seed of keys and values.
    #[arg(long, value_name = "S", default_value_t = 1)]
    seed: u64,
    /// The event that completes a write. mem needs a Perdura server.
    #[arg(long, value_enum, default_value = "disk")]
    durability: Durability,
    /// Fill this number of distinct keys before the measurement. Each value follows from its key and the seed.
    #[arg(long, value_name = "N", default_value_t = 0)]
    fill: u64,
    /// Read this number of the filled keys at the end, and check their values. Without --fill, an earlier run with this
    /// seed must have filled the keys.
    #[arg(long, value_name = "N", default_value_t = 0)]
    check: u64,
    /// The number of keys that an earlier run filled, for --check without --fill [default: all].
    #[arg(long, value_name = "N")]
    filled: Option<u64>,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    database: DatabaseArgs,
}

pub fn run(workload: &Workload) -> Result<()> {
    match workload {
        Workload::Commits(args) => commits::run(args),
        Workload::Kv(args) => run_kv(args),
        Workload::Mirror(args) => mirror::run(args),
        Workload::Restore(args) => restore::run(args),
        Workload::Sms(args) => sms::run(args),
        Workload::Tpcc(args) => tpcc::run(args),
        Workload::Update(args) => update::run(args),
        Workload::Voter(args) => voter::run(args),
    }
}

fn run_kv(args: &KvArgs) -> Result<()> {
    let target = match &args.data {
        Some(data) => Target::Data(Box::new(args.database.options(data.clone())?)),
        None => Target::Server(
            args.server
                .clone()
                .unwrap_or_else(|| "127.0.0.1:6379".into()),
        ),
    };
    if args.clients == 0 || args.pipeline == 0 || args.client_threads == 0 || args.keys == 0 {
        bail!(Usage(
            "--clients, --pipeline, --client-threads and --keys are at least 1".into()
        ));
    }
    if args.fill > args.keys || args.filled.is_some_and(|filled| filled > args.keys) {
        bail!(Usage(
            "more keys to fill than there are; raise --keys".into()
        ));
    }
    let report = kv::run(&KvOptions {
        target,
        password: args
            .password
            .clone()
            .or_else(|| std::env::var("PERDURA_REQUIREPASS").ok()),
        clients: args.clients,
        pipeline: args.pipeline,
        threads: args.client_threads,
        duration: args.seconds,
        txns_max: args.txns,
        keys: args.keys,
        value_bytes: args.value_bytes,
        mix: args.mix,
        seed: args.seed,
        durability: match args.durability {
            Durability::Mem => kv::Durability::Mem,
            Durability::Disk => kv::Durability::Disk,
        },
        fill: args.fill,
        filled: args
            .filled
            .unwrap_or(if args.fill > 0 { args.fill } else { args.keys }),
        check: args.check,
    })?;
    if args.json {
        return output::json(&report);
    }
    output::text(&kv_text(&report))
}

/// Returns a report for people.
fn kv_text(report: &kv::KvReport) -> String {
    let shown = |figure: Option<u64>| figure.map_or("-".into(), |figure| figure.to_string());
    let mut text = format!("target    {}\n", report.target);
    if report.filled > 0 {
        text += &format!(
            "fill      {} keys in {:.3} s\n",
            report.filled, report.fill_seconds
        );
    }
    if report.txns > 0 {
        let latency = report.latency_us;
        debug_assert!(
            [latency.p50, latency.p99, latency.p999].is_sorted(),
            "quantiles ascend"
        );
        text += &format!(
            "rate      {:.0} requests/s ({} in {:.3} s, {} refused)\n\
             latency   p50 {} us, p99 {} us, p99.9 {} us, max {} us\n\
             log       {} bytes of records, {} bytes to the device, {} syncs\n\
             machine   {} bytes of memory at most, {} s of CPU\n",
            report.tps,
            report.txns,
            report.seconds,
            report.aborts,
            latency.p50,
            latency.p99,
            latency.p999,
            latency.max,
            shown(report.log_bytes),
            shown(report.log_device_bytes),
            shown(report.syncs),
            shown(report.peak_rss_bytes),
            report
                .cpu_seconds
                .map_or("-".into(), |seconds| format!("{seconds:.2}")),
        );
    }
    if let Some(error) = &report.first_error {
        text += &format!("refused   {error}\n");
    }
    if report.checked > 0 {
        text += &format!("check     {} values are right\n", report.checked);
    }
    text
}

//! What `perdura bench tpcc` and `perdura bench voter` have in common.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, bail};
use clap::{Args, ValueEnum};
use perdura::ValueForm;
use perdura_base::limits::PARTITIONS_MAX;
use perdura_heap::SnapshotMode;
use perdura_server::settings::units;
use perdura_workloads::drive::{Beside, DriveOptions, Limit, LogScheme, RunReport, Site};

use crate::exit::Usage;
use crate::verb::database::DatabaseArgs;

/// The part of a run by time that is not measured.
const WARM_UP: Duration = Duration::from_millis(500);
/// How long a run takes that says neither a time nor a number.
const SECONDS: Duration = Duration::from_secs(5);

/// What the log says of a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum SchemeArg {
    /// Nothing: for measuring.
    None,
    /// The bytes that changed in pages.
    Differential,
    /// The rows that changed.
    Value,
    /// The procedure and its arguments.
    Command,
}

/// What the log says of a changed row.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum FormArg {
    /// The columns that changed.
    Columns,
    /// The whole row.
    Rows,
    /// The whole row, and what it was before.
    Before,
}

/// What a checkpoint keeps.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum SnapshotArg {
    /// Byte ranges of pages.
    Pages,
    /// Copies of rows.
    Rows,
}

#[derive(Debug, Args)]
pub struct TypedArgs {
    /// What the log says of a transaction.
    #[arg(long, value_enum, default_value = "command")]
    scheme: SchemeArg,
    /// With --scheme value: what it says of a changed row.
    #[arg(long, value_enum, default_value = "columns")]
    value_form: FormArg,
    /// Threads that run transactions.
    #[arg(long, value_name = "N", default_value_t = 1)]
    workers: usize,
    /// Clients, each of which begins a transaction when its last one is durable [default: 1000 for each worker].
    #[arg(long, value_name = "C", conflicts_with = "rate")]
    clients: Option<usize>,
    /// Open loop: so many transactions a second arrive, and latencies count from their arrival.
    #[arg(long, value_name = "R")]
    rate: Option<f64>,
    /// Stop after so many transactions, those that abort included.
    #[arg(long, value_name = "N", conflicts_with = "seconds")]
    txns: Option<u64>,
    /// Stop after so long, behind half a second that is not measured [default: 5s].
    #[arg(long, value_name = "S", value_parser = units::duration)]
    seconds: Option<Duration>,
    /// Seed of the data and of what is asked for.
    #[arg(long, value_name = "S", default_value_t = 1)]
    pub seed: u64,
    /// A directory for the database; without it everything is in memory. What an earlier run left there is used
    /// again.
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// What a checkpoint keeps of a page that changes while it is written: bytes of the page, or rows and three bits
    /// for each, as paper 001 does.
    #[arg(long, value_enum, default_value = "pages")]
    snapshot: SnapshotArg,
    /// Take a checkpoint so often.
    #[arg(long, value_name = "S", value_parser = units::duration)]
    snapshot_every: Option<Duration>,
    /// Afterwards, also drive it as an open loop at half of the throughput found, and print the latencies beside
    /// those of a sync while the device is idle.
    #[arg(long, conflicts_with = "txns")]
    half_load: bool,
    /// Afterwards, also drive it as before under checkpoints that follow one another, and then once more without,
    /// because the database grows meanwhile. Print the throughputs and the memory that checkpoints keep.
    #[arg(long, conflicts_with = "txns")]
    under_checkpoints: bool,
    /// End like a power cut, right after the last transaction is durable.
    #[arg(long, requires = "data")]
    pub crash: bool,
    /// Print the logical digest of what is there at the end.
    #[arg(long)]
    pub digest: bool,
    /// Print one JSON object.
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    database: DatabaseArgs,
}

impl TypedArgs {
    /// Whether a run was asked for, by time or by number.
    pub fn asks_for_a_run(&self) -> bool {
        self.txns.is_some() || self.seconds.is_some()
    }

    /// What is run afterwards.
    pub fn beside(&self) -> Beside {
        Beside {
            half_load: self.half_load,
            checkpoints: self.under_checkpoints,
        }
    }

    /// Whether the run has a fixed number of transactions.
    pub fn is_counted(&self) -> bool {
        self.txns.is_some()
    }

    /// Where the database is and what its log says.
    ///
    /// A new database has as many partitions as the workload can use: every partition has a copy of each
    /// replicated row.
    pub fn site(&self, homes: u16) -> Result<Site> {
        let form = match self.value_form {
            FormArg::Columns => ValueForm::Columns,
            FormArg::Rows => ValueForm::Rows,
            FormArg::Before => ValueForm::Before,
        };
        let scheme = match self.scheme {
            SchemeArg::None => LogScheme::None,
            SchemeArg::Differential => LogScheme::Differential,
            SchemeArg::Value => LogScheme::Value(form),
            SchemeArg::Command => LogScheme::Command,
        };
        let data = self.data.clone().unwrap_or_default();
        let workers = u16::try_from(self.workers).unwrap_or(u16::MAX);
        let partitions = homes.max(workers).min(PARTITIONS_MAX).next_power_of_two();
        let mut options = self.database.options_with_partitions(data, partitions)?;
        options.snapshot_mode = match self.snapshot {
            SnapshotArg::Pages => SnapshotMode::Pages,
            SnapshotArg::Rows => SnapshotMode::Rows,
        };
        if self.snapshot_every.is_some_and(|every| every.is_zero()) {
            bail!(Usage("--snapshot-every is above 0".into()));
        }
        Ok(Site {
            in_memory: self.data.is_none(),
            options,
            scheme,
            snapshot_every: self.snapshot_every,
        })
    }

    /// How it is driven.
    pub fn drive(&self) -> Result<DriveOptions> {
        if self.workers == 0 || self.txns == Some(0) || self.seconds.is_some_and(|s| s.is_zero()) {
            bail!(Usage("--workers, --txns and --seconds are above 0".into()));
        }
        if self
            .rate
            .is_some_and(|rate| !rate.is_finite() || rate < 0.001)
        {
            bail!(Usage("--rate is at least 0.001".into()));
        }
        let clients = self.clients.unwrap_or(1000 * self.workers);
        if clients < self.workers {
            bail!(Usage("--clients is at least --workers".into()));
        }
        Ok(DriveOptions {
            workers: self.workers,
            clients,
            rate: self.rate,
            limit: match self.txns {
                Some(txns) => Limit::Txns(txns),
                None => Limit::Time {
                    warm_up: WARM_UP,
                    measured: self.seconds.unwrap_or(SECONDS),
                },
            },
        })
    }
}

/// A report for people.
pub fn text(report: &RunReport) -> String {
    let mut text = format!(
        "scheme    {}, {} stream(s), {} partitions, {} worker(s)\n",
        report.scheme, report.streams, report.partitions, report.workers
    );
    if report.load_seconds > 0.0 {
        text += &format!("populated in {:.3} s\n", report.load_seconds);
    }
    if report.txns > 0 {
        let latency = report.latency_us;
        text += &format!(
            "rate      {:.0} transactions/s ({} in {:.3} s, {} rolled back)\n\
             latency   p50 {} us, p99 {} us, p99.9 {} us until durable\n\
             log       {} bytes of records ({:.1} a transaction), {} bytes to the device, {} syncs\n\
             machine   {} bytes of memory at most, {} s of CPU\n",
            report.tps,
            report.txns,
            report.seconds,
            report.aborts,
            latency.p50,
            latency.p99,
            latency.p999,
            report.log_bytes,
            report.log_bytes_per_txn,
            report.log_device_bytes,
            report.syncs,
            report
                .peak_rss_bytes
                .map_or("-".into(), |bytes| bytes.to_string()),
            report
                .cpu_seconds
                .map_or("-".into(), |seconds| format!("{seconds:.2}")),
        );
        for kind in &report.kinds {
            let bytes = kind
                .log_bytes_per_txn
                .map_or("-".into(), |bytes| format!("{bytes:.1}"));
            text += &format!(
                "  {:<14}{:>10} ({} rolled back), {bytes} bytes of records each\n",
                kind.name, kind.txns, kind.aborts
            );
        }
    }
    if report.unstarted > 0 {
        text += &format!(
            "behind    {} arrivals had not begun at the end\n",
            report.unstarted
        );
    }
    if let Some(half) = &report.half_load {
        let sync = half.sync_us.map_or("-".into(), |us| us.p99.to_string());
        text += &format!(
            "half load {:.0} transactions/s: p50 {} us, p99 {} us, p99.9 {} us until durable; p99 of a sync of the \
             idle device {sync} us\n",
            half.rate, half.latency_us.p50, half.latency_us.p99, half.latency_us.p999
        );
    }
    if let Some(under) = &report.under_checkpoints {
        text += &format!(
            "under checkpoints {:.0} transactions/s ({:.3} of the mean of the rate and {:.0} behind it), \
             p99 {} us; kept at most {} bytes ({:.1} % of \
             {} bytes of pages), afterwards {}\n",
            under.tps,
            under.of_tps,
            under.tps_behind,
            under.latency_us.p99,
            under.kept_bytes_max,
            100.0 * under.kept_share,
            under.page_bytes,
            under.kept_bytes_after
        );
    }
    if let Some(digest) = &report.digest {
        text += &format!("digest    {digest}\n");
    }
    text
}

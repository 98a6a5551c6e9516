//! The options of all benchmarks that run transactions (the number and rate of transactions, the disks), and their
//! report.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Result, bail};
use clap::Args;
use perdura::Options;
use perdura_server::settings::units;
use perdura_workloads::drive::{DriveOptions, Limit, LogScheme, ModelledDisk, RunReport, Site};

use crate::exit::Usage;
use crate::output;
use crate::verb::database::DatabaseArgs;

/// The unmeasured time at the beginning of a run with a time limit.
const WARM_UP: Duration = Duration::from_millis(500);
/// The length of a run if neither a time nor a number of transactions is given.
const SECONDS: Duration = Duration::from_secs(5);

#[derive(Debug, Args)]
pub struct DriveArgs {
    /// Threads that run transactions.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub workers: usize,
    /// Number of clients. Each begins a transaction when its previous one is durable [default: 1000 for each worker].
    #[arg(long, value_name = "C", conflicts_with = "rate")]
    clients: Option<usize>,
    /// Let this number of transactions arrive each second, even if earlier transactions are still running. Latencies
    /// count from the arrival.
    #[arg(long, value_name = "R")]
    rate: Option<f64>,
    /// Stop after this number of transactions. Aborted transactions count too.
    #[arg(long, value_name = "N", conflicts_with = "seconds")]
    txns: Option<u64>,
    /// Measure for this time, after a warm-up of half a second that is not measured [default: 5s].
    #[arg(long, value_name = "S", value_parser = units::duration)]
    seconds: Option<Duration>,
    /// Seed of the data and of the requests.
    #[arg(long, value_name = "S", default_value_t = 1)]
    pub seed: u64,
    /// The directory of the database. Without it, everything is in memory. An existing database is used again.
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Without --data: limit each log disk to this number of 10^6 bytes a second.
    #[arg(long, value_name = "M", default_value_t = 0, conflicts_with = "data")]
    disk_mbps: u64,
    /// Without --data: make each read and sync of a log disk take this number of microseconds longer.
    #[arg(long, value_name = "L", default_value_t = 0, conflicts_with = "data")]
    disk_latency_us: u64,
    /// Make a backup in the archive before the run. `perdura restore` can then restore the database from the archive.
    #[arg(long, requires = "archive")]
    backup: bool,
    /// Exit as soon as the last transaction is durable, without closing the database, as in a power cut.
    #[arg(long, requires = "data")]
    pub crash: bool,
    /// Print the logical digest of the data at the end.
    #[arg(long)]
    pub digest: bool,
    /// Print one JSON object.
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    database: DatabaseArgs,
}

impl DriveArgs {
    /// Returns whether the command line gives a time or a number of transactions for a run.
    pub fn asks_for_a_run(&self) -> bool {
        self.txns.is_some() || self.seconds.is_some()
    }

    /// Returns whether the run has a fixed number of transactions.
    pub fn is_counted(&self) -> bool {
        self.txns.is_some()
    }

    /// Returns the engine's settings. A new database has `partitions` partitions unless the setting is given.
    pub fn options(&self, partitions: Option<u16>) -> Result<Options> {
        let data = self.data.clone().unwrap_or_default();
        match partitions {
            Some(partitions) => self.database.options_with_partitions(data, partitions),
            None => self.database.options(data),
        }
    }

    /// Returns the location of the database and the form of its log.
    pub fn site(&self, options: Options, scheme: LogScheme) -> Site {
        Site {
            disk: self.disk(),
            back_up: self.backup,
            ..Site::new(options, self.data.is_none(), scheme)
        }
    }

    /// Returns the directory of the database. `None`: it is in memory.
    pub fn data(&self) -> Option<&Path> {
        self.data.as_deref()
    }

    /// Returns the modelled speed of disks in memory.
    pub fn disk(&self) -> ModelledDisk {
        ModelledDisk {
            mbps: self.disk_mbps,
            latency_us: self.disk_latency_us,
        }
    }

    /// Returns the name of the first setting on the command line that `known` does not have.
    pub fn given_beside(&self, known: &[&str]) -> Option<&'static str> {
        self.database.0.names().find(|name| !known.contains(name))
    }

    /// Prints the results of a run. With `--crash` the process ends here.
    pub fn end(&self, report: &RunReport) -> Result<()> {
        if self.json {
            output::json(report)?;
        } else {
            output::text(&text(report))?;
        }
        cut_power(self.crash);
        Ok(())
    }

    /// Returns the options of the driver.
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

/// Ends the process if `is_asked`. Closes nothing before, as in a power cut.
pub fn cut_power(is_asked: bool) {
    if is_asked {
        std::process::exit(0);
    }
}

/// Returns a report for people.
pub fn text(report: &RunReport) -> String {
    let mut text = format!(
        "scheme    {}, {} stream(s), {} partitions, {} worker(s)\n",
        report.scheme, report.streams, report.partitions, report.workers
    );
    if report.load_seconds > 0.0 {
        text += &format!("populated in {:.3} s\n", report.load_seconds);
    }
    text += &rate_text(report);
    if let Some(archive) = &report.archive {
        text += &format!(
            "archive   {} runs, {} records, {} bytes; behind by {:.2} s at most\n",
            archive.runs, archive.records, archive.bytes, archive.lag_seconds_max
        );
    }
    if let Some(tree) = &report.tree {
        text += &format!(
            "tree      {} pages of {} bytes in memory, {} read, {} written, {} checkpoint(s)\n\
             \x20         notes for a restart {} + {} bytes ({:.1} % of the records), changes of structure {} bytes\n",
            tree.pool_pages,
            tree.page_bytes,
            tree.pages_read,
            tree.pages_written,
            tree.checkpoints,
            tree.delta_bytes,
            tree.writes_bytes,
            100.0 * tree.notes_share,
            tree.structure_bytes
        );
    }
    if report.unstarted > 0 {
        text += &format!(
            "behind    {} arrivals had not begun at the end\n",
            report.unstarted
        );
    }
    text += &load_text(report);
    if let Some(digest) = &report.digest {
        text += &format!("digest    {digest}\n");
    }
    text
}

/// Returns the report's lines on the rate and on each kind of transaction.
fn rate_text(report: &RunReport) -> String {
    if report.txns == 0 {
        return String::new();
    }
    let latency = report.latency_us;
    debug_assert!(
        [latency.p50, latency.p99, latency.p999].is_sorted(),
        "quantiles ascend"
    );
    let mut text = format!(
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
    text
}

/// Returns the report's lines on latencies at half the load, and on throughput during checkpoints.
fn load_text(report: &RunReport) -> String {
    let mut text = String::new();
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
            "under checkpoints {:.0} transactions/s ({:.3} of the mean of the rate and {:.0} after it), p99 {} us\n\
             \x20         kept at most {} bytes ({:.1} % of {} bytes of pages), afterwards {}\n",
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
    text
}

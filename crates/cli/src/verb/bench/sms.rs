//! `perdura bench sms`

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, bail};
use clap::{Parser, ValueEnum};
use perdura_steal::{Records, Route};
use perdura_wal::Scheme;
use perdura_workloads::drive::ModelledDisk;
use perdura_workloads::sms::{
    RunLimit, SLOT_BYTES_MAX, SLOT_BYTES_MIN, SmsBench, SmsOptions, bench,
};

use super::drive::cut_power;
use crate::exit::Usage;
use crate::output;
use perdura_server::settings::units;

/// The logging scheme. It fixes the form of the log records and the number of passes of a restart.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum SchemeArg {
    /// Records of differences. A restart makes one pass.
    Dl1p,
    /// Records of differences, and compensation records for every rollback. A restart makes two passes.
    Dl2p,
    /// Records of the content before and after each change, in one global order. A restart makes two passes.
    Pl2p,
}

/// The part of a slot that a record covers.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum RecordsArg {
    /// The whole slot.
    Full,
    /// The bytes that differ.
    Sparse,
}

/// Insert and remove messages in interleaved transactions, under a logging scheme of the literature.
///
/// Half of the transactions insert two messages, half remove two. Several transactions are open at once and change
/// pages before they commit. The product does not run transactions in this way, but databases in the literature do. The
/// benchmark compares their schemes. Without --data, everything is in memory. With --crash, the run ends with open
/// transactions, as in a power cut. `perdura restart` can then restart the database. The steps of such a run depend on
/// the seed and not on the scheme.
#[derive(Debug, Parser)]
#[command(after_help = "Examples:\n  \
    perdura bench sms --scheme dl1p --streams 4 --disk-mbps 29 --seconds 3\n  \
    perdura bench sms --scheme pl2p --data sms --rows 100000 --txns 60000 --crash --json\n  \
    perdura restart --data sms --method pl2p-part --level 2 --dry-run\n  \
    perdura bench sms --data d --log-dir l0 --log-dir l1 --streams 2 --checkpoint 0.3,0.6 \
    --txns 100000")]
pub struct SmsArgs {
    /// The logging scheme.
    #[arg(long, value_enum, default_value = "dl1p")]
    scheme: SchemeArg,
    /// Log streams, 1 to 16.
    #[arg(
        long,
        value_name = "N",
        default_value_t = 1,
        value_parser = clap::value_parser!(u8).range(1..=16)
    )]
    streams: u8,
    /// Stop after this number of transactions. Aborted transactions count too.
    #[arg(long, value_name = "N", conflicts_with = "seconds")]
    txns: Option<u64>,
    /// Measure for this time, after a warm-up of half a second that fills the queues [default: 5s].
    #[arg(long, value_name = "S", value_parser = units::duration)]
    seconds: Option<Duration>,
    /// The share of transactions that abort, 0 to 1.
    #[arg(long, value_name = "F", default_value_t = 0.02)]
    abort_ratio: f64,
    /// Size of a message in bytes, 64 to 2048. The size includes the id and the address.
    #[arg(long, value_name = "B", default_value_t = 256)]
    slot_bytes: usize,
    /// Number of messages at the beginning.
    #[arg(long, value_name = "R", default_value_t = 1_000_000)]
    rows: u64,
    /// Seed of the history.
    #[arg(long, value_name = "S", default_value_t = 1)]
    seed: u64,
    /// The part of a slot that a record covers.
    #[arg(long, value_enum, default_value = "full")]
    records: RecordsArg,
    /// Number of transactions open at once.
    #[arg(long, value_name = "T", default_value_t = 8)]
    open: usize,
    /// Virtual partitions, a power of two up to 256.
    #[arg(long, value_name = "P", default_value_t = 64)]
    partitions: u16,
    /// A directory for the database, which must not hold one yet.
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Directory of the log. Give it once for all streams, or once for each stream.
    #[arg(long, value_name = "DIR", requires = "data")]
    log_dir: Vec<PathBuf>,
    /// Directory of the images' pages. Give it once for each disk that holds pages.
    #[arg(long, value_name = "DIR", requires = "data")]
    image_dir: Vec<PathBuf>,
    /// Limit each log and image disk to this number of 10^6 bytes a second.
    #[arg(long, value_name = "M", default_value_t = 0)]
    disk_mbps: u64,
    /// Make each read and sync of a log or image disk take this number of microseconds longer.
    #[arg(long, value_name = "L", default_value_t = 0)]
    disk_latency_us: u64,
    /// Begin checkpoints at these fractions of the run, 0 to 1. Needs --txns.
    #[arg(long, value_name = "F", value_delimiter = ',', requires = "txns")]
    checkpoint: Vec<f64>,
    /// Exit with open transactions, as in a power cut. Needs --txns.
    #[arg(long, requires = "txns")]
    crash: bool,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

impl SmsArgs {
    fn check(&self) -> Result<()> {
        if !(SLOT_BYTES_MIN..=SLOT_BYTES_MAX).contains(&self.slot_bytes) {
            bail!(Usage(format!(
                "--slot-bytes is {SLOT_BYTES_MIN} to {SLOT_BYTES_MAX}, not {}",
                self.slot_bytes
            )));
        }
        let share = |share: &f64| (0.0..=1.0).contains(share);
        if !share(&self.abort_ratio) || !self.checkpoint.iter().all(share) {
            bail!(Usage("--abort-ratio and --checkpoint are 0 to 1".into()));
        }
        if self.open == 0 || self.rows < 4 * u64::try_from(self.open)? {
            bail!(Usage(
                "--open is at least 1, --rows at least four times that".into()
            ));
        }
        if self.txns == Some(0) || self.seconds.is_some_and(|time| time.is_zero()) {
            bail!(Usage("--txns and --seconds are above 0".into()));
        }
        Ok(())
    }

    fn bench(&self) -> SmsBench {
        SmsBench {
            sms: SmsOptions {
                scheme: match self.scheme {
                    SchemeArg::Dl1p => Scheme::Dl1p,
                    SchemeArg::Dl2p => Scheme::Dl2p,
                    SchemeArg::Pl2p => Scheme::Pl2p,
                },
                records: match self.records {
                    RecordsArg::Full => Records::Full,
                    RecordsArg::Sparse => Records::Sparse,
                },
                route: if self.crash {
                    Route::Scattered
                } else {
                    Route::Idlest
                },
                rows: self.rows,
                slot_bytes: self.slot_bytes,
                partitions: self.partitions,
                abort_ratio: self.abort_ratio,
                open: self.open,
                seed: self.seed,
                checkpoints: self.checkpoint.clone(),
                ..SmsOptions::default()
            },
            streams: self.streams,
            data: self.data.clone(),
            log_dirs: self.log_dir.clone(),
            image_dirs: self.image_dir.clone(),
            disk: ModelledDisk {
                mbps: self.disk_mbps,
                latency_us: self.disk_latency_us,
            },
            limit: match self.txns {
                Some(txns) => RunLimit::Txns(txns),
                None => RunLimit::Time {
                    warm_up: Duration::from_millis(500),
                    measured: self.seconds.unwrap_or(Duration::from_secs(5)),
                },
            },
            crash: self.crash,
        }
    }
}

pub fn run(args: &SmsArgs) -> Result<()> {
    args.check()?;
    let report = bench(&args.bench())?;
    if args.json {
        output::json(&report)?;
    } else {
        let latency = report.latency_us;
        debug_assert!(
            [latency.p50, latency.p99, latency.p999].is_sorted(),
            "quantiles ascend"
        );
        output::text(&format!(
            "scheme    {}, {} records, {} stream(s)\n\
             rate      {:.0} transactions/s ({} in {:.3} s, {} rolled back)\n\
             latency   p50 {} us, p99 {} us, p99.9 {} us from commit to durable\n\
             log       {} bytes of records ({:.1} a transaction, {} of compensation), {} bytes to \
             the device, {} syncs\n\
             machine   {} bytes of memory at most\n\
             digest    {}\n",
            report.scheme,
            report.records,
            report.streams,
            report.tps,
            report.txns,
            report.seconds,
            report.aborts,
            latency.p50,
            latency.p99,
            latency.p999,
            report.log_bytes,
            report.log_bytes_per_txn,
            report.compensation_bytes,
            report.log_device_bytes,
            report.syncs,
            report
                .peak_rss_bytes
                .map_or("-".into(), |bytes| bytes.to_string()),
            report.digest,
        ))?;
    }
    cut_power(args.crash);
    Ok(())
}

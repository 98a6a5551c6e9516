//! A whole run on given disks. It begins without a store and ends with a report.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Result, bail, ensure};
use perdura_device::{Clock, Disk, FileDisk, MemDisk, SystemClock};
use perdura_recovery::disks::{Demand, Disks, Locks, Opening, Paths};
use perdura_steal::{Records, Steal, StealEnv};

use super::{Driver, Pace, RunLimit, SmsOptions, SmsReport, Speed, run_for, run_steps};
use crate::drive::ModelledDisk;
use crate::num::{f64_of, ratio};
use crate::process;

/// The settings of a run, and its disks.
#[derive(Debug, Clone)]
pub struct SmsBench {
    /// The workload.
    pub sms: SmsOptions,
    /// The number of log streams.
    pub streams: u8,
    /// The data directory, which must not contain a database. `None`: the database is in memory.
    pub data: Option<PathBuf>,
    /// The directory of each log stream, or one directory for all. Empty: the data directory.
    pub log_dirs: Vec<PathBuf>,
    /// The directories among which the images' pages are divided. Empty: the data directory.
    pub image_dirs: Vec<PathBuf>,
    /// The speed of the log disks and the image disks.
    pub disk: ModelledDisk,
    /// The condition that ends the run.
    pub limit: RunLimit,
    /// True if the run is to end as if the power were cut. It ends when `limit` is reached, while other transactions
    /// are still open. Such a run proceeds step by step and depends only on the seed. Needs [`RunLimit::Txns`].
    pub crash: bool,
}

/// Makes the run. The store is dropped without being closed, even without `crash`.
///
/// # Errors
/// A data directory that is in use; `crash` with a time as the limit; errors of the store.
pub fn bench(bench: &SmsBench) -> Result<SmsReport> {
    let sms = &bench.sms;
    let disks = Site::open(bench)?;
    let mut store = sms.store();
    store.memory_limit = u64::MAX;
    let steal = Arc::new(Steal::create(disks.env, store)?);
    let mut driver = Driver::fill(&steal, sms)?;
    let before = steal.wal().stats();
    let txns = match bench.limit {
        RunLimit::Txns(txns) => txns,
        RunLimit::Time { .. } => 0,
    };
    ensure!(
        sms.checkpoints.is_empty() || txns > 0,
        "checkpoints at shares of a run need its number of transactions"
    );
    let mut pace = Pace::new(sms, txns);
    let speed = if bench.crash {
        if txns == 0 {
            bail!("a crash comes after a number of transactions");
        }
        let begin = Instant::now();
        run_steps(&mut driver, &steal, &mut pace, txns)?;
        Speed {
            txns,
            seconds: begin.elapsed().as_secs_f64(),
            latency_us: crate::latency::LatencyUs::default(),
            counts: driver.counts(),
        }
    } else {
        run_for(&mut driver, &steal, &mut pace, bench.limit)?
    };
    let after = steal.wal().stats();
    let ended = speed.counts.ended();
    let report = SmsReport {
        workload: "sms",
        scheme: sms.scheme.name(),
        records: match sms.records {
            Records::Full => "full",
            Records::Sparse => "sparse",
        },
        streams: bench.streams,
        partitions: sms.partitions,
        rows: sms.rows,
        slot_bytes: sms.slot_bytes,
        abort_ratio: sms.abort_ratio,
        open: sms.open,
        seed: sms.seed,
        txns: speed.txns,
        seconds: speed.seconds,
        tps: speed.tps(),
        aborts: speed.counts.aborted,
        latency_us: speed.latency_us,
        log_bytes: after.log_bytes - before.log_bytes,
        compensation_bytes: steal.stats().compensation_bytes,
        log_device_bytes: after.device_bytes - before.device_bytes,
        log_bytes_per_txn: ratio(f64_of(after.log_bytes - before.log_bytes), f64_of(ended)),
        syncs: after.syncs - before.syncs,
        checkpoints: pace.completed,
        in_window: ratio(f64_of(pace.in_window), f64_of(ended)),
        peak_rss_bytes: process::peak_rss_bytes(std::process::id()),
        digest: steal.digest(),
        crashed: bench.crash,
    };
    // The store is not closed. Dropping it writes nothing, as in a power cut.
    Ok(report)
}

/// The disks of a run, with the locks of their directories.
struct Site {
    env: StealEnv,
    _locks: Locks,
}

impl Site {
    fn open(bench: &SmsBench) -> Result<Site> {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
        let (mut disks, locks) = match &bench.data {
            None => {
                let memory = || Arc::new(MemDisk::new()) as Arc<dyn Disk>;
                let disks = Disks {
                    data: memory(),
                    images: bench.image_dirs.iter().map(|_| memory()).collect(),
                    logs: (0..bench.streams).map(|_| memory()).collect(),
                };
                (disks, Vec::new())
            }
            Some(data) => {
                let paths = Paths {
                    data: data.clone(),
                    images: bench.image_dirs.clone(),
                    logs: bench.log_dirs.clone(),
                };
                let opening = Opening::begin(&paths, &FileDisk::shared)?;
                ensure!(
                    !opening.exists(),
                    "{} holds a database; give a new directory",
                    data.display()
                );
                opening.finish(bench.streams, paths.image_disks(), Demand::OfExisting)?
            }
        };
        if disks.images.is_empty() {
            disks.images.push(Arc::new(MemDisk::new()));
        }
        for disk in disks.images.iter_mut().chain(&mut disks.logs) {
            *disk = bench.disk.over(Arc::clone(disk));
        }
        Ok(Site {
            env: StealEnv {
                disks,
                clock,
                seed: bench.sms.seed,
            },
            _locks: locks,
        })
    }
}

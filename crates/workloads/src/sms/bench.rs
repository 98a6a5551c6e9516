//! A run on given disks, from nothing to a report.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use perdura_device::{Clock, Disk, FileDisk, MemDisk, ModelDisk, SystemClock};
use perdura_steal::{Records, Steal, StealEnv};

use super::{Driver, Pace, RunLimit, SmsOptions, SmsReport, Speed, run_for, run_steps};
use crate::figures::num::{f64_of, ratio};
use crate::process;

/// What is run, and where.
#[derive(Debug, Clone)]
pub struct SmsBench {
    /// The workload.
    pub sms: SmsOptions,
    /// Log streams.
    pub streams: u8,
    /// The data directory, which must not hold a database; memory if there is none.
    pub data: Option<PathBuf>,
    /// The directory of each log stream, or one of all; the data directory if there is none.
    pub log_dirs: Vec<PathBuf>,
    /// Directories that the images' pages are spread over; the data directory if there is none.
    pub image_dirs: Vec<PathBuf>,
    /// Slow log and image disks to so many 10^6 bytes a second and to so many microseconds a read
    /// or sync; 0 is no limit.
    pub disk: (u64, u64),
    /// When it ends.
    pub limit: RunLimit,
    /// End as a power cut would, right after the last transaction: transactions are open. The run
    /// is then stepped, and the same for the same seed. Needs [`RunLimit::Txns`].
    pub crash: bool,
}

/// Runs it. Nothing is closed at the end, whether it is a crash or not.
///
/// # Errors
/// A data directory that is in use, a crash after a time instead of a count, the store's.
pub fn bench(bench: &SmsBench) -> Result<SmsReport> {
    let sms = &bench.sms;
    let disks = Disks::open(bench)?;
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
            latency_us: super::report::LatencyUs::default(),
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
    // Nothing is closed: to let go of a store writes nothing, as in a power cut.
    Ok(report)
}

/// The disks of a run, with their directories locked.
struct Disks {
    env: StealEnv,
    _locks: Vec<Box<dyn std::any::Any + Send + Sync>>,
}

impl Disks {
    fn open(bench: &SmsBench) -> Result<Disks> {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
        let streams = usize::from(bench.streams);
        ensure!(
            bench.log_dirs.len() <= 1 || bench.log_dirs.len() == streams,
            "{} streams and {} log directories: give one for all or one for each",
            bench.streams,
            bench.log_dirs.len()
        );
        let (mbps, latency_us) = bench.disk;
        let slowed = |disk: Arc<dyn Disk>| -> Arc<dyn Disk> {
            if mbps == 0 && latency_us == 0 {
                return disk;
            }
            let clock = Arc::clone(&clock);
            Arc::new(ModelDisk::new(disk, mbps, latency_us, clock, std::thread::sleep).laid_out())
        };
        let mut locks = Vec::new();
        let Some(dir) = &bench.data else {
            let logs = (0..streams).map(|_| slowed(Arc::new(MemDisk::new())));
            let images = 0..bench.image_dirs.len().max(1);
            return Ok(Disks {
                env: StealEnv {
                    data: Arc::new(MemDisk::new()),
                    logs: logs.collect(),
                    images: images.map(|_| slowed(Arc::new(MemDisk::new()))).collect(),
                    clock,
                    seed: bench.sms.seed,
                },
                _locks: locks,
            });
        };
        let data: Arc<dyn Disk> = Arc::new(FileDisk::new(dir)?);
        ensure!(
            !data.list("")?.iter().any(|name| name == "anchor"),
            "{} holds a database; give a new directory",
            dir.display()
        );
        locks.push(data.lock("LOCK")?);
        let open = |dirs: &[PathBuf], count: usize| -> Result<Vec<Arc<dyn Disk>>> {
            let mut disks = Vec::new();
            for number in 0..count {
                let dir = dirs.get(if dirs.len() == 1 { 0 } else { number });
                disks.push(slowed(match dir {
                    None => Arc::clone(&data),
                    Some(dir) => Arc::new(
                        FileDisk::new(dir).with_context(|| format!("opening {}", dir.display()))?,
                    ),
                }));
            }
            Ok(disks)
        };
        let logs = open(&bench.log_dirs, streams)?;
        let images = open(&bench.image_dirs, bench.image_dirs.len().max(1))?;
        Ok(Disks {
            env: StealEnv {
                data,
                logs,
                images,
                clock,
                seed: bench.sms.seed,
            },
            _locks: locks,
        })
    }
}

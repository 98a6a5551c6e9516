//! Additional runs on the database of a measured run. One run measures the latency at half the measured throughput. A
//! second run measures the throughput under consecutive checkpoints.
//!
//! A latency means little without the device's own latency. So the time of a sync is measured too, before the load,
//! while nothing else uses the device.

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use perdura::Db;
use serde::Serialize;

use super::{DriveOptions, Driven, RunReport};
use crate::latency::{LatencyUs, histogram, micros, record};
use crate::num::{f64_of, ratio};

/// The number of syncs that are measured.
const SYNCS: u64 = 500;
/// The bytes that each sync makes durable: a block of the log.
const BLOCK: [u8; 4096] = [0x5a; 4096];
/// The time between two readings of the memory that checkpoints keep.
const LOOK_EVERY: Duration = Duration::from_millis(1);
/// The last checkpoint must end within this time.
const END_WITHIN: Duration = Duration::from_secs(120);

/// The additional runs to make.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Beside {
    /// True to make the run at half of the throughput.
    pub half_load: bool,
    /// True to make the run under checkpoints.
    pub checkpoints: bool,
}

/// The results of an open loop at half of the measured throughput.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct HalfLoad {
    /// The rate at which transactions were due, transactions a second.
    pub rate: f64,
    /// The time from a transaction's intended start until it is durable.
    pub latency_us: LatencyUs,
    /// The time of a sync of one block while the device is idle. `None`: the log is in memory.
    pub sync_us: Option<LatencyUs>,
}

/// The results of the measured load with consecutive checkpoints. The database grows and becomes slower while it is
/// driven. So the throughput without checkpoints is the mean of two runs: the measured run, and a run after the
/// checkpoints.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct UnderCheckpoints {
    /// The number of transactions a second.
    pub tps: f64,
    /// The number of transactions a second in the run after the checkpoints.
    pub tps_behind: f64,
    /// `tps`, divided by the throughput without checkpoints.
    pub of_tps: f64,
    /// The time from a transaction's start until it is durable.
    pub latency_us: LatencyUs,
    /// The maximum memory kept for the current image, bytes.
    pub kept_bytes_max: u64,
    /// The size of the database's pages at the end, bytes.
    pub page_bytes: u64,
    /// `kept_bytes_max`, divided by `page_bytes`.
    pub kept_share: f64,
    /// The memory that is still kept for an image when the last checkpoint has ended, bytes.
    pub kept_bytes_after: u64,
}

impl Beside {
    /// Makes the runs, and enters their results in the report of the measured run. `log` is the log's directory, if
    /// it has one.
    ///
    /// # Errors
    /// Errors of `drive`; a device that cannot be written; a checkpoint that does not end.
    pub fn run(
        self,
        db: &Db,
        log: Option<&Path>,
        options: &DriveOptions,
        report: &mut RunReport,
        drive: impl Fn(&DriveOptions) -> Result<Driven>,
    ) -> Result<()> {
        if self.checkpoints {
            ensure!(report.tps > 0.0, "the run before has measured a throughput");
            report.under_checkpoints = Some(under_checkpoints(db, options, report.tps, &drive)?);
        }
        if self.half_load {
            let rate = report.tps / 2.0;
            let sync_us = log.map(idle_syncs).transpose()?;
            let options = DriveOptions {
                rate: Some(rate),
                ..*options
            };
            let driven = drive(&options)?;
            report.half_load = Some(HalfLoad {
                rate,
                latency_us: LatencyUs::of(&driven.latencies),
                sync_us,
            });
        }
        Ok(())
    }
}

/// Measures the time of a sync of one block.
fn idle_syncs(dir: &Path) -> Result<LatencyUs> {
    let path = dir.join("bench-sync");
    let mut latencies = histogram();
    let measured = (|| {
        let mut open = OpenOptions::new();
        let file = open.write(true).create(true).truncate(true).open(&path)?;
        // The file is written once before the measurement, so that a sync has no metadata to write.
        for at in 0..SYNCS {
            file.write_all_at(&BLOCK, at * 4096)?;
        }
        file.sync_all()?;
        for at in 0..SYNCS {
            let begin = Instant::now();
            file.write_all_at(&BLOCK, at * 4096)?;
            file.sync_data()?;
            record(&mut latencies, micros(begin.elapsed()), 1);
        }
        std::fs::remove_file(&path)
    })();
    measured.with_context(|| format!("syncing {}", path.display()))?;
    Ok(LatencyUs::of(&latencies))
}

fn under_checkpoints(
    db: &Db,
    options: &DriveOptions,
    tps: f64,
    drive: impl Fn(&DriveOptions) -> Result<Driven>,
) -> Result<UnderCheckpoints> {
    let is_over = AtomicBool::new(false);
    let kept = || db.memory().get(perdura_heap::MemoryUse::Kept);
    let (driven, kept_bytes_max) = std::thread::scope(|scope| {
        let watcher = scope.spawn(|| {
            let mut most = 0;
            while !is_over.load(Ordering::SeqCst) {
                db.begin_checkpoint()?;
                most = most.max(kept());
                std::thread::sleep(LOOK_EVERY);
            }
            anyhow::Ok(most)
        });
        let driven = drive(options);
        is_over.store(true, Ordering::SeqCst);
        let most = match watcher.join() {
            Ok(most) => most,
            Err(panic) => std::panic::resume_unwind(panic),
        };
        driven.and_then(|driven| Ok((driven, most?)))
    })?;
    let begin = Instant::now();
    while kept() > 0 && begin.elapsed() < END_WITHIN {
        std::thread::sleep(LOOK_EVERY);
    }
    let (page_bytes, kept_bytes_after) = (db.stats().memory.pages, kept());
    let throughput = |driven: &Driven| ratio(f64_of(driven.latencies.len()), driven.seconds);
    let (under, tps_behind) = (throughput(&driven), throughput(&drive(options)?));
    Ok(UnderCheckpoints {
        tps: under,
        tps_behind,
        of_tps: ratio(under, f64::midpoint(tps, tps_behind)),
        latency_us: LatencyUs::of(&driven.latencies),
        kept_bytes_max,
        page_bytes,
        kept_share: ratio(f64_of(kept_bytes_max), f64_of(page_bytes)),
        kept_bytes_after,
    })
}

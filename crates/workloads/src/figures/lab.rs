//! The tools of the experiments: disks in memory, histories with a crash at the end, and restarts of a crash by every
//! method, at every level and disk speed.
//!
//! A history is written at full speed, because only the restart is measured. Then modelled disks are put in front of
//! the bytes that it left. A restart is a dry run, so one crash can be restarted many times.

use std::sync::Arc;

use anyhow::{Context, Result, anyhow};
use perdura_device::{Clock, Disk, MemDisk, ModelDisk, SystemClock};
use perdura_heap::MemoryAccount;
use perdura_recovery::Disks;
use perdura_recovery::restart::{RestartOptions, restart};
use perdura_recovery::{Level, Methods, RestartReport, Schedule};
use perdura_steal::{Steal, StealEnv};

use crate::num::f64_of;
use crate::sms::{Counts, Driver, Pace, SmsOptions, run_steps};

/// The memory that a restart may use, bytes.
const MEMORY: u64 = 16 << 30;

/// Transfer rates of disks, 10^6 bytes a second. 0: no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Speeds {
    /// The transfer rate of each log disk.
    pub log: u64,
    /// The transfer rate of each image disk.
    pub image: u64,
}

impl Speeds {
    /// Disks without a limit.
    pub const FREE: Speeds = Speeds { log: 0, image: 0 };
}

/// Disks in memory.
#[derive(Clone)]
pub struct Plant {
    data: Arc<MemDisk>,
    logs: Vec<Arc<MemDisk>>,
    images: Vec<Arc<MemDisk>>,
    clock: Arc<dyn Clock>,
}

impl Plant {
    /// Makes `logs` log disks and `images` image disks, empty.
    #[must_use]
    pub fn new(logs: usize, images: usize) -> Plant {
        let disks = |count| (0..count).map(|_| Arc::new(MemDisk::new())).collect();
        Plant {
            data: Arc::new(MemDisk::new()),
            logs: disks(logs),
            images: disks(images),
            clock: Arc::new(SystemClock::new()),
        }
    }

    /// Returns the disks in the form that a store takes, at these speeds. Each read and each sync of a log disk takes
    /// `latency_us` longer.
    #[must_use]
    pub fn env(&self, speeds: Speeds, latency_us: u64, seed: u64) -> StealEnv {
        self.modelled(speeds, latency_us, seed).0
    }

    /// Returns the disks, and the models of the log disks, which measure the time for which each disk was busy.
    fn modelled(
        &self,
        speeds: Speeds,
        latency_us: u64,
        seed: u64,
    ) -> (StealEnv, Vec<Arc<ModelDisk>>) {
        let slowed = |disks: &[Arc<MemDisk>], rate, latency_us| -> Vec<Arc<ModelDisk>> {
            let slow = |disk: &Arc<MemDisk>| {
                let disk = Arc::clone(disk) as Arc<dyn Disk>;
                let clock = Arc::clone(&self.clock);
                let model = ModelDisk::new(disk, rate, latency_us, clock, std::thread::sleep);
                Arc::new(model.laid_out())
            };
            disks.iter().map(slow).collect()
        };
        let any = |disks: &[Arc<ModelDisk>]| -> Vec<Arc<dyn Disk>> {
            let any = |disk: &Arc<ModelDisk>| Arc::clone(disk) as Arc<dyn Disk>;
            disks.iter().map(any).collect()
        };
        let logs = slowed(&self.logs, speeds.log, latency_us);
        let env = StealEnv {
            disks: Disks {
                data: Arc::clone(&self.data) as Arc<dyn Disk>,
                images: any(&slowed(&self.images, speeds.image, 0)),
                logs: any(&logs),
            },
            clock: Arc::clone(&self.clock),
            seed,
        };
        (env, logs)
    }
}

/// A history, and the disks that it left.
pub struct Crash {
    /// The disks.
    pub plant: Plant,
    /// The workload of the history.
    pub sms: SmsOptions,
    /// The numbers of transactions.
    pub counts: Counts,
    /// The size of the records with the heads of their frames, without the initial load, bytes.
    pub log_bytes: u64,
    /// The part of `log_bytes` that is compensation records, bytes.
    pub compensation_bytes: u64,
    /// The share of transactions that ended while a checkpoint ran.
    pub in_window: f64,
}

/// Runs a history and drops the store without closing it. Only flushed data remain.
///
/// # Errors
/// Errors of the store.
pub fn crash(sms: &SmsOptions, streams: usize, images: usize, txns: u64) -> Result<Crash> {
    let plant = Plant::new(streams, images);
    let steal = Steal::create(plant.env(Speeds::FREE, 0, sms.seed), sms.store())?;
    let mut driver = Driver::fill(&steal, sms)?;
    let before = steal.wal().stats().log_bytes;
    let mut pace = Pace::new(sms, txns);
    run_steps(&mut driver, &steal, &mut pace, txns)?;
    Ok(Crash {
        sms: sms.clone(),
        counts: driver.counts(),
        log_bytes: steal.wal().stats().log_bytes - before,
        compensation_bytes: steal.stats().compensation_bytes,
        in_window: f64_of(pace.in_window) / f64_of(txns.max(1)),
        plant,
    })
}

/// The settings of a restart.
#[derive(Debug, Clone, Copy)]
pub struct How {
    /// The method's name.
    pub method: &'static str,
    /// The level of parallelism, 1 to 4.
    pub level: u8,
    /// The number of threads that play the log.
    pub threads: usize,
    /// The speeds of the disks.
    pub speeds: Speeds,
}

impl How {
    /// Returns the settings of a restart at level 2. The log disks have `mbps` MB/s (0: unlimited), and the image
    /// disks are unlimited.
    pub fn of_log(method: &'static str, threads: usize, mbps: u64) -> How {
        How {
            method,
            level: 2,
            threads,
            speeds: Speeds {
                log: mbps,
                image: 0,
            },
        }
    }
}

/// The times of a restart.
#[derive(Debug, Clone)]
pub struct Took {
    /// The time from the first read to the last play, seconds.
    pub total: f64,
    /// The log phase, seconds: the time from the moment when the image was in place until the end.
    pub log: f64,
    /// The image phase, seconds.
    pub image: f64,
    /// The time of reading the log on the busiest disk, seconds.
    pub log_read: f64,
    /// The time that the busiest log disk needs because of its bandwidth alone, seconds. 0: no limit.
    pub log_transfer: f64,
    /// The time of playing the log by the busiest player, seconds.
    pub log_play: f64,
    /// The logical digest of the state.
    pub digest: String,
    /// The restart's own report.
    pub report: RestartReport,
}

impl Crash {
    /// Restarts once. The crash stays unchanged.
    ///
    /// # Errors
    /// Errors of the restart.
    pub fn restart(&self, how: How) -> Result<Took> {
        let (env, logs) = self.plant.modelled(how.speeds, 0, self.sms.seed);
        let level = Level::new(how.level).context("a level is 1 to 4")?;
        let method = Methods::by_names(how.method).map_err(|why| anyhow!(why))?;
        let restarted = restart(&RestartOptions {
            mode: perdura_recovery::RestartMode::Dry,
            memory: Arc::new(MemoryAccount::new(MEMORY)),
            ..RestartOptions::of_records(
                env.disks,
                env.clock,
                Schedule::new(level, how.threads),
                method,
            )
        })?
        .context("the crash left a database")?;
        let report = restarted.report;
        let busiest = logs.iter().map(|disk| disk.busy_ns()).max();
        Ok(Took {
            total: report.seconds.total,
            log: report.seconds.log_span,
            image: report.seconds.backup_span,
            log_read: report.seconds.log_read,
            log_transfer: busiest.map_or(0.0, |ns| f64_of(ns) / 1e9),
            log_play: report.seconds.log_play,
            digest: perdura_steal::digest(&restarted.heap),
            report,
        })
    }

    /// Returns the fastest of `repeats` restarts, by the part of its time that `by` returns. Other work on the
    /// machine can only make restarts slower.
    ///
    /// # Errors
    /// Errors of the restart.
    pub fn quickest(&self, how: How, repeats: usize, by: fn(&Took) -> f64) -> Result<Took> {
        let mut best = self.restart(how)?;
        for _ in 1..repeats {
            let took = self.restart(how)?;
            if by(&took) < by(&best) {
                best = took;
            }
        }
        Ok(best)
    }

    /// Returns the restart with the fastest log phase of `repeats` restarts.
    ///
    /// # Errors
    /// Errors of the restart.
    pub fn quickest_log(&self, how: How, repeats: usize) -> Result<Took> {
        self.quickest(how, repeats, |took| took.log)
    }
}

//! The tools of the experiments: disks, histories with a crash at the end, and restarts of a crash by every method, at
//! every level and disk speed.
//!
//! In memory, a history is written at full speed, because only the restart is measured. Then modelled disks are put in
//! front of the bytes that it left. Real disks have their own speed, for histories as well.
//! A restart is a dry run, so one crash can be restarted many times.

use std::sync::Arc;

use anyhow::{Context, Result, anyhow};
use perdura_device::{Clock, Disk, MemDisk, ModelDisk, SystemClock};
use perdura_heap::MemoryAccount;
use perdura_recovery::Disks;
use perdura_recovery::restart::{RestartOptions, restart};
use perdura_recovery::{Level, Methods, RestartReport, Schedule};
use perdura_steal::{Steal, StealEnv};

use super::real::folders::Folders;
use super::sample::Sample;
use crate::num::{f64_of, ratio};
use crate::process;
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

/// The disks of a database: one for data, and several for the log and for the images. They are in memory, or real.
#[derive(Clone)]
pub struct Plant {
    data: Arc<dyn Disk>,
    logs: Vec<Arc<dyn Disk>>,
    images: Vec<Arc<dyn Disk>>,
    clock: Arc<dyn Clock>,
    /// The directories of real disks. `None`: all disks are in memory.
    real: Option<Arc<Folders>>,
}

impl Plant {
    /// Makes `logs` log disks and `images` image disks, empty.
    #[must_use]
    pub fn new(logs: usize, images: usize) -> Plant {
        let disk = |_| Arc::new(MemDisk::new()) as Arc<dyn Disk>;
        Plant {
            data: disk(0),
            logs: (0..logs).map(disk).collect(),
            images: (0..images).map(disk).collect(),
            clock: Arc::new(SystemClock::new()),
            real: None,
        }
    }

    /// Replaces the disks by those of real directories. Without image disks among them, the images stay in memory.
    #[must_use]
    pub(super) fn with_real(self, folders: Folders) -> Plant {
        let images = match folders.images.is_empty() {
            true => self.images,
            false => folders.images.clone(),
        };
        Plant {
            data: Arc::clone(&folders.data),
            logs: folders.logs.clone(),
            images,
            clock: self.clock,
            real: Some(Arc::new(folders)),
        }
    }

    /// Returns the disks with these speeds, in the form that a store takes. Each read and each sync of a log disk takes
    /// `latency_us` longer. Real disks are returned as they are, with their own speed and latency.
    #[must_use]
    pub fn env(&self, speeds: Speeds, latency_us: u64, seed: u64) -> StealEnv {
        self.modelled(speeds, latency_us, seed).0
    }

    /// Returns the disks as [`Plant::env`] does, and the model of each log disk. A model measures for how long its disk
    /// was busy.
    fn modelled(
        &self,
        speeds: Speeds,
        latency_us: u64,
        seed: u64,
    ) -> (StealEnv, Vec<Arc<ModelDisk>>) {
        if self.real.is_some() {
            return (self.unchanged(seed), Vec::new());
        }
        let slowed = |disks: &[Arc<dyn Disk>], rate, latency_us| -> Vec<Arc<ModelDisk>> {
            let slow = |disk: &Arc<dyn Disk>| {
                let disk = Arc::clone(disk);
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
                data: Arc::clone(&self.data),
                images: any(&slowed(&self.images, speeds.image, 0)),
                logs: any(&logs),
            },
            clock: Arc::clone(&self.clock),
            seed,
        };
        (env, logs)
    }

    /// Returns the disks without a model.
    fn unchanged(&self, seed: u64) -> StealEnv {
        StealEnv {
            disks: Disks {
                data: Arc::clone(&self.data),
                images: self.images.clone(),
                logs: self.logs.clone(),
            },
            clock: Arc::clone(&self.clock),
            seed,
        }
    }

    /// Removes the files of real disks from the operating system's cache, so that the next read is of the device.
    fn cool(&self) -> Result<()> {
        self.real.as_ref().map_or(Ok(()), |folders| folders.cool())
    }

    /// Returns the bytes that this process has read from real devices. `None`: the disks are in memory, or the system
    /// does not count them.
    fn device_bytes(&self) -> Option<u64> {
        self.real
            .as_ref()
            .and_then(|_| process::device_read_bytes(std::process::id()))
    }

    /// Returns the bytes of a restart that were to be read from real devices.
    fn expected_bytes(&self, report: &RestartReport) -> u64 {
        let has_images = self
            .real
            .as_ref()
            .is_some_and(|real| !real.images.is_empty());
        report.bytes.log + if has_images { report.bytes.backup } else { 0 }
    }
}

/// A history, and the disks that it left.
pub struct Crash {
    /// The disks.
    pub plant: Plant,
    /// The workload of the history.
    pub sms: SmsOptions,
    /// The counts of the history's transactions.
    pub counts: Counts,
    /// The size of the records that were logged after the initial load, with the heads of their frames, bytes.
    pub log_bytes: u64,
    /// The part of `log_bytes` that is compensation records, bytes.
    pub compensation_bytes: u64,
    /// The number of transactions that ended while a checkpoint ran.
    pub in_window: u64,
}

/// Runs a history and drops the store without closing it. Only flushed data remain.
///
/// # Errors
/// Errors of the store.
pub fn crash(sms: &SmsOptions, streams: usize, images: usize, txns: u64) -> Result<Crash> {
    Ok(crash_after(sms, streams, images, &[txns])?.0)
}

/// Runs a history in parts, and drops the store as [`crash`] does. `parts` has a number for each part. The part ends
/// when that many transactions of the whole history have ended. Also returns the counts at the end of each part. The
/// division into parts does not change the transactions.
///
/// # Errors
/// Errors of the store.
pub fn crash_after(
    sms: &SmsOptions,
    streams: usize,
    images: usize,
    parts: &[u64],
) -> Result<(Crash, Vec<Counts>)> {
    crash_on(Plant::new(streams, images), sms, parts)
}

/// Runs a history as [`crash_after`] does, on given empty disks.
///
/// # Errors
/// Errors of the store and of the disks.
pub fn crash_on(plant: Plant, sms: &SmsOptions, parts: &[u64]) -> Result<(Crash, Vec<Counts>)> {
    let txns = parts.last().copied().unwrap_or(0);
    let steal = Steal::create(plant.env(Speeds::FREE, 0, sms.seed), sms.store())?;
    let mut driver = Driver::fill(&steal, sms)?;
    let before = steal.wal().stats().log_bytes;
    let mut pace = Pace::new(sms, txns);
    let mut counts = Vec::new();
    for end in parts {
        run_steps(&mut driver, &steal, &mut pace, *end)?;
        counts.push(driver.counts());
    }
    let crash = Crash {
        sms: sms.clone(),
        counts: driver.counts(),
        log_bytes: steal.wal().stats().log_bytes - before,
        compensation_bytes: steal.stats().compensation_bytes,
        in_window: pace.in_window,
        plant,
    };
    Ok((crash, counts))
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
#[derive(Debug, Clone, Default)]
pub struct Took {
    /// The time from the first read to the last play, seconds.
    pub total: f64,
    /// The duration of the log phase, seconds: from the start of its first job to the end of its last, plus the time of
    /// undoing.
    pub log: f64,
    /// The duration of the image phase, seconds.
    pub image: f64,
    /// The time that the busiest disk took to read the log, seconds.
    pub log_read: f64,
    /// The time that the busiest log disk needed for transfers, seconds. 0: its bandwidth has no limit.
    pub log_transfer: f64,
    /// The time that the busiest player took to play the log, seconds.
    pub log_play: f64,
    /// The logical digest of the state.
    pub digest: String,
    /// The bytes that real devices delivered, divided by the bytes that the restart reads. `None`: the disks are in
    /// memory, or the system does not count reads.
    pub from_device: Option<f64>,
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
        self.plant.cool()?;
        let read_before = self.plant.device_bytes();
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
        let read = self.plant.device_bytes().zip(read_before);
        let expected = f64_of(self.plant.expected_bytes(&report));
        let busiest = logs.iter().map(|disk| disk.busy_ns()).max();
        Ok(Took {
            total: report.seconds.total,
            log: report.seconds.log_span,
            image: report.seconds.backup_span,
            log_read: report.seconds.log_read,
            log_transfer: busiest.map_or(0.0, |ns| f64_of(ns) / 1e9),
            log_play: report.seconds.log_play,
            digest: perdura_steal::digest(&restarted.heap),
            from_device: read.map(|(after, before)| ratio(f64_of(after - before), expected)),
            report,
        })
    }

    /// Restarts `repeats` times, at least once, and returns all repetitions.
    ///
    /// # Errors
    /// Errors of the restart.
    pub fn repeated(&self, how: How, repeats: usize) -> Result<Runs> {
        let mut runs = Runs::first(self.restart(how)?);
        for _ in 1..repeats {
            runs.push(self.restart(how)?);
        }
        Ok(runs)
    }
}

/// All repetitions of one restart, in their order. There is at least one. Claims judge the median.
#[derive(Debug, Clone)]
pub struct Runs(Vec<Took>);

impl Runs {
    /// Begins with the first repetition.
    #[must_use]
    pub fn first(took: Took) -> Runs {
        Runs(vec![took])
    }

    /// Adds a repetition.
    pub fn push(&mut self, took: Took) {
        self.0.push(took);
    }

    /// Returns the repetitions.
    #[must_use]
    pub fn all(&self) -> &[Took] {
        &self.0
    }

    /// Returns what `of` returns for the repetitions.
    #[must_use]
    pub fn sample(&self, of: impl Fn(&Took) -> f64) -> Sample {
        Sample::of(self.0.iter().map(of))
    }

    /// Returns the median of what `of` returns for the repetitions.
    #[must_use]
    pub fn median(&self, of: impl Fn(&Took) -> f64) -> f64 {
        self.sample(of).median
    }

    /// Returns a ratio for each repetition: the value of `of` for this restart, divided by its value for `other`.
    #[must_use]
    pub fn over(&self, other: &Runs, of: impl Fn(&Took) -> f64) -> Sample {
        let pairs = self.0.iter().zip(&other.0);
        Sample::of(pairs.map(|(a, b)| ratio(of(a), of(b))))
    }
}

/// Returns the duration of the log phase, seconds.
#[must_use]
pub fn log(took: &Took) -> f64 {
    took.log
}

#[cfg(test)]
pub mod testing {
    //! Restarts and verdicts for the tests of claims.

    use super::super::claim::{Claim, Verdict};
    use super::{Runs, Took};

    /// Returns one restart whose log phase takes `log` seconds.
    pub fn log_took(log: f64) -> Runs {
        Runs::first(Took {
            log,
            ..Took::default()
        })
    }

    /// Returns the verdict on the only claim whose text contains `part`.
    pub fn verdict_on(claims: &[Claim], part: &str) -> Verdict {
        let found: Vec<&Claim> = claims.iter().filter(|c| c.what.contains(part)).collect();
        assert_eq!(found.len(), 1, "one claim is about {part:?}: {claims:#?}");
        found[0].verdict
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_repetitions_count() {
        let runs = |logs: [f64; 3]| {
            let mut runs = Runs::first(Took::default());
            runs.0[0].log = logs[0];
            for log in &logs[1..] {
                runs.push(Took {
                    log: *log,
                    ..Took::default()
                });
            }
            runs
        };
        let (slow, fast) = (runs([6.0, 4.0, 9.0]), runs([2.0, 2.0, 1.0]));
        assert_eq!((slow.median(log), slow.all().len()), (6.0, 3));
        let ratio = slow.over(&fast, log);
        assert_eq!(
            (ratio.median, ratio.low, ratio.high, ratio.runs),
            (3.0, 2.0, 9.0, 3)
        );
    }
}

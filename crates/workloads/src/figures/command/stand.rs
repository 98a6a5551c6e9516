//! A database of typed tables in memory, with a workload that runs on it.
//!
//! The log's disk is modelled as a battery-backed cache, which the paper's disks have. A sync takes a millisecond,
//! and the bandwidth is high enough that the CPU limits the transactions. The disk of the images has no modelled
//! delay.

use std::time::Duration;

use anyhow::{Context, Result};
use perdura::yardstick::Yardstick;
use perdura::{Db, Options};
use perdura_base::checksum::mix64;
use perdura_base::num::to_u64;

use super::super::Lab;
use super::super::lab::{Plant, Speeds};
use super::crash::Crash;
use crate::drive::{DriveOptions, Limit, LogScheme, RunReport, Site, drive};
use crate::num::f64_of;
use crate::tpcc::bench::TpccBench;
use crate::tpcc::inputs::{Inputs, Kind, Mix, Scale as Warehouses};
use crate::tpcc::sites::{SiteTerminals, declare_sites};
use crate::voter;
use crate::voter::bench::VoterBench;
use crate::voter::inputs::Election;

/// The transfer rate of the log's disk, 10^6 bytes a second.
pub const LOG_MBPS: u64 = 400;
/// The time that a sync of the log's disk takes, microseconds.
pub const SYNC_US: u64 = 1_000;
/// The number of partitions of Voter. For TPC-C, it is the number of warehouses, rounded up to a power of two.
const VOTER_PARTITIONS: u16 = 16;
/// The number of clients that each worker serves in a closed loop, unless a run says otherwise.
pub const CLIENTS: usize = 1_000;
/// The time at which a run takes its only snapshot, as a fraction of the run's length.
const SNAPSHOT_AT: f64 = 0.6;

/// The workload of an experiment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Workload {
    /// An election by phone.
    Voter,
    /// Orders and payments.
    Tpcc,
}

impl Workload {
    /// Returns the name of the workload in titles.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Workload::Voter => "Voter",
            Workload::Tpcc => "TPC-C",
        }
    }

    /// Returns the unit in which the paper reports the workload's throughput.
    #[must_use]
    pub fn unit(self) -> &'static str {
        match self {
            Workload::Voter => "tps",
            Workload::Tpcc => "tpmC",
        }
    }

    /// Returns the throughput of a report over `seconds`, in the paper's unit: New-Orders a minute for TPC-C.
    #[must_use]
    pub fn throughput(self, report: &RunReport, seconds: f64) -> f64 {
        assert!(seconds >= 0.0, "time goes on");
        if seconds == 0.0 {
            return 0.0;
        }
        match self {
            Workload::Voter => f64_of(report.txns) / seconds,
            Workload::Tpcc => f64_of(new_orders(report)) / seconds * 60.0,
        }
    }
}

/// Returns the number of New-Orders that committed in a run.
#[must_use]
pub fn new_orders(report: &RunReport) -> u64 {
    let kind = &report.kinds[Kind::NewOrder.index()];
    kind.txns - kind.aborts
}

/// A workload and the form of its log.
#[derive(Debug, Clone)]
pub struct Setting {
    /// The workload.
    pub workload: Workload,
    /// The form of the log.
    pub scheme: LogScheme,
    /// The size of TPC-C.
    pub warehouses: Warehouses,
    /// The mix of TPC-C.
    pub mix: Mix,
    /// The part of each commit that the log and the archive get.
    pub yardstick: Yardstick,
}

impl Setting {
    /// Returns the setting of the paper's workload. Each transaction of TPC-C uses only one warehouse.
    #[must_use]
    pub fn of(workload: Workload, scheme: LogScheme, warehouses: Warehouses) -> Setting {
        Setting {
            workload,
            scheme,
            warehouses,
            mix: Mix {
                remote_lines: 0.0,
                remote_payments: 0.0,
                ..Mix::default()
            },
            yardstick: Yardstick::Product,
        }
    }

    fn site(&self, snapshot_every: Option<Duration>) -> Site {
        // This directory is not used, because the disks are in memory.
        let mut options = Options::new(self.workload.name());
        options.partitions = match self.workload {
            Workload::Voter => VOTER_PARTITIONS,
            Workload::Tpcc => self.warehouses.warehouses.next_power_of_two(),
        };
        options.segment_bytes = 16 << 20;
        // The experiment requests snapshots itself, at the same time in all modes.
        options.checkpoint_log_bytes = u64::MAX;
        options.checkpoint_seconds_max = 1;
        Site {
            snapshot_every,
            yardstick: self.yardstick,
            ..Site::new(options, true, self.scheme)
        }
    }

    fn bench(&self, seed: u64, drive: DriveOptions) -> Bench {
        let snapshot_every = match drive.limit {
            Limit::Time { warm_up, measured } => Some((warm_up + measured).mul_f64(SNAPSHOT_AT)),
            Limit::Txns(_) => None,
        };
        let site = self.site(snapshot_every);
        match self.workload {
            Workload::Voter => Bench::Voter(VoterBench {
                site,
                election: Election::default(),
                seed,
                drive,
                digest: false,
            }),
            Workload::Tpcc => Bench::Tpcc(TpccBench {
                site,
                scale: self.warehouses,
                mix: self.mix.clone(),
                seed,
                drive: Some(drive),
                own_dates: false,
                digest: false,
            }),
        }
    }
}

enum Bench {
    Voter(VoterBench),
    Tpcc(TpccBench),
}

impl Bench {
    fn open(&self, plant: &Plant, seed: u64) -> Result<Db> {
        let speeds = Speeds {
            log: LOG_MBPS,
            image: 0,
        };
        let disks = plant.env(speeds, SYNC_US, seed).disks;
        match self {
            Bench::Voter(bench) => bench.site.open_on(disks, None, voter::bench::declare),
            Bench::Tpcc(bench) => bench.site.open_on(disks, None, declare_sites),
        }
    }

    fn options(&self) -> Options {
        let builder = match self {
            Bench::Voter(bench) => bench.site.builder(voter::bench::declare),
            Bench::Tpcc(bench) => bench.site.builder(declare_sites),
        };
        builder.into_options()
    }
}

/// Returns the driver's settings for a run. Without a rate, the driver runs a closed loop.
#[must_use]
pub fn driven(workers: usize, rate: Option<f64>, limit: Limit) -> DriveOptions {
    driven_by(CLIENTS, workers, rate, limit)
}

/// As [`driven`], with `clients` clients for each worker of a closed loop.
#[must_use]
pub fn driven_by(clients: usize, workers: usize, rate: Option<f64>, limit: Limit) -> DriveOptions {
    DriveOptions {
        workers,
        clients: clients * workers,
        rate,
        limit,
    }
}

/// Returns the number of workers. One core is left for the log and the snapshots.
#[must_use]
pub fn workers(lab: &Lab<'_>) -> usize {
    lab.cores.saturating_sub(1).max(1)
}

/// Returns the length of a run at this scale.
#[must_use]
pub fn timed(lab: &Lab<'_>) -> Limit {
    Limit::Time {
        warm_up: lab.scale.typed.warm_up,
        measured: lab.scale.typed.measured,
    }
}

/// An open database with its workload.
pub struct Stand {
    setting: Setting,
    seed: u64,
    plant: Plant,
    db: Db,
    /// The number of runs so far. It is part of the seed of the next run, so that each run has different inputs.
    runs: u64,
}

impl Stand {
    /// Makes the database and populates it.
    ///
    /// # Errors
    /// Errors of the engine.
    pub fn new(setting: Setting, seed: u64) -> Result<Stand> {
        let bench = setting.bench(seed, driven(1, None, Limit::Txns(1)));
        let stand = Stand::on(setting, seed, Plant::new(1, 1), 0)?;
        match &bench {
            Bench::Voter(bench) => bench.populate(&stand.db)?,
            Bench::Tpcc(bench) => {
                let was_empty = bench.populate(&stand.db)?;
                assert!(was_empty, "the disks are new");
            }
        }
        stand.checkpoint()?;
        Ok(stand)
    }

    /// Opens the database on these disks, after `runs` runs.
    ///
    /// # Errors
    /// Errors of the engine.
    pub(super) fn on(setting: Setting, seed: u64, plant: Plant, runs: u64) -> Result<Stand> {
        let bench = setting.bench(seed, driven(1, None, Limit::Txns(1)));
        let db = bench.open(&plant, seed)?;
        Ok(Stand {
            setting,
            seed,
            plant,
            db,
            runs,
        })
    }

    /// Takes a checkpoint. A restart after a later crash replays only the transactions after the checkpoint.
    ///
    /// # Errors
    /// Errors of the engine.
    pub fn checkpoint(&self) -> Result<()> {
        self.db.checkpoint().context("a checkpoint without load")
    }

    /// Changes the mix of TPC-C for the next runs.
    pub fn set_mix(&mut self, mix: Mix) {
        self.setting.mix = mix;
    }

    /// Returns the seed of a run's inputs.
    fn seed_of(&self, run: u64) -> u64 {
        mix64(self.seed.wrapping_add(run))
    }

    /// Returns the inputs of the next run of one worker.
    fn next_inputs(&self) -> Inputs {
        let (scale, mix) = (self.setting.warehouses, self.setting.mix.clone());
        Inputs::new(scale, mix, self.seed_of(self.runs + 1), 0, 1)
    }

    /// Returns how many of the next `txns` transactions are New-Orders with items from another warehouse. One worker
    /// must run all of these transactions.
    #[must_use]
    pub fn distributed(&self, txns: u64) -> u64 {
        let mut inputs = self.next_inputs();
        to_u64(
            (0..txns)
                .filter(|_| inputs.next_input().is_distributed())
                .count(),
        )
    }

    /// Runs the next `txns` New-Orders with one worker. Distributed ones wait for other sites.
    ///
    /// # Errors
    /// Errors of the engine.
    pub fn run_on_sites(&mut self, txns: u64) -> Result<RunReport> {
        let inputs = self.next_inputs();
        self.runs += 1;
        let options = driven(1, None, Limit::Txns(txns));
        let mut report = RunReport::default();
        let driven = drive(&self.db, &options, Kind::ALL.len(), |_| {
            SiteTerminals::new(&self.db, inputs.clone())
        })?;
        report.measured(&options, &driven, &Kind::NAMES);
        Ok(report)
    }

    /// Runs the workload.
    ///
    /// # Errors
    /// Errors of the engine.
    pub fn run(&mut self, drive: DriveOptions) -> Result<RunReport> {
        self.runs += 1;
        let seed = self.seed_of(self.runs);
        let mut report = RunReport::default();
        match self.setting.bench(seed, drive) {
            Bench::Voter(bench) => bench.measure(&self.db, &mut report)?,
            Bench::Tpcc(bench) => bench.measure(&self.db, &drive, &mut report)?,
        }
        Ok(report)
    }

    /// Returns the logical digest of the database.
    ///
    /// # Errors
    /// Errors of the engine.
    pub fn digest(&self) -> Result<u64> {
        Ok(self.db.digest()?)
    }

    /// Drops the database without closing it. Returns its disks and its digest.
    ///
    /// # Errors
    /// Errors of the engine.
    pub fn crash(self) -> Result<Crash> {
        let digest = self.digest()?;
        self.db.abandon();
        let bench = self
            .setting
            .bench(self.seed, driven(1, None, Limit::Txns(1)));
        Ok(Crash {
            options: bench.options(),
            setting: self.setting,
            seed: self.seed,
            plant: self.plant,
            runs: self.runs,
            digest,
        })
    }
}

//! A database of typed tables in memory with a workload. It can be crashed, and the crash can be restarted.
//!
//! The log's disk is modelled as a battery-backed cache, which the paper's disks have. A sync takes a millisecond,
//! and the bandwidth is high enough that the CPU limits the transactions. The disk of the images takes no more time
//! than copying.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use perdura::typed::CatalogRows;
use perdura::typed::replay::Replayer;
use perdura::yardstick::Yardstick;
use perdura::{Db, Options, Progress};
use perdura_base::checksum::mix64;
use perdura_base::num::to_u64;
use perdura_heap::MemoryAccount;
use perdura_recovery::report::OrderedReport;
use perdura_recovery::restart::{RestartOptions, restart};
use perdura_recovery::{Level, Methods, Schedule};

use super::super::Lab;
use super::super::lab::{Plant, Speeds};
use crate::drive::{DriveOptions, Limit, LogScheme, RunReport, Site};
use crate::num::f64_of;
use crate::tpcc::bench::TpccBench;
use crate::tpcc::inputs::{Input, Inputs, Kind, Mix, Scale as Warehouses};
use crate::voter::bench::VoterBench;
use crate::voter::inputs::Election;
use crate::{tpcc, voter};

/// The transfer rate of the log's disk, 10^6 bytes a second.
pub const LOG_MBPS: u64 = 400;
/// The time of a sync of the log's disk, microseconds.
pub const SYNC_US: u64 = 1_000;
/// The number of partitions of Voter. TPC-C has one for each warehouse.
const VOTER_PARTITIONS: u16 = 16;
/// The number of clients of a closed loop, for each worker.
const CLIENTS: usize = 1_000;
/// The time at which the run's only snapshot is taken, as a part of the run.
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
    /// The part of each commit that the log gets.
    pub yardstick: Yardstick,
    /// True if the dates in TPC-C are computed from the seed.
    pub own_dates: bool,
}

impl Setting {
    /// Returns the setting of the paper's workload, in which all transactions of TPC-C stay in their warehouse.
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
            own_dates: false,
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
                own_dates: self.own_dates,
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
            Bench::Tpcc(bench) => bench.site.open_on(disks, None, tpcc::bench::declare),
        }
    }

    fn options(&self) -> Options {
        let builder = match self {
            Bench::Voter(bench) => bench.site.builder(voter::bench::declare),
            Bench::Tpcc(bench) => bench.site.builder(tpcc::bench::declare),
        };
        builder.into_options()
    }
}

/// Returns the driver's settings for a run. Without a rate, it is a closed loop.
#[must_use]
pub fn driven(workers: usize, rate: Option<f64>, limit: Limit) -> DriveOptions {
    DriveOptions {
        workers,
        clients: CLIENTS * workers,
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
    /// The number of runs so far. Each run draws other inputs.
    runs: u64,
}

impl Stand {
    /// Makes the database and populates it.
    ///
    /// # Errors
    /// Errors of the engine.
    pub fn new(setting: Setting, seed: u64) -> Result<Stand> {
        let plant = Plant::new(1, 1);
        let bench = setting.bench(seed, driven(1, None, Limit::Txns(1)));
        let db = bench.open(&plant, seed)?;
        match &bench {
            Bench::Voter(bench) => bench.populate(&db)?,
            Bench::Tpcc(bench) => {
                let was_empty = bench.populate(&db)?;
                assert!(was_empty, "the disks are new");
            }
        }
        let stand = Stand {
            setting,
            seed,
            plant,
            db,
            runs: 0,
        };
        stand.checkpoint()?;
        Ok(stand)
    }

    /// Takes a checkpoint. A restart after a later crash replays only the transactions behind it.
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

    /// Returns how many of the next `txns` New-Orders use several warehouses, if one worker runs them all.
    #[must_use]
    pub fn distributed(&self, txns: u64) -> u64 {
        let (scale, mix) = (self.setting.warehouses, self.setting.mix.clone());
        let mut inputs = Inputs::new(scale, mix, self.seed_of(self.runs + 1), 0, 1);
        let is_distributed = |_: &u64| match inputs.next_input() {
            Input::NewOrder { w, lines, .. } => lines.iter().any(|(_, supplier, _)| *supplier != w),
            _ => false,
        };
        to_u64((0..txns).filter(is_distributed).count())
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

    /// Drops the database without closing it.
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

/// The disks that a crash left, and the digest of the database before it.
pub struct Crash {
    setting: Setting,
    seed: u64,
    plant: Plant,
    options: Options,
    runs: u64,
    digest: u64,
}

impl Crash {
    /// Restarts the database on `threads` threads, and checks that it has the state from before the crash. The crash
    /// itself stays unchanged.
    ///
    /// # Errors
    /// Errors of the restart; a state that differs from that before the crash.
    pub fn restart(&self, threads: usize, log_mbps: u64) -> Result<OrderedReport> {
        let speeds = Speeds {
            log: log_mbps,
            image: 0,
        };
        let env = self.plant.env(speeds, 0, self.seed);
        let options = &self.options;
        let replayer = Replayer::new(options.typed.clone(), options.value_bytes_max);
        let restarted = restart(&RestartOptions {
            disks: env.disks,
            clock: env.clock,
            schedule: Schedule::new(Level::Four, threads),
            methods: Methods::default(),
            tree: perdura_recovery::tree::TreeMeans::default(),
            ordered: Some(Arc::new(replayer)),
            archived: None,
            mode: perdura_recovery::RestartMode::Dry,
            tail: Default::default(),
            memory: Arc::new(MemoryAccount::new(u64::MAX)),
            catalog: Arc::new(CatalogRows::default()),
            progress: Arc::new(Progress::default()),
        })?
        .context("the crash left a database")?;
        let digest = perdura::digest::digest(&restarted.data())?;
        ensure!(
            digest == self.digest,
            "a restart ended in {digest:016x}, and there was {:016x} before the crash",
            self.digest
        );
        restarted.report.ordered.context("the log has rows")
    }

    /// Opens the crashed database to run more transactions.
    ///
    /// # Errors
    /// Errors of the engine.
    pub fn reopen(self) -> Result<Stand> {
        let drive = driven(1, None, Limit::Txns(1));
        let db = self
            .setting
            .bench(self.seed, drive)
            .open(&self.plant, self.seed)?;
        Ok(Stand {
            setting: self.setting,
            seed: self.seed,
            plant: self.plant,
            db,
            runs: self.runs,
        })
    }
}

//! Figures 5 and 6: the cost of archiving for transactions. In figure 5 the log is in memory, and in figure 6 it is
//! on a disk.
//!
//! There are four ways to archive: B archives nothing, T copies the log unsorted, S sorts it into runs, and S+M also
//! merges the runs. Each run of the experiment has a new database. The ways are measured in turn, and each round begins
//! with the next way.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use perdura::yardstick::Yardstick;
use perdura::{Db, Options};
use perdura_device::{Disk, MemDisk};

use super::super::Lab;
use super::super::figure::{Figure, cell};
use super::super::plot::{Chart, Panel, Plot, Quartiles};
use super::overhead;
use crate::drive::{DriveOptions, Limit, LogScheme, ModelledDisk, RunReport, Site};
use crate::num::{count_f64, median, ratio};
use crate::tpcc::bench::TpccBench;
use crate::tpcc::inputs::Mix;
use crate::update::Rows;
use crate::update::bench::UpdateBench;

/// The numbers of clients for each worker in a closed loop. The first is for a log in memory. The second is for a log
/// on a disk, for which clients wait.
const CLIENTS: [usize; 2] = [1_000, 24];
/// The disk of the log in figure 6. Its syncs are the bottleneck, as in the paper.
const LOG_DISK: ModelledDisk = ModelledDisk {
    mbps: 400,
    latency_us: 1_000,
};
/// The part of the machine's processors that an open loop without archiving is to use.
const OPEN_LOAD: f64 = 0.6;
/// The number of trial runs that find the rate with this load. Each trial's rate follows from the load of the trial
/// before.
const OPEN_TRIALS: usize = 3;
/// The minimum load that is assumed, as a part of the processors. The kernel counts CPU time in ticks, so a run that is
/// only a few ticks long has no exact load.
const LOAD_LEAST: f64 = 0.05;
/// The archive must have the whole log of the population within this time.
const ARCHIVED_WITHIN: Duration = Duration::from_secs(120);

/// A way to archive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    Baseline,
    Unsorted,
    Sorted,
    Merged,
}

impl Way {
    pub(super) const ALL: [Way; 4] = [Way::Baseline, Way::Unsorted, Way::Sorted, Way::Merged];

    pub(super) fn name(self) -> &'static str {
        match self {
            Way::Baseline => "B",
            Way::Unsorted => "T",
            Way::Sorted => "S",
            Way::Merged => "S+M",
        }
    }
}

/// The work of the transactions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Work {
    Tpcc,
    Update,
}

impl Work {
    pub(super) const ALL: [Work; 2] = [Work::Tpcc, Work::Update];

    pub(super) fn name(self) -> &'static str {
        match self {
            Work::Tpcc => "TPC-C",
            Work::Update => "update",
        }
    }
}

/// The place of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LogPlace {
    Memory,
    Disk,
}

impl LogPlace {
    fn figure(self) -> (&'static str, &'static str) {
        match self {
            LogPlace::Memory => ("004-fig5", "Figure 5"),
            LogPlace::Disk => ("004-fig6", "Figure 6"),
        }
    }

    fn name(self) -> &'static str {
        match self {
            LogPlace::Memory => "in memory",
            LogPlace::Disk => "on a modelled disk",
        }
    }
}

/// A run and its results.
pub(super) struct Point {
    pub(super) work: Work,
    pub(super) way: Way,
    /// The number of arrivals a second of an open loop.
    pub(super) rate: Option<f64>,
    pub(super) report: RunReport,
}

impl Point {
    /// Returns the used part of the machine's processors.
    pub(super) fn cpu(&self, cores: usize) -> f64 {
        let used = self.report.cpu_seconds.unwrap_or(0.0);
        ratio(used, self.report.seconds * count_f64(cores))
    }
}

/// Makes figure 5: the log in memory.
///
/// # Errors
/// Errors of the engine.
pub fn in_memory(lab: &Lab<'_>) -> Result<Figure> {
    let mut points = closed(lab, ModelledDisk::default(), CLIENTS[0])?;
    points.extend(open(lab, &points)?);
    Ok(figure(lab, LogPlace::Memory, &points))
}

/// Makes figure 6: the log on a disk.
///
/// # Errors
/// Errors of the engine.
pub fn on_disk(lab: &Lab<'_>) -> Result<Figure> {
    let points = closed(lab, LOG_DISK, CLIENTS[1])?;
    Ok(figure(lab, LogPlace::Disk, &points))
}

/// Runs closed loops of all workloads and ways, round by round.
fn closed(lab: &Lab<'_>, disk: ModelledDisk, clients: usize) -> Result<Vec<Point>> {
    let mut points = Vec::new();
    for work in Work::ALL {
        for round in 0..lab.scale.archive.impact_runs {
            for turn in 0..Way::ALL.len() {
                let way = Way::ALL[(round + turn) % Way::ALL.len()];
                lab.say(&format!(
                    "{}, {}, run {}",
                    work.name(),
                    way.name(),
                    round + 1
                ));
                points.push(run(lab, work, way, (disk, clients), None)?);
            }
        }
    }
    Ok(points)
}

/// Runs open loops at the rate at which a loop without archiving uses [`OPEN_LOAD`] of the processors.
fn open(lab: &Lab<'_>, closed: &[Point]) -> Result<Vec<Point>> {
    let mut points = Vec::new();
    for work in Work::ALL {
        let rate = open_rate(lab, work, closed)?;
        for round in 0..lab.scale.archive.impact_runs.min(5) {
            for turn in 0..Way::ALL.len() {
                let way = Way::ALL[(round + turn) % Way::ALL.len()];
                lab.say(&format!(
                    "{}, {} at {rate:.0} a second, run {}",
                    work.name(),
                    way.name(),
                    round + 1
                ));
                let on = (ModelledDisk::default(), CLIENTS[0]);
                points.push(run(lab, work, way, on, Some(rate))?);
            }
        }
    }
    Ok(points)
}

/// Finds the rate at which an open loop without archiving uses [`OPEN_LOAD`] of the processors. The search begins from
/// the closed loop. A transaction costs more in an open loop: flushes are many and small, and two workers share cache
/// lines.
fn open_rate(lab: &Lab<'_>, work: Work, closed: &[Point]) -> Result<f64> {
    let baseline = |of: &dyn Fn(&Point) -> f64| median(values(closed, work, Way::Baseline, of));
    let rate_of = |tps: f64, load: f64| (tps * OPEN_LOAD / load.max(LOAD_LEAST)).max(1.0);
    let load = baseline(&|point| point.cpu(lab.cores));
    let mut rate = rate_of(baseline(&|point| point.report.tps), load);
    for _ in 0..OPEN_TRIALS {
        let on = (ModelledDisk::default(), CLIENTS[0]);
        let trial = run(lab, work, Way::Baseline, on, Some(rate))?;
        rate = rate_of(trial.report.tps, trial.cpu(lab.cores));
    }
    Ok(rate)
}

/// Makes a run on a new database.
fn run(
    lab: &Lab<'_>,
    work: Work,
    way: Way,
    (disk, clients): (ModelledDisk, usize),
    rate: Option<f64>,
) -> Result<Point> {
    let scale = &lab.scale.archive;
    // The transactions use all cores, as in the paper. No core is left for the archiver.
    let workers = lab.cores;
    let options = DriveOptions {
        workers,
        clients: clients * workers,
        rate,
        limit: Limit::Time {
            warm_up: scale.impact_warm_up,
            measured: scale.impact_measured,
        },
    };
    let site = site(lab, work, way, disk);
    let archive = (way != Way::Baseline).then(|| Arc::new(MemDisk::new()) as Arc<dyn Disk>);
    let mut report = RunReport::default();
    match work {
        Work::Tpcc => {
            let bench = TpccBench {
                scale: scale.impact_warehouses,
                mix: Mix::default(),
                seed: lab.seed,
                drive: Some(options),
                own_dates: false,
                digest: false,
                site,
            };
            let db =
                bench
                    .site
                    .open_on(bench.site.memory(), archive, crate::tpcc::bench::declare)?;
            bench.populate(&db)?;
            await_archived(&db)?;
            bench.measure(&db, &options, &mut report)?;
            db.abandon();
        }
        Work::Update => {
            let bench = UpdateBench {
                rows: Rows {
                    count: scale.impact_rows,
                    slot_bytes: 256,
                    changed_bytes: 40,
                    zipf: None,
                },
                seed: lab.seed,
                drive: options,
                digest: false,
                site,
            };
            let db = bench
                .site
                .open_on(bench.site.memory(), archive, |builder| builder)?;
            bench.populate(&db)?;
            await_archived(&db)?;
            bench.measure(&db, &options, &mut report)?;
            db.abandon();
        }
    }
    Ok(Point {
        work,
        way,
        rate,
        report,
    })
}

fn site(lab: &Lab<'_>, work: Work, way: Way, disk: ModelledDisk) -> Site {
    // This directory is not used, because the disks are in memory.
    let mut options = Options::new(work.name());
    options.partitions = match work {
        Work::Tpcc => lab
            .scale
            .archive
            .impact_warehouses
            .warehouses
            .next_power_of_two(),
        Work::Update => 64,
    };
    options.segment_bytes = 16 << 20;
    options.archive_merge = way == Way::Merged;
    options.first_backup = false;
    Site {
        disk,
        yardstick: match way {
            Way::Unsorted => Yardstick::Unsorted,
            Way::Baseline | Way::Sorted | Way::Merged => Yardstick::Product,
        },
        ..Site::new(options, true, LogScheme::Differential)
    }
}

/// Waits until the archive has the log up to the present. Does nothing without an archive.
fn await_archived(db: &Db) -> Result<()> {
    let durable = db.durable();
    let begin = Instant::now();
    loop {
        let Some(archive) = db.stats().archive else {
            return Ok(());
        };
        if archive
            .archived_epoch
            .is_some_and(|epoch| epoch >= durable.0)
        {
            return Ok(());
        }
        ensure!(
            begin.elapsed() < ARCHIVED_WITHIN,
            "the population is not archived: {:?}",
            db.delayed()
        );
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Returns the number that `of` takes from each closed loop of a workload and a way.
fn values(points: &[Point], work: Work, way: Way, of: &dyn Fn(&Point) -> f64) -> Vec<f64> {
    let of_both = |point: &&Point| point.rate.is_none() && (point.work, point.way) == (work, way);
    points.iter().filter(of_both).map(of).collect()
}

fn figure(lab: &Lab<'_>, place: LogPlace, points: &[Point]) -> Figure {
    let scale = &lab.scale.archive;
    let ((name, heading), log) = (place.figure(), place.name());
    let panel = |work: Work, y: &str, of: &dyn Fn(&Point) -> f64| {
        Panel::new(
            format!("{}, log {log}", work.name()),
            y,
            Chart::Boxes(
                Way::ALL
                    .into_iter()
                    .map(|way| Quartiles::of(way.name(), values(points, work, way, of)))
                    .collect(),
            ),
        )
    };
    let panels = Work::ALL.into_iter().flat_map(|work| {
        [
            panel(work, "Throughput (ktps)", &|point| point.report.tps / 1e3),
            panel(work, "CPU utilization (%)", &|point| {
                100.0 * point.cpu(lab.cores)
            }),
        ]
    });
    Figure {
        name,
        title: format!("transaction throughput and CPU while the log is archived, log {log}"),
        scale: lab.scale.name,
        seed: lab.seed,
        setting: vec![
            format!(
                "{} runs of {:.1} s a box, each with a new database in memory; TPC-C of {} warehouses with page-addressed \
                 tables, and updates of 40 bytes in {} rows",
                scale.impact_runs,
                scale.impact_measured.as_secs_f64(),
                scale.impact_warehouses.warehouses,
                scale.impact_rows
            ),
            format!(
                "all {} cores run transactions; B archives nothing, T copies unsorted, S sorts, S+M also merges; the archive \
                 is in memory",
                lab.cores
            ),
        ],
        columns: "workload,way,rate,tps,cpu_percent,p99_us,archived_records,archived_bytes,\
            lag_seconds_max",
        rows: points
            .iter()
            .map(|point| {
                let archive = point.report.archive.unwrap_or_default();
                vec![
                    point.work.name().into(),
                    point.way.name().into(),
                    point.rate.map_or(serde_json::Value::Null, cell),
                    cell(point.report.tps),
                    cell(100.0 * point.cpu(lab.cores)),
                    point.report.latency_us.p99.into(),
                    archive.records.into(),
                    archive.bytes.into(),
                    cell(archive.lag_seconds_max),
                ]
            })
            .collect(),
        claims: overhead::claims(lab.cores, place, points),
        plot: Plot {
            title: format!("{heading}: what archiving costs, log {log}"),
            subtitle: "boxes: quartiles and median; lines: least and most".into(),
            panels: panels.collect(),
        },
    }
}

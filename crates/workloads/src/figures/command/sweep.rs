//! Measures all schemes at all rates, in turn.

use std::time::Instant;

use anyhow::Result;
use perdura_device::Access;

use super::super::Lab;
use super::super::lab::{Plant, Speeds};
use super::stand::{LOG_MBPS, SYNC_US, Setting, Stand, Workload, driven, timed, workers};
use super::{SCHEMES, label};
use crate::drive::{LogScheme, RunReport};
use crate::latency::{LatencyUs, histogram, micros, record};
use crate::num::{f64_of, median, ratio};

/// The number of syncs from which the latency of the disk is computed.
const SYNCS: usize = 400;

/// The measurements of a scheme at a rate.
pub struct Point {
    /// The scheme.
    pub scheme: LogScheme,
    /// The clients' rate. `None`: no limit.
    pub rate: Option<f64>,
    /// The reports of the runs, one for each round.
    pub runs: Vec<RunReport>,
}

impl Point {
    /// Returns the median of a figure over the rounds.
    pub fn median(&self, of: impl Fn(&RunReport) -> f64) -> f64 {
        median(self.runs.iter().map(of).collect())
    }

    /// Returns the median of the CPU time of a transaction, microseconds.
    pub fn cpu_us(&self) -> f64 {
        self.median(cpu_us)
    }
}

/// Returns the CPU time of a transaction, with all other work of the process, microseconds.
pub fn cpu_us(report: &RunReport) -> f64 {
    ratio(report.cpu_seconds.unwrap_or(0.0) * 1e6, f64_of(report.txns))
}

/// A workload under all schemes.
pub struct Sweep {
    /// The workload.
    pub workload: Workload,
    /// The measurements of every scheme at every rate, and without a rate.
    pub points: Vec<Point>,
    /// The rates, ascending. Each pair is the rate as a part of the throughput without a log, and the rate itself.
    pub rates: Vec<(f64, f64)>,
    /// The time that 99 of 100 syncs of the idle disk do not exceed, milliseconds.
    pub sync_p99_ms: f64,
}

impl Sweep {
    /// Measures a sweep. The rates are parts of the throughput without a log. Every round has new databases, and
    /// begins with another scheme.
    ///
    /// # Errors
    /// Errors of the engine.
    pub fn measure(lab: &Lab<'_>, workload: Workload) -> Result<Sweep> {
        let scale = &lab.scale.typed;
        let setting = |scheme| Setting::of(workload, scheme, scale.tpcc);
        lab.say(&format!("{}: what no log reaches", workload.name()));
        let sync_p99_ms = sync_p99_ms(lab)?;
        let mut first = Stand::new(setting(LogScheme::None), lab.seed)?;
        let most = first.run(driven(workers(lab), None, timed(lab)))?.tps;
        drop(first);
        let rates: Vec<(f64, f64)> = scale
            .rates
            .iter()
            .map(|part| (*part, (part * most).max(1.0)))
            .collect();
        let tried = || std::iter::once(None).chain(rates.iter().map(|(_, rate)| Some(*rate)));
        let mut points: Vec<Point> = SCHEMES
            .into_iter()
            .flat_map(|scheme| {
                tried().map(move |rate| Point {
                    scheme,
                    rate,
                    runs: Vec::new(),
                })
            })
            .collect();
        for round in 0..scale.rounds {
            for turn in 0..SCHEMES.len() {
                let scheme = SCHEMES[(round + turn) % SCHEMES.len()];
                lab.say(&format!(
                    "{}, {}: {} rates, round {} of {}",
                    workload.name(),
                    label(scheme),
                    scale.rates.len(),
                    round + 1,
                    scale.rounds
                ));
                let mut stand = Stand::new(setting(scheme), lab.seed)?;
                for point in points.iter_mut().filter(|point| point.scheme == scheme) {
                    let drive = driven(workers(lab), point.rate, timed(lab));
                    point.runs.push(stand.run(drive)?);
                }
            }
        }
        Ok(Sweep {
            workload,
            points,
            rates,
            sync_p99_ms,
        })
    }

    /// Returns the measurements of a scheme without a rate.
    pub fn saturated(&self, scheme: LogScheme) -> &Point {
        self.at(scheme, None)
    }

    /// Returns the measurements of a scheme at the highest rate that is at most this part of the throughput without a
    /// log. If all rates are higher, it returns those at the lowest rate.
    pub fn at_part(&self, scheme: LogScheme, part: f64) -> &Point {
        let fits = self.rates.iter().rev().find(|(of, _)| *of <= part);
        let rate = fits.or(self.rates.first()).map(|(_, rate)| *rate);
        self.at(scheme, rate)
    }

    fn at(&self, scheme: LogScheme, rate: Option<f64>) -> &Point {
        let mut points = self.points.iter();
        points
            .find(|point| point.scheme == scheme && point.rate == rate)
            .expect("every scheme is measured at every rate")
    }

    /// Returns the line of a scheme in the plot: a figure by the rate.
    pub fn line(&self, scheme: LogScheme, of: impl Fn(&RunReport) -> f64) -> Vec<(f64, f64)> {
        let points = self.points.iter().filter(|point| point.scheme == scheme);
        points
            .filter_map(|point| Some((point.rate?, point.median(&of))))
            .collect()
    }
}

/// Measures the latency of a sync while nothing else happens.
fn sync_p99_ms(lab: &Lab<'_>) -> Result<f64> {
    let speeds = Speeds {
        log: LOG_MBPS,
        image: 0,
    };
    let disks = Plant::new(1, 1).env(speeds, SYNC_US, lab.seed).disks;
    let file = disks.logs[0].create("sync", Access::Direct)?;
    let mut latencies = histogram();
    let block = [0; 4096];
    for _ in 0..SYNCS {
        let begin = Instant::now();
        file.write_at(0, &block)?;
        file.sync()?;
        record(&mut latencies, micros(begin.elapsed()), 1);
    }
    Ok(f64_of(LatencyUs::of(&latencies).p99) / 1e3)
}

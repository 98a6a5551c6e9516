//! Measures a workload under each logging scheme, at each rate of transactions.

use std::time::Instant;

use anyhow::Result;
use perdura_device::Access;

use super::super::Lab;
use super::super::lab::{Plant, Speeds};
use super::super::sample::Sample;
use super::clients::{self, COUNTS, limit};
use super::stand::{
    CLIENTS, LOG_MBPS, SYNC_US, Setting, Stand, Workload, driven, driven_by, timed, workers,
};
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
    /// The clients' rate, transactions a second. `None`: no limit.
    pub rate: Option<f64>,
    /// The number of clients of each worker, if there is no rate.
    pub clients: usize,
    /// The reports of the runs, one for each round.
    pub runs: Vec<RunReport>,
}

impl Point {
    /// Makes a point without runs.
    pub fn new(scheme: LogScheme, rate: Option<f64>) -> Point {
        Point {
            scheme,
            rate,
            clients: CLIENTS,
            runs: Vec::new(),
        }
    }

    /// Makes a point without a rate and without runs.
    pub fn closed(scheme: LogScheme, clients: usize) -> Point {
        Point {
            clients,
            ..Point::new(scheme, None)
        }
    }

    /// Computes a value from the report of each round, with `of`.
    pub fn sample(&self, of: impl Fn(&RunReport) -> f64) -> Sample {
        Sample::of(self.runs.iter().map(of))
    }

    /// Computes a value for each round, with `of`: from this point's report and the other point's report of the round.
    pub fn pair(&self, other: &Point, of: impl Fn(&RunReport, &RunReport) -> f64) -> Sample {
        let rounds = self.runs.iter().zip(&other.runs);
        Sample::of(rounds.map(|(ours, theirs)| of(ours, theirs)))
    }

    /// Computes one quotient for each round: the value that `of` computes for this point, divided by its value for the
    /// other point.
    pub fn over(&self, other: &Point, of: impl Fn(&RunReport) -> f64) -> Sample {
        self.pair(other, |ours, theirs| ratio(of(ours), of(theirs)))
    }

    /// Returns the median, over the rounds, of the value that `of` computes from a report.
    pub fn median(&self, of: impl Fn(&RunReport) -> f64) -> f64 {
        median(self.runs.iter().map(of).collect())
    }

    /// Returns the median CPU time of a transaction, microseconds.
    pub fn cpu_us(&self) -> f64 {
        self.median(cpu_us)
    }
}

/// Returns the CPU time of the whole process, divided by the number of transactions, microseconds.
pub fn cpu_us(report: &RunReport) -> f64 {
    ratio(report.cpu_seconds.unwrap_or(0.0) * 1e6, f64_of(report.txns))
}

/// Returns the CPU time that logging adds to a transaction, divided by the CPU time of a transaction without a log. The
/// result is infinite if the time without a log is not known.
pub fn cpu_added(logged: &RunReport, none: &RunReport) -> f64 {
    let base = cpu_us(none);
    if base > 0.0 {
        cpu_us(logged) / base - 1.0
    } else {
        f64::INFINITY
    }
}

/// A workload under all schemes.
pub struct Sweep {
    /// The workload.
    pub workload: Workload,
    /// The measurements. Each scheme has one for each rate, and one without a rate for each number of clients.
    pub points: Vec<Point>,
    /// The rates, ascending. Each pair is the rate as a fraction of the throughput without a log, and the rate itself.
    pub rates: Vec<(f64, f64)>,
    /// The time that 99 of 100 syncs of the idle disk do not exceed, milliseconds.
    pub sync_p99_ms: f64,
}

impl Sweep {
    /// Measures a sweep. The rates are fractions of the throughput without a log. Each round makes new databases, and
    /// begins with the scheme that was second in the round before.
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
        let mut points = Vec::new();
        for scheme in SCHEMES {
            points.extend(COUNTS.map(|clients| Point::closed(scheme, clients)));
            points.extend(
                rates
                    .iter()
                    .map(|(_, rate)| Point::new(scheme, Some(*rate))),
            );
        }
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
                    let drive = driven_by(point.clients, workers(lab), point.rate, timed(lab));
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

    /// Returns the measurements of a scheme whose clients have no rate limit.
    pub fn closed(&self, scheme: LogScheme, clients: usize) -> &Point {
        let mut points = self.points.iter().filter(|point| point.scheme == scheme);
        points
            .find(|point| point.rate.is_none() && point.clients == clients)
            .expect("every scheme is measured with every number of clients")
    }

    /// Returns the lowest number of clients at which the clients are the bottleneck of no scheme. Returns the highest
    /// number if the clients are a bottleneck at each number.
    pub fn free_clients(&self) -> usize {
        let is_free = |clients: &usize| {
            let points = SCHEMES.map(|scheme| self.closed(scheme, *clients));
            points
                .iter()
                .all(|point| limit(point) != clients::Bottleneck::Clients)
        };
        let found = COUNTS.into_iter().find(is_free);
        found.unwrap_or(COUNTS[COUNTS.len() - 1])
    }

    /// Returns a scheme's measurements without a rate limit, with [`free_clients`](Self::free_clients) clients.
    pub fn saturated(&self, scheme: LogScheme) -> &Point {
        self.closed(scheme, self.free_clients())
    }

    /// Returns a scheme's measurements at one rate: the highest rate that is not above `part` times the throughput
    /// without a log. If all rates are above this limit, returns the measurements at the lowest rate.
    pub fn at_part(&self, scheme: LogScheme, part: f64) -> &Point {
        let fits = self.rates.iter().rev().find(|(of, _)| *of <= part);
        let rate = fits.or(self.rates.first()).map(|(_, rate)| *rate);
        self.at(scheme, rate.expect("there are rates"))
    }

    fn at(&self, scheme: LogScheme, rate: f64) -> &Point {
        let mut points = self.points.iter();
        points
            .find(|point| point.scheme == scheme && point.rate == Some(rate))
            .expect("every scheme is measured at every rate")
    }

    /// Returns a scheme's line in the plot. At each rate, the line shows the median of the values that `of` computes
    /// from the reports.
    pub fn line(&self, scheme: LogScheme, of: impl Fn(&RunReport) -> f64) -> Vec<(f64, f64)> {
        let points = self.points.iter().filter(|point| point.scheme == scheme);
        points
            .filter_map(|point| Some((point.rate?, point.median(&of))))
            .collect()
    }
}

/// Measures syncs of an otherwise idle disk. Returns the latency that 99 of 100 syncs do not exceed, milliseconds.
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

//! Figure 10: as figure 9, but each transaction runs on three replicas.
//!
//! Three databases in this process run the same calls in the same order, each on a separate thread. They must end
//! with the same digest. The network is modelled. A transaction of one warehouse is sent while the transactions
//! before it still run, so its replicas do not wait for it. A distributed transaction runs alone, as in the paper's
//! system. No other call runs during its round trips, in which its sites exchange their reads and agree to commit.

use std::time::Instant;

use anyhow::{Result, ensure};
use serde_json::Value;

use super::super::Lab;
use super::super::claim::{Claim, Target};
use super::super::figure::{Figure, cell};
use super::super::plot::{Plot, Series};
use super::distributed::{distributed_percent, gain_kept, panel, shown};
use super::stand::{Setting, Stand, Workload, driven, new_orders};
use super::{SCHEMES, VALUE, label};
use crate::drive::{Limit, LogScheme, RunReport};
use crate::num::{f64_of, median, ratio};
use crate::tpcc::inputs::Mix;

/// The number of databases.
const REPLICAS: usize = 3;
/// A round trip of the modelled network, microseconds: Gigabit Ethernet and two programs.
const ROUND_TRIP_US: f64 = 200.0;
/// The number of round trips of a distributed transaction: one for the work, one for the commit.
const ROUND_TRIPS: f64 = 2.0;

/// The results of a scheme with a share of remote lines.
struct Point {
    scheme: LogScheme,
    remote: f64,
    rounds: Vec<Round>,
}

/// The result of one round.
#[derive(Clone, Copy)]
struct Round {
    new_orders: f64,
    txns: f64,
    distributed: f64,
    /// The time until everything was durable on the slowest replica.
    seconds: f64,
}

impl Round {
    /// Returns the time including that of the modelled network.
    fn modelled_seconds(&self) -> f64 {
        self.seconds + self.distributed * ROUND_TRIPS * ROUND_TRIP_US / 1e6
    }
}

impl Point {
    fn tpmc(&self, seconds: fn(&Round) -> f64) -> f64 {
        let of = |round: &Round| ratio(round.new_orders, seconds(round)) * 60.0;
        median(self.rounds.iter().map(of).collect())
    }

    fn modelled(&self) -> f64 {
        self.tpmc(Round::modelled_seconds)
    }
}

/// Makes the figure.
///
/// # Errors
/// Errors of the engine; replicas that differ.
pub fn make(lab: &Lab<'_>) -> Result<Figure> {
    let points = measure(lab)?;
    let scale = &lab.scale.typed;
    let line = |scheme, seconds: fn(&Round) -> f64| -> Vec<(f64, f64)> {
        let of = points.iter().filter(|point| point.scheme == scheme);
        of.map(|point| (shown(point.remote), point.tpmc(seconds)))
            .collect()
    };
    let mut series: Vec<Series> = SCHEMES
        .map(|scheme| Series::solid(label(scheme), line(scheme, Round::modelled_seconds)))
        .to_vec();
    series.extend(SCHEMES.map(|scheme| {
        Series::broken(
            format!("{}: no network", label(scheme)),
            line(scheme, |round| round.seconds),
        )
    }));
    Ok(Figure {
        name: "001-fig10",
        title: "TPC-C New-Order throughput by distributed transactions, three replicas".into(),
        scale: lab.scale.name,
        seed: lab.seed,
        setting: vec![
            format!(
                "{REPLICAS} databases in one process, fed one order of {} New-Orders by a thread each, on \
                 {} core(s); {} warehouses of {} items; {} round(s), medians; no snapshots in any mode",
                scale.replicated_txns,
                lab.cores,
                scale.replicated.warehouses,
                scale.replicated.items,
                scale.rounds
            ),
            format!(
                "The network is modelled: {ROUND_TRIPS} round trips of {ROUND_TRIP_US} us for each distributed \
                 transaction, while the order stands still. They are added to the measured time."
            ),
            "All replicas under all logs ended each measurement in the same digest.".into(),
        ],
        columns: "log,remote_lines_percent,distributed_percent,tpmc,tpmc_without_network",
        rows: points
            .iter()
            .map(|point| -> Vec<Value> {
                vec![
                    point.scheme.name().into(),
                    cell(point.remote),
                    cell(distributed_percent(point.remote)),
                    cell(point.modelled()),
                    cell(point.tpmc(|round| round.seconds)),
                ]
            })
            .collect(),
        claims: claims(lab, &points),
        plot: Plot {
            title: "Figure 10: distributed transactions, three replicas".into(),
            subtitle: format!(
                "New-Order alone; network modelled: {ROUND_TRIPS} x {ROUND_TRIP_US} us a distributed \
                 transaction"
            ),
            panels: vec![panel("TPC-C New-Order throughput", series)],
        },
    })
}

fn measure(lab: &Lab<'_>) -> Result<Vec<Point>> {
    let scale = &lab.scale.typed;
    let mut points: Vec<Point> = SCHEMES
        .into_iter()
        .flat_map(|scheme| {
            scale.remote.iter().map(move |remote| Point {
                scheme,
                remote: *remote,
                rounds: Vec::new(),
            })
        })
        .collect();
    // For each share of remote lines, the digest of the data afterwards. All schemes must have the same.
    let mut digests: Vec<Option<u64>> = vec![None; scale.remote.len()];
    for round in 0..scale.rounds {
        for turn in 0..SCHEMES.len() {
            let scheme = SCHEMES[(round + turn) % SCHEMES.len()];
            lab.say(&format!(
                "{REPLICAS} replicas, {}: {} shares, round {} of {}",
                label(scheme),
                scale.remote.len(),
                round + 1,
                scale.rounds
            ));
            let mut replicas = replicas(lab, scheme)?;
            let of_scheme = points.iter_mut().filter(|point| point.scheme == scheme);
            for (point, digest) in of_scheme.zip(&mut digests) {
                for replica in &mut replicas {
                    replica.set_mix(Mix::new_order_only(point.remote));
                }
                let distributed = replicas[0].distributed(scale.replicated_txns);
                let (reports, seconds) = run(lab, &mut replicas)?;
                for replica in &replicas {
                    let found = replica.digest()?;
                    let expected = *digest.get_or_insert(found);
                    ensure!(
                        found == expected,
                        "a replica with {} ended in {found:016x}, another one in {expected:016x}",
                        label(scheme)
                    );
                }
                point.rounds.push(Round {
                    new_orders: f64_of(new_orders(&reports[0])),
                    txns: f64_of(reports[0].txns),
                    distributed: f64_of(distributed),
                    seconds,
                });
            }
        }
    }
    Ok(points)
}

fn replicas(lab: &Lab<'_>, scheme: LogScheme) -> Result<Vec<Stand>> {
    let mut setting = Setting::of(Workload::Tpcc, scheme, lab.scale.typed.replicated);
    setting.own_dates = true;
    (0..REPLICAS)
        .map(|_| Stand::new(setting.clone(), lab.seed))
        .collect()
}

/// Runs the next calls on all replicas. Returns the report of each replica, and the time until everything was durable
/// on all of them.
fn run(lab: &Lab<'_>, replicas: &mut [Stand]) -> Result<(Vec<RunReport>, f64)> {
    let drive = driven(1, None, Limit::Txns(lab.scale.typed.replicated_txns));
    let begin = Instant::now();
    let reports = std::thread::scope(|scope| {
        let threads: Vec<_> = replicas
            .iter_mut()
            .map(|replica| scope.spawn(move || replica.run(drive)))
            .collect();
        let joined = threads.into_iter().map(|thread| match thread.join() {
            Ok(report) => report,
            Err(panic) => std::panic::resume_unwind(panic),
        });
        joined.collect::<Result<Vec<RunReport>>>()
    })?;
    Ok((reports, begin.elapsed().as_secs_f64()))
}

fn claims(lab: &Lab<'_>, points: &[Point]) -> Vec<Claim> {
    let scale = &lab.scale.typed;
    let at = |scheme, remote: f64| {
        let mut found = points.iter();
        let found = found.find(|point| point.remote == remote && point.scheme == scheme);
        found.expect("every share is measured")
    };
    let none = scale.remote.first().copied().unwrap_or(0.0);
    let all = scale.remote.last().copied().unwrap_or(0.0);
    let command = LogScheme::Command;
    let gap = |remote| ratio(at(command, remote).modelled(), at(VALUE, remote).modelled());
    let share = distributed_percent(all);
    let measured: Vec<f64> = at(command, all)
        .rounds
        .iter()
        .map(|round| ratio(round.distributed, round.txns) * 100.0)
        .collect();
    vec![
        Claim::measured(
            "command / none without distributed transactions",
            "above 0.95",
            Target::AtLeast(0.95),
            ratio(
                at(command, none).modelled(),
                at(LogScheme::None, none).modelled(),
            ),
            "",
        ),
        Claim::measured(
            "command / value without distributed transactions",
            "almost 2",
            Target::AtLeast(1.0),
            gap(none),
            "",
        ),
        Claim::measured(
            &format!("the same at {share:.0} % distributed"),
            "1, from 10 % on",
            Target::AtMost(1.1),
            gap(all),
            "the network is what such a transaction costs",
        )
        .modelled(),
        Claim::measured(
            &format!("command's gain over value at {share:.0} % / without"),
            "0: the gap closes",
            Target::AtMost(0.5),
            gain_kept(gap(all), gap(none)),
            "",
        )
        .modelled(),
        Claim::measured(
            &format!("throughput at {share:.0} % distributed / without, command"),
            "about 0.01",
            Target::AtMost(0.5),
            ratio(at(command, all).modelled(), at(command, none).modelled()),
            "",
        )
        .modelled(),
        Claim::reported(
            "distributed transactions counted at the highest share",
            &format!("{share:.1} by the formula"),
            median(measured),
            "orders have 5 to 15 lines",
        )
        .in_unit(" %"),
    ]
}

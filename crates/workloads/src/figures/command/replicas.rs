//! Figure 10: as figure 9, but each transaction runs on three replicas.
//!
//! Three databases in this process run the same calls in the same order, each on a separate thread. They must end with
//! the same digest. A transaction of one warehouse is sent while earlier transactions still run, so the replicas do not
//! wait for it. A distributed transaction runs alone, as in the paper's system. On each replica it holds its partitions
//! and really waits for the round trips, in which its sites exchange their reads and agree to commit. Meanwhile logs
//! are flushed, and other replicas work. Throughput is measured in real time ([`crate::tpcc::sites`]).

use std::time::Instant;

use anyhow::{Result, ensure};
use serde_json::Value;

use super::super::Lab;
use super::super::claim::{Better, Bounds, Claim, Finding};
use super::super::figure::{Figure, cell};
use super::super::paper::Paper;
use super::super::plot::{Plot, Series};
use super::super::sample::Sample;
use super::distributed::{panel, shown};
use super::gaps::{self, Says, Share, distributed_percent, nearest};
use super::stand::{Setting, Stand, Workload, new_orders};
use super::{SCHEMES, label};
use crate::drive::{LogScheme, RunReport};
use crate::num::{f64_of, median, ratio};
use crate::tpcc::inputs::Mix;
use crate::tpcc::sites::{ROUND_TRIP, ROUND_TRIPS};

/// The number of databases.
const REPLICAS: usize = 3;
/// The specification's share of remote lines, in percent. A claim checks the number of distributed transactions at this
/// share.
const DEFAULT_REMOTE: f64 = 1.0;

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
    fn tpmc(&self) -> f64 {
        ratio(self.new_orders, self.seconds) * 60.0
    }
}

impl Point {
    fn median(&self, of: fn(&Round) -> f64) -> f64 {
        median(self.rounds.iter().map(of).collect())
    }
}

/// Returns the number of transactions of a run. It is lower for shares with many distributed transactions, because each
/// of them really waits for its round trips.
fn txns(lab: &Lab<'_>, remote: f64) -> u64 {
    let scale = &lab.scale.typed;
    let mut txns = scale.replicated_txns;
    while txns > 1 && f64_of(txns) * distributed_percent(remote) > scale.replicated_waits * 100.0 {
        txns = txns * 9 / 10;
    }
    txns
}

/// Makes the figure.
///
/// # Errors
/// Errors of the engine; replicas that differ.
pub fn make(lab: &Lab<'_>) -> Result<Figure> {
    let points = measure(lab)?;
    let line = |scheme| -> Vec<(f64, f64)> {
        let of = points.iter().filter(|point| point.scheme == scheme);
        of.map(|point| (shown(point.remote), point.median(Round::tpmc)))
            .collect()
    };
    let series = SCHEMES.map(|scheme| Series::solid(label(scheme), line(scheme)));
    Ok(Figure {
        name: "001-fig10",
        title: "TPC-C New-Order throughput by distributed transactions, three replicas".into(),
        scale: lab.scale.name,
        seed: lab.seed,
        setting: setting(lab),
        columns: "log,remote_lines_percent,distributed_percent,txns,distributed_txns,seconds,tpmc",
        rows: points
            .iter()
            .map(|point| -> Vec<Value> {
                vec![
                    point.scheme.name().into(),
                    cell(point.remote),
                    cell(distributed_percent(point.remote)),
                    cell(point.median(|round| round.txns)),
                    cell(point.median(|round| round.distributed)),
                    cell(point.median(|round| round.seconds)),
                    cell(point.median(Round::tpmc)),
                ]
            })
            .collect(),
        claims: claims(&points),
        plot: Plot {
            title: "Figure 10: distributed transactions, three replicas".into(),
            subtitle: format!(
                "New-Order alone; a distributed transaction waits {ROUND_TRIPS} x {} us",
                ROUND_TRIP.as_micros()
            ),
            panels: vec![panel("TPC-C New-Order throughput", series.to_vec())],
        },
    })
}

fn setting(lab: &Lab<'_>) -> Vec<String> {
    let scale = &lab.scale.typed;
    vec![
        format!(
            "{REPLICAS} databases in one process, fed one order of up to {} New-Orders by a thread each, on {} \
             core(s); {} warehouses of {} items; {} round(s), medians; no snapshots in any mode",
            scale.replicated_txns,
            lab.cores,
            scale.replicated.warehouses,
            scale.replicated.items,
            scale.rounds
        ),
        format!(
            "A distributed transaction sleeps {ROUND_TRIPS} round trips of {} us on each replica, while it holds \
             its partitions and the order stands still. All times are measured.",
            ROUND_TRIP.as_micros()
        ),
        "All replicas under all logs ended each measurement in the same digest.".into(),
    ]
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
    // For each share of remote lines, the digest of the data afterwards. All schemes must end with the same digest.
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
                let txns = txns(lab, point.remote);
                let distributed = replicas[0].distributed(txns);
                let (reports, seconds) = run(&mut replicas, txns)?;
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
    let setting = Setting::of(Workload::Tpcc, scheme, lab.scale.typed.replicated);
    (0..REPLICAS)
        .map(|_| Stand::new(setting.clone(), lab.seed))
        .collect()
}

/// Runs the next `txns` calls on all replicas. Returns the report of each replica, and the time until everything was
/// durable on all of them.
fn run(replicas: &mut [Stand], txns: u64) -> Result<(Vec<RunReport>, f64)> {
    let begin = Instant::now();
    let reports = std::thread::scope(|scope| {
        let threads: Vec<_> = replicas
            .iter_mut()
            .map(|replica| scope.spawn(move || replica.run_on_sites(txns)))
            .collect();
        let joined = threads.into_iter().map(|thread| match thread.join() {
            Ok(report) => report,
            Err(panic) => std::panic::resume_unwind(panic),
        });
        joined.collect::<Result<Vec<RunReport>>>()
    })?;
    Ok((reports, begin.elapsed().as_secs_f64()))
}

/// Returns the paper's statements about figure 10.
pub fn says() -> Says {
    Says {
        command_over_none: Paper::above("above 0.95: less than 5 %", 0.95).within(0.0),
        command_over_value: Paper::of("almost 2", 2.0),
        middle: (5.0, Paper::of("1.2 at 5 %", 1.2)),
        closes: Paper::of("1: from almost 2 to 1", 1.0),
        identical: "1: nearly identical beyond 10 %",
    }
}

fn claims(points: &[Point]) -> Vec<Claim> {
    let shares: Vec<Share> = points
        .iter()
        .map(|point| Share {
            scheme: point.scheme,
            remote: point.remote,
            tpmc: point.rounds.iter().map(Round::tpmc).collect(),
        })
        .collect();
    let mut claims = gaps::claims(&shares, says());
    let of_command = || {
        points
            .iter()
            .filter(|point| point.scheme == LogScheme::Command)
    };
    let remote: Vec<f64> = of_command().map(|point| point.remote).collect();
    let at = |remote: f64| {
        let found = of_command().find(|point| point.remote == remote);
        found.expect("it is one of them").rounds.iter()
    };
    let waits = (ROUND_TRIP * ROUND_TRIPS).as_secs_f64() * 1e3;
    let last = at(nearest(&remote, 100.0));
    claims.push(
        Claim::own(
            "time of a transaction if nearly all are distributed, command",
            Finding::AtLeast(waits),
            Sample::of(last.map(|round| ratio(round.seconds, round.distributed) * 1e3)),
            "the round trips really pass",
        )
        .in_unit(" ms"),
    );
    let remote = nearest(&remote, distributed_percent(DEFAULT_REMOTE));
    let formula = distributed_percent(remote);
    let counted = at(remote).map(|round| ratio(round.distributed, round.txns) * 100.0);
    claims.push(
        Claim::measured(
            &format!("distributed transactions counted with {remote} % of lines remote"),
            Paper::of(&format!("{formula:.1} by the formula"), formula),
            Bounds(Better::Neither, Finding::Within(formula, formula / 2.0)),
            Sample::of(counted),
            "orders have 5 to 15 lines",
        )
        .in_unit(" %"),
    );
    claims
}

#[cfg(test)]
mod tests {
    use super::super::super::claim::Verdict;
    use super::super::testing::expect;
    use super::*;

    const TIME: &str = "time of a transaction if nearly all are distributed, command";
    const COUNTED: &str = "distributed transactions counted with 1 % of lines remote";

    /// Returns points of runs of a thousand transactions. Each distributed transaction takes `ms` milliseconds. If one
    /// line in a hundred is remote, `counted` of the transactions are distributed.
    fn points(ms: f64, counted: f64) -> Vec<Point> {
        let mut points = Vec::new();
        for scheme in SCHEMES {
            for (remote, distributed) in [(0.0, 0.0), (1.0, counted), (40.0, 993.0)] {
                let round = Round {
                    new_orders: 990.0,
                    txns: 1_000.0,
                    distributed,
                    seconds: 0.03 + distributed * ms / 1e3,
                };
                points.push(Point {
                    scheme,
                    remote,
                    rounds: vec![round; 2],
                });
            }
        }
        points
    }

    #[test]
    fn round_trips_that_did_not_pass_and_wrong_counts_are_found() {
        let good = claims(&points(0.45, 95.0));
        expect(&good, TIME, Verdict::Reported);
        expect(&good, COUNTED, Verdict::AsPaper);
        let bad = claims(&points(0.1, 200.0));
        expect(&bad, TIME, Verdict::Fails);
        expect(&bad, COUNTED, Verdict::Fails);
        expect(&claims(&points(0.45, 70.0)), COUNTED, Verdict::Weaker);
    }
}

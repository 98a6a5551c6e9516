//! Figure 9: the throughput of New-Order alone, by the share of transactions that use several warehouses.

use anyhow::Result;
use serde_json::Value;

use super::super::Lab;
use super::super::claim::{Claim, Finding};
use super::super::figure::{Figure, cell};
use super::super::paper::Paper;
use super::super::plot::{Chart, Panel, Plot, Series};
use super::gaps::{self, Says, Share, distributed_percent, nearest};
use super::stand::{Setting, Stand, Workload, driven, timed};
use super::sweep::{Point, cpu_us};
use super::{SCHEMES, label};
use crate::drive::{LogScheme, RunReport};
use crate::tpcc::inputs::Mix;

/// The value, in percent, at which the logarithmic axis shows 0 %, because such an axis has no zero.
pub const NONE_PERCENT: f64 = 0.1;

/// Makes the figure.
///
/// # Errors
/// Errors of the engine.
pub fn make(lab: &Lab<'_>) -> Result<Figure> {
    let points = measure(lab)?;
    let scale = &lab.scale.typed;
    Ok(Figure {
        name: "001-fig9",
        title: "TPC-C New-Order throughput by distributed transactions".into(),
        scale: lab.scale.name,
        seed: lab.seed,
        setting: vec![
            format!(
                "New-Order alone, {} warehouses of {} items, {} worker(s), as fast as it goes; {} round(s), \
                 medians; one snapshot in each run",
                scale.distributed.warehouses, scale.distributed.items, lab.cores, scale.rounds
            ),
            "A distributed transaction holds the latches of its warehouses. Nothing is sent, so its cost is \
             that of the latches and of waiting for them."
                .into(),
        ],
        columns: "log,remote_lines_percent,distributed_percent,tps,tpmc,cpu_us_per_txn",
        rows: points
            .iter()
            .map(|(remote, point)| -> Vec<Value> {
                vec![
                    point.scheme.name().into(),
                    cell(*remote),
                    cell(distributed_percent(*remote)),
                    cell(point.median(|run| run.tps)),
                    cell(tpmc(point)),
                    cell(point.cpu_us()),
                ]
            })
            .collect(),
        claims: claims(&points),
        plot: Plot {
            title: "Figure 9: distributed transactions, one node".into(),
            subtitle: format!("New-Order alone; {NONE_PERCENT} % stands for none"),
            panels: vec![panel(
                "TPC-C New-Order throughput",
                SCHEMES
                    .map(|scheme| {
                        let of = points.iter().filter(|(_, point)| point.scheme == scheme);
                        let points = of.map(|(remote, point)| (shown(*remote), tpmc(point)));
                        Series::solid(label(scheme), points.collect())
                    })
                    .to_vec(),
            )],
        },
    })
}

/// Converts a share of remote lines to the share of distributed transactions that the axis shows, percent. The result
/// is at least [`NONE_PERCENT`].
pub fn shown(remote_lines: f64) -> f64 {
    distributed_percent(remote_lines).max(NONE_PERCENT)
}

/// Returns the panel of figures 9 and 10.
pub fn panel(title: &str, series: Vec<Series>) -> Panel {
    Panel::new(
        title,
        "Throughput (tpmC)",
        Chart::powers("% of distributed New-Order transactions", series),
    )
}

fn tpmc(point: &Point) -> f64 {
    point.median(tpmc_of)
}

fn tpmc_of(run: &RunReport) -> f64 {
    Workload::Tpcc.throughput(run, run.seconds)
}

fn measure(lab: &Lab<'_>) -> Result<Vec<(f64, Point)>> {
    let scale = &lab.scale.typed;
    let mut points: Vec<(f64, Point)> = SCHEMES
        .into_iter()
        .flat_map(|scheme| {
            scale
                .remote
                .iter()
                .map(move |remote| (*remote, Point::new(scheme, None)))
        })
        .collect();
    for round in 0..scale.rounds {
        for turn in 0..SCHEMES.len() {
            let scheme = SCHEMES[(round + turn) % SCHEMES.len()];
            lab.say(&format!(
                "New-Order, {}: {} shares, round {} of {}",
                label(scheme),
                scale.remote.len(),
                round + 1,
                scale.rounds
            ));
            let setting = Setting::of(Workload::Tpcc, scheme, scale.distributed);
            let mut stand = Stand::new(setting, lab.seed)?;
            for (remote, point) in points.iter_mut().filter(|(_, p)| p.scheme == scheme) {
                stand.set_mix(Mix::new_order_only(*remote));
                let drive = driven(lab.cores, None, timed(lab));
                point.runs.push(stand.run(drive)?);
            }
        }
    }
    Ok(points)
}

/// Returns the paper's statements about figure 9.
pub fn says() -> Says {
    let none = 2.4 / 2.6;
    Says {
        command_over_none: Paper::of("2.4M and 2.6M tpmC, 0.92", none).within(0.05),
        command_over_value: Paper::of("1.5", 1.5),
        middle: (50.0, Paper::of("1.4 at 50 %", 1.4)),
        closes: Paper::of("0.5: from 1.5 to 1", 0.5),
        identical: "1: identical at about 100 %",
    }
}

fn claims(points: &[(f64, Point)]) -> Vec<Claim> {
    let shares: Vec<Share> = points
        .iter()
        .map(|(remote, point)| Share {
            scheme: point.scheme,
            remote: *remote,
            tpmc: point.runs.iter().map(tpmc_of).collect(),
        })
        .collect();
    let mut claims = gaps::claims(&shares, says());
    let of_command = || {
        points
            .iter()
            .filter(|(_, point)| point.scheme == LogScheme::Command)
    };
    let remote: Vec<f64> = of_command().map(|(remote, _)| *remote).collect();
    let at = |percent| {
        let remote = nearest(&remote, percent);
        let found = of_command().find(|(of, _)| *of == remote);
        &found.expect("it is one of them").1
    };
    claims.push(Claim::own(
        "CPU of a transaction, all distributed / none, command",
        Finding::AtLeast(1.0),
        at(100.0).over(at(0.0), cpu_us),
        "latches in one process, where the paper's sites send messages and wait",
    ));
    claims
}

#[cfg(test)]
mod tests {
    use super::super::super::claim::Verdict;
    use super::super::testing::{expect, run_of};
    use super::*;

    #[test]
    fn a_distributed_transaction_that_is_cheaper_fails() {
        let what = "CPU of a transaction, all distributed / none, command";
        for (cpu, expected) in [(30.0, Verdict::Reported), (10.0, Verdict::Fails)] {
            let mut points = Vec::new();
            for (remote, cpu) in [(0.0, 20.0), (40.0, cpu)] {
                for scheme in SCHEMES {
                    let mut point = Point::new(scheme, None);
                    point.runs = vec![run_of(10_000, cpu); 2];
                    points.push((remote, point));
                }
            }
            expect(&claims(&points), what, expected);
        }
    }

    #[test]
    fn the_axis_shows_none() {
        assert_eq!(shown(0.0), NONE_PERCENT);
    }
}

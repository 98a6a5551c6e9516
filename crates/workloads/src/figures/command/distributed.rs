//! Figure 9: the throughput of New-Order alone, by the share of transactions that use several warehouses.

use anyhow::Result;
use serde_json::Value;

use super::super::Lab;
use super::super::claim::{Claim, Target};
use super::super::figure::{Figure, cell};
use super::super::plot::{Chart, Panel, Plot, Series};
use super::stand::{Setting, Stand, Workload, driven, timed};
use super::sweep::{Point, cpu_us};
use super::{SCHEMES, VALUE, label};
use crate::drive::LogScheme;
use crate::num::ratio;
use crate::tpcc::inputs::Mix;

/// The value, in percent, at which the logarithmic axis shows that no transaction is distributed.
pub const NONE_PERCENT: f64 = 0.1;

/// Returns the share of distributed transactions, percent, if `remote_lines` of a hundred order lines are remote. An
/// order has ten lines on average.
#[must_use]
pub fn distributed_percent(remote_lines: f64) -> f64 {
    (1.0 - (1.0 - remote_lines / 100.0).powi(10)) * 100.0
}

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
        claims: claims(lab, &points),
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

/// Returns the value at which the axis shows a share of remote lines.
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
    point.median(|run| Workload::Tpcc.throughput(run, run.seconds))
}

fn measure(lab: &Lab<'_>) -> Result<Vec<(f64, Point)>> {
    let scale = &lab.scale.typed;
    let mut points: Vec<(f64, Point)> = SCHEMES
        .into_iter()
        .flat_map(|scheme| {
            scale.remote.iter().map(move |remote| {
                let point = Point {
                    scheme,
                    rate: None,
                    runs: Vec::new(),
                };
                (*remote, point)
            })
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

fn claims(lab: &Lab<'_>, points: &[(f64, Point)]) -> Vec<Claim> {
    let scale = &lab.scale.typed;
    let at = |scheme, remote: f64| {
        let mut found = points.iter();
        let found = found.find(|(of, point)| *of == remote && point.scheme == scheme);
        &found.expect("every share is measured").1
    };
    let none = scale.remote.first().copied().unwrap_or(0.0);
    let all = scale.remote.last().copied().unwrap_or(0.0);
    let gap = |remote| {
        ratio(
            tpmc(at(LogScheme::Command, remote)),
            tpmc(at(VALUE, remote)),
        )
    };
    let command = LogScheme::Command;
    let of_none = ratio(tpmc(at(command, none)), tpmc(at(LogScheme::None, none)));
    let drop = ratio(tpmc(at(command, all)), tpmc(at(command, none)));
    let cost = |scheme, remote| at(scheme, remote).median(cpu_us);
    let share = distributed_percent(all);
    vec![
        Claim::measured(
            "command / none without distributed transactions",
            "slightly below 1: 2.4M and 2.6M tpmC",
            Target::AtLeast(0.95),
            of_none,
            "",
        ),
        Claim::measured(
            "command / value without distributed transactions",
            "1.5",
            Target::AtLeast(1.0),
            gap(none),
            "",
        ),
        Claim::reported(
            &format!("the same at {share:.0} % distributed"),
            "1",
            gap(all),
            "1.4 at 50 % in the paper",
        ),
        Claim::measured(
            &format!("command's gain over value at {share:.0} % / without"),
            "0: the gap closes",
            Target::AtMost(1.0),
            gain_kept(gap(all), gap(none)),
            "it closes as far as a distributed transaction is longer",
        ),
        Claim::measured(
            &format!("throughput at {share:.0} % distributed / without, command"),
            "about 0.01",
            Target::AtMost(1.0),
            drop,
            "latches in one process, where the paper's sites send messages and wait",
        ),
        Claim::reported(
            &format!("CPU of a transaction at {share:.0} % distributed / without, command"),
            "-",
            ratio(cost(command, all), cost(command, none)),
            "",
        ),
    ]
}

/// Returns the part of a gain that remains with remote lines. `at_none` and `at_all` are the ratios of two schemes'
/// throughputs without and with them. 1: the gain is the same. 0: nothing remains.
pub fn gain_kept(at_all: f64, at_none: f64) -> f64 {
    if at_none <= 1.0 {
        return 0.0;
    }
    ((at_all - 1.0) / (at_none - 1.0)).max(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_axis_follows_from_ten_lines_an_order() {
        assert_eq!(distributed_percent(0.0), 0.0);
        assert!((distributed_percent(1.0) - 9.562).abs() < 1e-3);
        assert!(distributed_percent(40.0) > 99.0);
        assert_eq!(shown(0.0), NONE_PERCENT);
    }

    #[test]
    fn a_gain_that_is_gone_is_zero() {
        assert_eq!(gain_kept(1.0, 1.5), 0.0);
        assert_eq!(gain_kept(1.25, 1.5), 0.5);
        assert_eq!(gain_kept(0.9, 1.5), 0.0);
        assert_eq!(gain_kept(1.2, 1.0), 0.0);
    }
}

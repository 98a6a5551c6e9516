//! Figure 3: redo time, by the checkpoint interval.

use std::rc::Rc;

use anyhow::Result;

use super::super::Lab;
use super::super::claim::{Claim, Target};
use super::super::figure::{Figure, cell};
use super::super::plot::{Chart, Panel, Plot, Series};
use super::history::Plan;
use super::restarts::{Timed, stalls};
use super::{METHODS, Named, all_methods, at_cache};
use crate::num::{f64_of, ratio};

/// The results of a method at one checkpoint interval.
struct Point {
    interval: u64,
    method: &'static str,
    timed: Rc<Timed>,
}

/// Makes the figure.
///
/// # Errors
/// Errors of the database.
pub fn make(lab: &Lab<'_>) -> Result<Figure> {
    let stand = lab.logical()?;
    let scale = &lab.scale.logical;
    let mut points = Vec::new();
    for interval in scale.intervals {
        let plan = Plan {
            interval: *interval,
            ..at_cache(scale.interval_cache)
        };
        let timed = stand.timed(lab, plan, &all_methods()?)?;
        let points_of = METHODS.iter().zip(timed).map(|(of, timed)| Point {
            interval: *interval,
            method: of.method,
            timed,
        });
        points.extend(points_of);
    }
    let line = |Named { method, label }: Named| {
        let of = points.iter().filter(|point| point.method == method);
        let at = |point: &Point| (f64_of(point.interval), 1e3 * point.timed.seconds());
        Series::solid(label, of.map(at).collect())
    };
    Ok(Figure {
        name: "002-fig3",
        title: format!(
            "redo time by the checkpoint interval, memory {} %",
            scale.interval_cache
        ),
        scale: lab.scale.name,
        seed: lab.seed,
        setting: stand.setting(lab),
        columns: "interval,method,redo_seconds,analysis_seconds,spread,data_pages,stalls,\
            dirty_pages,operations",
        rows: points
            .iter()
            .map(|point| {
                let report = point.timed.reports[0];
                vec![
                    point.interval.into(),
                    point.method.into(),
                    cell(point.timed.seconds()),
                    cell(point.timed.median(|report| report.analysis_seconds)),
                    cell(point.timed.spread()),
                    report.data_pages_fetched.into(),
                    cell(point.timed.median(|report| f64_of(stalls(report)))),
                    report.dirty_pages.into(),
                    report.operations.into(),
                ]
            })
            .collect(),
        claims: claims(&points),
        plot: Plot {
            title: "Figure 3: redo time by the checkpoint interval".into(),
            subtitle: stand.setting(lab).swap_remove(0),
            panels: vec![Panel::new(
                format!("Memory {} % of the table", scale.interval_cache),
                "Redo time (ms)",
                Chart::powers(
                    "Interval (multiples of the first)",
                    METHODS.map(line).into(),
                ),
            )],
        },
    })
}

fn claims(points: &[Point]) -> Vec<Claim> {
    let seconds = |method: &str, interval: u64| {
        let mut points = points.iter();
        let is_it = |point: &&Point| point.method == method && point.interval == interval;
        points.find(is_it).map(|point| point.timed.seconds())
    };
    let first = points.first().map_or(1, |point| point.interval);
    let grows = |method: &str, interval: u64| {
        let (now, first) = (seconds(method, interval), seconds(method, first));
        ratio(now.unwrap_or(0.0), first.unwrap_or(0.0))
    };
    let claim = |method: &str, interval, paper: &str, target| {
        Claim::measured(
            &format!("redo time of {method}, interval x{interval} / x1"),
            paper,
            target,
            grows(method, interval),
            "",
        )
    };
    let mut claims = vec![
        claim("log0", 5, "linear", Target::AtLeast(4.0)),
        claim("log0", 5, "linear", Target::AtMost(5.5)),
        claim("log0", 10, "linear", Target::AtLeast(8.0)),
        claim("log0", 10, "linear", Target::AtMost(11.0)),
        claim("log1", 5, "about 2", Target::AtMost(2.0)),
        claim("log1", 10, "-", Target::AtMost(2.5)),
    ];
    for (method, paper) in [
        ("sql1", "about 2"),
        ("log2", "modestly"),
        ("sql2", "modestly"),
        ("aries", "-"),
    ] {
        for interval in [5, 10] {
            claims.push(claim(method, interval, paper, Target::None));
        }
    }
    claims
}

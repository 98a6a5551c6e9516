//! Figure 3: redo time, by the checkpoint interval.

use std::rc::Rc;

use anyhow::Result;

use super::super::Lab;
use super::super::claim::{Better, Bounds, Claim, Finding};
use super::super::figure::{Figure, cell};
use super::super::paper::Paper;
use super::super::plot::{Chart, Panel, Plot, Series};
use super::super::sample::Sample;
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

/// Returns the results of a method at an interval.
fn find<'a>(points: &'a [Point], method: &str, interval: u64) -> Option<&'a Timed> {
    let is_it = |point: &&Point| point.method == method && point.interval == interval;
    points.iter().find(is_it).map(|point| &*point.timed)
}

/// Returns the redo time of a method at an interval, divided by that at the first interval, in each round.
fn growth(points: &[Point], method: &str, interval: u64) -> Option<Sample> {
    let first = find(points, method, points.first()?.interval)?;
    Some(find(points, method, interval)?.over(first))
}

fn claims(points: &[Point]) -> Vec<Claim> {
    let first = points.first().map_or(1, |point| point.interval);
    let of_log0 = points.iter().filter(|point| point.method == "log0");
    let later = of_log0
        .map(|point| point.interval)
        .filter(|interval| *interval > first);
    later
        .flat_map(|interval| at_interval(points, interval))
        .collect()
}

/// Judges one interval. For five times the shortest interval, the paper gives numbers. For ten times, it only says that
/// the effects are the same and that the growth is not linear.
fn at_interval(points: &[Point], interval: u64) -> Vec<Claim> {
    let times = f64_of(interval);
    let grows = |method: &str, paper: &Paper, finding, why: &str| {
        let ours = growth(points, method, interval)?;
        let what = format!("redo time of {method}, interval x{interval} / x1");
        Some(Claim::measured(&what, paper.clone(), finding, ours, why))
    };
    let not_linear = |words: &str| (Paper::below(words, times).within(0.0), times);
    let (doubles, modest) = match interval {
        5 => (
            (Paper::of("approximately double", 2.0), times),
            (Paper::of("only modestly, 1.2 times", 1.2), 2.0),
        ),
        _ => (not_linear("not linearly"), not_linear("the same effect")),
    };
    let linear = Bounds(Better::Neither, Finding::Within(times, 0.5 * times));
    let mut claims = Vec::new();
    claims.extend(grows("log0", &Paper::of("linear", times), linear, ""));
    for (methods, (paper, most), why) in [
        (
            ["log1", "sql1"],
            doubles,
            "the writer keeps the table at a quarter of the memory, so it grows less than the paper's",
        ),
        (
            ["log2", "sql2"],
            modest,
            "with few waits for pages, the log's records are most of the time, and they are linear; twice is what log1 takes",
        ),
    ] {
        let finding = Bounds(Better::Less, Finding::AtMost(most));
        let of_methods = methods.map(|method| grows(method, &paper, finding, why));
        claims.extend(of_methods.into_iter().flatten());
    }
    claims.extend(more_visible(points, interval));
    claims.extend(growth(points, "aries", interval).map(|ours| {
        let what = format!("redo time of aries, interval x{interval} / x1");
        Claim::own(
            &what,
            Finding::AtMost(1.15 * times),
            ours,
            "our addition: no more than linear",
        )
    }));
    claims
}

/// Judges whether reading ahead gains more with a larger interval.
fn more_visible(points: &[Point], interval: u64) -> Vec<Claim> {
    let paper = match interval {
        5 => Paper::of("1.2 / 2: more visible", 0.6),
        _ => Paper::below("the same effect: more visible", 1.0).within(0.0),
    };
    let claim = |(ahead, without): (&str, &str)| {
        let part = |interval| {
            let (ahead, without) = (
                find(points, ahead, interval)?,
                find(points, without, interval)?,
            );
            Some(ratio(ahead.seconds(), without.seconds()))
        };
        Some(Claim::measured(
            &format!("redo time {ahead} / {without}, interval x{interval} over x1"),
            paper.clone(),
            Bounds(Better::Less, Finding::AtMost(0.99)),
            ratio(part(interval)?, part(points.first()?.interval)?),
            "the disk takes many reads at once, so reading ahead hides nearly all waits at x1 already",
        ))
    };
    [("log2", "log1"), ("sql2", "sql1")]
        .into_iter()
        .filter_map(claim)
        .collect()
}

#[cfg(test)]
mod tests {
    use perdura_recovery::report::TreeReport;

    use super::super::judged::{Spoiled, each_can_be_missed};
    use super::*;

    /// The redo times of each method, seconds, at 1, 5 and 10 times the shortest interval.
    type Data = Vec<(&'static str, [f64; 3])>;

    fn as_paper() -> Data {
        vec![
            ("log0", [10.0, 50.0, 100.0]),
            ("log1", [4.0, 8.0, 12.0]),
            ("log2", [2.0, 2.4, 3.0]),
            ("sql1", [4.0, 8.0, 12.0]),
            ("sql2", [2.0, 2.4, 3.0]),
            ("aries", [5.0, 20.0, 40.0]),
        ]
    }

    fn judge(data: &Data) -> Vec<Claim> {
        let mut points = Vec::new();
        for (at, interval) in [1, 5, 10].into_iter().enumerate() {
            points.extend(data.iter().map(|(method, seconds)| {
                let redo_seconds = seconds[at];
                let report = TreeReport {
                    redo_seconds,
                    ..TreeReport::default()
                };
                let timed = Rc::new(Timed {
                    reports: vec![report; 3],
                });
                Point {
                    interval,
                    method,
                    timed,
                }
            }));
        }
        claims(&points)
    }

    #[test]
    fn each_claim_can_be_missed() {
        let changes: [Spoiled<Data>; 9] = [
            ("redo time of log0", |data| data[0].1[0] *= 3.0),
            ("redo time of log1", |data| data[1].1 = [1.0, 2.4, 11.0]),
            ("redo time of log2", |data| data[2].1 = [1.0, 1.5, 11.0]),
            ("redo time of sql1", |data| data[3].1 = [1.0, 5.1, 11.0]),
            ("redo time of sql2", |data| data[4].1 = [1.0, 2.1, 11.0]),
            ("redo time of aries", |data| data[5].1 = [1.0, 6.0, 12.0]),
            ("redo time log2 / log1", |data| data[2].1[0] = 0.5),
            ("redo time sql2 / sql1", |data| data[4].1 = [1.0, 1.5, 5.0]),
            ("redo time sql2 / sql1", |data| data[3].1 = [8.0, 8.0, 8.0]),
        ];
        each_can_be_missed(as_paper, judge, &changes);
    }
}

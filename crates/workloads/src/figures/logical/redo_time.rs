//! Figure 2(a): redo time of all methods, by the size of the memory. Also shows the number of pages that each method
//! reads, and the predictions of appendix B.

use std::rc::Rc;

use anyhow::Result;

use super::super::Lab;
use super::super::claim::{Claim, Target};
use super::super::figure::{Figure, cell};
use super::super::plot::{Chart, Panel, Plot, Series};
use super::other_pages::port;
use super::restarts::{Timed, index_share, stalls};
use super::stand::{Counted, LogicalStand};
use super::{METHODS, Named, all_methods, at_cache};
use crate::num::{f64_of, ratio};

/// The results of a method at one size of memory.
struct Cell {
    method: &'static str,
    timed: Rc<Timed>,
    predicted: u64,
}

/// The results of all methods at one size of memory.
struct Point {
    cache: u64,
    frames: usize,
    tail: u64,
    counted: Rc<Counted>,
    cells: Vec<Cell>,
}

impl Point {
    fn timed(&self, method: &str) -> &Timed {
        let cell = self.cells.iter().find(|cell| cell.method == method);
        &cell.expect("every method is measured").timed
    }

    fn seconds(&self, method: &str) -> f64 {
        self.timed(method).seconds()
    }

    fn fetches(&self, method: &'static str) -> f64 {
        f64_of(self.counted.of(method).data_pages_fetched)
    }

    /// Returns the number of leaves that are read according to appendix B, formulas (1) to (3). The pages of the log
    /// and of the index are left out, because they are reported separately.
    fn predicted(&self, method: &'static str) -> u64 {
        let report = self.counted.of(method);
        let pages = u64::try_from(report.dirty_pages).unwrap_or(u64::MAX);
        match method {
            "log0" => report.operations,
            "log1" | "log2" => pages + self.tail,
            _ => pages,
        }
    }
}

/// Makes the figure.
///
/// # Errors
/// Errors of the database.
pub fn make(lab: &Lab<'_>) -> Result<Figure> {
    let stand = lab.logical()?;
    let mut points = Vec::new();
    for cache in lab.scale.logical.caches {
        points.push(measure(lab, stand, *cache)?);
    }
    let mut claims = claims(lab, stand, &points);
    claims.push(ported(lab, stand)?);
    let line = |Named { method, label }: Named| {
        let at = |point: &Point| (f64_of(point.cache), 1e3 * point.seconds(method));
        Series::solid(label, points.iter().map(at).collect())
    };
    Ok(Figure {
        name: "002-fig2a",
        title: "redo time by the size of the memory".into(),
        scale: lab.scale.name,
        seed: lab.seed,
        setting: stand.setting(lab),
        columns: "cache_percent,frames,method,redo_seconds,analysis_seconds,spread,data_pages,\
            predicted_data_pages,index_pages,stalls,index_share,pages_read_ahead,pages_written,\
            dirty_pages,operations,applied",
        rows: points
            .iter()
            .flat_map(|point| point.cells.iter().map(move |cell| (point, cell)))
            .map(|(point, of)| {
                let report = point.counted.of(of.method);
                vec![
                    point.cache.into(),
                    point.frames.into(),
                    of.method.into(),
                    cell(of.timed.seconds()),
                    cell(of.timed.median(|report| report.analysis_seconds)),
                    cell(of.timed.spread()),
                    report.data_pages_fetched.into(),
                    of.predicted.into(),
                    report.index_pages_fetched.into(),
                    cell(of.timed.median(|report| f64_of(stalls(report)))),
                    cell(of.timed.median(index_share)),
                    cell(of.timed.median(|report| f64_of(report.pages_read_ahead))),
                    report.pages_written.into(),
                    report.dirty_pages.into(),
                    report.operations.into(),
                    report.applied.into(),
                ]
            })
            .collect(),
        claims,
        plot: Plot {
            title: "Figure 2(a): redo time by the size of the memory".into(),
            subtitle: stand.setting(lab).swap_remove(0),
            panels: vec![Panel::new(
                "",
                "Redo time (ms)",
                Chart::powers("Memory (% of the table)", METHODS.map(line).into()),
            )],
        },
    })
}

fn measure(lab: &Lab<'_>, stand: &LogicalStand, cache: u64) -> Result<Point> {
    let plan = at_cache(cache);
    let crash = stand.crash(lab, plan)?;
    let mut point = Point {
        cache,
        frames: crash.options.frames,
        tail: crash.tail,
        counted: stand.counted(lab, plan)?,
        cells: Vec::new(),
    };
    let timed = stand.timed(lab, plan, &all_methods()?)?;
    for (Named { method, .. }, timed) in METHODS.iter().zip(timed) {
        let cell = Cell {
            method,
            timed,
            predicted: point.predicted(method),
        };
        point.cells.push(cell);
    }
    Ok(point)
}

/// Redoes a log by keys onto pages of another size, and checks that the rows are equal.
fn ported(lab: &Lab<'_>, stand: &LogicalStand) -> Result<Claim> {
    lab.say("one log, and pages of another size");
    let ported = port(&stand.ground, stand.seed)?;
    Ok(Claim::measured(
        "log0 of one log, written over pages of 8 KiB, onto pages of 4 KiB: operations applied / in the log",
        "redo needs no ids of pages",
        Target::AtLeast(1.0),
        ratio(f64_of(ported.applied), f64_of(ported.operations)),
        &format!(
            "the digest is that of its own table; {} pages and {}",
            ported.pages[0], ported.pages[1]
        ),
    ))
}

/// Returns the part of log0's page reads that log1 must at least save, at a size of memory. `None`: the paper has no
/// claim for this size.
fn saved_at_least(cache: u64) -> Option<f64> {
    match cache {
        2 => Some(0.9),
        7 => Some(0.7),
        15 => Some(0.5),
        60 => Some(0.01),
        _ => None,
    }
}

fn claims(lab: &Lab<'_>, stand: &LogicalStand, points: &[Point]) -> Vec<Claim> {
    let mut claims = saved(stand, points);
    claims.extend(times(lab, stand, points));
    let worst = |of: &dyn Fn(&Point) -> f64| points.iter().map(of).fold(0.0, f64::max);
    let apart = |method, predicted: &dyn Fn(&Point) -> f64| {
        worst(&|point| (ratio(point.fetches(method), predicted(point)) - 1.0).abs())
    };
    claims.push(Claim::measured(
        "data pages of log1 and sql1, the farthest apart",
        "exactly the same",
        Target::AtMost(0.02),
        apart("log1", &|point| point.fetches("sql1")),
        "beside the table, log1 reads the pages of the tail, which sql1's table judges too",
    ));
    for (method, formula) in [("log0", "(1)"), ("sql1", "(2)"), ("log1", "(3)")] {
        claims.push(Claim::reported(&format!("data pages of {method} against appendix B {formula}, the farthest apart"), "about the same, without page swaps", apart(method, &|point| f64_of(point.predicted(method))), "what the formulas leave out: pages that several records want, and pages that are read twice"));
    }
    let share = |point: &Point| point.timed("log1").median(index_share);
    for (which, point, paper) in [
        ("least", points.first(), "16 % of redo time"),
        ("greatest", points.last(), "2 % of redo time"),
    ] {
        claims.push(Claim::reported(
            &format!("log1's wait for index pages as a part of its redo time, {which} memory"),
            paper,
            point.map_or(0.0, share),
            "all are loaded first, those of a level at once",
        ));
    }
    for method in ["log2", "sql2"] {
        claims.push(Claim::reported(
            &format!(
                "spread of {method}: slowest less quickest restart / median, the worst memory"
            ),
            "high variance",
            worst(&|point| point.timed(method).spread()),
            "",
        ));
    }
    claims
}

fn saved(stand: &LogicalStand, points: &[Point]) -> Vec<Claim> {
    let why = match stand.size.is_papers() {
        true => "",
        false => "asked of the paper's size",
    };
    let claim = |point: &Point| {
        let least = saved_at_least(point.cache)?;
        let paper = match point.cache {
            2 => "93 %",
            60 => "8 %",
            _ => "-",
        };
        Some(Claim::measured(
            &format!(
                "data pages that log1 saves of log0's, memory {} %",
                point.cache
            ),
            paper,
            Target::AtLeast(least),
            1.0 - ratio(point.fetches("log1"), point.fetches("log0")),
            why,
        ))
    };
    points.iter().filter_map(claim).collect()
}

fn times(lab: &Lab<'_>, stand: &LogicalStand, points: &[Point]) -> Vec<Claim> {
    let mut claims = Vec::new();
    let of = |point: &Point, a: &str, b: &str| ratio(point.seconds(a), point.seconds(b));
    let worst_from = |least: u64, a: &str, b: &str| {
        let points = points.iter().filter(|point| point.cache >= least);
        points.map(|point| of(point, a, b)).fold(0.0, f64::max)
    };
    let log2 = if stand.ground.is_own() { 1.20 } else { 1.15 };
    claims.push(Claim::measured(
        "redo time log1 / sql1, the worst from 7 % up",
        "practically the same",
        Target::AtMost(1.10),
        worst_from(7, "log1", "sql1"),
        "",
    ));
    claims.push(Claim::measured(
        "redo time log2 / sql2, the worst from 7 % up",
        "less than 1.15",
        Target::AtMost(log2),
        worst_from(7, "log2", "sql2"),
        "log2 reads the index first, which sql2 does not",
    ));
    if let Some(least) = points.iter().find(|point| point.cache == 2) {
        for (a, b) in [("log1", "sql1"), ("log2", "sql2")] {
            claims.push(Claim::reported(
                &format!("redo time {a} / {b}, memory 2 %"),
                "practically the same",
                of(least, a, b),
                "few pages: reading the index and the log shows",
            ));
        }
    }
    let is_asked = stand.ground.is_own() && stand.size.is_papers();
    let asked = |most: f64| {
        if is_asked {
            Target::AtMost(most)
        } else {
            Target::None
        }
    };
    let at = lab.scale.logical.interval_cache;
    if let Some(point) = points.iter().find(|point| point.cache == at) {
        for (a, b, paper, most) in [
            ("log1", "log0", "0.35", 0.5),
            ("log2", "log1", "-", 0.45),
            ("log2", "log0", "0.15", 0.2),
            ("log2", "sql2", "less than 1.15", 1.2),
        ] {
            claims.push(Claim::measured(
                &format!("redo time {a} / {b}, memory {at} %"),
                paper,
                asked(most),
                of(point, a, b),
                "asked of the paper's size on a disk of the machine's own",
            ));
        }
        let waits = |method: &str| point.timed(method).median(|report| f64_of(stalls(report)));
        claims.push(Claim::measured(
            &format!("stalls of log2 / log1, memory {at} %"),
            "two orders of magnitude",
            Target::AtMost(0.05),
            ratio(waits("log2"), waits("log1")),
            &format!(
                "of log2's {}, the tail of {} has each one",
                waits("log2"),
                point.tail
            ),
        ));
    }
    claims
}

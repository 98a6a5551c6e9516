//! Figure 2(a): redo time of all methods, by the size of the memory. Also shows the number of pages that each method
//! reads, and the predictions of appendix B.

use std::rc::Rc;

use anyhow::Result;

use super::super::Lab;
use super::super::figure::{Figure, cell};
use super::super::plot::{Chart, Panel, Plot, Series};
use super::other_pages::{port, ported};
use super::redo_claims::claims;
use super::restarts::{Timed, index_share, stalls};
use super::stand::{Counted, LogicalStand};
use super::{METHODS, Named, all_methods, at_cache};
use crate::num::f64_of;

/// The results of a method at one size of memory.
pub(super) struct Cell {
    pub method: &'static str,
    pub timed: Rc<Timed>,
    pub predicted: u64,
}

/// The results of all methods at one size of memory.
pub(super) struct Point {
    pub cache: u64,
    pub frames: usize,
    pub tail: u64,
    pub counted: Rc<Counted>,
    pub cells: Vec<Cell>,
}

impl Point {
    /// Returns the restarts by a method.
    pub fn timed(&self, method: &str) -> &Timed {
        let cell = self.cells.iter().find(|cell| cell.method == method);
        &cell.expect("every method is measured").timed
    }

    fn seconds(&self, method: &str) -> f64 {
        self.timed(method).seconds()
    }

    /// Returns the number of leaves that redo reads.
    pub fn fetches(&self, method: &'static str) -> f64 {
        f64_of(self.counted.of(method).data_pages_fetched)
    }

    /// Returns the number of leaves that redo reads according to appendix B, formulas (1) to (3). Pages of the log and
    /// of the index are not included, because they are reported separately.
    pub fn predicted(&self, method: &'static str) -> u64 {
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
    lab.say("one log, and pages of another size");
    let mut claims = claims(&points, lab.scale.logical.interval_cache);
    claims.push(ported(&port(&stand.ground, stand.seed)?));
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

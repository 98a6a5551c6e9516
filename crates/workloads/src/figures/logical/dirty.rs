//! Figure 2(b): compares the size of the table of dirty pages with the memory, and with the number of pages that were
//! dirty.

use std::ops::RangeInclusive;

use anyhow::Result;

use super::super::Lab;
use super::super::claim::{Claim, Target};
use super::super::figure::{Figure, cell};
use super::super::plot::{Chart, Panel, Plot, Series};
use super::at_cache;
use super::scale::Size;
use crate::num::{count_f64, f64_of, ratio};

/// The results for one size of memory.
struct Point {
    cache: u64,
    frames: usize,
    dirty: usize,
    /// The numbers of pages in the tables of dirty pages: from Δ records, from BW records, and from the checkpoint's
    /// end.
    logical: usize,
    sql: usize,
    aries: usize,
}

impl Point {
    fn percent(&self, pages: usize) -> f64 {
        100.0 * ratio(count_f64(pages), count_f64(self.frames))
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
        let plan = at_cache(*cache);
        let crash = stand.crash(lab, plan)?;
        let counted = stand.counted(lab, plan)?;
        let table = |method| counted.of(method).dirty_pages;
        points.push(Point {
            cache: *cache,
            frames: crash.options.frames,
            dirty: crash.dirty,
            logical: table("log1"),
            sql: table("sql1"),
            aries: table("aries"),
        });
    }
    let line = |of: fn(&Point) -> usize| {
        let at = |point: &Point| (f64_of(point.cache), point.percent(of(point)));
        points.iter().map(at).collect::<Vec<_>>()
    };
    Ok(Figure {
        name: "002-fig2b",
        title: "the table of dirty pages by the size of the memory".into(),
        scale: lab.scale.name,
        seed: lab.seed,
        setting: stand.setting(lab),
        columns: "cache_percent,frames,truly_dirty,table_log,table_sql,table_aries,\
            table_log_percent_of_memory,truly_dirty_percent_of_memory",
        rows: points
            .iter()
            .map(|point| {
                vec![
                    point.cache.into(),
                    point.frames.into(),
                    point.dirty.into(),
                    point.logical.into(),
                    point.sql.into(),
                    point.aries.into(),
                    cell(point.percent(point.logical)),
                    cell(point.percent(point.dirty)),
                ]
            })
            .collect(),
        claims: claims(stand.size, &points),
        plot: Plot {
            title: "Figure 2(b): dirty pages as a part of the memory".into(),
            subtitle: stand.setting(lab).swap_remove(0),
            panels: vec![Panel::new(
                "",
                "Pages (% of the memory)",
                Chart::lines(
                    "Memory (% of the table)",
                    vec![
                        Series::solid("Table of Δ records", line(|point| point.logical)),
                        Series::solid("Table of BW records", line(|point| point.sql)),
                        Series::solid("Table of ARIES", line(|point| point.aries)),
                        Series::broken("Truly dirty", line(|point| point.dirty)),
                    ],
                ),
            )],
        },
    })
}

fn claims(size: Size, points: &[Point]) -> Vec<Claim> {
    let why = "the shape is the writer's, which keeps a quarter of the memory dirty at most";
    let shares = |caches: RangeInclusive<u64>| {
        let points = points
            .iter()
            .filter(move |point| caches.contains(&point.cache));
        points.map(|point| point.percent(point.logical))
    };
    let least = |caches| shares(caches).fold(f64::INFINITY, f64::min);
    let most = |caches| shares(caches).fold(0.0, f64::max);
    let (small, large) = (0..=30, 60..=100);
    let claim = |what: &str, paper: &str, target, ours| {
        let target = if size.is_asked() {
            target
        } else {
            Target::None
        };
        Claim::measured(what, paper, target, ours, why).in_unit(" %")
    };
    let over = |point: &Point| ratio(count_f64(point.logical), count_f64(point.dirty));
    let apart = |point: &Point| (ratio(count_f64(point.logical), count_f64(point.sql)) - 1.0).abs();
    vec![
        claim(
            "table / memory up to 30 %, the least",
            "30 %, falling",
            Target::AtLeast(22.0),
            least(small.clone()),
        ),
        claim(
            "table / memory up to 30 %, the most",
            "30 %",
            Target::AtMost(30.0),
            most(small),
        ),
        claim(
            "table / memory at 60 %, the least",
            "10 %",
            Target::AtLeast(12.0),
            least(large.clone()),
        ),
        claim(
            "table / memory at 60 %, the most",
            "10 %",
            Target::AtMost(18.0),
            most(large),
        ),
        Claim::reported(
            "table / truly dirty pages, the worst",
            "-",
            points.iter().map(over).fold(0.0, f64::max),
            "what was written since the last Δ, or before its first write was noted, is still in the table",
        ),
        Claim::reported(
            "table of Δ / table of BW, the farthest apart",
            "roughly the same accuracy",
            points.iter().map(apart).fold(0.0, f64::max),
            "",
        ),
    ]
}

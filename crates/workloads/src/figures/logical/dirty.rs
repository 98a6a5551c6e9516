//! Figure 2(b): compares the size of the table of dirty pages with two numbers: the pages in memory, and the pages that
//! were dirty.

use anyhow::Result;

use super::super::Lab;
use super::super::claim::{Better, Bounds, Claim, Finding};
use super::super::figure::{Figure, cell};
use super::super::paper::Paper;
use super::super::plot::{Chart, Panel, Plot, Series};
use super::at_cache;
use super::restarts::farthest;
use crate::num::{count_f64, f64_of, ratio};

/// The results for one size of memory.
struct Point {
    cache: u64,
    frames: usize,
    dirty: usize,
    /// The sizes of three tables of dirty pages, in pages. `logical` is made from Δ records, `sql` from BW records,
    /// and `aries` from the record of the checkpoint's end.
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
        claims: claims(&points),
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

fn claims(points: &[Point]) -> Vec<Claim> {
    let mut claims: Vec<Claim> = points.iter().map(share).collect();
    claims.extend(falls(points));
    let over = |a: usize, b: usize| ratio(count_f64(a), count_f64(b));
    let has_all = points.iter().map(|point| over(point.sql, point.dirty));
    claims.extend(has_all.reduce(f64::min).map(|ours| {
        Claim::measured(
            "table of BW / truly dirty pages, the least",
            Paper::above("all dirty pages are in the table", 1.0).within(0.0),
            Bounds(Better::More, Finding::AtLeast(1.0)),
            ours,
            "a table of BW records has every page that an operation names, those of the tail too",
        )
    }));
    let needless = points.iter().map(|point| over(point.logical, point.dirty));
    claims.extend(needless.reduce(f64::max).map(|ours| {
        Claim::own(
            "table of Δ / truly dirty pages, the most",
            Finding::AtMost(2.0),
            ours,
            "what was written since the last Δ, or before its first write was noted, is still in the table",
        )
    }));
    let apart = points.iter().map(|point| over(point.logical, point.sql));
    claims.extend(farthest(apart).map(|ours| {
        Claim::measured(
            "table of Δ / table of BW, the farthest from 1",
            Paper::of("roughly the same accuracy", 1.0),
            Bounds(Better::Neither, Finding::Within(1.0, 0.3)),
            ours,
            "the pages of the tail are in no Δ; in a small table, they are a larger part",
        )
    }));
    claims
}

/// Judges the size of the table in percent of the memory. A table as large as the memory saves nothing.
fn share(point: &Point) -> Claim {
    let paper = match point.cache {
        2 => Paper::of("30 %", 30.0),
        60 => Paper::of("10 %", 10.0),
        _ => Paper::between("varies from 30 % to 10 %", 10.0, 30.0),
    };
    let what = format!("table / memory, memory {} %", point.cache);
    let why = "the writer keeps a quarter of the memory dirty at most, whatever the size";
    let finding = Bounds(Better::Neither, Finding::AtMost(99.9));
    Claim::measured(&what, paper, finding, point.percent(point.logical), why).in_unit(" %")
}

/// Judges whether a smaller memory is the dirtier one.
fn falls(points: &[Point]) -> Option<Claim> {
    let (least, greatest) = (points.first()?, points.last()?);
    let share = |point: &Point| point.percent(point.logical);
    Some(Claim::measured(
        "table's part of the greatest memory / of the least",
        Paper::of("10 % / 30 %", 1.0 / 3.0),
        Bounds(Better::Less, Finding::AtMost(0.99)),
        ratio(share(greatest), share(least)),
        "the writer's limit is the same part of every memory; only the largest does not reach it",
    ))
}

#[cfg(test)]
mod tests {
    use super::super::judged::each_can_be_missed;
    use super::*;

    fn as_paper() -> Vec<Point> {
        let point = |cache, logical| Point {
            cache,
            frames: 1_000,
            dirty: logical - 10,
            logical,
            sql: logical,
            aries: 900,
        };
        vec![point(2, 300), point(15, 200), point(60, 100)]
    }

    #[test]
    fn each_claim_can_be_missed() {
        each_can_be_missed(
            as_paper,
            |points| claims(points),
            &[
                ("table / memory", |points| {
                    points.iter_mut().for_each(|point| point.logical *= 2);
                }),
                ("of the greatest memory / of the least", |points| {
                    points[2].logical = 149
                }),
                ("of the greatest memory / of the least", |points| {
                    points[2].logical = 301
                }),
                ("table of BW / truly dirty", |points| points[1].dirty = 201),
                ("table of Δ / truly dirty", |points| points[1].dirty = 99),
                ("table of Δ / table of BW", |points| {
                    points[0].logical = 350
                }),
                ("table of Δ / table of BW", |points| {
                    points[0].logical = 200
                }),
            ],
        );
    }
}

//! Appendix A: redo time by the source of the pages that are read ahead. The sources are the PF-list, the table of
//! dirty pages in the order of its rLSNs, and the log.

use std::rc::Rc;

use anyhow::Result;
use perdura_recovery::player::{Ahead, Table, TreePlay};
use perdura_recovery::{Method, Player};
use perdura_wal::Scheme;

use super::super::Lab;
use super::super::claim::{Better, Bounds, Claim, Finding};
use super::super::figure::{Figure, cell};
use super::super::paper::Paper;
use super::super::plot::{Chart, Panel, Plot, Series};
use super::super::sample::Sample;
use super::at_cache;
use super::restarts::{Timed, largest, stalls};
use crate::num::{f64_of, ratio};

const LOGICAL: &[Scheme] = &[Scheme::Logical];

/// Returns a method whose redo uses the table of dirty pages made from Δ records. `ahead` decides which pages redo
/// reads ahead.
const fn reading(name: &'static str, ahead: Ahead) -> Method {
    Method {
        name,
        schemes: LOGICAL,
        player: Player::Tree(TreePlay {
            table: Table::Deltas,
            ahead,
        }),
    }
}

/// The ways to read ahead, with their names in the legend. The second is log1, and the third is log2.
static WAYS: [(Method, &str); 5] = [
    (reading("on-demand", Ahead::Nothing), "Nothing"),
    (reading("log1", Ahead::Index), "The index (Log1)"),
    (reading("log2", Ahead::List), "PF-list (Log2)"),
    (reading("by-table", Ahead::Table), "Table by rLSN"),
    (reading("by-log", Ahead::Log), "Log-driven"),
];

/// The results of one way to read ahead, at one size of memory.
struct Point {
    cache: u64,
    way: &'static str,
    timed: Rc<Timed>,
}

/// Makes the figure.
///
/// # Errors
/// Errors of the database.
pub fn make(lab: &Lab<'_>) -> Result<Figure> {
    let stand = lab.logical()?;
    let mut points = Vec::new();
    for cache in lab.scale.logical.caches {
        let methods = WAYS.each_ref().map(|(method, _)| method);
        let timed = stand.timed(lab, at_cache(*cache), &methods)?;
        let points_of = methods.iter().zip(timed).map(|(method, timed)| Point {
            cache: *cache,
            way: method.name,
            timed,
        });
        points.extend(points_of);
    }
    let line = |(method, label): &(Method, &str)| {
        let of = points.iter().filter(|point| point.way == method.name);
        let at = |point: &Point| (f64_of(point.cache), 1e3 * point.timed.seconds());
        Series::solid(*label, of.map(at).collect())
    };
    let mut setting = stand.setting(lab);
    setting.push(String::from(
        "all with the table of Δ records; all but the first load the index first; the log's ids of pages are hints for the log-driven one alone",
    ));
    Ok(Figure {
        name: "002-prefetch",
        title: "redo time by what is read ahead".into(),
        scale: lab.scale.name,
        seed: lab.seed,
        setting,
        columns: "cache_percent,way,redo_seconds,spread,data_pages,pages_read_ahead,reads_ahead,\
            stalls",
        rows: points
            .iter()
            .map(|point| {
                let timed = &point.timed;
                vec![
                    point.cache.into(),
                    point.way.into(),
                    cell(timed.seconds()),
                    cell(timed.spread()),
                    cell(timed.median(|report| f64_of(report.data_pages_fetched))),
                    cell(timed.median(|report| f64_of(report.pages_read_ahead))),
                    cell(timed.median(|report| f64_of(report.reads_ahead))),
                    cell(timed.median(|report| f64_of(stalls(report)))),
                ]
            })
            .collect(),
        claims: claims(&points),
        plot: Plot {
            title: "Appendix A: redo time by what is read ahead".into(),
            subtitle: stand.setting(lab).swap_remove(0),
            panels: vec![Panel::new(
                "",
                "Redo time (ms)",
                Chart::powers("Memory (% of the table)", WAYS.iter().map(line).collect()),
            )],
        },
    })
}

/// Divides the redo time with method `a` of reading ahead by the redo time with method `b`. Returns one ratio for each
/// size of memory.
fn ratios(points: &[Point], a: &str, b: &str) -> Vec<Sample> {
    let of_way = points.iter().filter(|point| point.way == a);
    let over = of_way.filter_map(|point| {
        let is_it = |other: &&Point| other.way == b && other.cache == point.cache;
        Some(point.timed.over(&points.iter().find(is_it)?.timed))
    });
    over.collect()
}

fn claims(points: &[Point]) -> Vec<Claim> {
    let ahead = ratios(points, "log2", "log1");
    let by_table = ratios(points, "by-table", "log2");
    let by_memory = Sample::of(by_table.iter().map(|sample| sample.median));
    let more_visible = ahead.first().zip(ahead.last()).map(|(least, greatest)| {
        Claim::measured(
            "redo time, PF-list / the index alone, the greatest memory over the least",
            Paper::below("much more visible in the larger cache sizes", 1.0).within(0.0),
            Bounds(Better::Less, Finding::AtMost(0.99)),
            ratio(greatest.median, least.median),
            "",
        )
    });
    let claims = [
        ratios(points, "log1", "on-demand").first().map(|ours| {
            Claim::measured(
                "redo time, the index alone / nothing, the least memory",
                Paper::below("very slowly while the index is loaded on demand", 1.0).within(0.0),
                Bounds(Better::Less, Finding::AtMost(0.99)),
                *ours,
                "",
            )
        }),
        largest(ahead).map(|ours| {
            Claim::measured(
                "redo time, PF-list / the index alone, the most over all memories",
                Paper::below("prefetching has a large impact", 1.0).within(0.0),
                Bounds(Better::Less, Finding::AtMost(0.99)),
                ours,
                "",
            )
        }),
        more_visible,
        largest(ratios(points, "log2", "by-log")).map(|ours| {
            Claim::measured(
                "redo time, PF-list / log-driven, the most over all memories",
                Paper::of("an approximation of the log", 1.0),
                Bounds(Better::Less, Finding::AtMost(2.0)),
                ours,
                "the tail's pages, which are in no Δ, are found ahead by their keys",
            )
        }),
        (by_memory.runs > 0).then(|| {
            Claim::measured(
                "redo time, table by rLSN / PF-list, median over the memories",
                Paper::above("can be hard to keep with the log scan", 1.0).within(0.0),
                Bounds(Better::More, Finding::AtLeast(1.0)),
                by_memory,
                "an rLSN from a Δ is a bound that all pages of an interval share, so their order within it is lost",
            )
        }),
    ];
    claims.into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use perdura_recovery::report::TreeReport;

    use super::super::judged::{Spoiled, each_can_be_missed};
    use super::*;

    /// The redo times of each method of reading ahead at two sizes of memory, seconds.
    type Data = Vec<(&'static str, [f64; 2])>;

    fn as_paper() -> Data {
        vec![
            ("on-demand", [6.0, 21.0]),
            ("log1", [4.0, 20.0]),
            ("log2", [2.0, 5.0]),
            ("by-table", [2.2, 5.5]),
            ("by-log", [2.0, 5.0]),
        ]
    }

    fn judge(data: &Data) -> Vec<Claim> {
        let mut points = Vec::new();
        for (at, cache) in [2, 60].into_iter().enumerate() {
            points.extend(data.iter().map(|(way, seconds)| {
                let redo_seconds = seconds[at];
                let report = TreeReport {
                    redo_seconds,
                    ..TreeReport::default()
                };
                let timed = Rc::new(Timed {
                    reports: vec![report; 3],
                });
                Point { cache, way, timed }
            }));
        }
        claims(&points)
    }

    #[test]
    fn each_claim_can_be_missed() {
        let changes: [Spoiled<Data>; 5] = [
            ("the index alone / nothing", |data| data[0].1[0] = 3.9),
            ("the index alone, the most", |data| data[2].1[0] = 4.1),
            ("the greatest memory over the least", |data| {
                data[2].1[1] = 10.1
            }),
            ("PF-list / log-driven", |data| data[4].1[1] = 4.0),
            ("table by rLSN / PF-list", |data| data[3].1 = [1.9, 4.9]),
        ];
        each_can_be_missed(as_paper, judge, &changes);
    }
}

//! Appendix A: redo time by the source of the pages that are read ahead. The sources are the PF-list, the table of
//! dirty pages in the order of its rLSNs, and the log.

use std::rc::Rc;

use anyhow::Result;
use perdura_recovery::player::{Ahead, Table, TreePlay};
use perdura_recovery::{Method, Player};
use perdura_wal::Scheme;

use super::super::Lab;
use super::super::claim::Claim;
use super::super::figure::{Figure, cell};
use super::super::plot::{Chart, Panel, Plot, Series};
use super::at_cache;
use super::restarts::{Timed, stalls};
use crate::num::{f64_of, ratio};

const LOGICAL: &[Scheme] = &[Scheme::Logical];

/// Returns a method that redoes with the table of dirty pages from Δ records, and reads ahead in this way.
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

fn claims(points: &[Point]) -> Vec<Claim> {
    let of = |way: &str, cache: u64| {
        let mut points = points.iter();
        let is_it = |point: &&Point| point.way == way && point.cache == cache;
        points
            .find(is_it)
            .map_or(0.0, |point| point.timed.seconds())
    };
    let caches = || points.iter().filter(|point| point.way == "log1");
    let ratios = |a: &'static str, b: &'static str| {
        caches().map(move |point| ratio(of(a, point.cache), of(b, point.cache)))
    };
    let worst = |a, b| ratios(a, b).fold(0.0, f64::max);
    let largest = |a, b| ratios(a, b).next_back().unwrap_or(0.0);
    vec![
        Claim::reported(
            "redo time, the index alone / nothing, the least memory",
            "very slowly while the index is loaded on demand",
            ratios("log1", "on-demand").next().unwrap_or(0.0),
            "",
        ),
        Claim::reported(
            "redo time, PF-list / the index alone, the greatest memory",
            "much more visible in the larger cache sizes",
            largest("log2", "log1"),
            "",
        ),
        Claim::reported(
            "redo time, PF-list / log-driven, the worst memory",
            "an approximation of the log",
            worst("log2", "by-log"),
            "the tail's pages, which are in no Δ, are found ahead by their keys",
        ),
        Claim::reported(
            "redo time, table by rLSN / PF-list, the worst memory",
            "hard to keep with the log scan",
            worst("by-table", "log2"),
            "an rLSN from a Δ is a bound that all pages of an interval share, so their order within it is lost",
        ),
    ]
}

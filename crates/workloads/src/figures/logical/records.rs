//! Figure 2(c): the number of Δ and BW records that the analysis reads, and their share of the log.

use std::rc::Rc;

use anyhow::Result;

use super::super::Lab;
use super::super::claim::{Claim, Target};
use super::super::figure::{Figure, cell};
use super::super::plot::{Chart, Panel, Plot, Series};
use super::at_cache;
use super::history::Crash;
use super::noted::Noted;
use super::scale::Size;
use crate::num::{count_f64, f64_of};

/// The largest memory for which the paper has a claim, percent of the table.
const CLAIMED_TO: u64 = 30;

/// The results for one size of memory.
struct Point {
    cache: u64,
    crash: Rc<Crash>,
    noted: Noted,
}

/// Makes the figure.
///
/// # Errors
/// Errors of the database.
pub fn make(lab: &Lab<'_>) -> Result<Figure> {
    let stand = lab.logical()?;
    let mut points = Vec::new();
    for cache in lab.scale.logical.caches {
        let crash = stand.crash(lab, at_cache(*cache))?;
        let noted = Noted::read(&crash)?;
        points.push(Point {
            cache: *cache,
            crash,
            noted,
        });
    }
    let line = |of: fn(&Noted) -> usize| {
        let at = |point: &Point| (f64_of(point.cache), count_f64(of(&point.noted)));
        points.iter().map(at).collect::<Vec<_>>()
    };
    Ok(Figure {
        name: "002-fig2c",
        title: "Δ and BW records that the analysis sees".into(),
        scale: lab.scale.name,
        seed: lab.seed,
        setting: stand.setting(lab),
        columns: "cache_percent,deltas,bws,delta_bytes,bw_bytes,log_bytes,share_of_log,updates,\
            history_seconds,history_log_bytes",
        rows: points
            .iter()
            .map(|point| {
                let noted = &point.noted;
                vec![
                    point.cache.into(),
                    noted.deltas.len().into(),
                    noted.writes.len().into(),
                    noted.delta_bytes.into(),
                    noted.writes_bytes.into(),
                    noted.log_bytes.into(),
                    cell(noted.share()),
                    point.crash.updates.into(),
                    cell(point.crash.seconds),
                    point.crash.log_bytes.into(),
                ]
            })
            .collect(),
        claims: claims(stand.size, &points),
        plot: Plot {
            title: "Figure 2(c): Δ and BW records behind the redo start".into(),
            subtitle: stand.setting(lab).swap_remove(0),
            panels: vec![Panel::new(
                "",
                "Records",
                Chart::lines(
                    "Memory (% of the table)",
                    vec![
                        Series::solid("Δ records", line(|noted| noted.deltas.len())),
                        Series::solid("BW records", line(|noted| noted.writes.len())),
                    ],
                ),
            )],
        },
    })
}

fn claims(size: Size, points: &[Point]) -> Vec<Claim> {
    let small = points.iter().filter(|point| point.cache <= CLAIMED_TO);
    let most = |points: &mut dyn Iterator<Item = f64>| points.fold(0.0, f64::max);
    vec![
        Claim::measured(
            "Δ records for a BW record, memory up to 30 %, the most",
            "no more than 1.5",
            if size.is_asked() {
                Target::AtMost(1.5)
            } else {
                Target::None
            },
            most(&mut small.map(|point| point.noted.deltas_a_bw())),
            "a Δ is cut without a BW while the memory fills behind a checkpoint",
        ),
        Claim::reported(
            "Δ records for a BW record, the greatest memory",
            "more",
            points.last().map_or(0.0, |point| point.noted.deltas_a_bw()),
            "",
        ),
        Claim::measured(
            "Δ and BW as a part of the log's records, the most",
            "a very small part",
            Target::AtMost(0.1),
            most(&mut points.iter().map(|point| point.noted.share())),
            "payloads behind the redo start",
        ),
    ]
}

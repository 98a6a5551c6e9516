//! Figure 2(c): the number of Δ and BW records that the analysis reads, and their share of the log.

use anyhow::Result;

use super::super::Lab;
use super::super::claim::{Better, Bounds, Claim, Finding};
use super::super::figure::{Figure, cell};
use super::super::paper::Paper;
use super::super::plot::{Chart, Panel, Plot, Series};
use super::at_cache;
use super::noted::Noted;
use crate::num::{count_f64, f64_of, ratio};

/// The largest memory for which the paper has a claim, percent of the table.
const CLAIMED_TO: u64 = 30;

/// The results for one size of memory.
struct Point {
    cache: u64,
    /// The numbers of Δ records and of BW records that the analysis reads.
    deltas: usize,
    writes: usize,
    /// Sizes in bytes: of the Δ records, of the BW records, and of all of the tree's records and operations.
    delta_bytes: u64,
    writes_bytes: u64,
    log_bytes: u64,
    /// The history: its updates, its time in seconds, and the size of its log in bytes.
    updates: u64,
    history_seconds: f64,
    history_log_bytes: u64,
}

impl Point {
    /// Returns the number of Δ records for each BW record.
    fn deltas_a_bw(&self) -> f64 {
        count_f64(self.deltas) / count_f64(self.writes.max(1))
    }

    /// Returns the share of Δ and BW records in the bytes of the log.
    fn share(&self) -> f64 {
        ratio(
            f64_of(self.delta_bytes + self.writes_bytes),
            f64_of(self.log_bytes),
        )
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
        let crash = stand.crash(lab, at_cache(*cache))?;
        let noted = Noted::read(&crash)?;
        points.push(Point {
            cache: *cache,
            deltas: noted.deltas.len(),
            writes: noted.writes.len(),
            delta_bytes: noted.delta_bytes,
            writes_bytes: noted.writes_bytes,
            log_bytes: noted.log_bytes,
            updates: crash.updates,
            history_seconds: crash.seconds,
            history_log_bytes: crash.log_bytes,
        });
    }
    let line = |of: fn(&Point) -> usize| {
        let at = |point: &Point| (f64_of(point.cache), count_f64(of(point)));
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
                vec![
                    point.cache.into(),
                    point.deltas.into(),
                    point.writes.into(),
                    point.delta_bytes.into(),
                    point.writes_bytes.into(),
                    point.log_bytes.into(),
                    cell(point.share()),
                    point.updates.into(),
                    cell(point.history_seconds),
                    point.history_log_bytes.into(),
                ]
            })
            .collect(),
        claims: claims(&points),
        plot: Plot {
            title: "Figure 2(c): Δ and BW records behind the redo start".into(),
            subtitle: stand.setting(lab).swap_remove(0),
            panels: vec![Panel::new(
                "",
                "Records",
                Chart::lines(
                    "Memory (% of the table)",
                    vec![
                        Series::solid("Δ records", line(|point| point.deltas)),
                        Series::solid("BW records", line(|point| point.writes)),
                    ],
                ),
            )],
        },
    })
}

fn claims(points: &[Point]) -> Vec<Claim> {
    let small = points.iter().filter(|point| point.cache <= CLAIMED_TO);
    let mut claims = Vec::new();
    claims.extend(small.map(Point::deltas_a_bw).reduce(f64::max).map(|ours| {
        Claim::measured(
            "Δ records for a BW record, memory up to 30 %, the most",
            Paper::below("no more than 1.5", 1.5).within(0.0),
            Bounds(Better::Less, Finding::AtMost(1.5)),
            ours,
            "a Δ is cut without a BW while the memory fills behind a checkpoint",
        )
    }));
    let all = points.iter().map(Point::deltas_a_bw);
    claims.extend(all.reduce(f64::min).map(|ours| {
        Claim::measured(
            "Δ records for a BW record, the least over all memories",
            Paper::above("more Δ than BW", 1.0).within(0.0),
            Bounds(Better::Neither, Finding::AtLeast(1.0)),
            ours,
            "",
        )
    }));
    claims.extend(points.iter().map(Point::share).reduce(f64::max).map(|ours| {
        Claim::own(
            "Δ and BW as a part of the log's records, the most",
            Finding::AtMost(0.1),
            ours,
            "the paper: a very small part, without a number; payloads behind the redo start",
        )
    }));
    claims
}

#[cfg(test)]
mod tests {
    use super::super::judged::each_can_be_missed;
    use super::*;

    fn as_paper() -> Vec<Point> {
        let point = |cache, deltas| Point {
            cache,
            deltas,
            writes: 100,
            delta_bytes: 3_000,
            writes_bytes: 1_000,
            log_bytes: 100_000,
            updates: 1,
            history_seconds: 1.0,
            history_log_bytes: 1,
        };
        vec![point(2, 110), point(30, 150), point(60, 300)]
    }

    #[test]
    fn each_claim_can_be_missed() {
        each_can_be_missed(
            as_paper,
            |points| claims(points),
            &[
                ("memory up to 30 %", |points| points[1].deltas = 151),
                ("memory up to 30 %", |points| points[0].writes = 0),
                ("the least over all memories", |points| {
                    points[2].deltas = 99
                }),
                ("a part of the log", |points| points[1].writes_bytes = 7_001),
            ],
        );
    }
}

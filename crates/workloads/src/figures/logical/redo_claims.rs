//! The claims about figure 2(a).

use perdura_recovery::report::TreeReport;

use super::super::claim::{Better, Bounds, Claim, Finding};
use super::super::paper::Paper;
use super::super::sample::Sample;
use super::redo_time::Point;
use super::restarts::{farthest, index_share, largest, redo_seconds, smallest, stalls};
use crate::num::{f64_of, ratio};

/// The bound that the paper gives for "practically the same": less than 15 % slower.
const SLOWER_MOST: f64 = 1.15;
/// The smallest saving of data pages that meets the claim, percent.
const SAVED_LEAST: f64 = 0.1;

/// Judges the points. `at` is the size of memory of the paper's example, percent of the table.
pub(super) fn claims(points: &[Point], at: u64) -> Vec<Claim> {
    let mut claims: Vec<Claim> = points.iter().map(saved).collect();
    claims.extend(points.iter().flat_map(against_sql));
    claims.extend(
        points
            .iter()
            .filter(|point| point.cache == at)
            .flat_map(example),
    );
    claims.extend(waits(points));
    claims.extend(pages(points));
    claims.extend(points.iter().filter_map(index_wait));
    claims.extend(analysis(points));
    claims.extend(variance(points));
    claims
}

fn saved(point: &Point) -> Claim {
    let paper = match point.cache {
        2 => Paper::of("93 %", 93.0),
        60 => Paper::of("8 %", 8.0),
        _ => Paper::between("from 8 % up to 93 %", 8.0, 93.0),
    };
    let what = format!(
        "data pages that log1 saves of log0's, memory {} %",
        point.cache
    );
    let saved = 1.0 - ratio(point.fetches("log1"), point.fetches("log0"));
    let finding = Bounds(Better::More, Finding::AtLeast(SAVED_LEAST));
    let why = "the table has up to a quarter of the memory's pages; with a large memory, it has most updated pages";
    Claim::measured(&what, paper, finding, 100.0 * saved, why).in_unit(" %")
}

fn against_sql(point: &Point) -> [Claim; 2] {
    let claim = |(a, b): (&str, &str), paper, why: &str| {
        let what = format!("redo time {a} / {b}, memory {} %", point.cache);
        let finding = Bounds(Better::Less, Finding::AtMost(SLOWER_MOST));
        Claim::measured(
            &what,
            paper,
            finding,
            point.timed(a).over(point.timed(b)),
            why,
        )
    };
    let same = Paper::of("practically the same", 1.0).within(0.1);
    let less = Paper::below("always less than 15 % slower", SLOWER_MOST).within(0.0);
    [
        claim(
            ("log1", "sql1"),
            same,
            "log1 loads the index and searches by key; with few pages to read, both costs show",
        ),
        claim(
            ("log2", "sql2"),
            less,
            "log2 loads the index and searches by key, which sql2 does not; few pages to read ahead hide less of it",
        ),
    ]
}

/// Judges the paper's example of 512 MB. The paper says "a further 20 %". It does not say whether this is 20 % of the
/// time of log0 or of log1.
fn example(point: &Point) -> Vec<Claim> {
    let why =
        "the paper's 512 MB; a disk that takes many reads at once gains more from reading ahead";
    let claim = |(a, b): (&str, &str), paper| {
        let what = format!(
            "redo time {a} / {b}, the example of memory {} %",
            point.cache
        );
        let finding = Bounds(Better::Less, Finding::AtMost(1.0));
        Claim::measured(
            &what,
            paper,
            finding,
            point.timed(a).over(point.timed(b)),
            why,
        )
    };
    vec![
        claim(("log1", "log0"), Paper::of("65 % less", 0.35)),
        claim(
            ("log2", "log1"),
            Paper::between("a further 20 % less", 0.43, 0.8),
        ),
        claim(
            ("log2", "log0"),
            Paper::between("65 %, and a further 20 % less", 0.15, 0.28),
        ),
    ]
}

/// Judges by which factor reading ahead reduces the number of times that redo waits. A factor below 10 misses
/// the claim.
fn waits(points: &[Point]) -> Vec<Claim> {
    let claim = |(a, b): (&str, &str)| {
        let fewer = |point: &Point| {
            let rounds = point.timed(a).reports.iter().zip(&point.timed(b).reports);
            Sample::of(rounds.map(|(a, b)| f64_of(stalls(a)) / f64_of(stalls(b).max(1))))
        };
        Some(Claim::measured(
            &format!("stalls of {a} / {b}, the least over all memories"),
            Paper::of("two orders of magnitude", 100.0),
            Bounds(Better::More, Finding::AtLeast(10.0)),
            smallest(points.iter().map(fewer))?,
            "with few pages to read, the first ones and the tail are a larger part of the stalls",
        ))
    };
    [("log1", "log2"), ("sql1", "sql2")]
        .into_iter()
        .filter_map(claim)
        .collect()
}

fn pages(points: &[Point]) -> Vec<Claim> {
    let over_sql = |point: &Point| ratio(point.fetches("log1"), point.fetches("sql1"));
    let same = farthest(points.iter().map(over_sql)).map(|ours| {
        Claim::measured(
            "data pages of log1 / sql1, the farthest from 1",
            Paper::of("exactly the same", 1.0).within(0.001),
            Bounds(Better::Neither, Finding::Within(1.0, 0.02)),
            ours,
            "beside the table, log1 reads the pages of the tail, which sql1's table judges too",
        )
    });
    let predicted = |(method, formula): (&'static str, &str)| {
        let of = |point: &Point| ratio(point.fetches(method), f64_of(point.predicted(method)));
        Some(Claim::measured(
            &format!("data pages of {method} / appendix B {formula}, the farthest from 1"),
            Paper::of("approximately the formula", 1.0),
            Bounds(Better::Neither, Finding::Within(1.0, 0.5)),
            farthest(points.iter().map(of))?,
            "what the formulas leave out: pages that several records want, and pages that are read twice",
        ))
    };
    let formulas = [("log0", "(1)"), ("sql1", "(2)"), ("log1", "(3)")];
    same.into_iter()
        .chain(formulas.into_iter().filter_map(predicted))
        .collect()
}

/// Judges the share of the redo time that passes in waits for index pages. More than half misses the claim: redo would
/// then mostly load the index, and not data pages.
fn index_wait(point: &Point) -> Option<Claim> {
    let paper = match point.cache {
        2 => Paper::of("16 % of redo time", 16.0),
        60 => Paper::of("2 % of redo time", 2.0),
        _ => return None,
    };
    let what = format!(
        "log1's wait for index pages in its redo time, memory {} %",
        point.cache
    );
    let ours = point
        .timed("log1")
        .sample(|report| 100.0 * index_share(report));
    let why = "all are loaded first, those of a level at once, as in appendix A.1";
    let finding = Bounds(Better::Less, Finding::AtMost(50.0));
    Some(Claim::measured(&what, paper, finding, ours, why).in_unit(" %"))
}

/// Judges the share of the analysis in the redo time. More than half misses the claim: the pass that redoes operations
/// would then not be the larger part.
fn analysis(points: &[Point]) -> Vec<Claim> {
    let share = |report: &TreeReport| 100.0 * ratio(report.analysis_seconds, redo_seconds(report));
    let claim = |method: &str| {
        let ours = largest(points.iter().map(|point| point.timed(method).sample(share)))?;
        let claim = Claim::measured(
            &format!("analysis in the redo time of {method}, the most over all memories"),
            Paper::below("less than 2 %", 2.0).within(0.0),
            Bounds(Better::Less, Finding::AtMost(50.0)),
            ours,
            "the paper's part is of the recovery, which also has the undo; the analysis waits for the log's pages",
        );
        Some(claim.in_unit(" %"))
    };
    ["log1", "log2", "sql1", "sql2"]
        .into_iter()
        .filter_map(claim)
        .collect()
}

/// Judges whether the redo times vary more if pages are read ahead. Makes no claim if there is only one restart.
fn variance(points: &[Point]) -> Vec<Claim> {
    let claim = |(ahead, without): (&str, &str)| {
        let more = |point: &Point| {
            let spread = |method| 100.0 * point.timed(method).spread();
            spread(ahead) - spread(without)
        };
        let is_repeated = points
            .iter()
            .all(|point| point.timed(ahead).reports.len() > 1);
        is_repeated.then(|| {
            let claim = Claim::measured(
                &format!("spread of the redo time of {ahead} less that of {without}, median over the memories"),
                Paper::above("high variance with prefetching", 0.0).within(0.0),
                Bounds(Better::More, Finding::AtLeast(0.0)),
                Sample::of(points.iter().map(more)),
                "the spread is the slowest less the quickest restart, by the median; there are few restarts",
            );
            claim.in_unit(" %")
        })
    };
    [("log2", "log1"), ("sql2", "sql1")]
        .into_iter()
        .filter_map(claim)
        .collect()
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use super::super::super::claim::Verdict;
    use super::super::METHODS;
    use super::super::judged::each_can_be_missed;
    use super::super::redo_time::Cell;
    use super::super::restarts::Timed;
    use super::super::stand::Counted;
    use super::*;

    /// The name of a method, and five numbers as in the paper. The first three count data pages that redo reads, pages
    /// in the table, and stalls. The fourth is the redo time, seconds. The fifth is the part of the redo time that
    /// loading the index takes, percent.
    type Data = (&'static str, [f64; 5]);

    /// Rows of data by the size of memory.
    struct Rows {
        of: Vec<(u64, Vec<Data>)>,
        /// The seconds by which the second of three restarts is slower: without reading ahead, and with it.
        slower: [f64; 2],
        /// The part of the redo time that the analysis takes.
        analysis: f64,
    }

    fn as_paper() -> Rows {
        let at = |cache, pages: f64, log0: f64, log1: f64, log2: f64, index: f64| {
            let rows = vec![
                ("log0", [40_000.0, 0.0, 40_000.0, log0, 0.0]),
                ("log1", [pages, pages, pages, log1, index]),
                ("log2", [pages, pages, pages / 100.0, log2, 0.0]),
                ("sql1", [pages, pages, pages, log1, 0.0]),
                ("sql2", [pages, pages, pages / 100.0, log2 / 1.1, 0.0]),
                ("aries", [pages, pages, pages / 100.0, log2, 0.0]),
            ];
            (cache, rows)
        };
        Rows {
            of: vec![
                at(2, 2_800.0, 100.0, 10.0, 5.0, 16.0),
                at(15, 16_000.0, 100.0, 35.0, 20.0, 8.0),
                at(60, 36_800.0, 100.0, 90.0, 30.0, 2.0),
            ],
            slower: [0.1, 0.3],
            analysis: 0.01,
        }
    }

    fn count(number: f64) -> u64 {
        (0..1_u64 << 20)
            .find(|count| f64_of(*count) >= number)
            .unwrap()
    }

    fn point(rows: &Rows, (cache, data): &(u64, Vec<Data>)) -> Point {
        let report = |[pages, table, stalls, seconds, index]: [f64; 5], slower: f64| TreeReport {
            data_pages_fetched: count(pages),
            dirty_pages: usize::try_from(count(table)).unwrap(),
            data_stalls: count(stalls),
            operations: 40_000,
            analysis_seconds: rows.analysis * seconds,
            redo_seconds: (1.0 - rows.analysis) * seconds + slower,
            index_seconds: seconds * index / 100.0,
            ..TreeReport::default()
        };
        let reports = data.iter().map(|(method, of)| (*method, report(*of, 0.0)));
        let mut point = Point {
            cache: *cache,
            frames: 100,
            tail: 0,
            counted: Rc::new(Counted {
                reports: reports.collect(),
            }),
            cells: Vec::new(),
        };
        for (named, (method, of)) in METHODS.iter().zip(data) {
            assert_eq!(named.method, *method);
            let slower = rows.slower[usize::from(method.ends_with('2'))];
            let reports = vec![report(*of, 0.0), report(*of, slower), report(*of, 0.0)];
            let timed = Rc::new(Timed { reports });
            point.cells.push(Cell {
                method,
                timed,
                predicted: 0,
            });
        }
        point
    }

    fn judge(rows: &Rows) -> Vec<Claim> {
        let points: Vec<Point> = rows.of.iter().map(|row| point(rows, row)).collect();
        claims(&points, 15)
    }

    fn multiply(rows: &mut Rows, method: &str, column: usize, by: f64) {
        let all = rows.of.iter_mut().flat_map(|(_, data)| data);
        all.filter(|(of, _)| *of == method)
            .for_each(|(_, data)| data[column] *= by);
    }

    #[test]
    fn each_claim_can_be_missed() {
        each_can_be_missed(
            as_paper,
            judge,
            &[
                ("data pages that log1 saves", |rows| {
                    multiply(rows, "log0", 0, 0.05)
                }),
                ("redo time log1 / sql1", |rows| {
                    multiply(rows, "sql1", 3, 0.85)
                }),
                ("redo time log2 / sql2", |rows| {
                    multiply(rows, "sql2", 3, 0.9)
                }),
                ("redo time log1 / log0", |rows| {
                    multiply(rows, "log0", 3, 0.8)
                }),
                ("redo time log2 / log", |rows| {
                    multiply(rows, "log2", 3, 2.0)
                }),
                ("stalls of log1 / log2", |rows| {
                    multiply(rows, "log2", 2, 2.0)
                }),
                ("stalls of sql1 / sql2", |rows| {
                    multiply(rows, "sql1", 2, 0.5)
                }),
                ("data pages of log1 / sql1", |rows| {
                    multiply(rows, "sql1", 0, 0.99)
                }),
                ("data pages of log0 / appendix B", |rows| {
                    multiply(rows, "log0", 0, 0.8)
                }),
                ("data pages of sql1 / appendix B", |rows| {
                    multiply(rows, "sql1", 0, 1.2)
                }),
                ("data pages of log1 / appendix B", |rows| {
                    multiply(rows, "log1", 1, 2.5)
                }),
                ("wait for index pages", |rows| {
                    multiply(rows, "log1", 4, 1.2)
                }),
                ("spread of the redo time", |rows| rows.slower = [3.0, 0.0]),
                ("analysis in the redo time", |rows| rows.analysis = 0.1),
            ],
        );
    }

    #[test]
    fn a_size_of_memory_that_is_half_slower_is_a_failure() {
        let mut rows = as_paper();
        rows.of[0].1[2].1[3] *= 1.5;
        let is_it = |claim: &&Claim| claim.what == "redo time log2 / sql2, memory 2 %";
        let claims = judge(&rows);
        assert_eq!(claims.iter().find(is_it).unwrap().verdict, Verdict::Fails);
    }
}

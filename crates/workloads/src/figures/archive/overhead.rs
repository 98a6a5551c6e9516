//! The claims of figures 5 and 6 about the cost of archiving.

use super::super::claim::{Better, Bounds, Claim, Finding};
use super::super::paper::Paper;
use super::super::sample::Sample;
use super::impact::{LogPlace, Point, Way, Work};
use crate::num::{f64_of, ratio};

/// The highest cost that counts as negligible, as a part of the throughput or of the processors. The paper calls the
/// cost of archiving negligible.
const NEGLIGIBLE: f64 = 0.05;
/// The paper's cost of sorting and merging, as a part of the throughput and of the processors. The claims use this
/// number as their tolerance, too.
const PAPER_COST: f64 = 0.015;
/// The longest accepted delay of the archive behind the log, seconds.
const BEHIND_MAX: f64 = 5.0;
/// The lowest accepted rate of S+M in an open loop, as a part of the intended rate and of the rate of T.
const RATE_LEAST: f64 = 0.97;
/// The highest accepted p99 of an open loop with archiving, divided by the p99 without archiving.
const P99_MAX: f64 = 1.25;

/// Returns the claims about all runs of a figure.
pub(super) fn claims(cores: usize, log: LogPlace, points: &[Point]) -> Vec<Claim> {
    let of = |work| {
        let runs = OfWork { points, work };
        let mut claims = throughput(log, &runs);
        claims.extend(processors(cores, log, &runs));
        claims.push(behind(&runs));
        if points.iter().any(|point| point.rate.is_some()) {
            claims.extend(open(&runs));
        }
        claims
    };
    Work::ALL.into_iter().flat_map(of).collect()
}

/// The runs of a workload, among those of a figure.
struct OfWork<'a> {
    points: &'a [Point],
    work: Work,
}

impl OfWork<'_> {
    /// Computes a value with `of` from each run of a way of archiving. The values are in the order of the rounds.
    fn of(&self, way: Way, is_open: bool, of: &dyn Fn(&Point) -> f64) -> Vec<f64> {
        let wanted = |point: &&Point| {
            (point.work, point.way, point.rate.is_some()) == (self.work, way, is_open)
        };
        self.points.iter().filter(wanted).map(of).collect()
    }

    /// Compares S+M with another way, round by round.
    fn beside(
        &self,
        way: Way,
        is_open: bool,
        of: &dyn Fn(&Point) -> f64,
        compare: fn(f64, f64) -> f64,
    ) -> Sample {
        let merged = self.of(Way::Merged, is_open, of);
        let other = self.of(way, is_open, of);
        Sample::of(merged.into_iter().zip(other).map(|(a, b)| compare(a, b)))
    }
}

/// Returns the claims about the throughput of the closed loop. The paper's values are of TPC-C.
fn throughput(log: LogPlace, runs: &OfWork<'_>) -> Vec<Claim> {
    let ways = [
        (Way::Unsorted, "0.985", 1.0 - PAPER_COST),
        (Way::Baseline, "0.97, read off the figure", 0.97),
    ];
    // On a disk the ways do not differ, so a faster S+M is as far from the paper as a slower one.
    let better = match log {
        LogPlace::Memory => Better::More,
        LogPlace::Disk => Better::Neither,
    };
    let bounds = Bounds(better, Finding::AtLeast(1.0 - NEGLIGIBLE));
    ways.into_iter()
        .map(|(way, words, value)| {
            let what = format!("{}: throughput S+M / {}", runs.work.name(), way.name());
            let ours = runs.beside(way, false, &|point| point.report.tps, ratio);
            let (words, value) = match log {
                LogPlace::Memory => (words, value),
                LogPlace::Disk => ("no observable difference", 1.0),
            };
            let paper = Paper::of(words, value).within(PAPER_COST);
            match runs.work {
                Work::Tpcc => Claim::measured(&what, paper, bounds, ours, ""),
                Work::Update => Claim::own(
                    &what,
                    bounds.1,
                    ours,
                    "the paper has TPC-C alone, and expects that insert-heavy loads leave less room",
                ),
            }
        })
        .collect()
}

/// Returns the claims about the processors in the closed loop. The paper's values are of TPC-C.
fn processors(cores: usize, log: LogPlace, runs: &OfWork<'_>) -> Vec<Claim> {
    let what = format!("{}: CPU of S+M less that of T", runs.work.name());
    let cpu = |point: &Point| point.cpu(cores);
    let ours = runs.beside(Way::Unsorted, false, &cpu, |a, b| a - b);
    let bound = Finding::AtMost(NEGLIGIBLE);
    let why = "undo removal and skipped aborts do not occur: the log has committed transactions without undo";
    let (better, words, value) = match log {
        LogPlace::Memory => (Better::Less, "approximately 1.5 %", PAPER_COST),
        LogPlace::Disk => (Better::Neither, "no observable difference", 0.0),
    };
    let paper = Paper::of(words, value).within(PAPER_COST);
    let mut claims = vec![match runs.work {
        Work::Tpcc => Claim::measured(&what, paper, Bounds(better, bound), ours, why),
        Work::Update => Claim::own(&what, bound, ours, why),
    }];
    if (log, runs.work) == (LogPlace::Disk, Work::Tpcc) {
        claims.push(Claim::measured(
            "TPC-C: CPU of S+M",
            Paper::of("around 24 %", 0.24),
            // With the log in memory, the paper's load is 60 %.
            Bounds(Better::Less, Finding::AtMost(0.6)),
            Sample::of(runs.of(Way::Merged, false, &cpu)),
            "the log is the bottleneck, which leaves idle CPU time for archiving",
        ));
    }
    claims
}

fn behind(runs: &OfWork<'_>) -> Claim {
    let lag = |point: &Point| point.report.archive.unwrap_or_default().lag_seconds_max;
    let lags = runs.of(Way::Merged, false, &lag);
    Claim::own(
        &format!(
            "{}: the archive is behind by at most, S+M",
            runs.work.name()
        ),
        Finding::AtMost(BEHIND_MAX),
        lags.into_iter().fold(0.0, f64::max),
        "a run is cut each second",
    )
    .in_unit(" s")
}

/// Returns the claims about the open loop, which the paper does not have.
fn open(runs: &OfWork<'_>) -> [Claim; 3] {
    let what = |what: &str| format!("{}, open loop at 60 % CPU: {what}", runs.work.name());
    let tps = |point: &Point| point.report.tps;
    let p99 = |point: &Point| f64_of(point.report.latency_us.p99);
    let reached = |point: &Point| ratio(point.report.tps, point.rate.unwrap_or(0.0));
    [
        Claim::own(
            &what("rate S+M / asked"),
            Finding::AtLeast(RATE_LEAST),
            Sample::of(runs.of(Way::Merged, true, &reached)),
            "",
        ),
        Claim::own(
            &what("rate S+M / T"),
            Finding::AtLeast(RATE_LEAST),
            runs.beside(Way::Unsorted, true, &tps, ratio),
            "",
        ),
        Claim::own(
            &what("p99 S+M / B"),
            Finding::AtMost(P99_MAX),
            runs.beside(Way::Baseline, true, &p99, ratio),
            "from the intended start to durable",
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::super::super::claim::Verdict;
    use super::*;
    use crate::drive::RunReport;

    /// The throughput, the CPU use and the p99 of each way.
    type Ways = [(Way, f64, f64, u64); 4];

    /// The paper's values in figure 5.
    const AS_PAPER: Ways = [
        (Way::Baseline, 19_800.0, 0.61, 100),
        (Way::Unsorted, 19_500.0, 0.59, 100),
        (Way::Sorted, 19_300.0, 0.60, 100),
        (Way::Merged, 19_210.0, 0.605, 100),
    ];

    fn points(ways: &Ways, rate: Option<f64>, lag: f64) -> Vec<Point> {
        let mut points = Vec::new();
        for work in Work::ALL {
            for (way, tps, cpu, p99) in ways {
                let mut report = RunReport {
                    tps: *tps,
                    seconds: 10.0,
                    cpu_seconds: Some(cpu * 20.0),
                    ..RunReport::default()
                };
                report.latency_us.p99 = *p99;
                report.archive.get_or_insert_default().lag_seconds_max = lag;
                let (work, way) = (work, *way);
                points.push(Point {
                    work,
                    way,
                    rate,
                    report,
                });
            }
        }
        points
    }

    /// Returns the verdicts of TPC-C, and then those of updates.
    fn verdicts(log: LogPlace, points: &[Point]) -> (Vec<Verdict>, Vec<Verdict>) {
        let claims = claims(2, log, points);
        let of = |is_tpcc: bool| {
            let own = claims
                .iter()
                .filter(|c| c.what.starts_with("TPC-C") == is_tpcc);
            own.map(|claim| claim.verdict).collect()
        };
        (of(true), of(false))
    }

    /// Returns the paper's values with others for S+M.
    fn merged(tps: f64, cpu: f64, p99: u64) -> Ways {
        let [b, t, s, _] = AS_PAPER;
        [b, t, s, (Way::Merged, tps, cpu, p99)]
    }

    #[test]
    fn the_papers_values_are_as_the_paper() {
        use Verdict::{AsPaper, Reported};
        let mut all = points(&AS_PAPER, None, 1.0);
        all.extend(points(&AS_PAPER, Some(19_210.0), 1.0));
        let (tpcc, update) = verdicts(LogPlace::Memory, &all);
        assert_eq!(
            tpcc,
            [
                AsPaper, AsPaper, AsPaper, Reported, Reported, Reported, Reported
            ]
        );
        assert_eq!(update, [Reported; 7]);
        let same = Way::ALL.map(|way| (way, 7_000.0, 0.24, 100));
        let (tpcc, update) = verdicts(LogPlace::Disk, &points(&same, None, 1.0));
        assert_eq!(tpcc, [AsPaper, AsPaper, AsPaper, AsPaper, Reported]);
        assert_eq!(update, [Reported; 4]);
    }

    #[test]
    fn a_cost_beyond_the_papers_is_weaker_and_a_large_one_fails() {
        use Verdict::{Fails, Weaker};
        let some = points(&merged(18_815.0, 0.63, 100), None, 1.0);
        let (tpcc, update) = verdicts(LogPlace::Memory, &some);
        assert_eq!(tpcc[..3], [Weaker; 3]);
        assert_eq!(update[..3], [Verdict::Reported; 3]);
        for log in [LogPlace::Memory, LogPlace::Disk] {
            let large = points(&merged(18_000.0, 0.7, 100), None, 9.0);
            let (tpcc, update) = verdicts(log, &large);
            assert!(
                tpcc.iter().chain(&update).all(|verdict| *verdict == Fails),
                "{tpcc:?} {update:?}"
            );
        }
        let busy = Way::ALL.map(|way| (way, 7_000.0, 0.5, 100));
        assert_eq!(
            verdicts(LogPlace::Disk, &points(&busy, None, 1.0)).0[3],
            Weaker
        );
    }

    #[test]
    fn an_open_loop_that_is_late_or_slow_fails() {
        let mut all = points(&AS_PAPER, None, 1.0);
        all.extend(points(&merged(18_000.0, 0.6, 126), Some(19_500.0), 1.0));
        let (tpcc, update) = verdicts(LogPlace::Memory, &all);
        assert_eq!(tpcc[4..], [Verdict::Fails; 3]);
        assert_eq!(update[4..], [Verdict::Fails; 3]);
    }
}

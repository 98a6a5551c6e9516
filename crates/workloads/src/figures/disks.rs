//! Figure 6: log processing time and its two parts, by the number of log disks.

#[cfg(test)]
mod tests;

use anyhow::Result;
use perdura_wal::scheme::Scheme;
use serde_json::Value;

use super::claim::{Better, Bounds, Claim, Finding};
use super::figure::{Figure, cell};
use super::lab::{How, Runs, Took, crash, log};
use super::paper::Paper;
use super::plot::{Chart, Panel, Plot, Series};
use super::sample::Sample;
use super::scale::PAPER_DISK_MBPS;
use super::{Lab, scheme_label};
use crate::num::{count_f64, ratio};

/// Methods in the order of the panels.
const METHODS: [(Scheme, &str, &str); 3] = [
    (Scheme::Pl2p, "pl2p", "PL2P"),
    (Scheme::Pl2p, "pl2p-part", "PL2P-part"),
    (Scheme::Dl1p, "dl1p", "DL1P"),
];

/// The remark on claims about fast disks: two limits of the speedup.
const FITTED: &str = "the rate of the disks is fitted so that DL1P(4) can gain at most 6.3; how near it comes depends \
    on the cores, four in the paper";

/// The restarts by one method with `disks` log disks, each of `rate` MB/s.
struct Point {
    name: &'static str,
    disks: usize,
    rate: u64,
    runs: Runs,
}

/// Makes the figure.
///
/// # Errors
/// Errors of the store and of the restart.
pub fn make(lab: &Lab<'_>) -> Result<Figure> {
    let costs = lab.costs()?;
    let fast = costs.ratio_preserving_mbps();
    let points = measure(lab, fast)?;
    let mut claims = claims(lab.scale.disks, &points, fast);
    claims.extend(costs.claims());
    Ok(Figure {
        name: "000-fig6",
        title: "log processing time and its parts by log disks".into(),
        scale: lab.scale.name,
        seed: lab.seed,
        setting: vec![
            format!(
                "{} rows, {} transactions, 2 % aborts; restart at level 2 with {} players; images \
                 on an unlimited disk, not counted",
                lab.scale.rows, lab.scale.txns, lab.cores
            ),
            format!(
                "LR: the busiest disk's reads; LP: the busiest player; log disks at \
                 {PAPER_DISK_MBPS} MB/s and at {fast} MB/s (the paper's ratio of CPU to disk); medians of all \
                 repetitions"
            ),
            costs.describe(),
        ],
        columns: "method,log_disks,disk_mbps,log_seconds,log_read_seconds,log_transfer_seconds,\
            log_play_seconds",
        rows: points
            .iter()
            .map(|point| {
                vec![
                    Value::from(point.name),
                    point.disks.into(),
                    point.rate.into(),
                    cell(point.runs.median(log)),
                    cell(point.runs.median(|took| took.log_read)),
                    cell(point.runs.median(|took| took.log_transfer)),
                    cell(point.runs.median(|took| took.log_play)),
                ]
            })
            .collect(),
        claims,
        plot: plot(lab, &points, fast),
    })
}

/// Measures every method on every number of disks, at the paper's speed and at `fast` MB/s.
fn measure(lab: &Lab<'_>, fast: u64) -> Result<Vec<Point>> {
    let mut points = Vec::new();
    for scheme in [Scheme::Pl2p, Scheme::Dl1p] {
        for disks in lab.scale.disks {
            lab.say(&format!("{} on {disks} log disk(s)", scheme_label(scheme)));
            let crash = crash(&lab.sms(scheme), *disks, 1, lab.scale.txns)?;
            for (_, method, name) in METHODS.iter().filter(|method| method.0 == scheme) {
                for rate in [PAPER_DISK_MBPS, fast] {
                    let how = How::of_log(method, lab.cores, rate);
                    let repeats = lab.repeats(rate);
                    points.push(Point {
                        name,
                        disks: *disks,
                        rate,
                        runs: crash.repeated(how, repeats)?,
                    });
                }
            }
        }
    }
    Ok(points)
}

/// Returns the restarts by the method `name` on `disks` disks of `rate` MB/s.
fn find<'a>(points: &'a [Point], name: &str, disks: usize, rate: u64) -> &'a Runs {
    let found = points
        .iter()
        .find(|point| point.name == name && point.disks == disks && point.rate == rate);
    &found.expect("every method is measured on all disks").runs
}

/// Returns the time of playing the log as a part of the time of reading it.
fn play_share(took: &Took) -> f64 {
    ratio(took.log_play, took.log_read)
}

/// Returns the claims about the log disks `counts`, in ascending order.
fn claims(counts: &[usize], points: &[Point], fast: u64) -> Vec<Claim> {
    let most = counts.last().copied().unwrap_or(1);
    let four = if counts.contains(&4) { 4 } else { most };
    let mut claims = log_claims(counts, points, four, most, fast);
    claims.extend(part_claims(counts, points, four, fast));
    claims
}

/// Returns the claims about the whole log time.
fn log_claims(
    counts: &[usize],
    points: &[Point],
    four: usize,
    most: usize,
    fast: u64,
) -> Vec<Claim> {
    let of = |name, disks, rate| find(points, name, disks, rate);
    let slow = PAPER_DISK_MBPS;
    let gain = |disks, rate| of("PL2P", disks, rate).over(of("DL1P", disks, rate), log);
    let gains = counts.iter().map(|disks| gain(*disks, slow).median);
    let faster = Bounds(Better::More, Finding::AtLeast(1.0));
    let more_disks = |disks: &str, rate, why: &str| {
        Claim::measured(
            &format!("the gain on {four} disks / the gain on one, {disks}"),
            Paper::of("more disks help DL more: 6 / 1.89 = 3.2", 6.0 / 1.89),
            faster,
            ratio(gain(four, rate).median, gain(1, rate).median),
            why,
        )
    };
    vec![
        Claim::measured(
            "least PL2P / DL1P log time at equal disks, 29 MB/s",
            Paper::of("47 % less I/O time = 1.89", 1.89),
            faster,
            gains.fold(f64::MAX, f64::min),
            "the volume decides at every number of disks",
        ),
        Claim::measured(
            &format!("PL2P / DL1P log time on {four} disks, 29 MB/s"),
            Paper::of("about six times on four", 6.0),
            faster,
            gain(four, slow),
            "the paper's CPU was slower than its disks; today's is faster than eight of them",
        ),
        more_disks(
            "29 MB/s",
            slow,
            "needs a physical replay that is slower than the disks",
        ),
        more_disks("fast disks", fast, FITTED),
        Claim::measured(
            &format!("DL1P log time, 1 disk / {most} disks, 29 MB/s"),
            Paper::of(&format!("almost linear: {most}"), count_f64(most)),
            Bounds(Better::More, Finding::AtLeast(0.5 * count_f64(most))),
            of("DL1P", 1, slow).over(of("DL1P", most, slow), log),
            "",
        ),
        Claim::measured(
            &format!("PL2P / DL1P log time on {four} fast disks"),
            Paper::of("about six times on four", 6.0),
            faster,
            gain(four, fast),
            FITTED,
        ),
        Claim::own(
            &format!("PL2P-part / DL1P log time on {most} fast disks"),
            Finding::AtLeast(1.15),
            of("PL2P-part", most, fast).over(of("DL1P", most, fast), log),
            "a baseline of today, not in the paper",
        ),
    ]
}

/// Returns the claims about the two parts of the log time.
fn part_claims(counts: &[usize], points: &[Point], four: usize, fast: u64) -> Vec<Claim> {
    let of = |name, disks, rate| find(points, name, disks, rate);
    let slow = PAPER_DISK_MBPS;
    let saved = {
        let reads = of("DL1P", 1, slow).over(of("PL2P", 1, slow), |took| took.log_read);
        Sample {
            median: 1.0 - reads.median,
            low: 1.0 - reads.high,
            high: 1.0 - reads.low,
            ..reads
        }
    };
    let above = || Paper::above("above 1 on more than two", 1.0).within(0.0);
    let most_played = |rate| {
        let shares = counts
            .iter()
            .map(|disks| of("DL1P", *disks, rate).median(play_share));
        shares.fold(0.0, f64::max)
    };
    let read_bound = |disks: &str, rate, why: &str| {
        Claim::measured(
            &format!("DL1P: greatest LP / LR on any number of {disks}"),
            Paper::below("below 1 on any number", 1.0).within(0.0),
            Bounds(Better::Less, Finding::AtMost(1.0)),
            most_played(rate),
            why,
        )
    };
    vec![
        Claim::measured(
            "I/O time DL1P saves over PL2P",
            Paper::of("47 %", 0.47),
            Bounds(Better::More, Finding::AtLeast(0.01)),
            saved,
            "",
        ),
        Claim::measured(
            &format!("PL2P: LP / LR on {four} disks, 29 MB/s"),
            above(),
            Bounds(Better::More, Finding::AtLeast(1.0)),
            of("PL2P", four, slow).sample(play_share),
            "a 700 MHz CPU was the wall beyond two such disks; today's is not",
        ),
        Claim::arithmetic(
            &format!("PL2P: LP / LR on {four} fast disks"),
            above(),
            Finding::AtLeast(1.0),
            of("PL2P", four, fast).median(play_share),
            "no evidence: the rate of these disks is fitted to the CPU so that the paper's wall \
             returns",
        ),
        read_bound("disks, 29 MB/s", slow, ""),
        read_bound(
            "fast disks",
            fast,
            "the paper's CPUs did not limit DL1P. The cores here also do the copying that \
             models the disks",
        ),
    ]
}

fn plot(lab: &Lab<'_>, points: &[Point], fast: u64) -> Plot {
    let line = |name: &str, rate: u64, part: fn(&Took) -> f64| -> Vec<(f64, f64)> {
        let of = points
            .iter()
            .filter(|point| point.name == name && point.rate == rate);
        of.map(|point| (count_f64(point.disks), point.runs.median(part)))
            .collect()
    };
    let panel = |letter: char, names: &[&str], rate: u64| {
        Panel::new(
            format!("({letter}) {}, {rate} MB/s disks", names.join(", ")),
            "Time (sec)",
            Chart::lines(
                "#log disks",
                names
                    .iter()
                    .flat_map(|name| {
                        [
                            Series::solid(*name, line(name, rate, log)),
                            Series::broken(
                                format!("{name}: LR"),
                                line(name, rate, |took| took.log_read),
                            ),
                            Series::broken(
                                format!("{name}: LP"),
                                line(name, rate, |took| took.log_play),
                            ),
                        ]
                    })
                    .collect(),
            ),
        )
    };
    Plot {
        title: "Figure 6: breakdown of log processing time".into(),
        subtitle: format!(
            "SMS, {} transactions, 2 % aborts, {} players; above the paper's disks, below the \
             paper's ratio of CPU to disk",
            lab.scale.txns, lab.cores
        ),
        panels: vec![
            panel('a', &["PL2P"], PAPER_DISK_MBPS),
            panel('b', &["DL1P"], PAPER_DISK_MBPS),
            panel('c', &["PL2P", "PL2P-part"], fast),
            panel('d', &["DL1P"], fast),
        ],
    }
}

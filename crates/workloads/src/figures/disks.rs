//! Figure 6: log processing time and its two parts, by the number of log disks.

use anyhow::Result;
use perdura_wal::scheme::Scheme;
use serde_json::Value;

use super::claim::{Claim, Target};
use super::figure::{Figure, cell};
use super::lab::{How, Took, crash};
use super::plot::{Chart, Panel, Plot, Series};
use super::scale::PAPER_DISK_MBPS;
use super::{Lab, scheme_label};
use crate::num::{count_f64, ratio};

/// Methods in the order of the panels.
const METHODS: [(Scheme, &str, &str); 3] = [
    (Scheme::Pl2p, "pl2p", "PL2P"),
    (Scheme::Pl2p, "pl2p-part", "PL2P-part"),
    (Scheme::Dl1p, "dl1p", "DL1P"),
];

/// The results of one method on a number of disks of one speed.
struct Point {
    name: &'static str,
    disks: usize,
    rate: u64,
    took: Took,
}

/// Makes the figure.
///
/// # Errors
/// Errors of the store and of the restart.
pub fn make(lab: &Lab<'_>) -> Result<Figure> {
    let costs = lab.costs()?;
    let fast = costs.ratio_preserving_mbps();
    let points = measure(lab, fast)?;
    let mut claims = claims(lab, &points, fast);
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
                 {PAPER_DISK_MBPS} MB/s and at {fast} MB/s (the paper's ratio of CPU to disk)"
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
                    cell(point.took.log),
                    cell(point.took.log_read),
                    cell(point.took.log_transfer),
                    cell(point.took.log_play),
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
                        took: crash.quickest_log(how, repeats)?,
                    });
                }
            }
        }
    }
    Ok(points)
}

fn find<'a>(points: &'a [Point], name: &str, disks: usize, rate: u64) -> Option<&'a Took> {
    let found = points
        .iter()
        .find(|point| point.name == name && point.disks == disks && point.rate == rate);
    found.map(|point| &point.took)
}

fn claims(lab: &Lab<'_>, points: &[Point], fast: u64) -> Vec<Claim> {
    let most = lab.scale.disks.last().copied().unwrap_or(1);
    let middle = lab.scale.disks[lab.scale.disks.len() / 2];
    let part = |name: &str, disks, rate, part: fn(&Took) -> f64| {
        find(points, name, disks, rate).map_or(0.0, part)
    };
    let log: fn(&Took) -> f64 = |took| took.log;
    let read: fn(&Took) -> f64 = |took| took.log_read;
    let play: fn(&Took) -> f64 = |took| took.log_play;
    let slow = PAPER_DISK_MBPS;
    let speedups = lab.scale.disks.iter().map(|disks| {
        ratio(
            part("PL2P", *disks, slow, log),
            part("DL1P", *disks, slow, log),
        )
    });
    vec![
        Claim::measured(
            "least PL2P / DL1P log time at equal disks, 29 MB/s",
            "2 on one disk, 6 on four",
            Target::AtLeast(1.9),
            speedups.fold(f64::MAX, f64::min),
            "the volume decides at every number of disks; the paper's CPU wall lies beyond eight \
             such disks today",
        ),
        Claim::measured(
            &format!("DL1P log time, 1 disk / {most} disks, 29 MB/s"),
            "almost linear",
            Target::AtLeast(0.75 * count_f64(most)),
            ratio(part("DL1P", 1, slow, log), part("DL1P", most, slow, log)),
            "",
        ),
        Claim::measured(
            "I/O time DL1P saves over PL2P",
            "47 %",
            Target::AtLeast(0.45),
            1.0 - ratio(part("DL1P", 1, slow, read), part("PL2P", 1, slow, read)),
            "",
        ),
        Claim::measured(
            &format!("PL2P: LP / LR on {middle} fast disks"),
            "above 1 beyond two disks",
            Target::AtLeast(1.0),
            ratio(
                part("PL2P", middle, fast, play),
                part("PL2P", middle, fast, read),
            ),
            "with disks as fast to this CPU as the paper's were to its; at 29 MB/s LP is far \
             below LR",
        ),
        Claim::measured(
            &format!("PL2P / DL1P log time on {most} fast disks"),
            "about 6 on four",
            Target::AtLeast(1.5),
            ratio(part("PL2P", most, fast, log), part("DL1P", most, fast, log)),
            "two cores where the paper had four; the modelled figures go further",
        ),
        Claim::measured(
            &format!("PL2P-part / DL1P log time on {most} fast disks"),
            "- (a baseline of today, not in the paper)",
            Target::AtLeast(1.15),
            ratio(
                part("PL2P-part", most, fast, log),
                part("DL1P", most, fast, log),
            ),
            "",
        ),
    ]
}

fn plot(lab: &Lab<'_>, points: &[Point], fast: u64) -> Plot {
    let line = |name: &str, rate: u64, part: fn(&Took) -> f64| -> Vec<(f64, f64)> {
        let of = points
            .iter()
            .filter(|point| point.name == name && point.rate == rate);
        of.map(|point| (count_f64(point.disks), part(&point.took)))
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
                            Series::solid(*name, line(name, rate, |took| took.log)),
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

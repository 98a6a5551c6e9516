//! Figure 7: compares DL2P with DL1P, by the share of transactions that abort, on four log disks.

use anyhow::Result;
use perdura_wal::scheme::Scheme;

use super::claim::{Claim, Target};
use super::figure::{Figure, cell};
use super::lab::{Crash, How, Took, crash};
use super::plot::{Chart, Panel, Plot, Series};
use super::scale::PAPER_DISK_MBPS;
use super::{Lab, scheme_label};
use crate::num::ratio;

const ABORTS: [f64; 5] = [0.0, 0.05, 0.1, 0.15, 0.2];
const DISKS: usize = 4;

/// The schemes, in the order of the lines in the plot.
const SCHEMES: [Scheme; 2] = [Scheme::Dl2p, Scheme::Dl1p];

/// A history with a crash at its end, and the fastest restart from it.
struct Point {
    crash: Crash,
    took: Took,
}

/// Measures both schemes in turns, so that a slow phase of the machine affects both.
fn measure(lab: &Lab<'_>, aborts: f64, rate: u64) -> Result<Vec<Point>> {
    let mut points: Vec<Point> = Vec::new();
    let how = |scheme: Scheme| How::of_log(scheme.name(), lab.cores, rate);
    for scheme in SCHEMES {
        let mut sms = lab.sms(scheme);
        sms.abort_ratio = aborts;
        let mut txns = lab.scale.txns;
        if rate == 0 {
            (sms.rows, txns) = lab.scale.cpu;
        }
        let crash = crash(&sms, DISKS, 1, txns)?;
        let took = crash.restart(how(scheme))?;
        points.push(Point { crash, took });
    }
    for _ in 1..lab.repeats(rate) {
        for point in &mut points {
            let took = point.crash.restart(how(point.crash.sms.scheme))?;
            if took.log < point.took.log {
                point.took = took;
            }
        }
    }
    Ok(points)
}

/// Makes the figure.
///
/// # Errors
/// Errors of the store and of the restart.
pub fn make(lab: &Lab<'_>) -> Result<Figure> {
    let mut rows = Vec::new();
    // For each disk speed, the lines of the two schemes.
    let mut lines = [[Vec::new(), Vec::new()], [Vec::new(), Vec::new()]];
    for aborts in ABORTS {
        for (setting, rate) in [PAPER_DISK_MBPS, 0].into_iter().enumerate() {
            lab.say(&format!("{:.0} % aborts, {rate} MB/s", aborts * 100.0));
            for (index, point) in measure(lab, aborts, rate)?.into_iter().enumerate() {
                lines[setting][index].push((aborts * 100.0, point.took.log));
                rows.push(vec![
                    scheme_label(point.crash.sms.scheme).into(),
                    rate.into(),
                    cell(aborts),
                    point.crash.counts.ended().into(),
                    point.crash.log_bytes.into(),
                    cell(point.took.log),
                    cell(point.took.log_read),
                    cell(point.took.log_play),
                ]);
            }
        }
    }
    let claims = claims(&lines);
    Ok(Figure {
        name: "000-fig7",
        title: "DL2P and DL1P by abort ratio".into(),
        scale: lab.scale.name,
        seed: lab.seed,
        setting: vec![format!(
            "{DISKS} log disks, restart at level 2 with {} players; images on an unlimited disk, \
             not counted",
            lab.cores
        )],
        columns: "scheme,disk_mbps,abort_ratio,txns,log_bytes,log_seconds,log_read_seconds,\
            log_play_seconds",
        rows,
        claims,
        plot: Plot {
            title: "Figure 7: comparison of DL2P and DL1P with the abort ratio".into(),
            subtitle: format!("SMS, {DISKS} log disks, {} players", lab.cores),
            panels: panels(lines),
        },
    })
}

/// A line of the plot for each of the two schemes.
type Lines = [Vec<(f64, f64)>; 2];

fn claims(lines: &[Lines; 2]) -> Vec<Claim> {
    let last = |line: &[(f64, f64)]| line.last().map_or(0.0, |point| point.1);
    let first = |line: &[(f64, f64)]| line.first().map_or(0.0, |point| point.1);
    let [slow, fast] = lines;
    vec![
        Claim::measured(
            "DL2P / DL1P log time at 20 % aborts, 29 MB/s",
            "about 1.15",
            Target::AtLeast(1.1),
            ratio(last(&slow[0]), last(&slow[1])),
            "the volume: DL2P logs each rolled back change twice",
        ),
        Claim::measured(
            "DL1P log time, 20 % aborts / none, 29 MB/s",
            "constant",
            Target::AtMost(1.03),
            ratio(last(&slow[1]), first(&slow[1])),
            "",
        ),
        Claim::measured(
            "DL2P / DL1P log time at 20 % aborts, from memory",
            "faster also in terms of CPU time",
            Target::AtLeast(1.1),
            ratio(last(&fast[0]), last(&fast[1])),
            "DL1P skips what was rolled back, DL2P applies it and its compensation",
        ),
    ]
}

fn panels(lines: [Lines; 2]) -> Vec<Panel> {
    let panels = lines
        .into_iter()
        .zip([
            format!("{PAPER_DISK_MBPS} MB/s disks"),
            "from memory: the CPU is the wall".to_owned(),
        ])
        .map(|([two, one], title)| {
            Panel::new(
                title,
                "Time (sec)",
                Chart::lines(
                    "Abort ratio (%)",
                    vec![
                        Series::solid(format!("DL2P({DISKS})"), two),
                        Series::solid(format!("DL1P({DISKS})"), one),
                    ],
                ),
            )
        });
    panels.collect()
}

//! Figure 5: log processing time, by the number of transactions since the checkpoint.

use anyhow::Result;
use perdura_wal::scheme::Scheme;

use super::claim::{Claim, Target};
use super::figure::{Figure, cell};
use super::lab::{How, crash};
use super::plot::{Chart, Panel, Plot, Series};
use super::scale::PAPER_DISK_MBPS;
use super::{Lab, scheme_label};
use crate::num::{f64_of, ratio};

/// The series of the paper: the scheme, its method, and the number of log disks.
const SERIES: [(Scheme, &str, usize); 4] = [
    (Scheme::Pl2p, "pl2p", 1),
    (Scheme::Pl2p, "pl2p", 4),
    (Scheme::Dl1p, "dl1p", 1),
    (Scheme::Dl1p, "dl1p", 4),
];

/// Makes the figure.
///
/// # Errors
/// Errors of the store and of the restart.
pub fn make(lab: &Lab<'_>) -> Result<Figure> {
    let costs = lab.costs()?;
    let fast = costs.ratio_preserving_mbps();
    let mut rows = Vec::new();
    let mut slow_lines = Vec::new();
    let mut fast_lines = Vec::new();
    for (scheme, method, disks) in SERIES {
        let name = format!("{}({disks})", scheme_label(scheme));
        let mut lines = [vec![(0.0, 0.0)], vec![(0.0, 0.0)]];
        for step in 1..=lab.scale.steps {
            let txns = lab.scale.txns * step / lab.scale.steps;
            lab.say(&format!("{name}, {txns} transactions"));
            let crash = crash(&lab.sms(scheme), disks, 1, txns)?;
            for (line, rate) in lines.iter_mut().zip([PAPER_DISK_MBPS, fast]) {
                let how = How::of_log(method, lab.cores, rate);
                let repeats = lab.repeats(rate);
                let took = crash.quickest_log(how, repeats)?;
                line.push((f64_of(txns), took.log));
                rows.push(vec![
                    scheme_label(scheme).into(),
                    disks.into(),
                    rate.into(),
                    txns.into(),
                    crash.log_bytes.into(),
                    cell(took.log),
                    cell(took.log_read),
                    cell(took.log_play),
                ]);
            }
        }
        let [slow, quick] = lines;
        slow_lines.push(Series::solid(&name, slow));
        fast_lines.push(Series::solid(&name, quick));
    }
    let mut claims = claims(&slow_lines, &fast_lines);
    claims.extend(costs.claims());
    Ok(Figure {
        name: "000-fig5",
        title: "log processing time by volume and disks".into(),
        scale: lab.scale.name,
        seed: lab.seed,
        setting: vec![
            format!(
                "{} rows, up to {} transactions, 2 % aborts; log disks at {PAPER_DISK_MBPS} MB/s, \
                 and at {fast} MB/s, which is to this CPU what 29 MB/s was to the paper's",
                lab.scale.rows, lab.scale.txns
            ),
            format!(
                "restart at level 2 with {} players; images on an unlimited disk, not counted",
                lab.cores
            ),
            costs.describe(),
        ],
        columns: "scheme,log_disks,disk_mbps,txns,log_bytes,log_seconds,log_read_seconds,\
            log_play_seconds",
        rows,
        claims,
        plot: plot(lab, fast, slow_lines, fast_lines),
    })
}

fn plot(lab: &Lab<'_>, fast: u64, slow_lines: Vec<Series>, fast_lines: Vec<Series>) -> Plot {
    Plot {
        title: "Figure 5: log processing time with the log volume and log disks".into(),
        subtitle: format!("SMS, 2 % aborts, {} players", lab.cores),
        panels: [
            (
                format!("{PAPER_DISK_MBPS} MB/s disks, as the paper's"),
                slow_lines,
            ),
            (
                format!("{fast} MB/s disks: the paper's ratio of CPU to disk"),
                fast_lines,
            ),
        ]
        .map(|(title, series)| {
            Panel::new(
                title,
                "Time (sec)",
                Chart::lines("#transactions since the checkpoint", series),
            )
        })
        .to_vec(),
    }
}

fn claims(slow: &[Series], fast: &[Series]) -> Vec<Claim> {
    let last = |line: &Series| line.points.last().map_or(0.0, |point| point.1);
    let spread = {
        let pairs = slow[1].points.iter().zip(&slow[3].points).skip(1);
        let speedups: Vec<f64> = pairs.map(|(a, b)| ratio(a.1, b.1)).collect();
        let most = speedups.iter().copied().fold(0.0, f64::max);
        ratio(speedups.iter().copied().fold(f64::MAX, f64::min), most)
    };
    vec![
        Claim::measured(
            "PL2P(1) / DL1P(1) log time, 29 MB/s",
            "about 2",
            Target::AtLeast(1.9),
            ratio(last(&slow[0]), last(&slow[2])),
            "the disk is the wall: the volume decides",
        ),
        Claim::measured(
            "PL2P(4) / DL1P(4) log time, 29 MB/s",
            "about 6",
            Target::AtLeast(1.9),
            ratio(last(&slow[1]), last(&slow[3])),
            "the paper's physical replay on one 700 MHz CPU was slower than two disks; today's \
             is not slower than four, so the volume decides here too",
        ),
        Claim::measured(
            "PL2P(1) / DL1P(4) log time, 29 MB/s",
            "about 7",
            Target::AtLeast(7.0),
            ratio(last(&slow[0]), last(&slow[3])),
            "half the volume on four times the disks",
        ),
        Claim::measured(
            "speedup at the least volume / at the most",
            "the same at every volume",
            Target::AtLeast(0.9),
            spread,
            "",
        ),
        Claim::measured(
            "PL2P(4) / DL1P(4) log time, disks as fast to this CPU as the paper's",
            "about 6 with 4 CPUs",
            Target::AtLeast(1.5),
            ratio(last(&fast[1]), last(&fast[3])),
            "both cores are shared by players and by the copying that stands for the disks; see \
             the modelled figures for 4 and 8 cores",
        ),
    ]
}

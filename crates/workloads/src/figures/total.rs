//! Figure 8: total restart time and its parts. Image and log are processed one after the other, or at the same time.

use anyhow::{Result, ensure};
use perdura_wal::scheme::Scheme;
use serde_json::Value;

use super::Lab;
use super::claim::{Claim, Target};
use super::figure::{Figure, cell};
use super::lab::{How, Speeds, Took, crash};
use super::plot::{Bar, Chart, Panel, Plot};
use super::scale::PAPER_DISK_MBPS;
use crate::num::ratio;

/// The bars: the name, the scheme, and the level. The paper does not show physical logging at level 3. It is shown
/// here as the best that physical logging can do.
const BARS: [(&str, Scheme, u8); 4] = [
    ("PL2P-Seq", Scheme::Pl2p, 2),
    ("PL2P-L3", Scheme::Pl2p, 3),
    ("DL1P-Seq", Scheme::Dl1p, 2),
    ("DL1P-Para", Scheme::Dl1p, 4),
];

/// The numbers of disks of each kind.
const DISKS: [usize; 2] = [2, 4];

/// Makes the figure.
///
/// # Errors
/// Errors of the store and of the restart.
pub fn make(lab: &Lab<'_>) -> Result<Figure> {
    let measured = measure(lab)?;
    let find = |disks: usize, name: &str| {
        let found = measured.iter().find(|m| m.0 == disks && m.1 == name);
        &found.expect("every bar is measured").3
    };
    Ok(Figure {
        name: "000-fig8",
        title: "total restart time and its parts".into(),
        scale: lab.scale.name,
        seed: lab.seed,
        setting: vec![format!(
            "{} rows, {} transactions, 2 % aborts; log and image disks at {PAPER_DISK_MBPS} MB/s; \
             {} players; all restarts gave the same digest",
            lab.scale.rows, lab.scale.txns, lab.cores
        )],
        columns: "bar,disks_of_each_kind,level,total_seconds,image_seconds,log_seconds,\
            image_bytes,log_bytes",
        rows: measured
            .iter()
            .map(|(disks, name, level, took)| {
                vec![
                    Value::from(*name),
                    (*disks).into(),
                    (*level).into(),
                    cell(took.total),
                    cell(took.image),
                    cell(took.log),
                    took.report.bytes.backup.into(),
                    took.report.bytes.log.into(),
                ]
            })
            .collect(),
        claims: claims(find),
        plot: Plot {
            title: "Figure 8: breakdown of total restart time".into(),
            subtitle: format!(
                "SMS, {} rows, {} transactions, {PAPER_DISK_MBPS} MB/s disks; || is at once",
                lab.scale.rows, lab.scale.txns
            ),
            panels: panels(find),
        },
    })
}

/// A measured bar: the number of disks, the name, the level, and the times of the fastest restart.
type Measured = (usize, &'static str, u8, Took);

/// Measures every bar. All restarts must end with the same digest.
fn measure(lab: &Lab<'_>) -> Result<Vec<Measured>> {
    let mut measured: Vec<Measured> = Vec::new();
    for disks in DISKS {
        for scheme in [Scheme::Pl2p, Scheme::Dl1p] {
            let crash = crash(&lab.sms(scheme), disks, disks, lab.scale.txns)?;
            for (name, _, level) in BARS.into_iter().filter(|bar| bar.1 == scheme) {
                lab.say(&format!("{name} on {disks} + {disks} disks"));
                let how = How {
                    method: scheme.name(),
                    level,
                    threads: lab.cores,
                    speeds: Speeds {
                        log: PAPER_DISK_MBPS,
                        image: PAPER_DISK_MBPS,
                    },
                };
                let took = crash.quickest(how, lab.scale.slow_repeats, |took| took.total)?;
                measured.push((disks, name, level, took));
            }
        }
    }
    let digest = measured[0].3.digest.clone();
    for (disks, name, _, took) in &measured {
        ensure!(
            took.digest == digest,
            "{name} on {disks} + {disks} disks restores another state"
        );
    }
    Ok(measured)
}

fn panels<'a>(find: impl Fn(usize, &str) -> &'a Took) -> Vec<Panel> {
    let panels = DISKS.into_iter().zip(['a', 'b']).map(|(disks, letter)| {
        let bars = BARS.into_iter().map(|(name, _, level)| {
            let took = find(disks, name);
            let parts = if level <= 2 {
                vec![
                    ("BL".to_owned(), took.image),
                    ("LL".to_owned(), took.total - took.image),
                ]
            } else {
                vec![("BL || LL".to_owned(), took.total)]
            };
            Bar {
                label: name.into(),
                parts,
            }
        });
        Panel::new(
            format!("({letter}) {disks} log disks and {disks} backup disks"),
            "Time (sec)",
            Chart::Bars(bars.collect()),
        )
    });
    panels.collect()
}

fn claims<'a>(find: impl Fn(usize, &str) -> &'a Took) -> Vec<Claim> {
    let mut claims = Vec::new();
    for (disks, paper) in [(2, "about 2"), (4, "about 3")] {
        let (physical, differential) = (find(disks, "PL2P-Seq"), find(disks, "DL1P-Seq"));
        claims.push(Claim::measured(
            &format!("PL2P-Seq / DL1P-Seq total, {disks} + {disks} disks"),
            paper,
            Target::AtLeast(1.4),
            ratio(physical.total, differential.total),
            "the image takes the same time in both; the log half, not less, because today's \
             physical replay keeps up with the disks",
        ));
        let parallel = find(disks, "DL1P-Para");
        claims.push(Claim::measured(
            &format!("DL1P-Seq / DL1P-Para total, {disks} + {disks} disks"),
            "about 2",
            Target::AtLeast(1.6),
            ratio(differential.total, parallel.total),
            "2 where image and log take the same time; here the log is the longer of the two",
        ));
        claims.push(Claim::reported(
            &format!("PL2P-L3 / DL1P-Para total, {disks} + {disks} disks"),
            "- (not measured there)",
            ratio(find(disks, "PL2P-L3").total, parallel.total),
            "against the most that physical logging can overlap",
        ));
    }
    claims.push(Claim::measured(
        "image loading, 2 disks / 4 disks",
        "2",
        Target::AtLeast(1.8),
        ratio(find(2, "DL1P-Seq").image, find(4, "DL1P-Seq").image),
        "",
    ));
    claims
}

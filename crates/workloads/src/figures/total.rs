//! Figure 8: total restart time and its parts. Image and log are processed one after the other, or at the same time.

use anyhow::{Result, ensure};
use perdura_wal::scheme::Scheme;
use serde_json::Value;

use super::Lab;
use super::claim::{Better, Bounds, Claim, Finding};
use super::figure::{Figure, cell};
use super::lab::{How, Runs, Speeds, Took, crash};
use super::paper::Paper;
use super::plot::{Bar, Chart, Panel, Plot};
use super::scale::PAPER_DISK_MBPS;

/// The bars: the name, the scheme, and the level. The paper does not show physical logging at level 3. It is shown
/// here as the best that physical logging can do.
const BARS: [(&str, Scheme, u8); 4] = [
    ("PL2P-Seq", Scheme::Pl2p, 2),
    ("PL2P-L3", Scheme::Pl2p, 3),
    ("DL1P-Seq", Scheme::Dl1p, 2),
    ("DL1P-Para", Scheme::Dl1p, 4),
];

/// The compared counts of disks. Each count applies to the log disks and to the image disks.
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
             {} players; all restarts gave the same digest; medians of all repetitions",
            lab.scale.rows, lab.scale.txns, lab.cores
        )],
        columns: "bar,disks_of_each_kind,level,total_seconds,image_seconds,log_seconds,\
            image_bytes,log_bytes",
        rows: measured
            .iter()
            .map(|(disks, name, level, runs)| {
                let bytes = &runs.all()[0].report.bytes;
                vec![
                    Value::from(*name),
                    (*disks).into(),
                    (*level).into(),
                    cell(runs.median(total)),
                    cell(runs.median(image)),
                    cell(runs.median(|took| took.log)),
                    bytes.backup.into(),
                    bytes.log.into(),
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

/// A measured bar: the number of disks, the name, the level, and all restarts.
type Measured = (usize, &'static str, u8, Runs);

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
                let runs = crash.repeated(how, lab.scale.slow_repeats)?;
                measured.push((disks, name, level, runs));
            }
        }
    }
    let digest = &measured[0].3.all()[0].digest;
    for (disks, name, _, runs) in &measured {
        ensure!(
            runs.all().iter().all(|took| took.digest == *digest),
            "{name} on {disks} + {disks} disks restores another state"
        );
    }
    Ok(measured)
}

fn total(took: &Took) -> f64 {
    took.total
}

fn image(took: &Took) -> f64 {
    took.image
}

fn panels<'a>(find: impl Fn(usize, &str) -> &'a Runs) -> Vec<Panel> {
    let panels = DISKS.into_iter().zip(['a', 'b']).map(|(disks, letter)| {
        let bars = BARS.into_iter().map(|(name, _, level)| {
            let runs = find(disks, name);
            let parts = if level <= 2 {
                vec![
                    ("BL".to_owned(), runs.median(image)),
                    ("LL".to_owned(), runs.median(|took| took.total - took.image)),
                ]
            } else {
                vec![("BL || LL".to_owned(), runs.median(total))]
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

fn claims<'a>(find: impl Fn(usize, &str) -> &'a Runs) -> Vec<Claim> {
    let faster = Bounds(Better::More, Finding::AtLeast(1.0));
    let mut claims = Vec::new();
    for (disks, words, value) in [(2, "about two times", 2.0), (4, "about three times", 3.0)] {
        let (physical, differential) = (find(disks, "PL2P-Seq"), find(disks, "DL1P-Seq"));
        claims.push(Claim::measured(
            &format!("PL2P-Seq / DL1P-Seq total, {disks} + {disks} disks"),
            Paper::of(words, value),
            faster,
            physical.over(differential, total),
            "the image takes the same time in both; the log half, not less, because today's \
             physical replay keeps up with the disks",
        ));
        let parallel = find(disks, "DL1P-Para");
        claims.push(Claim::measured(
            &format!("DL1P-Seq / DL1P-Para total, {disks} + {disks} disks"),
            Paper::of("about two times", 2.0),
            faster,
            differential.over(parallel, total),
            "2 where image and log take the same time; here the log is the longer of the two",
        ));
        claims.push(Claim::own(
            &format!("PL2P-L3 / DL1P-Para total, {disks} + {disks} disks"),
            Finding::AtLeast(1.0),
            find(disks, "PL2P-L3").over(parallel, total),
            "against the most that physical logging can overlap, which the paper did not measure",
        ));
    }
    claims.push(Claim::measured(
        "image loading, 2 disks / 4 disks",
        Paper::of("decreases by half = 2", 2.0),
        faster,
        find(2, "DL1P-Seq").over(find(4, "DL1P-Seq"), image),
        "",
    ));
    claims
}

#[cfg(test)]
mod tests {
    use super::super::claim::Verdict;
    use super::super::lab::testing::verdict_on;
    use super::*;

    /// The times with one count of disks, in seconds: the total of each bar, in the order of [`BARS`], and the time of
    /// the image.
    type Totals = ([f64; 4], f64);

    /// Figure 8, with PL2P-L3 beside it.
    const PAPER: [Totals; 2] = [
        ([24.5, 20.0, 12.0, 6.2], 5.0),
        ([19.5, 18.0, 6.5, 3.3], 2.5),
    ];

    fn of(by_disks: [Totals; 2]) -> Vec<Claim> {
        let bars: Vec<(usize, &str, Runs)> = DISKS
            .into_iter()
            .zip(by_disks)
            .flat_map(|(disks, (totals, image))| {
                BARS.into_iter()
                    .zip(totals)
                    .map(move |((name, ..), total)| {
                        let took = Took {
                            total,
                            image,
                            ..Took::default()
                        };
                        (disks, name, Runs::first(took))
                    })
            })
            .collect();
        claims(|disks, name| {
            let found = bars.iter().find(|bar| (bar.0, bar.1) == (disks, name));
            &found.unwrap().2
        })
    }

    #[test]
    fn the_papers_times_are_as_the_paper() {
        for claim in of(PAPER) {
            let own = claim.what.starts_with("PL2P-L3");
            let expected = if own {
                Verdict::Reported
            } else {
                Verdict::AsPaper
            };
            assert_eq!(claim.verdict, expected, "{}", claim.what);
        }
    }

    #[test]
    fn each_claim_can_fail() {
        let claims = of([([5.0, 5.0, 6.0, 7.0], 2.0), ([5.0, 5.0, 6.0, 7.0], 3.0)]);
        for claim in &claims {
            assert_eq!(claim.verdict, Verdict::Fails, "{}", claim.what);
        }
        assert_eq!(claims.len(), 7);
    }

    #[test]
    fn smaller_gains_are_weaker() {
        let claims = of([([15.3, 12.0, 10.0, 8.0], 4.0), ([7.7, 6.0, 5.0, 4.0], 3.0)]);
        for disks in ["2 + 2", "4 + 4"] {
            for pair in ["PL2P-Seq / DL1P-Seq", "DL1P-Seq / DL1P-Para"] {
                let part = format!("{pair} total, {disks}");
                assert_eq!(verdict_on(&claims, &part), Verdict::Weaker, "{part}");
            }
        }
        assert_eq!(verdict_on(&claims, "image loading"), Verdict::Weaker);
    }
}

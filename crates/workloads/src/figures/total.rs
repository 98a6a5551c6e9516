//! Figure 8: total restart time and its parts. Image and log are processed one after the other, or at the same time.

use anyhow::{Result, ensure};
use perdura_wal::scheme::Scheme;
use serde_json::Value;

use super::Lab;
use super::claim::{Better, Bounds, Claim, Finding};
use super::figure::{Figure, cell};
use super::lab::{How, Runs, Speeds, Took, crash_on};
use super::paper::Paper;
use super::plot::{Bar, Chart, Panel, Plot};
use super::real::Backing;
use super::real::beside::{from_device, near, on_real};
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
/// Errors of the store, of the restart and of real disks.
pub fn make(lab: &Lab<'_>) -> Result<Figure> {
    let modelled = measure(lab, Backing::Modelled)?;
    let mut setting = vec![format!(
        "{} rows, {} transactions, 2 % aborts; log and image disks at {PAPER_DISK_MBPS} MB/s; \
         {} players; all restarts gave the same digest; medians of all repetitions",
        lab.scale.rows, lab.scale.txns, lab.cores
    )];
    let mut rows: Vec<_> = modelled
        .iter()
        .map(|bar| row(bar, Backing::Modelled))
        .collect();
    let mut claims = claims(&DISKS, |disks, name| find(&modelled, disks, name));
    let mut panels = panels(&DISKS, &modelled, ['a', 'b'], "");
    if let Some(site) = lab.real()? {
        let real = measure(lab, site)?;
        let counts = site.pair_counts(&DISKS);
        check_digests(real.iter().chain(&modelled))?;
        setting.extend(site.setting(&DISKS, &counts));
        claims.extend(real_claims(site, &real, &modelled));
        rows.extend(real.iter().map(|bar| row(bar, site)));
        panels.extend(self::panels(&counts, &real, ['c', 'd'], ", real"));
    }
    Ok(Figure {
        name: "000-fig8",
        title: "total restart time and its parts".into(),
        scale: lab.scale.name,
        seed: lab.seed,
        setting,
        columns: "bar,disks_of_each_kind,disk_mbps,level,total_seconds,image_seconds,log_seconds,\
            image_bytes,log_bytes",
        rows,
        claims,
        plot: Plot {
            title: "Figure 8: breakdown of total restart time".into(),
            subtitle: format!(
                "SMS, {} rows, {} transactions, {PAPER_DISK_MBPS} MB/s disks; || is at once",
                lab.scale.rows, lab.scale.txns
            ),
            panels,
        },
    })
}

fn row((disks, name, level, runs): &Measured, site: Backing<'_>) -> Vec<Value> {
    let bytes = &runs.all()[0].report.bytes;
    vec![
        Value::from(*name),
        (*disks).into(),
        site.rate_cell(PAPER_DISK_MBPS),
        (*level).into(),
        cell(runs.median(total)),
        cell(runs.median(image)),
        cell(runs.median(|took| took.log)),
        bytes.backup.into(),
        bytes.log.into(),
    ]
}

/// Returns the restarts of a bar.
fn find<'a>(measured: &'a [Measured], disks: usize, name: &str) -> &'a Runs {
    let found = measured.iter().find(|m| m.0 == disks && m.1 == name);
    &found.expect("every bar is measured").3
}

/// A measured bar: the number of disks, the name, the level, and all restarts.
type Measured = (usize, &'static str, u8, Runs);

/// Measures every bar for which `site` has enough disks. All restarts must end with the same digest.
fn measure(lab: &Lab<'_>, site: Backing<'_>) -> Result<Vec<Measured>> {
    let mut measured: Vec<Measured> = Vec::new();
    for disks in site.pair_counts(&DISKS) {
        for scheme in [Scheme::Pl2p, Scheme::Dl1p] {
            let plant = site.plant(disks, disks)?;
            let (crash, _) = crash_on(plant, &lab.sms(scheme), &[lab.scale.txns])?;
            for (name, _, level) in BARS.into_iter().filter(|bar| bar.1 == scheme) {
                lab.say(&format!(
                    "{name} on {disks} + {disks} disks, {}",
                    site.name()
                ));
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
    check_digests(&measured)?;
    Ok(measured)
}

/// Fails if two restarts end with different digests.
fn check_digests<'a>(measured: impl IntoIterator<Item = &'a Measured>) -> Result<()> {
    let mut digest = None;
    for (disks, name, _, runs) in measured {
        for took in runs.all() {
            ensure!(
                took.digest == **digest.get_or_insert(&took.digest),
                "{name} on {disks} + {disks} disks restores another state"
            );
        }
    }
    Ok(())
}

fn total(took: &Took) -> f64 {
    took.total
}

fn image(took: &Took) -> f64 {
    took.image
}

/// Returns a panel for each count of disks. `kind` describes the disks at the end of each title.
fn panels(counts: &[usize], measured: &[Measured], letters: [char; 2], kind: &str) -> Vec<Panel> {
    let panels = counts.iter().zip(letters).map(|(disks, letter)| {
        let bars = BARS.into_iter().map(|(name, _, level)| {
            let runs = find(measured, *disks, name);
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
            format!("({letter}) {disks} log disks and {disks} backup disks{kind}"),
            "Time (sec)",
            Chart::Bars(bars.collect()),
        )
    });
    panels.collect()
}

/// Returns the claims for which there are enough disks: `counts` is a part of [`DISKS`].
fn claims<'a>(counts: &[usize], find: impl Fn(usize, &str) -> &'a Runs) -> Vec<Claim> {
    let faster = Bounds(Better::More, Finding::AtLeast(1.0));
    let mut claims = Vec::new();
    let paper = [(2, "about two times", 2.0), (4, "about three times", 3.0)];
    for (disks, words, value) in paper.into_iter().filter(|paper| counts.contains(&paper.0)) {
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
    if counts == DISKS {
        claims.push(Claim::measured(
            "image loading, 2 disks / 4 disks",
            Paper::of("decreases by half = 2", 2.0),
            faster,
            find(2, "DL1P-Seq").over(find(4, "DL1P-Seq"), image),
            "",
        ));
    }
    claims
}

/// Returns the claims about real disks: those of the paper, and how near the models are.
fn real_claims(site: Backing<'_>, real: &[Measured], modelled: &[Measured]) -> Vec<Claim> {
    let counts = site.pair_counts(&DISKS);
    let mut claims = on_real(claims(&counts, |disks, name| find(real, disks, name)));
    for (name, ..) in BARS {
        let time = |measured, disks| find(measured, disks, name).median(total);
        let pairs = counts
            .iter()
            .map(|disks| (time(real, *disks), time(modelled, *disks)));
        let what = format!("total of {name} on any number of disks");
        claims.push(near(site, &what, pairs));
    }
    claims.extend(from_device(real.iter().map(|bar| &bar.3)));
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
        claims(&DISKS, |disks, name| {
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
    fn claims_need_their_disks() {
        let runs = Runs::first(Took {
            total: 1.0,
            ..Took::default()
        });
        let claims = claims(&[2], |disks, _| {
            assert_eq!(disks, 2, "only two disks were measured");
            &runs
        });
        assert_eq!(claims.len(), 3);
    }

    #[test]
    fn restarts_with_different_digests_are_refused() {
        let bar = |digest: &str| -> Measured {
            let took = Took {
                digest: digest.into(),
                ..Took::default()
            };
            (2, "DL1P-Seq", 2, Runs::first(took))
        };
        check_digests(&[bar("a"), bar("a")]).unwrap();
        assert!(check_digests(&[bar("a"), bar("b")]).is_err());
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

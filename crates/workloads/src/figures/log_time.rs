//! Figure 5: log processing time, by the number of transactions since the checkpoint.

use anyhow::Result;
use perdura_wal::scheme::Scheme;
use serde_json::Value;

use super::claim::{Better, Bounds, Claim, Finding};
use super::figure::{Figure, cell};
use super::lab::{How, Runs, crash_on, log};
use super::paper::Paper;
use super::plot::{Chart, Panel, Plot, Series};
use super::real::Backing;
use super::real::beside::{from_device, near, on_real};
use super::sample::Sample;
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

/// The restarts of one scheme on one number of disks, by the number of transactions.
struct SchemeLine {
    name: String,
    points: Vec<(u64, Runs)>,
}

impl SchemeLine {
    /// Returns the restarts at the most transactions.
    fn last(&self) -> &Runs {
        &self.points.last().expect("a line has a point").1
    }

    fn series(&self) -> Series {
        let points = self.points.iter();
        let points = points.map(|(txns, runs)| (f64_of(*txns), runs.median(log)));
        let all = std::iter::once((0.0, 0.0)).chain(points);
        Series::solid(&self.name, all.collect())
    }
}

/// The lines at one speed of the disks, in the order of [`SERIES`]. Lines that need more disks than there are are
/// missing.
type Lines = Vec<SchemeLine>;

/// The measurements on one site.
struct StepLines {
    /// The lines at each rate.
    by_rate: Vec<Lines>,
    rows: Vec<Vec<Value>>,
}

/// Makes the figure.
///
/// # Errors
/// Errors of the store, of the restart and of real disks.
pub fn make(lab: &Lab<'_>) -> Result<Figure> {
    let costs = lab.costs()?;
    let fast = costs.ratio_preserving_mbps();
    let modelled = measure(lab, Backing::Modelled, &[PAPER_DISK_MBPS, fast])?;
    let [slow_lines, fast_lines] = &modelled.by_rate[..] else {
        unreachable!("there are lines for both rates");
    };
    let mut rows = modelled.rows;
    let mut claims = slow_claims(slow_lines);
    claims.extend(fast_claims(fast_lines));
    claims.extend(costs.claims());
    let mut panels = vec![
        (
            format!("{PAPER_DISK_MBPS} MB/s disks, as the paper's"),
            slow_lines,
        ),
        (
            format!("{fast} MB/s disks: the paper's ratio of CPU to disk"),
            fast_lines,
        ),
    ];
    let mut setting = setting(lab, fast);
    setting.push(costs.describe());
    let site = lab.real()?;
    let real = site.map(|site| measure(lab, site, &[PAPER_DISK_MBPS]));
    let real = real.transpose()?;
    if let (Some(site), Some(real)) = (site, &real) {
        let wanted = SERIES.map(|(.., disks)| disks);
        setting.extend(site.setting(&[1, 4], &site.log_counts(&wanted)));
        claims.extend(real_claims(site, &real.by_rate[0], slow_lines));
        rows.extend(real.rows.iter().cloned());
        panels.push(("real disks".into(), &real.by_rate[0]));
    }
    Ok(Figure {
        name: "000-fig5",
        title: "log processing time by volume and disks".into(),
        scale: lab.scale.name,
        seed: lab.seed,
        setting,
        columns: "scheme,log_disks,disk_mbps,txns,log_bytes,log_seconds,log_read_seconds,\
            log_play_seconds",
        rows,
        claims,
        plot: plot(lab, panels),
    })
}

fn setting(lab: &Lab<'_>, fast: u64) -> Vec<String> {
    vec![
        format!(
            "{} rows, up to {} transactions, 2 % aborts; log disks at {PAPER_DISK_MBPS} MB/s, \
             and at {fast} MB/s, which is to this CPU what 29 MB/s was to the paper's",
            lab.scale.rows, lab.scale.txns
        ),
        format!(
            "restart at level 2 with {} players; images on an unlimited disk, not counted; \
             medians of all repetitions",
            lab.cores
        ),
    ]
}

/// Measures the lines for which `site` has enough disks, at each of the rates. Real disks have their own rate.
fn measure(lab: &Lab<'_>, site: Backing<'_>, rates: &[u64]) -> Result<StepLines> {
    let mut rows = Vec::new();
    let mut by_rate: Vec<Lines> = rates.iter().map(|_| Lines::new()).collect();
    for (scheme, method, disks) in SERIES {
        if site.log_counts(&[disks]).is_empty() {
            continue;
        }
        let name = format!("{}({disks})", scheme_label(scheme));
        for lines in &mut by_rate {
            lines.push(SchemeLine {
                name: name.clone(),
                points: Vec::new(),
            });
        }
        for step in 1..=lab.scale.steps {
            let txns = lab.scale.txns * step / lab.scale.steps;
            lab.say(&format!("{name}, {txns} transactions, {}", site.name()));
            let (crash, _) = crash_on(site.plant(disks, 1)?, &lab.sms(scheme), &[txns])?;
            for (lines, rate) in by_rate.iter_mut().zip(rates) {
                let how = How::of_log(method, lab.cores, *rate);
                let runs = crash.repeated(how, lab.repeats(*rate))?;
                rows.push(vec![
                    scheme_label(scheme).into(),
                    disks.into(),
                    site.rate_cell(*rate),
                    txns.into(),
                    crash.log_bytes.into(),
                    cell(runs.median(log)),
                    cell(runs.median(|took| took.log_read)),
                    cell(runs.median(|took| took.log_play)),
                ]);
                let line = lines.last_mut().expect("it was just added");
                line.points.push((txns, runs));
            }
        }
    }
    Ok(StepLines { by_rate, rows })
}

fn plot(lab: &Lab<'_>, panels: Vec<(String, &Lines)>) -> Plot {
    let panel = |(title, lines): (String, &Lines)| {
        let series = lines.iter().map(SchemeLine::series).collect();
        Panel::new(
            title,
            "Time (sec)",
            Chart::lines("#transactions since the checkpoint", series),
        )
    };
    Plot {
        title: "Figure 5: log processing time with the log volume and log disks".into(),
        subtitle: format!("SMS, 2 % aborts, {} players", lab.cores),
        panels: panels.into_iter().map(panel).collect(),
    }
}

/// Returns the log time of line `a`, divided by that of line `b`, for the largest number of transactions.
fn at_the_end(a: &SchemeLine, b: &SchemeLine) -> Sample {
    a.last().over(b.last(), log)
}

/// Computes the ratio of two lines' log times for each number of transactions. Returns the smallest ratio, divided by
/// the largest. `None`: there is only one number of transactions.
fn evenness(a: &SchemeLine, b: &SchemeLine) -> Option<f64> {
    let pairs = a.points.iter().zip(&b.points);
    let speedups: Vec<f64> = pairs.map(|(a, b)| a.1.over(&b.1, log).median).collect();
    let most = speedups.iter().copied().fold(0.0, f64::max);
    let least = speedups.iter().copied().fold(f64::MAX, f64::min);
    (speedups.len() > 1).then(|| ratio(least, most))
}

/// Returns the line with this name. `None`: there are too few disks for it.
fn find<'a>(lines: &'a [SchemeLine], name: &str) -> Option<&'a SchemeLine> {
    lines.iter().find(|line| line.name == name)
}

/// The pairs of lines that the paper compares: both names, the paper's words and value, and the reason for ours.
const PAIRS: [(&str, &str, &str, f64, &str); 3] = [
    (
        "PL2P(1)",
        "DL1P(1)",
        "47 % less I/O time = 1.89",
        1.89,
        "the disk is the wall: the volume decides",
    ),
    (
        "PL2P(4)",
        "DL1P(4)",
        "about six times",
        6.0,
        "the paper's physical replay on one 700 MHz CPU was slower than two disks; today's is not slower than four, so \
         only the volume decides",
    ),
    (
        "PL2P(1)",
        "DL1P(4)",
        "about seven times",
        7.0,
        "half the volume on four times the disks",
    ),
];

/// Returns the claims about disks at the paper's rate. A claim needs both of its lines.
fn slow_claims(lines: &[SchemeLine]) -> Vec<Claim> {
    let mut claims = Vec::new();
    let both = |a: &str, b: &str| find(lines, a).zip(find(lines, b));
    for (a, b, words, value, why) in PAIRS {
        claims.extend(both(a, b).map(|(physical, differential)| {
            Claim::measured(
                &format!("{a} / {b} log time, 29 MB/s"),
                Paper::of(words, value),
                Bounds(Better::More, Finding::AtLeast(1.0)),
                at_the_end(physical, differential),
                why,
            )
        }));
    }
    for (a, b, ..) in &PAIRS[1..] {
        let even = both(a, b).and_then(|(physical, differential)| evenness(physical, differential));
        claims.extend(even.map(|even| {
            Claim::measured(
                &format!("{a} / {b}: least speedup at any volume / greatest, 29 MB/s"),
                Paper::of("regardless of the total log volume = 1", 1.0).within(0.1),
                Bounds(Better::More, Finding::AtLeast(0.8)),
                even,
                "",
            )
        }));
    }
    claims
}

/// Returns the claim about disks that are as fast to this CPU as the paper's.
fn fast_claims(lines: &[SchemeLine]) -> Option<Claim> {
    let (physical, differential) = find(lines, "PL2P(4)").zip(find(lines, "DL1P(4)"))?;
    Some(Claim::measured(
        "PL2P(4) / DL1P(4) log time, disks as fast to this CPU as the paper's",
        Paper::of("about six times, with 4 CPUs", 6.0),
        Bounds(Better::More, Finding::AtLeast(1.0)),
        at_the_end(physical, differential),
        "the rate of the disks is fitted so that DL1P(4) can gain at most 6.3. How near it comes \
         depends on the cores: the players share them with the copying that models the disks",
    ))
}

/// Returns the claims about real disks: those of the paper, and how near the models are.
fn real_claims(site: Backing<'_>, real: &[SchemeLine], modelled: &[SchemeLine]) -> Vec<Claim> {
    let mut claims = on_real(slow_claims(real));
    for line in real {
        let beside = find(modelled, &line.name);
        claims.extend(beside.map(|beside| {
            let pairs = line.points.iter().zip(&beside.points);
            let pairs =
                pairs.map(|((_, real), (_, modelled))| (real.median(log), modelled.median(log)));
            near(site, &format!("log time of {}", line.name), pairs)
        }));
    }
    let points = real.iter().flat_map(|line| &line.points);
    claims.extend(from_device(points.map(|(_, runs)| runs)));
    claims
}

#[cfg(test)]
mod tests {
    use super::super::claim::Verdict;
    use super::super::lab::testing::{log_took, verdict_on};
    use super::*;

    /// Returns lines whose log times are proportional to the number of transactions. `ends` has the last time of each
    /// line, seconds.
    fn lines(ends: [f64; 4]) -> Lines {
        let line = |((scheme, _, disks), end): ((Scheme, &str, usize), f64)| SchemeLine {
            name: format!("{}({disks})", scheme_label(scheme)),
            points: [(1, 0.5), (2, 1.0)]
                .map(|(txns, share)| (txns, log_took(end * share)))
                .to_vec(),
        };
        SERIES.into_iter().zip(ends).map(line).collect()
    }

    fn claims(slow: &[SchemeLine], fast: &[SchemeLine]) -> Vec<Claim> {
        let mut claims = slow_claims(slow);
        claims.extend(fast_claims(fast));
        claims
    }

    #[test]
    fn the_papers_times_are_as_the_paper() {
        let paper = [24.0, 20.0, 12.7, 3.4];
        for claim in claims(&lines(paper), &lines(paper)) {
            assert_eq!(claim.verdict, Verdict::AsPaper, "{}", claim.what);
        }
    }

    #[test]
    fn where_only_the_volume_decides_the_factor_of_six_is_weaker() {
        let disks_only = [24.0, 6.0, 12.4, 3.1];
        let claims = claims(&lines(disks_only), &lines(disks_only));
        for part in ["PL2P(4) / DL1P(4) log time, 29", "as fast to this CPU"] {
            assert_eq!(verdict_on(&claims, part), Verdict::Weaker, "{part}");
        }
    }

    #[test]
    fn differences_that_are_slower_fail() {
        let slower = [3.0, 3.0, 4.0, 4.0];
        let claims = claims(&lines(slower), &lines(slower));
        let failing = [
            "PL2P(1) / DL1P(1) log time, 29",
            "PL2P(4) / DL1P(4) log time, 29",
            "PL2P(1) / DL1P(4) log time, 29",
            "as fast to this CPU",
        ];
        for part in failing {
            assert_eq!(verdict_on(&claims, part), Verdict::Fails, "{part}");
        }
    }

    #[test]
    fn claims_need_their_lines() {
        let mut few = lines([24.0, 20.0, 12.7, 3.4]);
        few.retain(|line| line.name.ends_with("(1)"));
        let claims = claims(&few, &few);
        assert_eq!(claims.len(), 1);
        assert_eq!(claims[0].what, "PL2P(1) / DL1P(1) log time, 29 MB/s");
    }

    #[test]
    fn a_speedup_that_depends_on_the_volume_fails() {
        let paper = || lines([24.0, 20.0, 12.7, 3.4]);
        for (first, verdict) in [
            (1.7, Verdict::AsPaper),
            (2.0, Verdict::Weaker),
            (3.0, Verdict::Fails),
        ] {
            let mut slow = paper();
            slow[3].points[0].1 = log_took(first);
            let claims = claims(&slow, &paper());
            for part in ["PL2P(4) / DL1P(4): least", "PL2P(1) / DL1P(4): least"] {
                assert_eq!(verdict_on(&claims, part), verdict, "{part} {first}");
            }
        }
        let one = SchemeLine {
            name: String::new(),
            points: vec![(1, log_took(1.0))],
        };
        assert_eq!(evenness(&one, &one), None, "one volume shows nothing");
    }
}

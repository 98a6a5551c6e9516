//! Figure 6: log processing time and its two parts, by the number of log disks.

#[cfg(test)]
mod tests;

use anyhow::Result;
use perdura_wal::scheme::Scheme;
use serde_json::Value;

use super::claim::{Better, Bounds, Claim, Finding};
use super::figure::{Figure, cell};
use super::lab::{How, Runs, Took, crash_on, log};
use super::paper::Paper;
use super::plot::{Chart, Panel, Plot, Series};
use super::real::Backing;
use super::real::beside::{from_device, near, on_real};
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

/// The restarts by one method with `disks` log disks, each of `rate` MB/s. `rate` says nothing about real disks.
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
    let counts = lab.scale.disks;
    let points = measure(lab, Backing::Modelled, &[PAPER_DISK_MBPS, fast])?;
    let mut claims = claims(counts, &points, fast);
    claims.extend(costs.claims());
    let mut setting = setting(lab, fast);
    setting.push(costs.describe());
    let mut rows: Vec<_> = points
        .iter()
        .map(|point| row(point, Backing::Modelled))
        .collect();
    let mut panels = modelled_panels(&points, fast);
    if let Some(site) = lab.real()? {
        let real = measure(lab, site, &[PAPER_DISK_MBPS])?;
        setting.extend(site.setting(counts, &site.log_counts(counts)));
        claims.extend(real_claims(site, counts, &real, &points));
        rows.extend(real.iter().map(|point| row(point, site)));
        panels.push(panel(
            "(e) PL2P, real disks",
            &["PL2P"],
            &real,
            PAPER_DISK_MBPS,
        ));
        panels.push(panel(
            "(f) DL1P, real disks",
            &["DL1P"],
            &real,
            PAPER_DISK_MBPS,
        ));
    }
    Ok(Figure {
        name: "000-fig6",
        title: "log processing time and its parts by log disks".into(),
        scale: lab.scale.name,
        seed: lab.seed,
        setting,
        columns: "method,log_disks,disk_mbps,log_seconds,log_read_seconds,log_transfer_seconds,\
            log_play_seconds",
        rows,
        claims,
        plot: plot(lab, panels),
    })
}

fn setting(lab: &Lab<'_>, fast: u64) -> Vec<String> {
    vec![
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
    ]
}

fn row(point: &Point, site: Backing<'_>) -> Vec<Value> {
    vec![
        Value::from(point.name),
        point.disks.into(),
        site.rate_cell(point.rate),
        cell(point.runs.median(log)),
        cell(point.runs.median(|took| took.log_read)),
        cell(point.runs.median(|took| took.log_transfer)),
        cell(point.runs.median(|took| took.log_play)),
    ]
}

/// Measures every method on every number of disks that `site` has, at each of the rates. Real disks have their own rate.
fn measure(lab: &Lab<'_>, site: Backing<'_>, rates: &[u64]) -> Result<Vec<Point>> {
    let mut points = Vec::new();
    for scheme in [Scheme::Pl2p, Scheme::Dl1p] {
        for disks in site.log_counts(lab.scale.disks) {
            lab.say(&format!(
                "{} on {disks} log disk(s), {}",
                scheme_label(scheme),
                site.name()
            ));
            let plant = site.plant(disks, 1)?;
            let (crash, _) = crash_on(plant, &lab.sms(scheme), &[lab.scale.txns])?;
            for (_, method, name) in METHODS.iter().filter(|method| method.0 == scheme) {
                for rate in rates {
                    let how = How::of_log(method, lab.cores, *rate);
                    points.push(Point {
                        name,
                        disks,
                        rate: *rate,
                        runs: crash.repeated(how, lab.repeats(*rate))?,
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

/// Returns the claims about modelled disks. `counts` has the numbers of log disks in ascending order.
fn claims(counts: &[usize], points: &[Point], fast: u64) -> Vec<Claim> {
    let mut claims = slow_claims(counts, points);
    claims.extend(fast_claims(counts, points, fast));
    claims
}

/// Returns the claims about real disks: those of the paper, and how near the models are.
fn real_claims(
    site: Backing<'_>,
    wanted: &[usize],
    real: &[Point],
    modelled: &[Point],
) -> Vec<Claim> {
    let counts = site.log_counts(wanted);
    let mut claims = on_real(slow_claims(&counts, real));
    for (.., name) in METHODS {
        let time = |points, disks| find(points, name, disks, PAPER_DISK_MBPS).median(log);
        let pairs = counts
            .iter()
            .map(|disks| (time(real, *disks), time(modelled, *disks)));
        let what = format!("log time of {name} on any number of disks");
        claims.push(near(site, &what, pairs));
    }
    claims.extend(from_device(real.iter().map(|point| &point.runs)));
    claims
}

/// Returns PL2P's log time divided by DL1P's.
fn gain(points: &[Point], disks: usize, rate: u64) -> Sample {
    let of = |name| find(points, name, disks, rate);
    of("PL2P").over(of("DL1P"), log)
}

/// Returns the claims that compare four disks with one.
fn four_claims(points: &[Point], disks: [&str; 2], rate: u64, why: [&str; 2]) -> Vec<Claim> {
    let faster = Bounds(Better::More, Finding::AtLeast(1.0));
    vec![
        Claim::measured(
            disks[0],
            Paper::of("about six times on four", 6.0),
            faster,
            gain(points, 4, rate),
            why[0],
        ),
        Claim::measured(
            &format!("the gain on 4 disks / the gain on one, {}", disks[1]),
            Paper::of("more disks help DL more: 6 / 1.89 = 3.2", 6.0 / 1.89),
            faster,
            ratio(gain(points, 4, rate).median, gain(points, 1, rate).median),
            why[1],
        ),
    ]
}

/// Returns the claims about disks at the paper's rate. Claims about four disks, and about the effect of more disks, need
/// these disks among `counts`.
fn slow_claims(counts: &[usize], points: &[Point]) -> Vec<Claim> {
    let slow = PAPER_DISK_MBPS;
    let of = |name, disks| find(points, name, disks, slow);
    let gains = counts.iter().map(|disks| gain(points, *disks, slow).median);
    let mut claims = vec![Claim::measured(
        "least PL2P / DL1P log time at equal disks, 29 MB/s",
        Paper::of("47 % less I/O time = 1.89", 1.89),
        Bounds(Better::More, Finding::AtLeast(1.0)),
        gains.fold(f64::MAX, f64::min),
        "the volume decides at every number of disks",
    )];
    if counts.contains(&4) {
        claims.extend(four_claims(
            points,
            ["PL2P / DL1P log time on 4 disks, 29 MB/s", "29 MB/s"],
            slow,
            [
                "the paper's CPU was slower than its disks; today's is faster than eight of them",
                "needs a physical replay that is slower than the disks",
            ],
        ));
    }
    if let Some(most) = counts.last().filter(|most| **most > 1) {
        claims.push(Claim::measured(
            &format!("DL1P log time, 1 disk / {most} disks, 29 MB/s"),
            Paper::of(&format!("almost linear: {most}"), count_f64(*most)),
            Bounds(Better::More, Finding::AtLeast(0.5 * count_f64(*most))),
            of("DL1P", 1).over(of("DL1P", *most), log),
            "",
        ));
    }
    claims.push(Claim::measured(
        "I/O time DL1P saves over PL2P",
        Paper::of("47 %", 0.47),
        Bounds(Better::More, Finding::AtLeast(0.01)),
        saved(points),
        "",
    ));
    if counts.contains(&4) {
        claims.push(Claim::measured(
            "PL2P: LP / LR on 4 disks, 29 MB/s",
            above(),
            Bounds(Better::More, Finding::AtLeast(1.0)),
            of("PL2P", 4).sample(play_share),
            "a 700 MHz CPU was the wall beyond two such disks; today's is not",
        ));
    }
    claims.push(read_bound(counts, points, "disks, 29 MB/s", slow, ""));
    claims
}

/// Returns the claims about disks that are as fast to this CPU as the paper's.
fn fast_claims(counts: &[usize], points: &[Point], fast: u64) -> Vec<Claim> {
    let most = counts.last().copied().unwrap_or(1);
    let of = |name, disks| find(points, name, disks, fast);
    let mut claims = vec![
        Claim::own(
            &format!("PL2P-part / DL1P log time on {most} fast disks"),
            Finding::AtLeast(1.15),
            of("PL2P-part", most).over(of("DL1P", most), log),
            "a baseline of today, not in the paper",
        ),
        read_bound(
            counts,
            points,
            "fast disks",
            fast,
            "the paper's CPUs did not limit DL1P. The cores here also do the copying that \
             models the disks",
        ),
    ];
    if counts.contains(&4) {
        claims.extend(four_claims(
            points,
            ["PL2P / DL1P log time on 4 fast disks", "fast disks"],
            fast,
            [FITTED, FITTED],
        ));
        claims.push(Claim::arithmetic(
            "PL2P: LP / LR on 4 fast disks",
            above(),
            Finding::AtLeast(1.0),
            of("PL2P", 4).median(play_share),
            "no evidence: the rate of these disks is fitted to the CPU so that the paper's wall \
             returns",
        ));
    }
    claims
}

/// Returns the paper's value of LP / LR of physical replay.
fn above() -> Paper {
    Paper::above("above 1 on more than two", 1.0).within(0.0)
}

/// Returns the part of the time of reading that DL1P saves on one disk.
fn saved(points: &[Point]) -> Sample {
    let of = |name| find(points, name, 1, PAPER_DISK_MBPS);
    let reads = of("DL1P").over(of("PL2P"), |took| took.log_read);
    Sample {
        median: 1.0 - reads.median,
        low: 1.0 - reads.high,
        high: 1.0 - reads.low,
        ..reads
    }
}

/// Returns the claim that reading limits DL1P on any number of disks. `name` names disks of the rate `rate`.
fn read_bound(counts: &[usize], points: &[Point], name: &str, rate: u64, why: &str) -> Claim {
    let shares = counts
        .iter()
        .map(|disks| find(points, "DL1P", *disks, rate).median(play_share));
    Claim::measured(
        &format!("DL1P: greatest LP / LR on any number of {name}"),
        Paper::below("below 1 on any number", 1.0).within(0.0),
        Bounds(Better::Less, Finding::AtMost(1.0)),
        shares.fold(0.0, f64::max),
        why,
    )
}

/// Returns a panel about the methods `names`: the log time and its parts.
fn panel(title: &str, names: &[&str], points: &[Point], rate: u64) -> Panel {
    let line = |name: &str, part: fn(&Took) -> f64| -> Vec<(f64, f64)> {
        let of = points
            .iter()
            .filter(|point| point.name == name && point.rate == rate);
        of.map(|point| (count_f64(point.disks), point.runs.median(part)))
            .collect()
    };
    let series = names.iter().flat_map(|name| {
        [
            Series::solid(*name, line(name, log)),
            Series::broken(format!("{name}: LR"), line(name, |took| took.log_read)),
            Series::broken(format!("{name}: LP"), line(name, |took| took.log_play)),
        ]
    });
    Panel::new(
        title,
        "Time (sec)",
        Chart::lines("#log disks", series.collect()),
    )
}

/// Returns the panels about modelled disks.
fn modelled_panels(points: &[Point], fast: u64) -> Vec<Panel> {
    let shown: [(char, &[&str], u64); 4] = [
        ('a', &["PL2P"], PAPER_DISK_MBPS),
        ('b', &["DL1P"], PAPER_DISK_MBPS),
        ('c', &["PL2P", "PL2P-part"], fast),
        ('d', &["DL1P"], fast),
    ];
    let panels = shown.into_iter().map(|(letter, names, rate)| {
        let title = format!("({letter}) {}, {rate} MB/s disks", names.join(", "));
        panel(&title, names, points, rate)
    });
    panels.collect()
}

fn plot(lab: &Lab<'_>, panels: Vec<Panel>) -> Plot {
    Plot {
        title: "Figure 6: breakdown of log processing time".into(),
        subtitle: format!(
            "SMS, {} transactions, 2 % aborts, {} players; first the paper's disks, then the \
             paper's ratio of CPU to disk",
            lab.scale.txns, lab.cores
        ),
        panels,
    }
}

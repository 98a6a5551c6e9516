//! Figure 7: compares DL2P with DL1P, by the share of transactions that abort, on four log disks.

use anyhow::Result;
use perdura_wal::scheme::Scheme;

use super::claim::{Better, Bounds, Claim, Finding};
use super::figure::{Figure, cell};
use super::lab::{Crash, How, Runs, crash, log};
use super::paper::Paper;
use super::plot::{Chart, Panel, Plot, Series};
use super::scale::PAPER_DISK_MBPS;
use super::{Lab, scheme_label};

const ABORTS: [f64; 5] = [0.0, 0.05, 0.1, 0.15, 0.2];
const DISKS: usize = 4;

/// The schemes, in the order of the lines in the plot.
const SCHEMES: [Scheme; 2] = [Scheme::Dl2p, Scheme::Dl1p];

/// A history with a crash at its end, and the restarts from it.
struct Point {
    crash: Crash,
    runs: Runs,
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
        let runs = Runs::first(crash.restart(how(scheme))?);
        points.push(Point { crash, runs });
    }
    for _ in 1..lab.repeats(rate) {
        for point in &mut points {
            let took = point.crash.restart(how(point.crash.sms.scheme))?;
            point.runs.push(took);
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
    let mut lines: [Lines; 2] = [[Vec::new(), Vec::new()], [Vec::new(), Vec::new()]];
    for aborts in ABORTS {
        for (setting, rate) in [PAPER_DISK_MBPS, 0].into_iter().enumerate() {
            lab.say(&format!("{:.0} % aborts, {rate} MB/s", aborts * 100.0));
            for (index, point) in measure(lab, aborts, rate)?.into_iter().enumerate() {
                rows.push(vec![
                    scheme_label(point.crash.sms.scheme).into(),
                    rate.into(),
                    cell(aborts),
                    point.crash.counts.ended().into(),
                    point.crash.log_bytes.into(),
                    cell(point.runs.median(log)),
                    cell(point.runs.median(|took| took.log_read)),
                    cell(point.runs.median(|took| took.log_play)),
                ]);
                lines[setting][index].push((aborts * 100.0, point.runs));
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
             not counted; medians of all repetitions",
            lab.cores
        )],
        columns: "scheme,disk_mbps,abort_ratio,txns,log_bytes,log_seconds,log_read_seconds,\
            log_play_seconds",
        rows,
        claims,
        plot: Plot {
            title: "Figure 7: comparison of DL2P and DL1P with the abort ratio".into(),
            subtitle: format!("SMS, {DISKS} log disks, {} players", lab.cores),
            panels: panels(&lines),
        },
    })
}

/// The restarts of the two schemes. Each entry has an abort ratio, in percent, and its restarts.
type Lines = [Vec<(f64, Runs)>; 2];

fn claims([slow, fast]: &[Lines; 2]) -> Vec<Claim> {
    let last = |line: &[(f64, Runs)]| line.last().expect("a line has a point").1.clone();
    let first = |line: &[(f64, Runs)]| line[0].1.clone();
    let memory = last(&fast[0]);
    vec![
        Claim::measured(
            "DL2P / DL1P log time at 20 % aborts, 29 MB/s",
            Paper::of("about 1.15 times", 1.15).within(0.03),
            Bounds(Better::More, Finding::AtLeast(1.0)),
            last(&slow[0]).over(&last(&slow[1]), log),
            "the volume: DL2P logs each rolled back change twice",
        ),
        Claim::measured(
            "DL1P log time, 20 % aborts / none, 29 MB/s",
            Paper::of("the volume remains constant = 1", 1.0).within(0.03),
            Bounds(Better::Less, Finding::AtMost(1.07)),
            last(&slow[1]).over(&first(&slow[1]), log),
            "no checkpoint runs in this log, as in the paper",
        ),
        Claim::measured(
            "DL2P / DL1P LP at 20 % aborts, unlimited disks",
            Paper::above("faster also in terms of CPU time", 1.0).within(0.0),
            Bounds(Better::More, Finding::AtLeast(1.0)),
            memory.over(&last(&fast[1]), |took| took.log_play),
            "DL1P skips what was rolled back, DL2P applies it and its compensation",
        ),
        Claim::own(
            "DL2P / DL1P log time at 20 % aborts, from memory",
            Finding::AtLeast(1.1),
            memory.over(&last(&fast[1]), log),
            "reading, checking and playing together, where the CPU is the wall",
        ),
    ]
}

fn panels(lines: &[Lines; 2]) -> Vec<Panel> {
    let points = |line: &[(f64, Runs)]| {
        let points = line
            .iter()
            .map(|(aborts, runs)| (*aborts, runs.median(log)));
        points.collect()
    };
    let panels = lines
        .iter()
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
                        Series::solid(format!("DL2P({DISKS})"), points(two)),
                        Series::solid(format!("DL1P({DISKS})"), points(one)),
                    ],
                ),
            )
        });
    panels.collect()
}

#[cfg(test)]
mod tests {
    use super::super::claim::Verdict;
    use super::super::lab::Took;
    use super::super::lab::testing::verdict_on;
    use super::*;

    /// Returns the claims for these seconds of DL2P (`two`) and of DL1P (`one`). Each pair has the time without aborts
    /// and the time with 20 % aborts.
    fn of(two: [f64; 2], one: [f64; 2]) -> Vec<Claim> {
        let line = |[none, most]: [f64; 2]| {
            let runs = |seconds| {
                Runs::first(Took {
                    log: seconds,
                    log_play: seconds,
                    ..Took::default()
                })
            };
            vec![(0.0, runs(none)), (20.0, runs(most))]
        };
        let lines = || [line(two), line(one)];
        claims(&[lines(), lines()])
    }

    #[test]
    fn the_papers_times_are_as_the_paper() {
        let claims = of([3.2, 3.68], [3.2, 3.2]);
        assert_eq!(claims.len(), 4);
        for claim in &claims[..3] {
            assert_eq!(claim.verdict, Verdict::AsPaper, "{}", claim.what);
        }
        assert_eq!(claims[3].verdict, Verdict::Reported);
    }

    #[test]
    fn each_claim_can_fail() {
        let equal = of([3.2, 3.2], [3.2, 3.3]);
        for part in ["log time at 20 % aborts, 29", "LP at 20 %", "from memory"] {
            assert_eq!(verdict_on(&equal, part), Verdict::Fails, "{part}");
        }
        let grows = of([3.2, 3.68], [3.2, 3.6]);
        assert_eq!(verdict_on(&grows, "DL1P log time, 20 %"), Verdict::Fails);
    }

    #[test]
    fn smaller_effects_are_weaker() {
        let small = of([3.2, 3.5], [3.2, 3.36]);
        for part in ["log time at 20 % aborts, 29", "DL1P log time, 20 %"] {
            assert_eq!(verdict_on(&small, part), Verdict::Weaker, "{part}");
        }
    }
}

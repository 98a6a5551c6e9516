//! Tests of the verdicts on the paper's times, and on times that contradict the paper.

use super::super::claim::Verdict;
use super::super::lab::testing::verdict_on;
use super::*;

const FAST: u64 = 700;

fn point(
    name: &'static str,
    disks: usize,
    rate: u64,
    [log, log_read, log_play]: [f64; 3],
) -> Point {
    Point {
        name,
        disks,
        rate,
        runs: Runs::first(Took {
            log,
            log_read,
            log_play,
            ..Took::default()
        }),
    }
}

/// Returns the times of the paper's figure 6 on one, four and eight disks: log time, LR and LP of each method.
/// PL2P-part gets the times of PL2P. Both rates get the same times.
fn paper() -> Vec<Point> {
    let mut points = Vec::new();
    for rate in [PAPER_DISK_MBPS, FAST] {
        for (disks, physical, differential) in [
            (1, [24.6, 24.6, 18.0], [13.0, 13.0, 5.0]),
            (4, [20.4, 6.2, 20.0], [3.4, 3.3, 1.2]),
            (8, [22.0, 3.2, 21.5], [1.8, 1.7, 0.7]),
        ] {
            points.push(point("PL2P", disks, rate, physical));
            points.push(point("PL2P-part", disks, rate, physical));
            points.push(point("DL1P", disks, rate, differential));
        }
    }
    points
}

/// Returns the claims about the paper's times with one change. At both rates, the method `name` takes `times` on
/// `disks` disks.
fn changed(name: &'static str, disks: usize, times: [f64; 3]) -> Vec<Claim> {
    let mut points = paper();
    points.retain(|point| (point.name, point.disks) != (name, disks));
    for rate in [PAPER_DISK_MBPS, FAST] {
        points.push(point(name, disks, rate, times));
    }
    claims(&[1, 4, 8], &points, FAST)
}

#[test]
fn the_papers_times_are_as_the_paper() {
    for claim in claims(&[1, 4, 8], &paper(), FAST) {
        let expected = match claim.what.as_str() {
            what if what.starts_with("PL2P-part") => Verdict::Reported,
            "PL2P: LP / LR on 4 fast disks" => Verdict::Arithmetic,
            _ => Verdict::AsPaper,
        };
        assert_eq!(claim.verdict, expected, "{}", claim.what);
    }
}

#[test]
fn each_claim_can_fail() {
    let cases = [
        ("least PL2P", "PL2P", 8, [1.7, 1.0, 1.0]),
        ("log time on 4 disks, 29", "PL2P", 4, [3.0, 3.0, 1.0]),
        ("gain on one, 29", "PL2P", 4, [6.2, 6.2, 1.0]),
        ("gain on one, fast", "PL2P", 4, [6.2, 6.2, 1.0]),
        ("DL1P log time, 1 disk", "DL1P", 8, [3.3, 3.3, 1.0]),
        ("PL2P / DL1P log time on 4 fast", "PL2P", 4, [3.0, 3.0, 1.0]),
        ("PL2P-part", "PL2P-part", 8, [2.0, 1.0, 1.0]),
        ("I/O time", "PL2P", 1, [24.0, 13.0, 1.0]),
        ("LP / LR on 4 disks, 29", "PL2P", 4, [6.2, 6.2, 1.0]),
        ("LP / LR on 4 fast", "PL2P", 4, [6.2, 6.2, 1.0]),
        ("number of disks, 29", "DL1P", 8, [1.8, 1.7, 1.8]),
        ("number of fast disks", "DL1P", 8, [1.8, 1.7, 1.8]),
    ];
    assert_eq!(cases.len(), claims(&[1, 4, 8], &paper(), FAST).len());
    for (part, name, disks, times) in cases {
        let verdict = verdict_on(&changed(name, disks, times), part);
        assert_eq!(verdict, Verdict::Fails, "{part}");
    }
}

#[test]
fn a_gain_of_the_volume_alone_is_weaker_than_six() {
    let claims = changed("PL2P", 4, [6.5, 6.2, 5.0]);
    for part in [
        "log time on 4 disks, 29",
        "PL2P / DL1P log time on 4 fast",
        "gain on one, 29",
    ] {
        assert_eq!(verdict_on(&claims, part), Verdict::Weaker, "{part}");
    }
}

//! Tests of the verdicts: on the paper's volumes, and on volumes that contradict the paper.

use super::super::Scale;
use super::super::claim::Verdict;
use super::super::lab::testing::verdict_on;
use super::*;

/// Returns the volume of 600 K transactions.
fn volume(scheme: Scheme, aborts: f64, log_bytes: u64, in_window: u64) -> Volume {
    Volume {
        scheme,
        aborts,
        ended: 600_000,
        log_bytes,
        compensation_bytes: 0,
        in_window,
    }
}

/// Returns the paper's volumes. With a checkpoint, DL1P logs `percent` % of DL2P's compensation.
fn paper(percent: u64) -> Volumes {
    // Each step of 5 % aborts adds `bytes`.
    let line = |scheme, bytes: u64, in_window| {
        let of = ABORTS
            .iter()
            .zip(0..)
            .map(|(aborts, step)| volume(scheme, *aborts, 370_000_000 + bytes * step, in_window));
        of.collect()
    };
    Volumes {
        by_scheme: [
            volume(Scheme::Pl2p, 0.02, 721_000_000, 0),
            volume(Scheme::Dl2p, 0.02, 377_000_000, 0),
            volume(Scheme::Dl1p, 0.02, 370_000_000, 0),
        ],
        two_pass: line(Scheme::Dl2p, 17_500_000, 300_000),
        one_pass: line(Scheme::Dl1p, 175_000 * percent, 300_000),
        one_pass_plain: line(Scheme::Dl1p, 0, 0),
        aborts_in_window: vec![0.5; 5],
    }
}

#[test]
fn the_papers_volumes_are_as_the_paper_except_for_compensation() {
    for claim in claims(&paper(50)) {
        let expected = match claim.what.as_str() {
            what if what.starts_with("DL1P volume with a") => Verdict::Fails,
            what if what.starts_with("compensation") => Verdict::Reported,
            _ => Verdict::AsPaper,
        };
        assert_eq!(claim.verdict, expected, "{}", claim.what);
    }
}

#[test]
fn compensation_that_is_dropped_or_logged_everywhere_fails() {
    let part = "compensation that DL1P logs";
    for (logged, verdict) in [
        (0, Verdict::Fails),
        (40, Verdict::Fails),
        (48, Verdict::Reported),
        (100, Verdict::Fails),
    ] {
        assert_eq!(
            verdict_on(&claims(&paper(logged)), part),
            verdict,
            "{logged}"
        );
    }
    let without = claims(&paper(0));
    assert_eq!(verdict_on(&without, "DL1P volume with a"), Verdict::AsPaper);
}

#[test]
fn each_other_claim_can_fail() {
    let mut volumes = paper(50);
    for (volume, bytes) in volumes.by_scheme.iter_mut().zip([500, 470, 480]) {
        volume.log_bytes = bytes * 1_000_000;
    }
    volumes.two_pass = volumes.one_pass_plain.clone();
    volumes.one_pass_plain = volumes.one_pass.clone();
    let claims = claims(&volumes);
    for part in [
        "DL1P / PL2P volume",
        "DL2P / PL2P volume",
        "what DL2P logs more",
        "DL1P volume since",
        "DL2P volume, spread",
    ] {
        assert_eq!(verdict_on(&claims, part), Verdict::Fails, "{part}");
    }
    for part in ["PL2P at 600 K", "DL2P at 600 K", "DL1P at 600 K"] {
        assert_eq!(verdict_on(&claims, part), Verdict::Weaker, "{part}");
    }
}

#[test]
fn a_store_logs_compensation_in_the_window() {
    let volumes = Volumes::measure(&Lab::new(Scale::TINY, 1, 2, &|_| {})).unwrap();
    let compensated = volumes.compensated();
    assert!(
        (0.95..1.05).contains(&compensated.median),
        "{compensated:?}"
    );
    assert!(volumes.one_pass[4].window_share() > 0.1);
    assert!(volumes.one_pass[4].compensation_bytes > 0);
    assert_eq!(volumes.one_pass_plain[4].compensation_bytes, 0);
}

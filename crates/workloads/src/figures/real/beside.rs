//! Claims about real disks: the claims of the models with other names, and how near the models are.

use super::super::claim::{Claim, Finding};
use super::super::lab::Runs;
use super::super::sample::Sample;
use super::Backing;

/// The part of a claim's name that says how fast the modelled disks are.
const MODELLED: &str = ", 29 MB/s";
/// The greatest distance of a real time from the modelled time, as a part of the modelled time.
const NEAR: f64 = 0.1;
/// The least part of a restart's bytes that must come from the device.
const FROM_DEVICE: f64 = 0.95;

/// Names claims that were judged on real disks.
#[must_use]
pub fn on_real(claims: Vec<Claim>) -> Vec<Claim> {
    let named = |claim: Claim| Claim {
        what: format!("real disks: {}", claim.what.replace(MODELLED, "")),
        ..claim
    };
    claims.into_iter().map(named).collect()
}

/// Returns the claim that a value on real disks is near its value on modelled disks. `pairs` has both values for each
/// number of disks, the real one first. The ratio that is furthest from 1 is judged. Only disks at the paper's rate are
/// judged, because the models have that rate.
#[must_use]
pub fn near(site: Backing<'_>, what: &str, pairs: impl IntoIterator<Item = (f64, f64)>) -> Claim {
    let ratios = pairs.into_iter().map(|(real, modelled)| real / modelled);
    let all = Sample::of(ratios);
    let furthest = match (all.high - 1.0).abs() >= (all.low - 1.0).abs() {
        true => all.high,
        false => all.low,
    };
    let is_judged = match site {
        Backing::Modelled => false,
        Backing::Real { rates, .. } => rates.are_the_papers(),
    };
    let (finding, why) = match is_judged {
        true => (
            Finding::Within(1.0, NEAR),
            "the ratio furthest from 1, with the range of all",
        ),
        false => (
            Finding::Any,
            "not judged: the real disks do not have the rate of the models",
        ),
    };
    Claim::own(
        &format!("real / modelled at 29 MB/s: {what}"),
        finding,
        Sample {
            median: furthest,
            ..all
        },
        why,
    )
}

/// Returns the claim that restarts read from the device. `None`: the system does not count the bytes.
#[must_use]
pub fn from_device<'a>(restarts: impl IntoIterator<Item = &'a Runs>) -> Option<Claim> {
    let took = restarts.into_iter().flat_map(Runs::all);
    least_from_device(took.filter_map(|took| took.from_device))
}

/// Returns the claim about the least of `parts`: the bytes from the device as a part of all bytes, for each restart.
fn least_from_device(parts: impl IntoIterator<Item = f64>) -> Option<Claim> {
    let all = Sample::of(parts);
    let least = Sample {
        median: all.low,
        ..all
    };
    (all.runs > 0).then(|| {
        Claim::own(
            "real disks: bytes from the device / bytes that a restart reads, least",
            Finding::AtLeast(FROM_DEVICE),
            least,
            "less would be reads from the operating system's cache",
        )
    })
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::super::super::claim::Verdict;
    use super::super::RealDisks;
    use super::super::rates::Rates;
    use super::*;

    fn judged(pairs: &[(f64, f64)]) -> Claim {
        let disks = RealDisks {
            logs: vec![PathBuf::from("d")],
            images: Vec::new(),
        };
        let rates = Rates::of(29.0);
        let site = Backing::Real {
            disks: &disks,
            rates: &rates,
        };
        near(site, "w", pairs.iter().copied())
    }

    #[test]
    fn the_furthest_point_is_judged() {
        let claim = judged(&[(1.0, 1.0), (1.9, 2.0), (3.3, 3.1)]);
        assert_eq!((claim.verdict, claim.ours.runs), (Verdict::Reported, 3));
        assert!((claim.ours.median - 3.3 / 3.1).abs() < 1e-9);
        for far in [(1.2, 1.0), (0.8, 1.0)] {
            let claim = judged(&[(1.0, 1.0), far]);
            assert_eq!(claim.verdict, Verdict::Fails, "{far:?}");
        }
        let other = near(Backing::Modelled, "w", [(1.0, 9.0)]);
        assert_eq!(other.verdict, Verdict::Reported);
        assert!(other.why.starts_with("not judged"));
    }

    #[test]
    fn reads_from_the_cache_fail() {
        let verdict = |parts: &[f64]| least_from_device(parts.iter().copied()).map(|c| c.verdict);
        assert_eq!(verdict(&[1.01, 1.0]), Some(Verdict::Reported));
        assert_eq!(verdict(&[1.01, 0.4]), Some(Verdict::Fails));
        assert_eq!(verdict(&[]), None);
    }

    #[test]
    fn a_claim_on_real_disks_does_not_name_the_model() {
        let claim = Claim::own("a / b log time, 29 MB/s", Finding::Any, 1.0, "");
        assert_eq!(on_real(vec![claim])[0].what, "real disks: a / b log time");
    }
}

//! The claims about losses of data (section 3.2). None of them rests on a measurement: they evaluate closed forms, or
//! compare a simulation with the closed forms.

use super::super::claim::{Claim, Finding};
use super::super::paper::Paper;
use super::losses::{Cluster, PAPER_REPAIR_S, all_down_log10};
use super::reliability::{EXPOSURE_S, POWER_YEARS};

/// The results of the closed forms. Each field but the first is the mean time between two losses, years.
pub(super) struct Computed {
    /// The decimal logarithm of the chance that all nodes are down at once.
    all_down_log10: f64,
    /// The time for one pair that copies nothing while a node is away.
    pair: f64,
    /// The time for four pairs that copy nothing while a node is away.
    four: f64,
    /// The time for one pair whose tail is copied to a disk after a failure.
    exposed: f64,
    /// The time for the pair of `exposed`, if the writer also keeps the tail. A takeover lasts one minute.
    writer: f64,
    /// The time for the pair of `exposed`, if the writer also keeps the tail. A takeover lasts one second.
    quick_writer: f64,
    /// The time for the pairs of `four`, if they share one power supply.
    at_power: f64,
}

impl Computed {
    /// Evaluates the closed forms with the paper's times and the assumptions of the figure.
    pub fn of_paper() -> Computed {
        let pair = |exposure_s| Cluster::of_paper(1, exposure_s);
        let four = Cluster::of_paper(4, PAPER_REPAIR_S);
        Computed {
            all_down_log10: all_down_log10(),
            pair: pair(PAPER_REPAIR_S).years(),
            four: four.years(),
            exposed: pair(EXPOSURE_S).years(),
            writer: pair(EXPOSURE_S).with_writer(PAPER_REPAIR_S).years(),
            quick_writer: pair(EXPOSURE_S).with_writer(1.0).years(),
            at_power: four.with_power(POWER_YEARS[0]).years(),
        }
    }
}

/// Returns the largest factor by which a simulation and its closed form differ.
pub(super) fn farthest(of_closed: impl Iterator<Item = f64>) -> f64 {
    of_closed
        .map(|ratio| ratio.max(1.0 / ratio))
        .fold(1.0, f64::max)
}

/// Judges the closed forms, and the largest factor by which a simulation and its closed form differ.
pub(super) fn claims(farthest: f64, computed: &Computed) -> Vec<Claim> {
    let mut claims = vec![
        Claim::arithmetic(
            "all 8 nodes down at once, decimal logarithm of the chance",
            Paper::of("10^-30", -30.0),
            Finding::AtMost(-30.0),
            computed.all_down_log10,
            "(1/10080)^8 is 10^-32; the wrong event: data are lost when one pair is down",
        ),
        Claim::modelled(
            "simulation and closed form, the farthest apart",
            Paper::silent(),
            Finding::AtMost(1.05),
            farthest,
            "every cluster of the table; two computations of ours",
        ),
    ];
    claims.extend(years(computed));
    claims.push(Claim::arithmetic(
        "the power supply's part of these losses",
        Paper::silent(),
        Finding::AtLeast(0.5),
        computed.at_power / POWER_YEARS[0],
        "it decides: with 0.15 s of exposure it is nearly all, and what is left of the exposure is how much a loss takes",
    ));
    claims
}

/// Judges the times between two losses. The paper gives no times: it says that the chance of a loss can be ignored.
fn years(computed: &Computed) -> [Claim; 6] {
    let years = |what: &str, finding, years: f64, why: &str| {
        Claim::arithmetic(what, Paper::silent(), finding, years, why).in_unit(" years")
    };
    [
        years(
            "one pair, nothing copied while a node is away",
            Finding::Within(97.0, 0.5),
            computed.pair,
            "MTTF^2 / (2 MTTR): when idle never comes under load; the paper does not count this event",
        ),
        years(
            "four such pairs",
            Finding::Within(24.0, 0.5),
            computed.four,
            "any of them loses data",
        ),
        years(
            "one pair, 0.15 s of exposure, both nodes lost",
            Finding::Within(39_000.0, 500.0),
            computed.exposed,
            "the event: the second node fails within 0.15 s of the first; the writer, without a log buffer, has no tail",
        ),
        years(
            "the same, both nodes and the writer lost, takeover of 60 s",
            Finding::AtLeast(computed.exposed),
            computed.writer,
            "MTTF^3 / (E + T)^2: the writer keeps the tail; if it fails, nodes hold the only copies until the takeover has drained them",
        ),
        years(
            "the same, takeover of 1 s",
            Finding::AtLeast(computed.writer),
            computed.quick_writer,
            "",
        ),
        years(
            "four pairs at one power supply that fails every 2 years",
            Finding::AtMost(POWER_YEARS[0]),
            computed.at_power,
            "2 years are an assumption; without warning all copies of the tail are gone at once",
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::super::super::claim::Verdict;
    use super::super::super::logical::judged::{Spoiled, each_can_be_missed};
    use super::*;

    type Data = (f64, Computed);

    fn as_found() -> Data {
        (farthest([0.99, 1.02].into_iter()), Computed::of_paper())
    }

    fn judge((farthest, computed): &Data) -> Vec<Claim> {
        claims(*farthest, computed)
    }

    #[test]
    fn each_claim_can_be_missed() {
        let changes: [Spoiled<Data>; 9] = [
            ("all 8 nodes down", |data| data.1.all_down_log10 = -29.9),
            ("simulation and closed form", |data| {
                data.0 = farthest([1.0, 0.95].into_iter())
            }),
            ("one pair, nothing copied", |data| data.1.pair *= 1.01),
            ("four such pairs", |data| data.1.four = data.1.pair),
            ("one pair, 0.15 s", |data| data.1.exposed = 40_000.0),
            ("takeover of 60 s", |data| data.1.writer = 38_000.0),
            ("takeover of 1 s", |data| {
                data.1.quick_writer = data.1.exposed
            }),
            ("four pairs at one power supply", |data| {
                data.1.at_power = 2.1
            }),
            ("the power supply's part", |data| data.1.at_power = 0.9),
        ];
        each_can_be_missed(as_found, judge, &changes);
    }

    #[test]
    fn nothing_here_is_evidence() {
        let is_none =
            |claim: Claim| matches!(claim.verdict, Verdict::Modelled | Verdict::Arithmetic);
        assert!(judge(&as_found()).into_iter().all(is_none));
    }
}

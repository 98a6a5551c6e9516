//! The claims of figures 9 and 10: the gap between the logs, and how it closes as transactions become distributed.

use super::super::claim::{Better, Bounds, Claim, Finding};
use super::super::paper::Paper;
use super::super::sample::Sample;
use super::{CHEAP, VALUE};
use crate::drive::LogScheme;
use crate::num::ratio;

/// Two throughputs are nearly identical if their quotient differs from 1 by at most this.
const IDENTICAL: f64 = 0.05;
/// The smallest decrease of the quotient command log / value log that counts as the closing of a gap. A smaller one is
/// noise.
const CLOSES: f64 = 0.05;

/// Returns the share of distributed transactions, percent, if `remote_lines` of a hundred order lines are remote. An
/// order has ten lines on average.
#[must_use]
pub fn distributed_percent(remote_lines: f64) -> f64 {
    (1.0 - (1.0 - remote_lines / 100.0).powi(10)) * 100.0
}

/// Returns the one of `remote` whose share of distributed transactions is nearest to `percent`.
#[must_use]
pub fn nearest(remote: &[f64], percent: f64) -> f64 {
    let off = |lines: &&f64| (distributed_percent(**lines) - percent).abs();
    let found = remote.iter().min_by(|a, b| off(a).total_cmp(&off(b)));
    found.copied().unwrap_or(0.0)
}

/// The throughput of a scheme with a share of remote lines.
pub struct Share {
    /// The scheme.
    pub scheme: LogScheme,
    /// The number of remote lines in a hundred order lines.
    pub remote: f64,
    /// New-Orders a minute, for all rounds.
    pub tpmc: Vec<f64>,
}

/// The paper's statements about a figure.
pub struct Says {
    /// The throughput with the command log, divided by that without a log, if no transaction is distributed.
    pub command_over_none: Paper,
    /// The throughput with the command log, divided by that with the value log, if no transaction is distributed.
    pub command_over_value: Paper,
    /// A share of distributed transactions, percent, and the quotient command log / value log at this share.
    pub middle: (f64, Paper),
    /// The decrease of the quotient command log / value log, from no distributed transactions to all.
    pub closes: Paper,
    /// The paper's statement that the throughputs are identical if all transactions are distributed.
    pub identical: &'static str,
}

/// Returns the claims about the throughputs of a figure.
///
/// # Panics
/// If not every scheme has every share.
pub fn claims(shares: &[Share], says: Says) -> Vec<Claim> {
    let [command, value, none] = super::SCHEMES;
    let remote: Vec<f64> = of_scheme(shares, command)
        .map(|share| share.remote)
        .collect();
    let lines = |percent| nearest(&remote, percent);
    let over = |a, b, remote| quotient(tpmc(shares, a, remote), tpmc(shares, b, remote));
    let (first, last) = (lines(0.0), lines(100.0));
    let middle = lines(says.middle.0);
    let share = |remote| format!("{:.0} % distributed", distributed_percent(remote));
    let is_same = Bounds(Better::Neither, Finding::Within(1.0, 2.0 * IDENTICAL));
    let same = || Paper::of(says.identical, 1.0).within(IDENTICAL);
    let is_more = Bounds(Better::More, Finding::AtLeast(1.0));
    let closed = over(command, value, first)
        .into_iter()
        .zip(over(command, value, last));
    let drop = quotient(tpmc(shares, command, last), tpmc(shares, command, first));
    let at = |remote, a, b, why| {
        let what = format!("{} / {} at {}", short(a), short(b), share(remote));
        Claim::measured(&what, same(), is_same, Sample::of(over(a, b, remote)), why)
    };
    vec![
        Claim::measured(
            "command / none without distributed transactions",
            says.command_over_none,
            Bounds(Better::More, Finding::AtLeast(CHEAP)),
            Sample::of(over(command, none, first)),
            "",
        ),
        Claim::measured(
            "command / value without distributed transactions",
            says.command_over_value,
            is_more,
            Sample::of(over(command, value, first)),
            "",
        ),
        Claim::measured(
            &format!("the same at {}", share(middle)),
            says.middle.1,
            is_more,
            Sample::of(over(command, value, middle)),
            "",
        ),
        at(last, command, value, ""),
        at(last, command, none, ""),
        Claim::measured(
            &format!("command / value, without - at {}", share(last)),
            says.closes,
            Bounds(Better::More, Finding::AtLeast(CLOSES)),
            Sample::of(closed.map(|(first, last)| first - last)),
            "a gap closes only where there was one",
        ),
        Claim::measured(
            &format!("throughput at {} / without, command", share(last)),
            Paper::of("about 0.01, read from the plot", 0.01),
            Bounds(Better::Neither, Finding::AtMost(0.5)),
            Sample::of(drop),
            "the paper: it \"drops dramatically\"",
        ),
    ]
}

fn short(scheme: LogScheme) -> &'static str {
    if scheme == VALUE {
        "value"
    } else {
        scheme.name()
    }
}

fn of_scheme(shares: &[Share], scheme: LogScheme) -> impl Iterator<Item = &Share> {
    shares.iter().filter(move |share| share.scheme == scheme)
}

fn tpmc(shares: &[Share], scheme: LogScheme, remote: f64) -> &[f64] {
    let mut found = of_scheme(shares, scheme);
    let found = found.find(|share| share.remote == remote);
    &found.expect("every share is measured").tpmc
}

/// Returns the quotients of the rounds.
fn quotient(a: &[f64], b: &[f64]) -> Vec<f64> {
    a.iter().zip(b).map(|(a, b)| ratio(*a, *b)).collect()
}

#[cfg(test)]
mod tests {
    use super::super::super::claim::Verdict;
    use super::super::SCHEMES;
    use super::super::testing::expect;
    use super::super::{distributed, replicas};
    use super::*;

    const REMOTE: [f64; 4] = [0.0, 0.5, 6.7, 40.0];
    const OF_NONE: &str = "command / none without distributed transactions";
    const OF_VALUE: &str = "command / value without distributed transactions";
    const LAST_VALUE: &str = "command / value at 99 % distributed";
    const LAST_NONE: &str = "command / none at 99 % distributed";
    const CLOSED: &str = "command / value, without - at 99 % distributed";
    const DROP: &str = "throughput at 99 % distributed / without, command";

    /// Returns the throughputs at each share of remote lines. The command log has the throughputs `command`. The
    /// quotient command / value is in `value`, and the quotient command / none is in `none`.
    fn shares(command: [f64; 4], value: [f64; 4], none: [f64; 4]) -> Vec<Share> {
        let of = |scheme: LogScheme, at: usize| {
            let part = match scheme {
                VALUE => 1.0 / value[at],
                LogScheme::None => 1.0 / none[at],
                _ => 1.0,
            };
            Share {
                scheme,
                remote: REMOTE[at],
                tpmc: vec![command[at] * part; 3],
            }
        };
        let all = SCHEMES.into_iter();
        all.flat_map(|scheme| (0..4).map(move |at| of(scheme, at)))
            .collect()
    }

    const FALLING: [f64; 4] = [1e6, 4e5, 1e5, 1e4];

    #[test]
    fn the_papers_values_are_as_the_paper() {
        let nine = shares(FALLING, [1.5, 1.5, 1.4, 1.0], [0.92, 0.95, 1.0, 1.0]);
        let nine = claims(&nine, distributed::says());
        let ten = shares(FALLING, [2.0, 1.2, 1.0, 1.0], [0.97, 1.0, 1.0, 1.0]);
        let ten = claims(&ten, replicas::says());
        for (made, middle) in [
            (nine, "the same at 50 % distributed"),
            (ten, "the same at 5 % distributed"),
        ] {
            for what in [
                OF_NONE, OF_VALUE, middle, LAST_VALUE, LAST_NONE, CLOSED, DROP,
            ] {
                expect(&made, what, Verdict::AsPaper);
            }
        }
    }

    #[test]
    fn each_claim_comes_out_otherwise_with_other_data() {
        for says in [distributed::says, replicas::says] {
            let flat = [1e6; 4];
            let (middle, _) = says().middle;
            let middle = format!("the same at {middle:.0} % distributed");
            let against = shares(flat, [0.9; 4], [0.8; 4]);
            let against = claims(&against, says());
            for what in [OF_NONE, OF_VALUE, middle.as_str(), LAST_NONE, CLOSED, DROP] {
                expect(&against, what, Verdict::Fails);
            }
            let weak = claims(
                &shares([1e6, 3e5, 2e5, 1e5], [1.1, 1.01, 1.01, 0.93], [0.86; 4]),
                says(),
            );
            for what in [OF_NONE, OF_VALUE, middle.as_str(), LAST_VALUE, CLOSED, DROP] {
                expect(&weak, what, Verdict::Weaker);
            }
            let open = claims(&shares(FALLING, [1.5; 4], [1.0; 4]), says());
            expect(&open, LAST_VALUE, Verdict::Fails);
            expect(&open, CLOSED, Verdict::Fails);
        }
    }

    #[test]
    fn the_share_follows_from_ten_lines_an_order() {
        assert_eq!(distributed_percent(0.0), 0.0);
        assert!((distributed_percent(1.0) - 9.562).abs() < 1e-3);
        assert!(distributed_percent(40.0) > 99.0);
        assert_eq!(nearest(&REMOTE, 50.0), 6.7);
        assert_eq!(nearest(&REMOTE, 100.0), 40.0);
    }
}

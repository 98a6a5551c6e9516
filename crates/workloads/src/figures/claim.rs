//! A claim: a value that the paper states, our value, and the verdict that follows from the two.
//!
//! | verdict | our value |
//! |---|---|
//! | as the paper | is within the tolerance of the paper's value, 15 % if nothing else is said |
//! | stronger | is further away, on the side that speaks for the paper's idea |
//! | weaker | is further away, on the other side; the paper's finding is still there |
//! | fails | is where the paper's finding is not there |
//! | modelled | is computed by a model from measured costs |
//! | arithmetic | is computed by a formula from the paper's numbers |
//! | reported | is measured, and the paper has no value |
//!
//! Modelled and arithmetic values are no evidence, so they are never called as the paper.

use std::fmt::Write;

use serde::{Deserialize, Serialize};

use super::paper::Paper;
use super::sample::Sample;
use crate::num::rounded;

/// The verdict on a claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// The paper's finding is not there, or a bar of our own is missed.
    Fails,
    /// The paper's finding is there, but our value supports it less than the paper's value does.
    Weaker,
    /// The paper has no value.
    Reported,
    /// A formula from the paper's numbers.
    Arithmetic,
    /// A model from measured costs.
    Modelled,
    /// Our value is the paper's, within the tolerance.
    AsPaper,
    /// Our value speaks more for the paper's idea than the paper's value.
    Stronger,
}

impl Verdict {
    /// All verdicts, worst first.
    pub const ALL: [Verdict; 7] = [
        Verdict::Fails,
        Verdict::Weaker,
        Verdict::Reported,
        Verdict::Arithmetic,
        Verdict::Modelled,
        Verdict::AsPaper,
        Verdict::Stronger,
    ];

    /// Returns the name of the verdict in tables.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Verdict::Fails => "FAILS",
            Verdict::Weaker => "weaker",
            Verdict::Reported => "reported",
            Verdict::Arithmetic => "arithmetic",
            Verdict::Modelled => "modelled",
            Verdict::AsPaper => "as the paper",
            Verdict::Stronger => "stronger",
        }
    }
}

/// The side of the paper's value that speaks for the paper's idea.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Better {
    /// Larger values.
    More,
    /// Smaller values.
    Less,
    /// Neither: any distance from the paper's value is a weakness.
    Neither,
}

/// The origin of our value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Origin {
    /// A measurement of running code.
    Measured,
    /// A model that computes with measured costs.
    Modelled,
    /// A formula that computes with the paper's numbers.
    Arithmetic,
}

/// The bound beyond which the paper's finding, or a property that we require, is no longer there.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Finding {
    /// The value must be at least this.
    AtLeast(f64),
    /// The value must be at most this.
    AtMost(f64),
    /// The value may differ from the first number by at most the second.
    Within(f64, f64),
    /// No bound.
    Any,
}

impl Finding {
    /// Returns whether the finding is there.
    fn holds(self, value: f64) -> bool {
        match self {
            Finding::AtLeast(least) => value >= least,
            Finding::AtMost(most) => value <= most,
            Finding::Within(centre, by) => (value - centre).abs() <= by,
            Finding::Any => value.is_finite(),
        }
    }

    fn text(self) -> String {
        match self {
            Finding::AtLeast(least) => format!(">= {}", rounded(least)),
            Finding::AtMost(most) => format!("<= {}", rounded(most)),
            Finding::Within(centre, by) => format!("{} +- {}", rounded(centre), rounded(by)),
            Finding::Any => "-".into(),
        }
    }
}

/// The side that speaks for the paper's idea, and the bound of the finding.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Bounds(pub Better, pub Finding);

/// A claim and its verdict.
#[derive(Debug, Clone, Serialize)]
pub struct Claim {
    /// The quantity.
    pub what: String,
    /// The paper's value.
    pub paper: Paper,
    /// The side of the paper's value that speaks for the paper's idea.
    pub better: Better,
    /// The bound of the finding, in words.
    pub finding: String,
    /// Our value.
    pub ours: Sample,
    /// The unit of both values. Empty: a ratio.
    pub unit: &'static str,
    /// The origin of our value.
    pub origin: Origin,
    /// The distance of our value from the paper's, as a part of the paper's value. `None`: the paper has no value, or
    /// its value is zero.
    pub off: Option<f64>,
    /// The verdict.
    pub verdict: Verdict,
    /// The reason for the verdict, and the differences from the paper's setting.
    pub why: String,
}

impl Claim {
    /// Returns a claim about a measured value.
    #[must_use]
    pub fn measured(
        what: &str,
        paper: Paper,
        bounds: Bounds,
        ours: impl Into<Sample>,
        why: &str,
    ) -> Claim {
        Claim::judged(Origin::Measured, what, paper, bounds, ours.into()).because(why)
    }

    /// Returns a claim about a value that a model computes from measured costs.
    #[must_use]
    pub fn modelled(
        what: &str,
        paper: Paper,
        finding: Finding,
        ours: impl Into<Sample>,
        why: &str,
    ) -> Claim {
        let bounds = Bounds(Better::Neither, finding);
        Claim::judged(Origin::Modelled, what, paper, bounds, ours.into()).because(why)
    }

    /// Returns a claim about a value that a formula computes from the paper's numbers.
    #[must_use]
    pub fn arithmetic(what: &str, paper: Paper, finding: Finding, ours: f64, why: &str) -> Claim {
        let bounds = Bounds(Better::Neither, finding);
        Claim::judged(Origin::Arithmetic, what, paper, bounds, ours.into()).because(why)
    }

    /// Returns a claim about a measured value that the paper does not have. The claim fails if the value misses
    /// `finding`.
    #[must_use]
    pub fn own(what: &str, finding: Finding, ours: impl Into<Sample>, why: &str) -> Claim {
        let bounds = Bounds(Better::Neither, finding);
        Claim::judged(Origin::Measured, what, Paper::silent(), bounds, ours.into()).because(why)
    }

    fn judged(origin: Origin, what: &str, paper: Paper, bounds: Bounds, ours: Sample) -> Claim {
        let Bounds(better, finding) = bounds;
        Claim {
            what: what.into(),
            better,
            finding: finding.text(),
            unit: "",
            origin,
            off: paper.off(ours.median),
            verdict: judge(&paper, bounds, origin, ours.median),
            paper,
            ours,
            why: String::new(),
        }
    }

    fn because(self, why: &str) -> Claim {
        Claim {
            why: why.into(),
            ..self
        }
    }

    /// Sets the unit of both values.
    #[must_use]
    pub fn in_unit(self, unit: &'static str) -> Claim {
        Claim { unit, ..self }
    }

    /// Returns the verdict in words, with the distance from the paper's value if that is beyond the tolerance.
    #[must_use]
    pub fn verdict_text(&self) -> String {
        let name = self.verdict.name();
        match (self.verdict, self.off) {
            (Verdict::AsPaper | Verdict::Reported, _) | (_, None) => name.to_owned(),
            (_, Some(off)) => format!("{name} ({:+.0} %)", off * 100.0),
        }
    }
}

/// Returns the verdict on a value.
fn judge(paper: &Paper, bounds: Bounds, origin: Origin, ours: f64) -> Verdict {
    let Bounds(better, finding) = bounds;
    let is_above = match paper.beyond(ours) {
        _ if !finding.holds(ours) => return Verdict::Fails,
        _ if origin == Origin::Modelled => return Verdict::Modelled,
        _ if origin == Origin::Arithmetic => return Verdict::Arithmetic,
        None => return Verdict::Reported,
        Some(0.0) => return Verdict::AsPaper,
        Some(beyond) => beyond > 0.0,
    };
    match (better, is_above) {
        (Better::More, true) | (Better::Less, false) => Verdict::Stronger,
        (Better::More, false) | (Better::Less, true) | (Better::Neither, _) => Verdict::Weaker,
    }
}

/// Returns the claims as a table for a terminal.
#[must_use]
pub fn table(claims: &[Claim]) -> String {
    let head = ["claim", "paper", "required", "ours", "verdict"];
    let rows: Vec<[String; 5]> = claims
        .iter()
        .map(|claim| {
            [
                claim.what.clone(),
                claim.paper.words.clone(),
                claim.finding.clone(),
                claim.ours.text(claim.unit),
                claim.verdict_text(),
            ]
        })
        .collect();
    let mut widths = head.map(|name| name.chars().count());
    for row in &rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let mut out = String::new();
    let line = |cells: [&str; 5]| {
        let padded: Vec<String> = cells
            .iter()
            .zip(widths)
            .map(|(cell, width)| format!("{cell:<width$}"))
            .collect();
        format!("{}\n", padded.join("  ").trim_end())
    };
    out += &line(head);
    for (row, claim) in rows.iter().zip(claims) {
        out += &line(std::array::from_fn(|column| row[column].as_str()));
        if !claim.why.is_empty() {
            let _ = writeln!(out, "    {}", claim.why);
        }
    }
    out + &counted(claims)
}

/// Returns a line with the number of claims of each verdict.
#[must_use]
pub fn counted(claims: &[Claim]) -> String {
    let count = |verdict: &Verdict| claims.iter().filter(|c| c.verdict == *verdict).count();
    let counts = Verdict::ALL
        .iter()
        .rev()
        .map(|verdict| (verdict, count(verdict)));
    let words: Vec<String> = counts
        .filter(|(_, count)| *count > 0)
        .map(|(verdict, count)| format!("{count} {}", verdict.name()))
        .collect();
    format!("{}\n", words.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(paper: Paper, bounds: Bounds, ours: f64) -> Verdict {
        Claim::measured("w", paper, bounds, ours, "").verdict
    }

    #[test]
    fn verdicts_follow_from_the_papers_value_and_the_finding() {
        let six = || Paper::of("about 6", 6.0);
        let more = Bounds(Better::More, Finding::AtLeast(1.0));
        assert_eq!(verdict(six(), more, 5.2), Verdict::AsPaper);
        assert_eq!(verdict(six(), more, 5.0), Verdict::Weaker);
        assert_eq!(verdict(six(), more, 1.91), Verdict::Weaker);
        assert_eq!(verdict(six(), more, 7.0), Verdict::Stronger);
        assert_eq!(verdict(six(), more, 0.99), Verdict::Fails);
        let less = Bounds(Better::Less, Finding::AtMost(1.0));
        let half = || Paper::of("0.51", 0.51);
        assert_eq!(verdict(half(), less, 0.3), Verdict::Stronger);
        assert_eq!(verdict(half(), less, 0.6), Verdict::Weaker);
        assert_eq!(verdict(half(), less, 1.1), Verdict::Fails);
        let neither = Bounds(Better::Neither, Finding::Any);
        assert_eq!(verdict(half(), neither, 0.3), Verdict::Weaker);
        assert_eq!(verdict(half(), neither, f64::NAN), Verdict::Fails);
        assert_eq!(verdict(Paper::silent(), neither, 7.0), Verdict::Reported);
    }

    #[test]
    fn what_is_not_measured_is_never_as_the_paper() {
        let paper = || Paper::of("2", 2.0);
        let modelled = Claim::modelled("w", paper(), Finding::AtLeast(1.0), 2.0, "");
        assert_eq!(modelled.verdict, Verdict::Modelled);
        let formula = Claim::arithmetic("w", paper(), Finding::AtLeast(1.0), 2.0, "");
        assert_eq!(formula.verdict, Verdict::Arithmetic);
        let wrong = Claim::modelled("w", paper(), Finding::AtLeast(1.0), 0.5, "");
        assert_eq!(wrong.verdict, Verdict::Fails);
        let own = Claim::own("w", Finding::AtMost(1.0), 2.0, "");
        assert_eq!(own.verdict, Verdict::Fails);
    }

    #[test]
    fn a_table_says_how_close_and_counts() {
        let six = Paper::of("about 6", 6.0);
        let ours = Sample::of([1.5, 1.6, 1.4]);
        let claim = Claim::measured(
            "w",
            six,
            Bounds(Better::More, Finding::AtLeast(1.0)),
            ours,
            "",
        );
        let text = table(&[claim]);
        assert!(
            text.contains("weaker (-75 %)") && text.contains("1.5 (1.4 to 1.6)"),
            "{text}"
        );
        assert!(text.ends_with("1 weaker\n"), "{text}");
    }
}

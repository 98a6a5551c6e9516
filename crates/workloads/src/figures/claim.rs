//! A claim: the paper's statement, the target for this code, the result, and the verdict.

use std::fmt::Write;

use serde::Serialize;

use crate::num::rounded;

/// The verdict on a claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// The claim was measured and holds.
    Holds,
    /// The claim was measured and does not hold.
    Fails,
    /// The claim was computed by the schedule model from measured costs, and holds in the model.
    HoldsModelled,
    /// The claim was computed by the schedule model, and does not hold in the model.
    FailsModelled,
    /// The result has no target and is only reported.
    Reported,
}

impl Verdict {
    /// Returns the name of the verdict in tables.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Verdict::Holds => "holds",
            Verdict::Fails => "FAILS",
            Verdict::HoldsModelled => "holds (modelled)",
            Verdict::FailsModelled => "FAILS (modelled)",
            Verdict::Reported => "reported",
        }
    }
}

/// The target for a result.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Target {
    /// The result must be at least this.
    AtLeast(f64),
    /// The result must be at most this.
    AtMost(f64),
    /// The result may differ from the first number by at most the second.
    Within(f64, f64),
    /// No target: the result is reported.
    None,
}

/// A claim and its verdict.
#[derive(Debug, Clone, Serialize)]
pub struct Claim {
    /// The measured quantity.
    pub what: String,
    /// The paper's statement about it.
    pub paper: String,
    /// The target for this code.
    pub target: String,
    /// The result.
    pub ours: f64,
    /// The unit of `ours`. Empty: a ratio.
    pub unit: &'static str,
    /// The verdict.
    pub verdict: Verdict,
    /// The reason for the verdict, and the differences from the paper's setting.
    pub why: String,
}

impl Claim {
    /// Returns a claim about a measured ratio.
    #[must_use]
    pub fn measured(what: &str, paper: &str, target: Target, ours: f64, why: &str) -> Claim {
        let holds = match target {
            Target::AtLeast(least) => ours >= least,
            Target::AtMost(most) => ours <= most,
            Target::Within(centre, by) => (ours - centre).abs() <= by,
            Target::None => true,
        };
        let verdict = match (target, holds) {
            (Target::None, _) => Verdict::Reported,
            (_, true) => Verdict::Holds,
            (_, false) => Verdict::Fails,
        };
        Claim {
            what: what.into(),
            paper: paper.into(),
            target: match target {
                Target::AtLeast(least) => format!(">= {}", rounded(least)),
                Target::AtMost(most) => format!("<= {}", rounded(most)),
                Target::Within(centre, by) => {
                    format!("{} +- {}", rounded(centre), rounded(by))
                }
                Target::None => "-".into(),
            },
            ours: rounded(ours),
            unit: "",
            verdict,
            why: why.into(),
        }
    }

    /// Returns a measured ratio without a target.
    #[must_use]
    pub fn reported(what: &str, paper: &str, ours: f64, why: &str) -> Claim {
        Claim::measured(what, paper, Target::None, ours, why)
    }

    /// Marks the claim as computed by the schedule model.
    #[must_use]
    pub fn modelled(self) -> Claim {
        let verdict = match self.verdict {
            Verdict::Holds => Verdict::HoldsModelled,
            Verdict::Fails => Verdict::FailsModelled,
            same => same,
        };
        Claim { verdict, ..self }
    }

    /// Sets the unit of the result.
    #[must_use]
    pub fn in_unit(self, unit: &'static str) -> Claim {
        Claim { unit, ..self }
    }
}

/// Returns the claims as a table for a terminal.
#[must_use]
pub fn table(claims: &[Claim]) -> String {
    let head = ["claim", "paper", "asked", "ours", "verdict"];
    let rows: Vec<[String; 5]> = claims
        .iter()
        .map(|claim| {
            [
                claim.what.clone(),
                claim.paper.clone(),
                claim.target.clone(),
                format!("{}{}", claim.ours, claim.unit),
                claim.verdict.name().to_owned(),
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
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verdicts_follow_from_targets() {
        let claim = |target, ours| Claim::measured("w", "p", target, ours, "").verdict;
        assert_eq!(claim(Target::AtLeast(1.9), 1.95), Verdict::Holds);
        assert_eq!(claim(Target::AtLeast(1.9), 1.85), Verdict::Fails);
        assert_eq!(claim(Target::AtMost(0.53), 0.515), Verdict::Holds);
        assert_eq!(claim(Target::Within(1.08, 0.03), 1.051), Verdict::Holds);
        assert_eq!(claim(Target::Within(1.08, 0.03), 1.12), Verdict::Fails);
        assert_eq!(claim(Target::None, 7.0), Verdict::Reported);
        let modelled = Claim::measured("w", "p", Target::AtLeast(2.0), 1.0, "").modelled();
        assert_eq!(modelled.verdict, Verdict::FailsModelled);
        let text = table(&[modelled]);
        assert!(text.contains("FAILS (modelled)") && text.contains(">= 2"));
    }
}

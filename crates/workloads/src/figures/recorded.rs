//! Comparing the verdicts of a figure with those of an earlier run.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use serde::Deserialize;

use super::claim::{Claim, Verdict};
use super::figure::Figure;

/// The verdicts in a figure's JSON file.
#[derive(Deserialize)]
struct Recorded {
    scale: String,
    claims: Vec<RecordedClaim>,
}

#[derive(Deserialize)]
struct RecordedClaim {
    what: String,
    verdict: Verdict,
}

/// Compares the verdicts of `figure` with those in the figure's JSON file in `folder`. Returns a line for each worse
/// verdict, and for each claim that only `figure` or only the file has.
///
/// # Errors
/// The file cannot be read, or it is not from a figure of this scale.
pub fn worse(figure: &Figure, folder: &Path) -> Result<Vec<String>> {
    let path = folder.join(format!("{}.json", figure.name));
    let text = fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
    let recorded: Recorded = serde_json::from_str(&text)
        .with_context(|| format!("{} is not the file of a figure", path.display()))?;
    anyhow::ensure!(
        recorded.scale == figure.scale,
        "{} is of {} scale, and this figure is of {} scale",
        path.display(),
        recorded.scale,
        figure.scale
    );
    Ok(compare(figure.name, &recorded.claims, &figure.claims))
}

fn compare(name: &str, recorded: &[RecordedClaim], claims: &[Claim]) -> Vec<String> {
    let mut before: BTreeMap<&str, Verdict> = BTreeMap::new();
    for claim in recorded {
        before.insert(&claim.what, claim.verdict);
    }
    let mut lines = Vec::new();
    for claim in claims {
        match before.remove(claim.what.as_str()) {
            Some(verdict) if claim.verdict < verdict => lines.push(format!(
                "{name}: {}: {} is worse than the recorded {}",
                claim.what,
                claim.verdict_text(),
                verdict.name()
            )),
            Some(_) => {}
            None => lines.push(format!("{name}: {}: no verdict is recorded", claim.what)),
        }
    }
    let missing = before.keys();
    lines.extend(missing.map(|what| format!("{name}: {what}: recorded, and no longer claimed")));
    lines
}

#[cfg(test)]
mod tests {
    use super::super::claim::{Better, Bounds, Finding};
    use super::super::paper::Paper;
    use super::*;

    #[test]
    fn a_worse_verdict_a_new_and_a_missing_claim_are_reported() {
        let claim = |what: &str, ours: f64| {
            let bounds = Bounds(Better::More, Finding::AtLeast(1.0));
            Claim::measured(what, Paper::of("2", 2.0), bounds, ours, "")
        };
        let recorded = |what: &str, verdict| RecordedClaim {
            what: what.into(),
            verdict,
        };
        let before = [
            recorded("same", Verdict::AsPaper),
            recorded("better", Verdict::Fails),
            recorded("worse", Verdict::AsPaper),
            recorded("gone", Verdict::AsPaper),
        ];
        let now = [
            claim("same", 2.1),
            claim("better", 1.5),
            claim("worse", 1.5),
            claim("new", 2.0),
        ];
        let lines = compare("000-x", &before, &now);
        assert_eq!(lines.len(), 3, "{lines:?}");
        assert!(lines[0].contains("worse: weaker (-25 %) is worse than the recorded as the paper"));
        assert!(lines[1].contains("new: no verdict") && lines[2].contains("gone: recorded"));
    }
}

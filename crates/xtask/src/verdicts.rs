//! Writes the page with all verdicts on the papers' figures.
//!
//! `perdura reproduce all --out docs/papers` writes a JSON file for each figure. `docs/papers/results.md` is made of these
//! files. `cargo xtask tidy` fails if the page is not up to date, and `cargo xtask record` writes it.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use serde_json::Value;

/// The folder with the files of the figures.
const FOLDER: &str = "docs/papers";
/// The page.
const PAGE: &str = "docs/papers/results.md";

/// The papers by the first characters of their figures' names.
const PAPERS: [(&str, &str); 5] = [
    ("000", "Differential logging"),
    ("001", "Rethinking main memory OLTP recovery"),
    ("002", "Logical recovery"),
    ("003", "A redo log in memory"),
    ("004", "Single-pass restore"),
];

/// The verdicts in the order of the page: the name in the files, and the name for people.
const VERDICTS: [(&str, &str); 7] = [
    ("stronger", "stronger"),
    ("as-paper", "as the paper"),
    ("weaker", "weaker"),
    ("fails", "**fails**"),
    ("modelled", "modelled"),
    ("arithmetic", "arithmetic"),
    ("reported", "reported"),
];

const HEAD: &str = "# Results of the papers' figures

This page has a verdict on each claim of five papers. `perdura reproduce all --out docs/papers` measures them, and
`cargo xtask record` makes this page of its files. [Reproducing the papers' figures](../reproduce.md) describes the
experiments.

| verdict | meaning |
|---|---|
| as the paper | our value is within 15 % of the paper's, or within the tolerance that the claim names |
| stronger, weaker | our value is further away, and speaks more or less for the paper's idea |
| fails | the paper's finding is not there, or a bar of our own is missed |
| modelled | a model computed the value from measured costs |
| arithmetic | a formula computed the value from the paper's numbers |
| reported | the paper has no value |
";

/// Returns a fault if the page is not up to date.
///
/// # Errors
/// A file cannot be read.
pub fn check(root: &Path) -> Result<Vec<String>> {
    let recorded = fs::read_to_string(root.join(PAGE)).unwrap_or_default();
    Ok(match recorded == page(&figures(root)?)? {
        true => Vec::new(),
        false => vec![format!(
            "{PAGE} is stale; `cargo xtask record` writes it, and its diff is to be read"
        )],
    })
}

/// Writes the page.
///
/// # Errors
/// A file cannot be read or written.
pub fn record(root: &Path) -> Result<()> {
    fs::write(root.join(PAGE), page(&figures(root)?)?).context(PAGE)
}

/// Reads the files of all figures, by name.
fn figures(root: &Path) -> Result<BTreeMap<String, Value>> {
    let mut figures = BTreeMap::new();
    for entry in fs::read_dir(root.join(FOLDER)).context(FOLDER)? {
        let path = entry?.path();
        if path.extension().is_some_and(|ending| ending == "json") {
            let name = path.display().to_string();
            let text = fs::read_to_string(&path).with_context(|| name.clone())?;
            let figure: Value = serde_json::from_str(&text).with_context(|| name.clone())?;
            let own = figure["name"].as_str().context(name)?.to_owned();
            figures.insert(own, figure);
        }
    }
    Ok(figures)
}

fn page(figures: &BTreeMap<String, Value>) -> Result<String> {
    let mut out = String::from(HEAD);
    out += "\n## All verdicts\n\n| paper |";
    VERDICTS.iter().for_each(|(_, name)| {
        let _ = write!(out, " {} |", name.trim_matches('*'));
    });
    let _ = writeln!(out, "\n|---|{}", "---:|".repeat(VERDICTS.len()));
    for (paper, title) in PAPERS {
        let of_paper = figures.iter().filter(|(name, _)| name.starts_with(paper));
        let claims: Vec<&Value> = of_paper.flat_map(|(_, figure)| claims(figure)).collect();
        let _ = write!(out, "| {paper} {title} |");
        for (verdict, _) in VERDICTS {
            let count = claims
                .iter()
                .filter(|claim| claim["verdict"] == verdict)
                .count();
            let _ = write!(out, " {count} |");
        }
        out.push('\n');
    }
    for (paper, title) in PAPERS {
        let _ = writeln!(out, "\n## Paper {paper}: {title}");
        for (_, figure) in figures.iter().filter(|(name, _)| name.starts_with(paper)) {
            write_figure(figure, &mut out)?;
        }
    }
    Ok(out)
}

fn claims(figure: &Value) -> impl Iterator<Item = &Value> {
    figure["claims"].as_array().into_iter().flatten()
}

fn write_figure(figure: &Value, out: &mut String) -> Result<()> {
    let text = |name: &str| figure[name].as_str().context("a figure's text");
    let name = text("name")?;
    let _ = writeln!(
        out,
        "\n### {name}: {}\n\n![{name}]({name}.svg)\n\n`perdura reproduce {name} --scale {}`, seed {}.\n",
        text("title")?,
        text("scale")?,
        figure["seed"]
    );
    *out += "| claim | the paper | required | here | verdict |\n|---|---|---|---|---|\n";
    let mut reasons = Vec::new();
    for claim in claims(figure) {
        let text = |name: &str| claim[name].as_str().context("a claim's text");
        let (what, verdict) = (text("what")?, text("verdict")?);
        let paper = claim["paper"]["words"]
            .as_str()
            .context("a paper's words")?;
        let _ = writeln!(
            out,
            "| {} | {} | {} | {} | {} |",
            cell(what),
            cell(paper),
            cell(text("finding")?),
            ours(claim, text("unit")?),
            verdict_of(verdict, &claim["off"])
        );
        let why = text("why")?;
        if ["weaker", "fails"].contains(&verdict) && !why.is_empty() {
            reasons.push(format!("* **{}**. {}.", cell(what), capital(why)));
        }
    }
    if !reasons.is_empty() {
        let _ = writeln!(out, "\n{}", reasons.join("\n"));
    }
    Ok(())
}

/// Returns a text as a cell of a table.
fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace('<', "&lt;")
}

/// Returns a text with a capital first letter and without a full stop at its end.
fn capital(text: &str) -> String {
    let mut rest = text.trim_end_matches('.').chars();
    let first = rest.next().into_iter().flat_map(char::to_uppercase);
    first.chain(rest).collect()
}

/// Returns our value, with its spread if there were several runs.
fn ours(claim: &Value, unit: &str) -> String {
    let ours = &claim["ours"];
    let number = |name: &str| rounded(ours[name].as_f64().unwrap_or(0.0));
    if ours["runs"].as_u64().unwrap_or(0) > 1 {
        return format!(
            "{}{unit} ({} to {})",
            number("median"),
            number("low"),
            number("high")
        );
    }
    format!("{}{unit}", number("median"))
}

/// Rounds to four significant digits.
fn rounded(value: f64) -> f64 {
    if value == 0.0 || !value.is_finite() {
        return 0.0;
    }
    let scale = 10f64.powf(3.0 - value.abs().log10().floor());
    (value * scale).round() / scale
}

/// Returns a verdict for people, with the distance from the paper's value unless that is within the tolerance.
fn verdict_of(verdict: &str, off: &Value) -> String {
    let known = VERDICTS.iter().find(|(name, _)| *name == verdict);
    let name = known.map_or(verdict, |(_, name)| name);
    match off.as_f64() {
        Some(off) if !["as-paper", "reported"].contains(&verdict) => {
            format!("{name} ({:+.0} %)", off * 100.0)
        }
        _ => name.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_has_each_figure_and_counts_the_verdicts() {
        let figure = serde_json::json!({
            "name": "000-x", "title": "a title", "scale": "small", "seed": 1,
            "claims": [{
                "what": "a / b", "paper": {"words": "about 6"}, "finding": ">= 1", "unit": "",
                "ours": {"median": 1.91, "low": 1.9, "high": 1.92, "runs": 3},
                "off": -0.6817, "verdict": "weaker", "why": "the CPU is faster"
            }],
        });
        let figures = BTreeMap::from([("000-x".to_owned(), figure)]);
        let page = page(&figures).unwrap();
        assert!(
            page.contains("| 000 Differential logging | 0 | 0 | 1 | 0 | 0 | 0 | 0 |"),
            "{page}"
        );
        let row = "| a / b | about 6 | >= 1 | 1.91 (1.9 to 1.92) | weaker (-68 %) |";
        assert!(
            page.contains(row) && page.contains("* **a / b**. The CPU is faster."),
            "{page}"
        );
    }
}

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

/// The papers by the first characters of their figures' names, and what they claim.
const PAPERS: [(&str, &str); 5] = [
    (
        "000",
        "A log of XOR differences is half as long as a physical log. Its records may be played in any order, so several \
         processors play them at once.",
    ),
    (
        "001",
        "If the log has procedure calls and not changed rows, transactions are up to 1.5 times as fast. A restart takes \
         longer.",
    ),
    (
        "002",
        "Redo by keys instead of page numbers is as fast as ARIES in SQL Server, if a table of dirty pages and reading \
         ahead help it.",
    ),
    (
        "003",
        "A redo log in the memory of mirrored nodes makes transactions 6 to 12 % faster than a log on disk.",
    ),
    (
        "004",
        "A log archive that is sorted by page restores a lost device in one pass, in the time that copying the backup \
         takes.",
    ),
];

/// The verdicts in the files, in the order of the page.
const VERDICTS: [&str; 7] = [
    "stronger",
    "as-paper",
    "weaker",
    "fails",
    "modelled",
    "arithmetic",
    "reported",
];

const HEAD: &str = "# Results of the papers' figures

This page has a verdict on each claim of five papers. `perdura reproduce all --out docs/papers` measures them, and
`cargo xtask record` makes this page of its files. [Reproducing the papers' figures](../reproduce.md) describes the
experiments.

A hollow mark in a picture is a point of the paper, and the legend names its place in the paper. The papers are at hand
as text only, so these are values that the text, a table or an axis states. Where a paper states only a ratio, the mark is
that ratio times our own value.

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
    out += "\n## All verdicts\n\n";
    write_counts(figures, &mut out)?;
    for (paper, claimed) in PAPERS {
        let mut of_paper = figures.iter().filter(|(name, _)| name.starts_with(paper));
        let Some((_, first)) = of_paper.clone().next() else {
            continue;
        };
        let name = string(first, "paper")?;
        let _ = writeln!(
            out,
            "\n## Paper {paper}\n\n{name}.\n\n*The claim:* {claimed}"
        );
        of_paper.try_for_each(|(_, figure)| write_figure(figure, &mut out))?;
    }
    Ok(out)
}

/// Writes a table with the number of claims of each verdict, by paper.
fn write_counts(figures: &BTreeMap<String, Value>, out: &mut String) -> Result<()> {
    let all: Vec<&Value> = figures.values().flat_map(claims).collect();
    let mut names = Vec::new();
    for verdict in VERDICTS {
        let claim = all.iter().find(|claim| claim["verdict"] == verdict);
        if let Some(claim) = claim {
            names.push((verdict, string(claim, "verdict_name")?));
        }
    }
    let titles: Vec<&str> = names.iter().map(|(_, name)| *name).collect();
    let _ = writeln!(
        out,
        "| paper | {} |\n|---|{}",
        titles.join(" | "),
        "---:|".repeat(names.len())
    );
    for (paper, _) in PAPERS {
        let of_paper: Vec<&Value> = figures
            .iter()
            .filter(|(name, _)| name.starts_with(paper))
            .map(|(_, figure)| figure)
            .collect();
        let Some(first) = of_paper.first() else {
            continue;
        };
        let claims: Vec<&Value> = of_paper.iter().flat_map(|figure| claims(figure)).collect();
        let count = |verdict| {
            claims
                .iter()
                .filter(|claim| claim["verdict"] == verdict)
                .count()
        };
        let counts: Vec<String> = names
            .iter()
            .map(|(verdict, _)| count(*verdict).to_string())
            .collect();
        let _ = writeln!(
            out,
            "| {paper} {} | {} |",
            string(first, "paper")?,
            counts.join(" | ")
        );
    }
    Ok(())
}

/// Returns a text of a figure or of a claim.
fn string<'a>(of: &'a Value, name: &str) -> Result<&'a str> {
    let text = of[name].as_str();
    text.with_context(|| format!("a figure's file has no {name}; measure the figure again"))
}

fn claims(figure: &Value) -> impl Iterator<Item = &Value> {
    figure["claims"].as_array().into_iter().flatten()
}

fn write_figure(figure: &Value, out: &mut String) -> Result<()> {
    let name = string(figure, "name")?;
    let _ = writeln!(
        out,
        "\n### {name}: {}\n\n![{name}]({name}.svg)\n\n`perdura reproduce {name} --scale {}`, seed {}: {}.\n",
        string(figure, "title")?,
        string(figure, "scale")?,
        figure["seed"],
        counted(figure)?
    );
    *out += "| claim | the paper | required | here | verdict |\n|---|---|---|---|---|\n";
    let mut reasons = Vec::new();
    for claim in claims(figure) {
        let (what, verdict) = (string(claim, "what")?, string(claim, "verdict")?);
        let told = string(claim, "verdict_text")?;
        let _ = writeln!(
            out,
            "| {} | {} | {} | {} | {} |",
            cell(what),
            cell(string(&claim["paper"], "words")?),
            cell(string(claim, "finding")?),
            cell(string(claim, "ours_text")?),
            match verdict {
                "fails" => format!("**{told}**"),
                _ => told.to_owned(),
            }
        );
        let why = string(claim, "why")?;
        if ["weaker", "fails"].contains(&verdict) && !why.is_empty() {
            reasons.push(format!("* **{}**. {}.", cell(what), capital(why)));
        }
    }
    if !reasons.is_empty() {
        let _ = writeln!(out, "\n{}", reasons.join("\n"));
    }
    Ok(())
}

/// Returns the number of a figure's claims with each verdict, in words.
fn counted(figure: &Value) -> Result<String> {
    let mut words = Vec::new();
    for verdict in VERDICTS {
        let with: Vec<&Value> = claims(figure)
            .filter(|claim| claim["verdict"] == verdict)
            .collect();
        if let Some(first) = with.first() {
            words.push(format!("{} {}", with.len(), string(first, "verdict_name")?));
        }
    }
    Ok(words.join(", "))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_has_each_figure_and_counts_the_verdicts() {
        let figure = serde_json::json!({
            "name": "000-x", "title": "a title", "scale": "small", "seed": 1, "paper": "Lee: Logs",
            "claims": [{
                "what": "a / b", "paper": {"words": "about 6"}, "finding": ">= 1", "unit": "",
                "ours_text": "1.91 (1.9 to 1.92)", "verdict": "weaker", "verdict_name": "weaker",
                "verdict_text": "weaker (-68 %)", "why": "the CPU is faster"
            }],
        });
        let figures = BTreeMap::from([("000-x".to_owned(), figure)]);
        let page = page(&figures).unwrap();
        assert!(
            page.contains("| paper | weaker |\n|---|---:|\n| 000 Lee: Logs | 1 |\n"),
            "{page}"
        );
        assert!(
            page.contains("Lee: Logs.") && page.contains("seed 1: 1 weaker."),
            "{page}"
        );
        let row = "| a / b | about 6 | >= 1 | 1.91 (1.9 to 1.92) | weaker (-68 %) |";
        assert!(
            page.contains(row) && page.contains("* **a / b**. The CPU is faster."),
            "{page}"
        );
    }
}

//! The JSON file of a figure: its measurements, its texts for people, its plot, and the paper's points.
//!
//! The file has all that a picture and a page need. So both can be made again without a measurement.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::claim::Claim;
use super::figure::Figure;
use super::plot::Plot;
use super::points::{self, Points};
use super::stated;

/// A claim with its texts for people.
#[derive(Serialize)]
struct Told<'a> {
    #[serde(flatten)]
    claim: &'a Claim,
    /// Our value, with its spread.
    ours_text: String,
    /// The name of the verdict.
    verdict_name: &'static str,
    /// The verdict, with the distance from the paper's value.
    verdict_text: String,
}

/// The contents of the file.
#[derive(Serialize)]
pub struct File<'a> {
    name: &'a str,
    title: &'a str,
    scale: &'a str,
    seed: u64,
    setting: &'a [String],
    /// The names of the columns.
    columns: Vec<&'a str>,
    rows: &'a [Vec<Value>],
    claims: Vec<Told<'a>>,
    plot: &'a Plot,
    #[serde(flatten)]
    given: Given,
}

/// The part that follows from the paper and from our plot. It is the end of the file.
#[derive(Serialize)]
struct Given {
    /// The paper.
    paper: &'static str,
    /// The paper's points.
    points: Vec<Points>,
}

impl Given {
    fn of(figure: &str, plot: &Plot) -> Given {
        Given {
            paper: stated::citation(figure),
            points: points::of(figure, plot),
        }
    }

    fn svg(&self, plot: &Plot) -> String {
        plot.svg(self.paper, &self.points)
    }
}

impl<'a> File<'a> {
    /// Returns the file of a figure.
    #[must_use]
    pub fn of(figure: &'a Figure) -> File<'a> {
        let told = |claim: &'a Claim| Told {
            claim,
            ours_text: claim.ours.text(claim.unit),
            verdict_name: claim.verdict.name(),
            verdict_text: claim.verdict_text(),
        };
        File {
            name: figure.name,
            title: &figure.title,
            scale: figure.scale,
            seed: figure.seed,
            setting: &figure.setting,
            columns: figure.columns.split(',').collect(),
            rows: &figure.rows,
            claims: figure.claims.iter().map(told).collect(),
            plot: &figure.plot,
            given: Given::of(figure.name, &figure.plot),
        }
    }

    /// Returns the picture.
    #[must_use]
    pub fn svg(&self) -> String {
        self.given.svg(self.plot)
    }
}

/// The part of a recorded file from which its picture is drawn.
#[derive(Deserialize)]
struct Drawn {
    name: String,
    plot: Plot,
}

/// The text before the part that follows from the paper and from our plot.
const GIVEN: &str = ",\n  \"paper\": \"";

/// Returns a recorded file with the paper's points of this program, and its picture. Nothing else in the file changes.
///
/// # Errors
/// The text is not the file of a figure.
fn again(json: &str) -> Result<(String, String)> {
    let drawn: Drawn = serde_json::from_str(json).context("not the file of a figure")?;
    let given = Given::of(&drawn.name, &drawn.plot);
    // The words may occur in a text before, but nothing that is below the top level has this indentation.
    let (kept, _) = json
        .rsplit_once(GIVEN)
        .context("the file names no paper; measure the figure again")?;
    let end = serde_json::to_string_pretty(&given)?;
    let end = end.trim_start_matches('{');
    Ok((format!("{kept},{end}\n"), given.svg(&drawn.plot)))
}

/// Draws the picture of a figure in `folder` again, from the figure's JSON file. The file gets the paper's points of
/// this program.
///
/// # Errors
/// Errors of the file system; a file that is not of a figure.
pub fn redraw(figure: &str, folder: &Path) -> Result<()> {
    let path = folder.join(format!("{figure}.json"));
    let name = || path.display().to_string();
    let json = fs::read_to_string(&path).with_context(name)?;
    let (json, svg) = again(&json).with_context(name)?;
    fs::write(&path, json).with_context(name)?;
    let path = folder.join(format!("{figure}.svg"));
    fs::write(&path, svg).with_context(|| path.display().to_string())
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::super::FIGURES;
    use super::*;

    #[test]
    fn recorded_pictures_are_drawn_from_their_files() {
        let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/papers");
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_none_or(|ending| ending != "json") {
                continue;
            }
            let name = path.file_stem().unwrap().to_str().unwrap();
            assert!(FIGURES.iter().any(|(figure, _)| *figure == name), "{name}");
            let (json, svg) = again(&fs::read_to_string(&path).unwrap()).unwrap();
            let how = "`perdura reproduce all --redraw docs/papers` draws it";
            let is_same = |ending, text: String| {
                fs::read_to_string(path.with_extension(ending)).unwrap() == text
            };
            assert!(is_same("json", json), "{name}.json is stale; {how}");
            assert!(is_same("svg", svg), "{name}.svg is stale; {how}");
        }
    }

    /// A record of all that the papers state: a renamed line would lose its points silently.
    #[test]
    fn every_value_that_is_stated_for_a_recorded_figure_is_drawn() {
        let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/papers");
        for (figure, _) in FIGURES {
            let Ok(json) = fs::read_to_string(folder.join(format!("{figure}.json"))) else {
                continue;
            };
            let drawn: Drawn = serde_json::from_str(&json).unwrap();
            for stated in stated::of(figure) {
                assert!(stated.is_drawn(&drawn.plot), "{figure}: {stated:?}");
            }
            for points in points::of(figure, &drawn.plot) {
                // The legend does not repeat the name of a line of the paper's own values.
                let name = Some(&points.line).filter(|line| !line.contains("paper"));
                let letters = name.map_or(0, |line| line.chars().count());
                let letters = letters + points.note.chars().count();
                assert!(
                    letters <= 53,
                    "{figure}: the legend has no room: {points:?}"
                );
            }
        }
    }

    #[test]
    fn a_file_without_a_plot_is_refused() {
        assert!(again("{\"name\": \"000-fig5\"}").is_err());
        let plot = "{\"name\": \"000-fig5\", \"plot\": {\"title\": \"\", \"subtitle\": \"\", \"panels\": []}}";
        assert!(
            again(plot)
                .unwrap_err()
                .to_string()
                .contains("names no paper")
        );
    }
}

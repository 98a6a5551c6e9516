//! A reproduced figure: its data, its picture, its claims, and its files.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde_json::Value;

use super::claim::{Claim, Verdict, table};
use super::file::File;
use super::plot::Plot;
use crate::num::rounded;

/// One reproduced figure.
#[derive(Debug, Clone)]
pub struct Figure {
    /// The name of the figure and of its files, such as `000-fig5`.
    pub name: &'static str,
    /// The title of the figure.
    pub title: String,
    /// The name of the scale at which the figure was made.
    pub scale: &'static str,
    /// The seed.
    pub seed: u64,
    /// The setting in words: disks, sizes, repetitions, cores.
    pub setting: Vec<String>,
    /// The first line of the CSV: the names of the columns, separated by commas.
    pub columns: &'static str,
    /// The measurements.
    pub rows: Vec<Vec<Value>>,
    /// The claims about the measurements.
    pub claims: Vec<Claim>,
    /// The picture.
    pub plot: Plot,
}

/// Makes a cell of a row from a number, rounded to four digits.
#[must_use]
pub fn cell(value: f64) -> Value {
    Value::from(rounded(value))
}

impl Figure {
    /// Returns the rows as CSV.
    #[must_use]
    pub fn csv(&self) -> String {
        let mut out = self.columns.to_owned() + "\n";
        for row in &self.rows {
            let cells: Vec<String> = row
                .iter()
                .map(|value| match value {
                    Value::String(words) if words.contains([',', '"']) => {
                        format!("\"{}\"", words.replace('"', "\"\""))
                    }
                    Value::String(words) => words.clone(),
                    other => other.to_string(),
                })
                .collect();
            out += &cells.join(",");
            out.push('\n');
        }
        out
    }

    /// Writes CSV, JSON and SVG into `folder`, which is made if it does not exist. Returns the
    /// paths of the files.
    ///
    /// # Errors
    /// Errors of the file system.
    pub fn write(&self, folder: &Path) -> Result<Vec<PathBuf>> {
        fs::create_dir_all(folder).with_context(|| format!("creating {}", folder.display()))?;
        let file = File::of(self);
        let json = serde_json::to_string_pretty(&file)? + "\n";
        let mut paths = Vec::new();
        for (ending, text) in [("csv", self.csv()), ("json", json), ("svg", file.svg())] {
            let path = folder.join(format!("{}.{ending}", self.name));
            fs::write(&path, text).with_context(|| format!("writing {}", path.display()))?;
            paths.push(path);
        }
        Ok(paths)
    }

    /// Returns a summary of the figure for a terminal.
    #[must_use]
    pub fn summary(&self) -> String {
        let mut out = format!("{}  {} ({} scale)\n", self.name, self.title, self.scale);
        for line in &self.setting {
            out += &format!("  {line}\n");
        }
        out + &table(&self.claims)
    }

    /// Returns the number of claims that do not hold.
    #[must_use]
    pub fn failures(&self) -> usize {
        let failed = |claim: &&Claim| claim.verdict == Verdict::Fails;
        self.claims.iter().filter(failed).count()
    }
}

#[cfg(test)]
mod tests {
    use super::super::claim::{Better, Bounds, Finding};
    use super::super::paper::Paper;
    use super::*;

    #[test]
    fn a_figure_becomes_three_files() {
        let figure = Figure {
            name: "000-test",
            title: "Nothing".into(),
            scale: "small",
            seed: 1,
            setting: vec!["no disks".into()],
            columns: "scheme,seconds",
            rows: vec![vec!["PL2P, merged".into(), cell(1.0)]],
            claims: vec![Claim::measured(
                "x",
                Paper::of("2", 2.0),
                Bounds(Better::More, Finding::AtLeast(1.0)),
                2.0,
                "",
            )],
            plot: Plot::default(),
        };
        let folder = tempfile::tempdir().unwrap();
        let paths = figure.write(&folder.path().join("deep")).unwrap();
        let csv = fs::read_to_string(&paths[0]).unwrap();
        assert_eq!(csv, "scheme,seconds\n\"PL2P, merged\",1.0\n");
        let json: Value = serde_json::from_str(&fs::read_to_string(&paths[1]).unwrap()).unwrap();
        assert_eq!(json["claims"][0]["verdict"], "as-paper");
        assert_eq!(json["claims"][0]["verdict_text"], "as the paper");
        assert_eq!(json["claims"][0]["ours_text"], "2");
        assert_eq!(json["columns"][1], "seconds");
        assert!(fs::read_to_string(&paths[2]).unwrap().contains("<svg"));
        assert_eq!(figure.failures(), 0);
    }
}

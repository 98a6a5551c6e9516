//! The recorded counts, crate by crate. A count may only fall.
//!
//! `ratchet.txt` has a line for each crate. `cargo xtask tidy` fails if a count differs from the recorded count. If the
//! count has risen, the change must be corrected. If the count has fallen, `cargo xtask record` records the new count,
//! so that a later rise is noticed.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};

use crate::count::{Found, Measure, Row};

/// The file with the recorded counts, as a path in the workspace.
const FILE: &str = "crates/xtask/ratchet.txt";

type Rows = BTreeMap<String, Row>;

/// Returns a fault for each count that differs from the recorded count. If the count has risen, the fault lists the
/// places of the counted items.
///
/// # Errors
/// The file cannot be read.
pub fn check(root: &Path, rows: &Rows, found: &[Found]) -> Result<Vec<String>> {
    let recorded = load(root)?;
    let mut faults = Vec::new();
    for (folder, measure, was, is) in differences(&recorded, rows) {
        let name = measure.name();
        if is < was {
            faults.push(format!(
                "crates/{folder}: {name} has fallen from {was} to {is}; note it by `cargo xtask record`"
            ));
            continue;
        }
        faults.push(format!(
            "crates/{folder}: {name} has risen from {was} to {is}:"
        ));
        let of_it = found
            .iter()
            .filter(|one| one.folder == folder && one.measure == measure);
        faults.extend(of_it.map(|one| format!("    {}", one.place)));
    }
    Ok(faults)
}

/// Records the counts.
///
/// # Errors
/// A count of a recorded crate has risen.
pub fn record(root: &Path, rows: &Rows) -> Result<()> {
    let recorded = load(root)?;
    let mut risen = differences(&recorded, rows).into_iter();
    let risen = risen.find(|(folder, _, was, is)| is > was && recorded.contains_key(folder));
    if let Some((folder, measure, was, is)) = risen {
        let name = measure.name();
        bail!("crates/{folder}: {name} has risen from {was} to {is}; numbers only fall");
    }
    fs::write(root.join(FILE), text(rows)).context(FILE)
}

/// Returns each crate and measure whose recorded count is not its present count, with both counts.
fn differences(recorded: &Rows, rows: &Rows) -> Vec<(String, Measure, usize, usize)> {
    let none = Row::default();
    let mut folders: Vec<&String> = recorded.keys().chain(rows.keys()).collect();
    folders.sort();
    folders.dedup();
    let mut all = Vec::new();
    for folder in folders {
        let (was, is) = (
            recorded.get(folder).unwrap_or(&none),
            rows.get(folder).unwrap_or(&none),
        );
        let numbers = Measure::ALL.into_iter().zip(was.iter().zip(is));
        for (measure, (was, is)) in numbers.filter(|(_, (was, is))| was != is) {
            all.push((folder.clone(), measure, *was, *is));
        }
    }
    all
}

fn load(root: &Path) -> Result<Rows> {
    let path = root.join(FILE);
    if !path.exists() {
        return Ok(Rows::new());
    }
    parse(&fs::read_to_string(path).context(FILE)?)
}

fn heading() -> Vec<&'static str> {
    let measures = Measure::ALL.iter().map(|measure| measure.name());
    ["crate"].into_iter().chain(measures).collect()
}

fn text(rows: &Rows) -> String {
    let mut text = String::new();
    for word in heading() {
        let _ = write!(text, "{word:<13}");
    }
    for (folder, row) in rows {
        let _ = write!(text, "\n{folder:<13}");
        for number in row {
            let _ = write!(text, "{number:<13}");
        }
    }
    let lines: Vec<&str> = text.lines().map(str::trim_end).collect();
    lines.join("\n") + "\n"
}

fn parse(text: &str) -> Result<Rows> {
    let mut lines = text.lines();
    let first: Vec<&str> = lines.next().unwrap_or("").split_whitespace().collect();
    ensure!(
        first == heading(),
        "{FILE}:1: the columns are not {:?}",
        heading()
    );
    let mut rows = Rows::new();
    for (at, line) in lines.enumerate() {
        let place = || format!("{FILE}:{}", at + 2);
        let mut words = line.split_whitespace();
        let folder = words.next().with_context(place)?;
        let numbers: Result<Vec<usize>, _> = words.map(str::parse).collect();
        let row = Row::try_from(numbers.with_context(place)?);
        let row = row.ok().with_context(place)?;
        rows.insert(folder.to_owned(), row);
    }
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(folder: &str, long: usize) -> Rows {
        let mut row = Row::default();
        row[0] = long;
        Rows::from([(folder.to_owned(), row)])
    }

    #[test]
    fn what_is_recorded_is_read_again() {
        let both: Rows = rows("a", 3).into_iter().chain(rows("b", 0)).collect();
        assert_eq!(parse(&text(&both)).expect("the same text"), both);
        assert!(parse("crate long\n").is_err());
        assert!(parse(&text(&both).replace('3', "x")).is_err());
    }

    #[test]
    fn a_number_that_rises_cannot_be_recorded_and_one_that_falls_must_be() {
        let dir = std::env::temp_dir().join(format!("ratchet-{}", std::process::id()));
        fs::create_dir_all(dir.join("crates/xtask")).expect("a directory");
        record(&dir, &rows("a", 3)).expect("nothing was recorded");
        assert!(check(&dir, &rows("a", 3), &[]).expect("a file").is_empty());
        let place = Found::new("a", Measure::Long, "x.rs:1 f".to_owned());
        let risen = check(&dir, &rows("a", 4), &[place]).expect("a file");
        assert_eq!(
            risen,
            ["crates/a: long has risen from 3 to 4:", "    x.rs:1 f"]
        );
        assert!(record(&dir, &rows("a", 4)).is_err());
        assert_eq!(check(&dir, &rows("a", 2), &[]).expect("a file").len(), 1);
        record(&dir, &rows("a", 2)).expect("it has fallen");
        assert!(check(&dir, &rows("a", 3), &[]).expect("a file").len() == 1);
        fs::remove_dir_all(dir).expect("a directory");
    }
}

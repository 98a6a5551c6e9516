//! Finds runs of lines that appear in two places.

use std::collections::BTreeMap;

use super::{Found, Measure};
use crate::product::Source;
use crate::scan::{Kind, lines};

/// The minimum length of a run, in lines of code.
const RUN_LINES: usize = 12;

/// The number of a line and its code.
type Line<'a> = (usize, &'a str);

/// Finds the runs of lines that appear in more than one place. A run that appears in `n` places counts `n - 1` times.
pub fn find(sources: &[Source]) -> Vec<Found> {
    let texts: Vec<Vec<Line<'_>>> = sources.iter().map(|one| code(&one.text.text)).collect();
    let mut first: BTreeMap<Vec<&str>, (usize, usize)> = BTreeMap::new();
    let mut found = Vec::new();
    for (file, text) in texts.iter().enumerate() {
        // Windows that follow each other belong to the same run, which counts once.
        let mut in_run = false;
        for (at, window) in text.windows(RUN_LINES).enumerate() {
            let words: Vec<&str> = window.iter().map(|(_, line)| *line).collect();
            let Some((other, other_line)) = first.get(&words).copied() else {
                first.insert(words, (file, window[0].0));
                in_run = false;
                continue;
            };
            if !in_run {
                let (source, from) = (&sources[file], text[at].0);
                let place = format!(
                    "{}:{from}, as {}:{other_line}",
                    source.text.name, sources[other].text.name
                );
                found.push(Found::new(&source.text.folder, Measure::Runs, place));
            }
            in_run = true;
        }
    }
    found
}

/// Returns the lines of code with their numbers, trimmed, without imports and closing brackets.
fn code(source: &str) -> Vec<Line<'_>> {
    let numbered = lines(source).into_iter().enumerate();
    let code = numbered.filter(|(_, (kind, _))| *kind == Kind::Code);
    code.map(|(at, (_, line))| (at + 1, line.trim()))
        .filter(|(_, line)| line.len() > 3 && !line.starts_with("use "))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::product::parsed;

    #[test]
    fn a_run_counts_once_for_each_place_behind_the_first() {
        let run: String = (0..RUN_LINES + 2)
            .map(|i| format!("    step({i});\n"))
            .collect();
        let texts = [
            format!("fn a() {{\n{run}}}\n"),
            format!("fn b() {{\n    // words\n{run}}}\nfn c() {{\n{run}}}\n"),
        ];
        let sources: Vec<Source> = texts
            .iter()
            .enumerate()
            .map(|(at, text)| parsed(&format!("x{at}.rs"), text))
            .collect();
        let places: Vec<String> = find(&sources).into_iter().map(|one| one.place).collect();
        assert_eq!(places, ["x1.rs:3, as x0.rs:2", "x1.rs:19, as x0.rs:2"]);
    }
}

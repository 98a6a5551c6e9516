//! The tables of commands. Each family has a file in `tables/` beside this crate's sources.
//!
//! A family is a group of related commands. The script of a seed uses a few families. `PERDURA_DIFF_FAMILY` can name
//! them. `base` is in every script: it makes keys of all types, and removes them. The files are read when a hunt
//! begins, so a change of a table needs no compilation.

use crate::grammar::Sentence;
use std::path::Path;
use std::sync::LazyLock;

/// The names of the families, the most important first. `base` must be first.
const FAMILIES: [&str; 23] = [
    "base",
    "strings",
    "bits",
    "keys",
    "expiry",
    "scan",
    "sort",
    "dump",
    "hash",
    "list",
    "set",
    "zset",
    "zstore",
    "geo",
    "hll",
    "stream",
    "errors",
    "client",
    "blocking",
    "pubsub",
    "notify",
    "scripting",
    "command",
];

/// Commands that our server does not have yet. The list must become empty.
static NOT_YET: LazyLock<Vec<String>> = LazyLock::new(|| lines("not-yet"));

/// A family's name and its sentences.
#[derive(Debug)]
pub struct Family {
    /// Its name.
    pub name: &'static str,
    /// The lines of its table.
    pub sentences: Vec<Sentence>,
}

/// Returns all families, `base` first.
pub fn families() -> Vec<Family> {
    let family = |name| {
        let lines = lines(name);
        let sentences = lines.iter().map(|line| Sentence::parse(line));
        let known = |sentence: &Sentence| sentence.names().iter().all(|name| !is_missing(name));
        Family {
            name,
            sentences: sentences.filter(known).collect(),
        }
    };
    FAMILIES.into_iter().map(family).collect()
}

/// Returns a file's lines without its comments, or no lines if the file does not exist.
fn lines(name: &str) -> Vec<String> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tables");
    let text = std::fs::read_to_string(dir.join(format!("{name}.txt"))).unwrap_or_default();
    text.lines()
        .map(str::trim)
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .map(str::to_owned)
        .collect()
}

/// Returns whether our server lacks a command. A subcommand is named `command|subcommand`.
pub fn is_missing(name: &str) -> bool {
    NOT_YET.iter().any(|missing| missing == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_family_has_sentences_and_every_word_in_them_is_known() {
        let mut rng = fastrand::Rng::with_seed(1);
        for name in FAMILIES {
            let lines = lines(name);
            assert!(!lines.is_empty(), "{name}");
            for line in lines {
                let sentence = Sentence::parse(&line);
                for _ in 0..200 {
                    sentence.speak(&mut rng);
                }
            }
        }
    }
}

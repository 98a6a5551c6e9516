//! Finds sentences of comments and documents that a reader must read twice.
//!
//! It counts sentences of more than 30 words, comments with a clause at the beginning, and phrases that English
//! engineers do not use. A comment should begin with a verb or a noun.

use std::collections::BTreeMap;

use super::{Found, Measure};
use crate::messages;
use crate::product::{Sources, Text};

/// The maximum number of words of a sentence.
const WORDS_MAX: usize = 30;

/// First words of a clause. A comment may not begin with them.
const OPENERS: [&str; 11] = [
    "what",
    "whether",
    "how",
    "which",
    "where",
    "when",
    "who",
    "the same",
    "that",
    "there is no",
    "there are no",
];

/// Words that may not follow "as" at the beginning of a comment. "As" and one of these words begin a clause.
const AS: [&str; 5] = ["there", "here", "in", "for", "above"];

/// Phrases, and the words to use instead. A bar separates alternatives.
const PHRASES: [(&str, &str); 17] = [
    ("told", "report, say, show"),
    (
        "tell|tells of|what|which|that|whether|apart",
        "report, say, show",
    ),
    ("so many|much", "give the number or the name"),
    ("goes|gone|go|going|went on", "continue"),
    ("hold|holds|held against", "compare with"),
    ("take|takes|taken|took back", "undo, revoke"),
    ("keep|keeps|kept back", "defer, hold"),
    ("of its|their own", "its own X"),
    ("whoever|nobody|somebody", "name the component"),
    ("who has", "name the component"),
    ("is|are none", "say it directly"),
    ("is one that", "say it directly"),
    ("by then", "say when"),
    ("in vain", "say what failed"),
    ("as it stands", "is, appears, means"),
    ("as they stand", "is, appears, means"),
    ("stand|stands in|there|here|for", "is, appears, means"),
];

/// A sentence and its place.
struct Sentence {
    line: usize,
    text: String,
    /// True for the first sentence of a comment.
    opens: bool,
}

/// The lengths of sentences, in words.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Lengths(Vec<usize>);

impl Lengths {
    /// Returns the number of sentences.
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// Returns the mean number of words of a sentence, in tenths.
    pub fn mean_tenths(&self) -> usize {
        10 * self.0.iter().sum::<usize>() / self.count().max(1)
    }

    /// Returns the number of words that nine of ten sentences do not exceed.
    pub fn ninth_decile(&self) -> usize {
        let mut sorted = self.0.clone();
        sorted.sort_unstable();
        sorted.get(sorted.len() * 9 / 10).copied().unwrap_or(0)
    }

    /// Adds the sentences of a text.
    pub fn add(&mut self, text: &Text) {
        let all = sentences(text).into_iter();
        self.0
            .extend(all.map(|one| one.text.split_whitespace().count()));
    }
}

/// Finds the sentences that must be read twice, in all comments, documents and messages.
pub fn find(sources: &Sources) -> Vec<Found> {
    let mut found: Vec<Found> = sources.texts().flat_map(of_text).collect();
    let messages = sources.product.iter().filter_map(messages::document);
    found.extend(messages.flat_map(|messages| of_text(&messages)));
    found
}

/// The greatest allowed mean length of the book's sentences, in words.
const MEAN_MAX: usize = 16;

/// The number of words that nine in ten sentences of the book may not exceed.
const NINTH_DECILE_MAX: usize = 28;

/// Returns a fault if the sentences of README, ARCHITECTURE and the book are too long. The pages about formats are
/// not checked.
pub fn too_long(sources: &Sources) -> Vec<String> {
    let mut book = Lengths::default();
    let pages = sources.documents.iter().filter(|text| is_of_book(text));
    pages.for_each(|page| book.add(page));
    let (mean, ninth) = (book.mean_tenths(), book.ninth_decile());
    if mean <= 10 * MEAN_MAX && ninth <= NINTH_DECILE_MAX {
        return Vec::new();
    }
    vec![format!(
        "the book: a sentence has {}.{} words on average and nine in ten have {ninth}; at most {MEAN_MAX} and {NINTH_DECILE_MAX}",
        mean / 10,
        mean % 10
    )]
}

fn is_of_book(text: &Text) -> bool {
    let is_page = text.folder == "docs" && !text.name.starts_with("docs/formats/");
    is_page || ["README.md", "ARCHITECTURE.md"].contains(&text.name.as_str())
}

/// Returns the lengths of the sentences of each folder.
pub fn lengths(sources: &Sources) -> BTreeMap<String, Lengths> {
    let mut all: BTreeMap<String, Lengths> = BTreeMap::new();
    for text in sources.texts() {
        all.entry(text.folder.clone()).or_default().add(text);
    }
    all
}

fn of_text(text: &Text) -> Vec<Found> {
    let mut found = Vec::new();
    for sentence in sentences(text) {
        let mut fault = |why: &str| {
            let shown: String = sentence.text.chars().take(100).collect();
            let place = format!("{}:{}: {why}: {shown}", text.name, sentence.line);
            found.push(Found::new(&text.folder, Measure::Wording, place));
        };
        let count = sentence.text.split_whitespace().count();
        if count > WORDS_MAX {
            fault(&format!("{count} words"));
        }
        let words = words(&sentence.text);
        if sentence.opens && opens_with_a_clause(&sentence.text, &words) {
            fault("a clause opens it");
        }
        let phrase = PHRASES.iter().find(|(phrase, _)| has(&words, phrase));
        if let Some((_, better)) = phrase {
            fault(&format!("({better})"));
        }
    }
    found
}

fn opens_with_a_clause(text: &str, words: &[String]) -> bool {
    let starts = |opener: &str| {
        let mut wanted = opener.split(' ').zip(words);
        let all = words.len() >= opener.split(' ').count();
        all && wanted.all(|(wanted, word)| wanted == word)
    };
    text.starts_with(|c: char| c.is_uppercase())
        && (OPENERS.into_iter().any(starts)
            || starts("as")
                && words
                    .get(1)
                    .is_some_and(|second| AS.contains(&second.as_str())))
}

/// Returns the words of a text, in lower case and without punctuation.
fn words(text: &str) -> Vec<String> {
    let words = text.split(|c: char| !c.is_alphanumeric() && c != '_' && c != '\'');
    let words = words.filter(|word| !word.is_empty());
    words.map(str::to_lowercase).collect()
}

/// Returns whether words contain a phrase.
fn has(words: &[String], phrase: &str) -> bool {
    let wanted: Vec<Vec<&str>> = phrase
        .split(' ')
        .map(|one| one.split('|').collect())
        .collect();
    words.windows(wanted.len()).any(|window| {
        let mut pairs = window.iter().zip(&wanted);
        pairs.all(|(word, choice)| choice.contains(&word.as_str()))
    })
}

fn sentences(text: &Text) -> Vec<Sentence> {
    let is_document = text.is_document();
    let blocks = if is_document {
        paragraphs(&text.text)
    } else {
        comments(&text.text)
    };
    let mut all = Vec::new();
    for (line, block) in blocks {
        for (at, one) in split(&plain(&block)).into_iter().enumerate() {
            all.push(Sentence {
                line,
                text: one,
                opens: at == 0 && !is_document,
            });
        }
    }
    all
}

/// Returns the comments of a source, each with the number of its first line.
fn comments(source: &str) -> Vec<(usize, String)> {
    let mut blocks = Blocks::default();
    let mut is_code = false;
    for (at, line) in source.lines().enumerate() {
        let line = line.trim_start();
        let comment = line.strip_prefix("//");
        let Some(comment) = comment.map(|c| c.trim_start_matches(['/', '!']).trim()) else {
            blocks.end();
            is_code = false;
            continue;
        };
        let is_fence = comment.starts_with("```");
        is_code ^= is_fence;
        if is_code || is_fence || comment.is_empty() || comment.starts_with(['#', '|']) {
            blocks.end();
            continue;
        }
        blocks.add(at + 1, comment);
    }
    blocks.done()
}

/// Returns the paragraphs and list items of a document, each with the number of its first line.
fn paragraphs(document: &str) -> Vec<(usize, String)> {
    let mut blocks = Blocks::default();
    let mut is_code = false;
    for (at, line) in document.lines().enumerate() {
        let is_fence = line.trim_start().starts_with("```");
        is_code ^= is_fence;
        let trimmed = line.trim();
        let skipped = line.starts_with(['|', '#', '<']) || line.starts_with("    ");
        if is_code || is_fence || skipped || trimmed.is_empty() {
            blocks.end();
            continue;
        }
        let item = trimmed.split_once(' ').filter(|(mark, _)| {
            let number = mark.strip_suffix('.');
            matches!(*mark, "*" | "-") || number.is_some_and(|n| n.parse::<u32>().is_ok())
        });
        if item.is_some() {
            blocks.end();
        }
        blocks.add(at + 1, item.map_or(trimmed, |(_, text)| text));
    }
    blocks.done()
}

/// Collects lines into blocks of text.
#[derive(Default)]
struct Blocks {
    all: Vec<(usize, String)>,
    is_open: bool,
}

impl Blocks {
    fn add(&mut self, line: usize, text: &str) {
        match self.all.last_mut().filter(|_| self.is_open) {
            Some((_, block)) => {
                block.push(' ');
                block.push_str(text);
            }
            None => self.all.push((line, text.to_owned())),
        }
        self.is_open = true;
    }

    fn end(&mut self) {
        self.is_open = false;
    }

    fn done(self) -> Vec<(usize, String)> {
        self.all
    }
}

/// Replaces each piece of code in a text by one word, and removes the targets of links and the marks of emphasis.
fn plain(text: &str) -> String {
    let mut out = String::new();
    for (at, part) in text.split('`').enumerate() {
        out.push_str(if at % 2 == 0 { part } else { "X" });
    }
    while let Some(from) = out.find("](") {
        let Some(len) = out[from..].find(')') else {
            break;
        };
        out.replace_range(from..=from + len, "");
    }
    out.replace(['[', ']', '*'], "")
}

/// Returns the sentences of more than two words.
fn split(text: &str) -> Vec<String> {
    let mut all = Vec::new();
    let mut one = String::new();
    for word in text.split_whitespace() {
        if !one.is_empty() {
            one.push(' ');
        }
        one.push_str(word);
        if word.ends_with(['.', '!', '?']) {
            all.push(std::mem::take(&mut one));
        }
    }
    all.push(one);
    all.retain(|one| one.split(' ').count() > 2);
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn faults(name: &str, text: &str) -> Vec<String> {
        let found = of_text(&Text::new(name.to_owned(), text.to_owned())).into_iter();
        found.map(|one| one.place).collect()
    }

    #[test]
    fn clauses_long_sentences_and_phrases_are_found_with_their_lines() {
        let source = "/// What it is.\nfn a() {}\n/// Returns what it is.\n\n    // The flusher goes\n    \
                      // on here.\nlet x;\n/// As there, but shorter.\n/// ```\n/// what is code\n/// ```\n";
        assert_eq!(
            faults("a.rs", source),
            [
                "a.rs:1: a clause opens it: What it is.",
                "a.rs:5: (continue): The flusher goes on here.",
                "a.rs:8: a clause opens it: As there, but shorter.",
            ]
        );
        let long = "word ".repeat(WORDS_MAX + 1);
        assert_eq!(faults("a.md", &format!("# Title\n\n* {long}\n")).len(), 1);
        assert!(
            faults(
                "a.md",
                &format!("    {long}\n| {long} |\n```\n{long}\n```\n")
            )
            .is_empty()
        );
    }

    #[test]
    fn code_is_a_word_and_the_target_of_a_link_is_none() {
        let source = "What `a b c` does. See [the page](docs/told.md) for more, so much is sure.\n";
        assert_eq!(faults("a.md", source).len(), 1, "a document may open so");
        let mut lengths = Lengths::default();
        lengths.add(&Text::new("a.md".to_owned(), source.to_owned()));
        assert_eq!(
            (
                lengths.count(),
                lengths.mean_tenths(),
                lengths.ninth_decile()
            ),
            (2, 60, 9)
        );
    }

    #[test]
    fn a_book_of_long_sentences_is_a_fault_and_its_formats_are_not_judged() {
        let page = |name: &str, words: usize| Text::new(name.to_owned(), "word ".repeat(words));
        let faults = |documents| {
            too_long(&Sources {
                product: Vec::new(),
                tests: Vec::new(),
                documents,
            })
        };
        let formats = page("docs/formats/anchor.md", 90);
        assert!(faults(vec![page("README.md", MEAN_MAX), formats]).is_empty());
        let fault = faults(vec![page("docs/start.md", MEAN_MAX + 1)]);
        assert!(
            fault[0].starts_with("the book: a sentence has 17.0 words"),
            "{fault:?}"
        );
    }
}

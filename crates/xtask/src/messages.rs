//! Collects in one file all messages for operators and for programs that use the library.
//!
//! `docs/messages.txt` has each text in the product's code once, by crate and file. `cargo xtask tidy` fails if the
//! file is not up to date, and `cargo xtask record` writes it. So a commit that changes a message shows the change in
//! this file, and a reader can review all messages together.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use proc_macro2::{TokenStream, TokenTree};
use syn::visit::{self, Visit};
use syn::{Attribute, ExprMethodCall, Lit, Macro};

use crate::product::{Source, Text};

/// The path of the file in the workspace.
pub const FILE: &str = "docs/messages.txt";

/// A text with fewer words than this is not a message.
const WORDS_MIN: usize = 2;

/// Crates with texts for developers only.
const FOR_DEVELOPERS: [&str; 5] = ["xtask", "differ", "sim", "steal", "workloads"];

/// Macros with texts that are not messages. Most of these texts report a mistake in the program.
const OF_BUGS: [&str; 9] = [
    "assert",
    "assert_eq",
    "assert_ne",
    "debug_assert",
    "debug_assert_eq",
    "panic",
    "unreachable",
    "concat",
    "include_str",
];

/// Returns the text that the file should have.
pub fn text(sources: &[Source]) -> String {
    let mut text = String::from(
        "Every message of the product, by file. Made by `cargo xtask record`; see CONTRIBUTING.md.\n",
    );
    for source in sources {
        if FOR_DEVELOPERS.contains(&source.text.folder.as_str()) {
            continue;
        }
        let messages = of(source);
        if messages.is_empty() {
            continue;
        }
        let _ = writeln!(text, "\n{}", source.text.name);
        for message in messages {
            let _ = writeln!(text, "    {}", message.replace('\n', "\\n"));
        }
    }
    text
}

/// Returns the messages of a source as a document, so that its sentences can be checked.
pub fn document(source: &Source) -> Option<Text> {
    let is_product = !FOR_DEVELOPERS.contains(&source.text.folder.as_str());
    let messages: Vec<String> = is_product.then(|| of(source))?.into_iter().collect();
    Some(Text {
        name: format!("{}.md", source.text.name),
        folder: source.text.folder.clone(),
        // A message of several lines has a sentence on each line, so each line becomes a paragraph.
        text: messages.join("\n").replace('\n', "\n\n"),
    })
}

/// Returns a fault if the file is not up to date.
///
/// # Errors
/// The file cannot be read.
pub fn check(root: &Path, sources: &[Source]) -> Result<Vec<String>> {
    let recorded = fs::read_to_string(root.join(FILE)).unwrap_or_default();
    Ok(match recorded == text(sources) {
        true => Vec::new(),
        false => vec![format!(
            "{FILE} is stale; `cargo xtask record` writes it, and its diff is to be read"
        )],
    })
}

/// Writes the file.
///
/// # Errors
/// The file cannot be written.
pub fn record(root: &Path, sources: &[Source]) -> Result<()> {
    fs::write(root.join(FILE), text(sources)).context(FILE)
}

fn of(source: &Source) -> BTreeSet<String> {
    let mut finder = Collector::default();
    finder.visit_file(&source.items);
    finder.found
}

#[derive(Default)]
struct Collector {
    found: BTreeSet<String>,
}

impl Collector {
    fn note(&mut self, literal: &str) {
        let words = literal.split_whitespace();
        let words = words.filter(|word| word.chars().filter(|c| c.is_alphabetic()).count() > 1);
        // Examples in the help of a command line are not messages.
        if words.count() >= WORDS_MIN && !literal.starts_with("Examples:") {
            self.found.insert(literal.to_owned());
        }
    }

    fn tokens(&mut self, tokens: TokenStream) {
        for token in tokens {
            match token {
                TokenTree::Group(group) => self.tokens(group.stream()),
                TokenTree::Literal(literal) => {
                    if let Lit::Str(text) = Lit::new(literal) {
                        self.note(&text.value());
                    }
                }
                TokenTree::Ident(_) | TokenTree::Punct(_) => {}
            }
        }
    }
}

impl<'ast> Visit<'ast> for Collector {
    // Of the attributes, only `error` and `command` have messages. A doc comment is an attribute, too.
    fn visit_attribute(&mut self, attribute: &'ast Attribute) {
        if let Ok(list) = attribute.meta.require_list()
            && (list.path.is_ident("error") || list.path.is_ident("command"))
        {
            self.tokens(list.tokens.clone());
        }
    }

    fn visit_macro(&mut self, call: &'ast Macro) {
        let name = call.path.segments.last().map(|last| last.ident.to_string());
        if !name.is_some_and(|name| OF_BUGS.contains(&name.as_str())) {
            self.tokens(call.tokens.clone());
        }
    }

    // The text of `expect` is for developers, who have a backtrace. It is not a message.
    fn visit_expr_method_call(&mut self, call: &'ast ExprMethodCall) {
        self.visit_expr(&call.receiver);
        if call.method != "expect" {
            call.args.iter().for_each(|arg| self.visit_expr(arg));
        }
    }

    fn visit_lit_str(&mut self, literal: &'ast syn::LitStr) {
        self.note(&literal.value());
        visit::visit_lit_str(self, literal);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::product::parsed;

    #[test]
    fn messages_are_found_in_macros_calls_and_attributes_and_bugs_are_none() {
        let source = parsed(
            "crates/x/src/a.rs",
            "/// A comment of words.\n#[error(\"the disk is full\")]\nstruct A;\n\
             fn a() { assert!(x, \"never to be seen\"); bail!(\"no file {}\", b); \
             f(\"a very long message\").expect(\"it is always so\"); g(\"word\"); }\n\
             #[cfg(test)]\nmod tests { const A: &str = \"not in the product\"; }\n",
        );
        let text = text(&[source]);
        let lines: Vec<&str> = text.lines().skip(2).collect();
        assert_eq!(
            lines,
            [
                "crates/x/src/a.rs",
                "    a very long message",
                "    no file {}",
                "    the disk is full"
            ]
        );
    }
}

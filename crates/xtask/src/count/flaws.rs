//! Counts the seeded mistakes in code that ships. A seeded mistake is a deliberate bug under a condition that is true
//! only in tests.

use proc_macro2::{TokenStream, TokenTree};
use syn::visit::{self, Visit};
use syn::{ExprCall, Macro};

use super::{Found, Measure};
use crate::product::Source;

/// The function that returns whether a mistake is seeded.
const ASKS: &str = "armed";

/// Finds the calls of `armed`, including calls within macros.
pub fn find(sources: &[Source]) -> Vec<Found> {
    let mut found = Vec::new();
    for source in sources {
        let mut finder = Finder {
            source,
            found: &mut found,
            switched: Vec::new(),
        };
        finder.visit_file(&source.items);
    }
    found
}

/// Returns the places of assertions that a seeded mistake can switch off.
pub fn in_assertions(sources: &[Source]) -> Vec<String> {
    let mut places = Vec::new();
    for source in sources {
        let mut found = Vec::new();
        let mut finder = Finder {
            source,
            found: &mut found,
            switched: Vec::new(),
        };
        finder.visit_file(&source.items);
        places.append(&mut finder.switched);
    }
    places
}

struct Finder<'a> {
    source: &'a Source,
    found: &'a mut Vec<Found>,
    switched: Vec<String>,
}

impl Finder<'_> {
    fn add(&mut self, line: usize) {
        let place = format!("{}:{line}", self.source.text.name);
        let found = Found::new(&self.source.text.folder, Measure::Flaws, place);
        self.found.push(found);
    }
}

impl<'ast> Visit<'ast> for Finder<'_> {
    fn visit_expr_call(&mut self, call: &'ast ExprCall) {
        if let syn::Expr::Path(path) = call.func.as_ref()
            && let Some(last) = path.path.segments.last()
            && last.ident == ASKS
        {
            self.add(last.ident.span().start().line);
        }
        visit::visit_expr_call(self, call);
    }

    fn visit_macro(&mut self, call: &'ast Macro) {
        let asked = asked(call.tokens.clone());
        let name = call.path.segments.last().map(|last| last.ident.to_string());
        let asserts = name.is_some_and(|name| name.contains("assert"));
        for line in asked {
            self.add(line);
            if asserts {
                self.switched
                    .push(format!("{}:{line}", self.source.text.name));
            }
        }
    }
}

/// Returns the line number of each call of `armed` in the tokens.
fn asked(tokens: TokenStream) -> Vec<usize> {
    let mut lines = Vec::new();
    for token in tokens {
        match token {
            TokenTree::Ident(word) if word == ASKS => lines.push(word.span().start().line),
            TokenTree::Group(group) => lines.extend(asked(group.stream())),
            _ => {}
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::product::parsed;

    #[test]
    fn a_flaw_is_found_in_code_and_in_assertions() {
        let text =
            "use flaw::armed;\nfn f() {\n if armed(X) {}\n assert!(a || armed(Y), \"armed\");\n}\n";
        let sources = [parsed("x.rs", text)];
        let places: Vec<String> = find(&sources).into_iter().map(|one| one.place).collect();
        assert_eq!(places, ["x.rs:3", "x.rs:4"]);
        assert_eq!(in_assertions(&sources), ["x.rs:4"]);
    }
}

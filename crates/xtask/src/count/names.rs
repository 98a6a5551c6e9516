//! Finds types of a crate with equal names, public items without docs, and public items that only tests use.

use std::collections::{BTreeMap, BTreeSet};

use proc_macro2::{TokenStream, TokenTree};
use quote::ToTokens;
use syn::visit::{self, Visit};
use syn::{Attribute, Ident, ImplItemFn, Item, ItemImpl, Visibility};

use super::{Found, Measure};
use crate::product::{Source, Sources, Text};

/// Finds types with equal names, public items without docs, and public items that only tests use.
pub fn find(sources: &Sources) -> Vec<Found> {
    let mut finder = Finder::default();
    for source in &sources.product {
        finder.source = Some((source.text.folder.clone(), source.text.name.clone()));
        finder.visit_file(&source.items);
    }
    let mut found = finder.undocumented;
    for ((folder, name), places) in finder.types {
        for place in places.iter().skip(1) {
            let text = format!("{place} {name}, also in {}", places[0]);
            found.push(Found::new(&folder, Measure::Namesakes, text));
        }
    }
    let used = used(&sources.product);
    let tested = words_of(&sources.tests);
    for (name, folder, place) in finder.public {
        // The definition counts as one use.
        let uses = used.get(&name).copied().unwrap_or(0);
        if uses <= 1 && tested.contains(&name) {
            let text = format!("{place} {name}");
            found.push(Found::new(&folder, Measure::ForTests, text));
        }
    }
    found
}

#[derive(Default)]
struct Finder {
    /// The crate and the path of the visited file.
    source: Option<(String, String)>,
    /// The places of each type, by crate and name.
    types: BTreeMap<(String, String), Vec<String>>,
    /// The names of public items, with their crates and places.
    public: Vec<(String, String, String)>,
    undocumented: Vec<Found>,
    /// True within a block that implements a trait. The block's items need no docs, because the trait has docs.
    of_trait: bool,
}

impl Finder {
    fn place(&self, ident: &Ident) -> (String, String) {
        let (folder, name) = self.source.clone().expect("a file is visited");
        (folder, format!("{name}:{}", ident.span().start().line))
    }

    fn add_type(&mut self, ident: &Ident) {
        let (folder, place) = self.place(ident);
        let places = self.types.entry((folder, ident.to_string())).or_default();
        places.push(place);
    }

    fn add_public(&mut self, ident: &Ident, seen: &Visibility, attrs: &[Attribute]) {
        if !matches!(seen, Visibility::Public(_)) {
            return;
        }
        let (folder, place) = self.place(ident);
        if !attrs.iter().any(|attr| attr.path().is_ident("doc")) {
            let text = format!("{place} {ident}");
            self.undocumented
                .push(Found::new(&folder, Measure::Undocumented, text));
        }
        self.public.push((ident.to_string(), folder, place));
    }
}

impl<'ast> Visit<'ast> for Finder {
    fn visit_item(&mut self, item: &'ast Item) {
        match item {
            Item::Struct(item) => {
                self.add_type(&item.ident);
                self.add_public(&item.ident, &item.vis, &item.attrs);
            }
            Item::Enum(item) => {
                self.add_type(&item.ident);
                self.add_public(&item.ident, &item.vis, &item.attrs);
            }
            Item::Trait(item) => {
                self.add_type(&item.ident);
                self.add_public(&item.ident, &item.vis, &item.attrs);
            }
            Item::Type(item) => {
                self.add_type(&item.ident);
                self.add_public(&item.ident, &item.vis, &item.attrs);
            }
            Item::Fn(item) => self.add_public(&item.sig.ident, &item.vis, &item.attrs),
            Item::Const(item) => self.add_public(&item.ident, &item.vis, &item.attrs),
            Item::Static(item) => self.add_public(&item.ident, &item.vis, &item.attrs),
            _ => {}
        }
        visit::visit_item(self, item);
    }

    fn visit_item_impl(&mut self, block: &'ast ItemImpl) {
        self.of_trait = block.trait_.is_some();
        visit::visit_item_impl(self, block);
        self.of_trait = false;
    }

    fn visit_impl_item_fn(&mut self, function: &'ast ImplItemFn) {
        if !self.of_trait {
            self.add_public(&function.sig.ident, &function.vis, &function.attrs);
        }
        visit::visit_impl_item_fn(self, function);
    }
}

/// Returns the count of each word in code that ships.
fn used(sources: &[Source]) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for source in sources {
        count(source.items.to_token_stream(), &mut counts);
    }
    counts
}

fn count(tokens: TokenStream, counts: &mut BTreeMap<String, usize>) {
    for token in tokens {
        match token {
            TokenTree::Ident(word) => *counts.entry(word.to_string()).or_default() += 1,
            TokenTree::Group(group) => count(group.stream(), counts),
            _ => {}
        }
    }
}

fn words_of(texts: &[Text]) -> BTreeSet<String> {
    let words = texts
        .iter()
        .flat_map(|one| one.text.split(|c: char| !c.is_alphanumeric() && c != '_'));
    words.map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::product::parsed;

    #[test]
    fn namesakes_undocumented_and_tested_items_are_found() {
        let text = "/// A.\npub struct A;\nmod m { enum A {} }\npub fn bare() { used() }\n\
                    /// U.\npub fn used() {}\n/// T.\npub fn tested() {}\n\
                    impl X for A { fn tested_too(&self) {} }\n";
        let sources = Sources {
            product: vec![parsed("x.rs", text)],
            tests: vec![Text::new(
                "crates/x/tests/it.rs".to_owned(),
                "use x::{tested, used, tested_too};".to_owned(),
            )],
            documents: Vec::new(),
        };
        let found = find(&sources).into_iter();
        let found: Vec<_> = found.map(|one| (one.measure, one.place)).collect();
        assert_eq!(
            found,
            [
                (Measure::Undocumented, "x.rs:4 bare".to_owned()),
                (Measure::Namesakes, "x.rs:3 A, also in x.rs:2".to_owned()),
                (Measure::ForTests, "x.rs:8 tested".to_owned()),
            ]
        );
    }
}

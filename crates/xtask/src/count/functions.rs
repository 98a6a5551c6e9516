//! Finds functions that are long or take many parameters.

use proc_macro2::Span;
use syn::punctuated::Punctuated;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{Block, FnArg, ImplItemFn, ItemFn, ItemImpl, Signature, Token, TraitItemFn, Type};

use super::{Found, Measure};
use crate::product::Source;

/// A function of more lines than this is long.
pub const LINES_MAX: usize = 70;
/// The maximum number of a function's parameters.
const PARAMETERS_MAX: usize = 5;

/// Finds the functions that are too long or take too many parameters.
pub fn find(sources: &[Source]) -> Vec<Found> {
    let mut found = Vec::new();
    for source in sources {
        let mut finder = Finder {
            source,
            implements: false,
            found: &mut found,
        };
        finder.visit_file(&source.items);
    }
    found
}

struct Finder<'a> {
    source: &'a Source,
    /// True in the implementation of a trait. The trait decides the parameters there, and a trait of ours is counted
    /// where it is declared.
    implements: bool,
    found: &'a mut Vec<Found>,
}

impl Finder<'_> {
    fn judge(&mut self, signature: &Signature, block: Option<&Block>) {
        let name = &signature.ident;
        let begun = line(signature.span());
        let mut add = |measure, text: String| {
            let place = format!("{}:{begun} {name}, {text}", self.source.text.name);
            self.found
                .push(Found::new(&self.source.text.folder, measure, place));
        };
        if let Some(block) = block {
            let lines = block.brace_token.span.close().end().line + 1 - begun;
            if lines > LINES_MAX {
                add(Measure::Long, format!("{lines} lines"));
            }
        }
        if self.implements {
            return;
        }
        let parameters = signature.inputs.len();
        if parameters > PARAMETERS_MAX {
            add(Measure::Crowded, format!("{parameters} parameters"));
        } else if has_tuple(&signature.inputs) {
            add(
                Measure::Crowded,
                String::from("a tuple among the parameters"),
            );
        }
    }
}

/// Returns whether any parameter is a tuple or a reference to a tuple.
fn has_tuple(inputs: &Punctuated<FnArg, Token![,]>) -> bool {
    inputs.iter().any(|input| match input {
        FnArg::Typed(typed) => is_tuple(&typed.ty),
        FnArg::Receiver(_) => false,
    })
}

fn is_tuple(of: &Type) -> bool {
    match of {
        Type::Tuple(tuple) => !tuple.elems.is_empty(),
        Type::Reference(reference) => is_tuple(&reference.elem),
        _ => false,
    }
}

fn line(span: Span) -> usize {
    span.start().line
}

impl<'ast> Visit<'ast> for Finder<'_> {
    fn visit_item_fn(&mut self, function: &'ast ItemFn) {
        self.judge(&function.sig, Some(&function.block));
        visit::visit_item_fn(self, function);
    }

    fn visit_item_impl(&mut self, item: &'ast ItemImpl) {
        let before = std::mem::replace(&mut self.implements, item.trait_.is_some());
        visit::visit_item_impl(self, item);
        self.implements = before;
    }

    fn visit_impl_item_fn(&mut self, function: &'ast ImplItemFn) {
        self.judge(&function.sig, Some(&function.block));
        visit::visit_impl_item_fn(self, function);
    }

    fn visit_trait_item_fn(&mut self, function: &'ast TraitItemFn) {
        self.judge(&function.sig, function.default.as_ref());
        visit::visit_trait_item_fn(self, function);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::product::parsed;

    fn found(text: &str) -> Vec<(Measure, String)> {
        let source = parsed("x.rs", text);
        let all = find(&[source]).into_iter();
        all.map(|one| (one.measure, one.place)).collect()
    }

    #[test]
    fn a_function_of_seventy_one_lines_is_long() {
        let body = "    f();\n".repeat(LINES_MAX - 1);
        let long = format!("// words\nfn f() {{}}\nfn long() {{\n{body}}}\n");
        assert_eq!(
            found(&long),
            [(Measure::Long, "x.rs:3 long, 71 lines".to_owned())]
        );
        assert!(found(&long.replacen("    f();\n", "", 1)).is_empty());
    }

    #[test]
    fn a_function_takes_much_by_number_or_by_tuple() {
        let text = "impl X { fn a(&self, a: A, b: B, c: C, d: D, e: E) {} fn ok(&self, a: A) {} }\n\
                    trait T { fn b(x: &(A, B)); }\nfn c(x: ()) -> (A, B) { g(|(x, y)| x) }\n";
        let names = found(text);
        assert_eq!(names.len(), 2, "{names:?}");
        assert!(names[0].1.contains(" a, 6 parameters"));
        assert!(names[1].1.contains(" b, a tuple"));
    }
    #[test]
    fn the_parameters_of_an_implemented_trait_are_not_counted() {
        let of = |head: &str| {
            found(&format!(
                "{head} {{ fn a(x: (A, B)) {{}} }} fn b(x: (A, B)) {{}}"
            ))
        };
        assert_eq!(of("impl X").len(), 2);
        assert_eq!(of("impl fuser::Filesystem for X").len(), 1);
    }
}

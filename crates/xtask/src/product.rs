//! The sources that ship, parsed, without their tests.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, anyhow};
use syn::{Attribute, File, ImplItem, Item, TraitItem};

use crate::files::{is_test_file, sources};

/// One source file of a crate.
pub struct Source {
    /// Its path below the workspace.
    pub name: String,
    /// The folder of its crate.
    pub folder: String,
    /// The top module of its crate that it belongs to.
    pub module: String,
    /// Its text.
    pub text: String,
    /// Its items, tests left out.
    pub items: File,
}

/// The sources of the workspace.
pub struct Sources {
    /// The files that ship.
    pub product: Vec<Source>,
    /// The texts of files of which nothing ships.
    pub tests: Vec<String>,
}

/// Reads and parses every source below `root`.
///
/// # Errors
/// A file cannot be read, or is not Rust.
pub fn read(root: &Path) -> Result<Sources> {
    let mut all = Sources {
        product: Vec::new(),
        tests: Vec::new(),
    };
    for path in sources(root)? {
        let name = path.strip_prefix(root).unwrap_or(&path);
        let name = name.display().to_string();
        let text = fs::read_to_string(&path).with_context(|| name.clone())?;
        match place(&name) {
            // A suite of checks serves the tests of other crates.
            Some((folder, module)) if !is_test_file(root, &path) && module != "conformance" => {
                all.product.push(parse(name, (folder, module), text)?);
            }
            _ => all.tests.push(text),
        }
    }
    Ok(all)
}

/// Parses a source file.
///
/// # Errors
/// The text is not Rust.
pub fn parse(name: String, (folder, module): (String, String), text: String) -> Result<Source> {
    let parsed = syn::parse_file(&text);
    let mut items = parsed.map_err(|e| anyhow!("{name}:{}: {e}", e.span().start().line))?;
    strip(&mut items.items);
    Ok(Source {
        name,
        folder,
        module,
        text,
        items,
    })
}

/// Returns the crate's folder and the top module of a source file.
fn place(name: &str) -> Option<(String, String)> {
    let (folder, file) = name.strip_prefix("crates/")?.split_once("/src/")?;
    let module = file.split('/').next().unwrap_or(file);
    let module = module.strip_suffix(".rs").unwrap_or(module);
    Some((folder.to_owned(), module.to_owned()))
}

/// Removes the items that are compiled for tests only.
fn strip(items: &mut Vec<Item>) {
    items.retain(|item| !is_test(attributes(item)));
    for item in items {
        match item {
            Item::Mod(module) => {
                if let Some((_, inner)) = &mut module.content {
                    strip(inner);
                }
            }
            Item::Impl(block) => block.items.retain(|item| match item {
                ImplItem::Fn(function) => !is_test(&function.attrs),
                _ => true,
            }),
            Item::Trait(block) => block.items.retain(|item| match item {
                TraitItem::Fn(function) => !is_test(&function.attrs),
                _ => true,
            }),
            _ => {}
        }
    }
}

fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Macro(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

/// Returns whether an item is compiled only if `test` is set, as far as its text says.
fn is_test(attrs: &[Attribute]) -> bool {
    attrs.iter().any(|attr| {
        let is_cfg = attr.path().is_ident("cfg");
        let words = attr.meta.require_list().map(|list| list.tokens.to_string());
        attr.path().is_ident("test")
            || is_cfg
                && words.is_ok_and(|words| {
                    !words.contains("not")
                        && words
                            .split(|c: char| !c.is_alphanumeric() && c != '_')
                            .any(|w| w == "test")
                })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_are_left_out_at_every_depth() {
        let text = "#[cfg(test)]\nmod tests;\n#[cfg(any(test, feature = \"x\"))]\nfn a() {}\n\
                    #[cfg(not(test))]\nfn b() {}\nimpl X { #[cfg(test)] fn c() {} fn d() {} }\n\
                    mod m { #[test] fn e() {} fn latest() {} }\n";
        let place = ("x".to_owned(), "y".to_owned());
        let source = parse("x.rs".to_owned(), place, text.to_owned()).expect("Rust");
        assert_eq!(source.items.items.len(), 3);
        let Item::Impl(block) = &source.items.items[1] else {
            panic!("an impl block");
        };
        assert_eq!(block.items.len(), 1);
        let Item::Mod(module) = &source.items.items[2] else {
            panic!("a module");
        };
        assert_eq!(
            module.content.as_ref().map(|(_, items)| items.len()),
            Some(1)
        );
    }
}

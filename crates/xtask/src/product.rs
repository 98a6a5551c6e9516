//! The sources that ship, parsed, without their tests.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, anyhow};
use syn::{Attribute, File, ImplItem, Item, TraitItem};

use crate::files::{is_test_file, sources};

/// One source file of a crate.
pub struct Source {
    /// The file's top-level module.
    pub module: String,
    /// The whole text.
    pub text: Text,
    /// The items, without tests.
    pub items: File,
}

/// The sources of the workspace.
pub struct Sources {
    /// The files that ship.
    pub product: Vec<Source>,
    /// The files that consist of tests only.
    pub tests: Vec<Text>,
    /// The documents.
    pub documents: Vec<Text>,
}

/// A text with a name.
pub struct Text {
    /// The path in the workspace.
    pub name: String,
    /// The folder of the crate. For a document, `docs` or `top`.
    pub folder: String,
    /// The text.
    pub text: String,
}

impl Text {
    /// Makes a text from its path in the workspace.
    pub fn new(name: String, text: String) -> Text {
        let mut parts = name.split('/');
        let folder = match (parts.next(), parts.next()) {
            (Some("crates"), Some(folder)) => folder,
            (Some("docs"), _) => "docs",
            _ => "top",
        };
        let folder = folder.to_owned();
        Text { name, folder, text }
    }

    /// Returns whether the text is a document.
    pub fn is_document(&self) -> bool {
        self.name.ends_with(".md")
    }
}

impl Sources {
    /// Returns all texts: sources with their tests, and documents.
    pub fn texts(&self) -> impl Iterator<Item = &Text> {
        let product = self.product.iter().map(|source| &source.text);
        product.chain(&self.tests).chain(&self.documents)
    }
}

/// Reads and parses every source below `root`.
///
/// # Errors
/// A file cannot be read, or is not Rust.
pub fn read(root: &Path) -> Result<Sources> {
    let mut all = Sources {
        product: Vec::new(),
        tests: Vec::new(),
        documents: documents(root)?,
    };
    for path in sources(root)? {
        let text = text(root, &path)?;
        let module = module(&text.name);
        // The `conformance` modules are checks that the tests of other crates run.
        let ships = module.filter(|module| !is_test_file(root, &path) && module != "conformance");
        match ships {
            Some(module) => all.product.push(parse(module, text)?),
            None => all.tests.push(text),
        }
    }
    Ok(all)
}

/// Parses a source file.
///
/// # Errors
/// The text is not Rust.
pub fn parse(module: String, text: Text) -> Result<Source> {
    let parsed = syn::parse_file(&text.text);
    let name = &text.name;
    let mut items = parsed.map_err(|e| anyhow!("{name}:{}: {e}", e.span().start().line))?;
    strip(&mut items.items);
    Ok(Source {
        module,
        text,
        items,
    })
}

/// Parses a source that a test contains.
#[cfg(test)]
pub fn parsed(name: &str, text: &str) -> Source {
    let text = Text::new(name.to_owned(), text.to_owned());
    parse("y".to_owned(), text).expect("it is Rust")
}

/// Reads the documents at the top and below `docs`.
fn documents(root: &Path) -> Result<Vec<Text>> {
    let mut paths = Vec::new();
    for entry in fs::read_dir(root).context("reading the workspace")? {
        paths.push(entry?.path());
    }
    let mut folders = vec![root.join("docs")];
    while let Some(folder) = folders.pop().filter(|folder| folder.is_dir()) {
        for entry in fs::read_dir(&folder).with_context(|| folder.display().to_string())? {
            let path = entry?.path();
            match path.is_dir() {
                true => folders.push(path),
                false => paths.push(path),
            }
        }
    }
    paths.sort();
    let documents = paths
        .iter()
        .filter(|path| path.extension().is_some_and(|ext| ext == "md"));
    documents.map(|path| text(root, path)).collect()
}

/// Reads a file below `root`.
fn text(root: &Path, path: &Path) -> Result<Text> {
    let name = path
        .strip_prefix(root)
        .unwrap_or(path)
        .display()
        .to_string();
    let text = fs::read_to_string(path).with_context(|| name.clone())?;
    Ok(Text::new(name, text))
}

/// Returns the top-level module of a source file. `None`: the file is a test or an example.
fn module(name: &str) -> Option<String> {
    let (_, file) = name.strip_prefix("crates/")?.split_once("/src/")?;
    let module = file.split('/').next().unwrap_or(file);
    Some(module.strip_suffix(".rs").unwrap_or(module).to_owned())
}

/// Removes the items compiled for tests only.
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

/// Returns whether an item's attributes limit the item to tests.
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
        let source = parsed("x.rs", text);
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

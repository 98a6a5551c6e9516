//! Lists the sources, and distinguishes tests from code that ships.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// Returns every Rust source of the crates below `root`, in the order of their paths.
pub fn sources(root: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(root.join("crates")).context("reading crates/")? {
        collect(&entry?.path(), &mut files)?;
    }
    files.sort();
    Ok(files)
}

/// Returns whether a source consists of tests only.
pub fn is_test_file(root: &Path, path: &Path) -> bool {
    let name = path.strip_prefix(root).unwrap_or(path);
    let within = |folder: &str| name.components().any(|part| part.as_os_str() == folder);
    within("tests") || is_test_module(path)
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    for entry in fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        let path = entry?.path();
        if path.is_dir() {
            if path.file_name().is_some_and(|name| name != "target") {
                collect(&path, files)?;
            }
        } else if path.extension().is_some_and(|ext| ext == "rs") {
            files.push(path);
        }
    }
    Ok(())
}

/// Returns whether the parent module declares this file as `#[cfg(test)]`.
fn is_test_module(path: &Path) -> bool {
    let (Some(folder), Some(stem)) = (path.parent(), path.file_stem()) else {
        return false;
    };
    let declaration = format!("#[cfg(test)]\nmod {};", stem.to_string_lossy());
    let inside = ["lib.rs", "mod.rs", "main.rs"].map(|parent| folder.join(parent));
    let beside = [folder.with_extension("rs")];
    inside
        .iter()
        .chain(&beside)
        .any(|parent| fs::read_to_string(parent).is_ok_and(|text| text.contains(&declaration)))
}

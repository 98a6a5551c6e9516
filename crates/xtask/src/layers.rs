//! The layer rule. A crate of the core may only depend on crates of lower layers, and never on a leaf.
//!
//! Only `[dependencies]` and `[build-dependencies]` count. Tests may use any crate.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

/// The layer of the leaves: programs, bindings and tools, which may depend on each other.
const LEAF: u8 = 8;

/// Every crate of the core, with its layer. A crate that is not in the list is a leaf.
const CORE: [(&str, u8); 15] = [
    ("perdura-base", 0),
    ("perdura-formats", 1),
    ("perdura-page", 1),
    ("perdura-device", 1),
    ("perdura-wal", 2),
    ("perdura-heap", 3),
    ("perdura-tree", 3),
    ("perdura-archive", 3),
    ("perdura-mirror", 3),
    ("perdura-txn", 4),
    ("perdura-types", 5),
    ("perdura-table", 5),
    ("perdura-recovery", 5),
    ("perdura-restore", 6),
    ("perdura", 7),
];

fn layer(package: &str) -> u8 {
    CORE.iter()
        .find(|(name, _)| *name == package)
        .map_or(LEAF, |(_, layer)| *layer)
}

/// Returns all faults of the workspace below `root`.
pub fn check(root: &Path) -> Result<Vec<String>> {
    let mut edges = BTreeMap::new();
    for entry in fs::read_dir(root.join("crates")).context("reading crates/")? {
        let path = entry?.path().join("Cargo.toml");
        if !path.exists() {
            continue;
        }
        let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        let (package, uses) = parse(&text);
        edges.insert(
            package.with_context(|| format!("{} has no name", path.display()))?,
            uses,
        );
    }
    Ok(judge(&edges))
}

fn judge(edges: &BTreeMap<String, Vec<String>>) -> Vec<String> {
    let mut faults = Vec::new();
    for (from, uses) in edges {
        for to in uses.iter().filter(|to| edges.contains_key(*to)) {
            let (above, below) = (layer(from), layer(to));
            let leaves = above == LEAF && below == LEAF;
            if above <= below && !leaves {
                let way = if above == below { "sideways" } else { "upward" };
                faults.push(format!(
                    "{from} (layer {above}) uses {to} (layer {below}): {way}"
                ));
            }
        }
    }
    for (core, _) in CORE {
        if !edges.contains_key(core) {
            faults.push(format!(
                "{core} is in the table of layers but not in the workspace"
            ));
        }
    }
    faults
}

/// Returns the name of a package and the packages that it depends on, from the text of its manifest. Manifests here
/// are simple: each dependency is one line or a separate table.
fn parse(manifest: &str) -> (Option<String>, Vec<String>) {
    let mut package = None;
    let mut uses = Vec::new();
    let mut section = String::new();
    for line in manifest.lines().map(str::trim) {
        if let Some(name) = line
            .strip_prefix('[')
            .and_then(|rest| rest.strip_suffix(']'))
        {
            section = name.trim_matches(['[', ']']).to_owned();
            for kind in ["dependencies.", "build-dependencies."] {
                uses.extend(section.strip_prefix(kind).map(str::to_owned));
            }
            continue;
        }
        let Some((key, value)) = line.split_once('=').filter(|_| !line.starts_with('#')) else {
            continue;
        };
        let key = key.trim();
        match section.as_str() {
            "package" if key == "name" => package = Some(value.trim().trim_matches('"').to_owned()),
            "dependencies" | "build-dependencies" => {
                let name = key.split('.').next().unwrap_or(key).trim_matches('"');
                uses.push(renamed(value).unwrap_or(name).to_owned());
            }
            _ => {}
        }
    }
    (package, uses)
}

/// Returns the true name of a dependency that the manifest renames; `None` if it is not renamed.
fn renamed(value: &str) -> Option<&str> {
    let rest = value
        .split_once("package")?
        .1
        .trim_start()
        .strip_prefix('=')?;
    rest.trim_start().strip_prefix('"')?.split('"').next()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn edges(extra: &[(&str, &[&str])]) -> BTreeMap<String, Vec<String>> {
        let mut edges: BTreeMap<String, Vec<String>> = CORE
            .iter()
            .map(|(name, _)| ((*name).to_owned(), Vec::new()))
            .collect();
        for (from, to) in extra {
            edges.insert(
                (*from).to_owned(),
                to.iter().map(|to| (*to).to_owned()).collect(),
            );
        }
        edges
    }

    #[test]
    fn an_edge_to_a_lower_layer_is_fine_and_leaves_may_use_each_other() {
        let fine = edges(&[
            ("perdura-txn", &["perdura-heap", "perdura-base", "serde"]),
            ("perdura-cli", &["perdura-server", "perdura", "perdura-wal"]),
            ("perdura-server", &["perdura"]),
            ("perdura-archive", &["perdura-wal", "perdura-page"]),
            ("perdura-table", &["perdura-txn"]),
            ("perdura", &["perdura-archive", "perdura-table"]),
        ]);
        assert!(judge(&fine).is_empty());
    }

    #[test]
    fn upward_and_sideways_edges_and_edges_to_leaves_are_faults() {
        for (from, to) in [
            ("perdura-wal", "perdura-heap"),
            ("perdura-page", "perdura-device"),
            ("perdura-base", "perdura"),
            ("perdura", "perdura-server"),
            ("perdura-wal", "perdura-archive"),
            ("perdura-archive", "perdura-heap"),
            ("perdura-heap", "perdura-tree"),
            ("perdura-tree", "perdura-heap"),
            ("perdura-txn", "perdura-table"),
        ] {
            let mut bad = edges(&[("perdura-server", &[])]);
            bad.entry(to.to_owned()).or_default();
            bad.insert(from.to_owned(), vec![to.to_owned()]);
            assert_eq!(judge(&bad).len(), 1, "{from} -> {to}");
        }
    }

    #[test]
    fn a_crate_of_the_table_that_is_gone_is_a_fault() {
        let mut some = edges(&[]);
        some.remove("perdura-page");
        assert!(judge(&some)[0].contains("perdura-page"));
    }

    #[test]
    fn dependencies_are_read_and_test_dependencies_are_not() {
        let manifest = "[package]\nname = \"x\"\n[dependencies]\na.workspace = true\n\
                        b = { path = \"../b\", package = \"real-b\" }\n# c = \"1\"\n\
                        [dependencies.d]\nversion = \"1\"\n[dev-dependencies]\ne = \"1\"\n\
                        [features]\nf = []\n";
        let (package, uses) = parse(manifest);
        assert_eq!(package.as_deref(), Some("x"));
        assert_eq!(uses, ["a", "real-b", "d"]);
    }

    #[test]
    fn this_workspace_keeps_the_rule() {
        assert_eq!(check(&crate::root()).unwrap(), Vec::<String>::new());
    }
}

//! Finds modules that import each other.

use std::collections::{BTreeMap, BTreeSet};

use super::{Found, Measure};
use crate::product::Source;
use crate::scan::{Kind, lines, without_strings};

/// Finds each crate's top modules with circular imports.
pub fn find(sources: &[Source]) -> Vec<Found> {
    let mut crates: BTreeMap<&str, Imports> = BTreeMap::new();
    for source in sources {
        let imports = crates.entry(&source.text.folder).or_default();
        let modules = imports.entry(source.module.clone()).or_default();
        modules.extend(imported(&source.text.text));
    }
    let mut found = Vec::new();
    for (folder, imports) in crates {
        for circle in circles(&imports) {
            for module in &circle {
                let place = format!("{module}, in a circle of {}", circle.len());
                found.push(Found::new(folder, Measure::Circled, place));
            }
        }
    }
    found
}

/// For each module of a crate, the modules that it imports.
type Imports = BTreeMap<String, BTreeSet<String>>;

/// Returns the top modules that a source names as `crate::module` outside of tests.
fn imported(source: &str) -> BTreeSet<String> {
    let mut modules = BTreeSet::new();
    for (kind, line) in lines(source) {
        if kind != Kind::Code {
            continue;
        }
        let code = without_strings(line);
        for (at, word) in code.match_indices("crate::") {
            let module: String = code[at + word.len()..]
                .chars()
                .take_while(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || *c == '_')
                .collect();
            modules.insert(module);
        }
    }
    modules
}

/// Returns the sets of modules with circular imports. Every module of a set imports all modules of the set, directly or
/// indirectly.
fn circles(imports: &Imports) -> Vec<Vec<String>> {
    let reached: BTreeMap<&String, BTreeSet<&String>> = imports
        .keys()
        .map(|from| (from, reach(imports, from)))
        .collect();
    let mut circles: Vec<Vec<String>> = Vec::new();
    for module in imports.keys() {
        let circle: Vec<String> = reached[module]
            .iter()
            .filter(|other| reached[**other].contains(module))
            .map(|other| (*other).clone())
            .collect();
        if circle.len() > 1 && !circles.contains(&circle) {
            circles.push(circle);
        }
    }
    circles
}

fn reach<'a>(imports: &'a Imports, from: &'a String) -> BTreeSet<&'a String> {
    let mut seen = BTreeSet::new();
    let mut next = vec![from];
    while let Some(module) = next.pop() {
        let known = imports[module]
            .iter()
            .filter_map(|to| imports.get_key_value(to));
        for (to, _) in known.filter(|(to, _)| *to != module) {
            if seen.insert(to) {
                next.push(to);
            }
        }
    }
    seen
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_circle_is_found_once_with_all_its_modules() {
        let imports = |list: &[(&str, &[&str])]| -> Imports {
            let set = |to: &[&str]| to.iter().map(|m| (*m).to_owned()).collect();
            list.iter()
                .map(|(from, to)| ((*from).to_owned(), set(to)))
                .collect()
        };
        let straight = imports(&[("a", &["b", "c", "a"]), ("b", &["c"]), ("c", &[])]);
        assert!(circles(&straight).is_empty());
        let round = imports(&[("a", &["b"]), ("b", &["c"]), ("c", &["a"]), ("d", &["a"])]);
        assert_eq!(circles(&round), [["a", "b", "c"]]);
    }

    #[test]
    fn an_import_is_what_stands_behind_crate() {
        let source = "use crate::room::Room;\n// crate::no\n let x = crate::age_2::f();\n";
        let modules: Vec<String> = imported(source).into_iter().collect();
        assert_eq!(modules, ["age_2", "room"]);
    }
}

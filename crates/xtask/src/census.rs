//! What can be counted in the sources, crate by crate: their size, long functions, assertions, and
//! modules that import each other in a circle.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use crate::files::{is_test_file, sources};
use crate::scan::{Kind, lines, without_strings};

/// A function of more lines than this is counted as long.
const FUNCTION_LINES: usize = 70;

/// Macros that state an invariant.
const ASSERTIONS: [&str; 6] = [
    "assert!",
    "assert_eq!",
    "assert_ne!",
    "debug_assert!",
    "debug_assert_eq!",
    "debug_assert_ne!",
];

/// The counts of one crate, tests left out.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Lines of every kind but tests.
    pub lines: usize,
    /// Functions of more than 70 lines.
    pub long_functions: Vec<String>,
    /// Assertions.
    pub assertions: usize,
    /// Modules that import each other in a circle, a list for each circle.
    pub circles: Vec<Vec<String>>,
}

impl Counts {
    /// Assertions in a thousand lines, rounded down.
    pub fn density(&self) -> usize {
        (self.assertions * 1000)
            .checked_div(self.lines)
            .unwrap_or(0)
    }
}

/// The counts of every crate below `root`, by the name of its folder.
pub fn count(root: &Path) -> Result<BTreeMap<String, Counts>> {
    let mut crates: BTreeMap<String, Counts> = BTreeMap::new();
    let mut imports: BTreeMap<String, Imports> = BTreeMap::new();
    for path in sources(root)? {
        let name = path.strip_prefix(root).unwrap_or(&path);
        let Some((folder, module)) = place(&name.display().to_string()) else {
            continue;
        };
        // A suite of checks is for the tests of other crates.
        if is_test_file(root, &path) || module == "conformance" {
            continue;
        }
        let source = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        let counts = crates.entry(folder.clone()).or_default();
        count_file(&source, &name.display().to_string(), counts);
        let modules = imports
            .entry(folder)
            .or_default()
            .entry(module)
            .or_default();
        modules.extend(imported(&source));
    }
    for (folder, imports) in imports {
        crates.entry(folder).or_default().circles = circles(&imports);
    }
    Ok(crates)
}

/// The counts as a table, with the names of long functions and circles below it.
pub fn print(root: &Path) -> Result<()> {
    let crates = count(root)?;
    println!(
        "| crate | lines | functions over {FUNCTION_LINES} | assertions | per 1000 | circles |"
    );
    println!("|---|---|---|---|---|---|");
    for (name, counts) in &crates {
        println!(
            "| {name} | {} | {} | {} | {} | {} |",
            counts.lines,
            counts.long_functions.len(),
            counts.assertions,
            counts.density(),
            counts.circles.len()
        );
    }
    println!();
    for counts in crates.values() {
        for function in &counts.long_functions {
            println!("long: {function}");
        }
    }
    for (name, counts) in &crates {
        for circle in &counts.circles {
            println!("circle in {name}: {}", circle.join(", "));
        }
    }
    Ok(())
}

/// The crate's folder and the top module of a source file of it.
fn place(name: &str) -> Option<(String, String)> {
    let (folder, file) = name.strip_prefix("crates/")?.split_once("/src/")?;
    let module = file.split('/').next().unwrap_or(file);
    let module = module.strip_suffix(".rs").unwrap_or(module);
    Some((folder.to_owned(), module.to_owned()))
}

fn count_file(source: &str, name: &str, counts: &mut Counts) {
    // The open function: its name, the line it began in, and the depth of braces around it.
    let mut open: Option<(String, usize, usize)> = None;
    let mut depth = 0;
    for (number, (kind, line)) in lines(source).into_iter().enumerate() {
        if kind == Kind::Test {
            continue;
        }
        counts.lines += 1;
        if kind == Kind::Comment {
            continue;
        }
        let code = without_strings(line);
        counts.assertions += assertions(&code);
        if open.is_none()
            && let Some(function) = function_name(&code)
        {
            open = Some((function, number, depth));
        }
        let opens = code.matches('{').count();
        depth = (depth + opens).saturating_sub(code.matches('}').count());
        let Some((function, begun, around)) = &open else {
            continue;
        };
        let ended = depth == *around && (code.contains('}') || code.trim_end().ends_with(';'));
        if ended {
            let length = number + 1 - begun;
            if length > FUNCTION_LINES {
                let long = format!("{name}:{} {function}, {length} lines", begun + 1);
                counts.long_functions.push(long);
            }
            open = None;
        }
    }
}

fn assertions(code: &str) -> usize {
    let begins = |at: usize| {
        let before = code[..at].chars().next_back();
        !before.is_some_and(|c| c.is_alphanumeric() || c == '_')
    };
    let of = |name: &str| {
        code.match_indices(name)
            .filter(|(at, _)| begins(*at))
            .count()
    };
    ASSERTIONS.into_iter().map(of).sum()
}

fn function_name(code: &str) -> Option<String> {
    let at = code.find("fn ")?;
    let qualifies = |word: &str| {
        word.starts_with("pub")
            || matches!(
                word,
                "const" | "unsafe" | "async" | "in" | "crate)" | "super)"
            )
    };
    if !code[..at].split_whitespace().all(qualifies) {
        return None;
    }
    let name: String = code[at + 3..]
        .chars()
        .take_while(|c| c.is_alphanumeric() || *c == '_')
        .collect();
    (!name.is_empty()).then_some(name)
}

/// Which modules each module of a crate imports.
type Imports = BTreeMap<String, BTreeSet<String>>;

/// The top modules of its own crate that a source names outside its tests.
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

/// Sets of modules each of which reaches each other one.
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
    fn functions_and_assertions_are_counted_outside_tests_only() {
        let body = "    assert!(a < b); debug_assert_eq!(a, b);\n".repeat(FUNCTION_LINES);
        let source = format!(
            "// assert!(no)\nfn short();\npub(crate) fn long() {{\n{body}}}\n\
             #[cfg(test)]\nmod tests {{\n fn f() {{ assert!(true); }}\n}}\n"
        );
        let mut counts = Counts::default();
        count_file(&source, "x.rs", &mut counts);
        assert_eq!(counts.assertions, 2 * FUNCTION_LINES);
        assert_eq!(counts.lines, FUNCTION_LINES + 4);
        assert_eq!(counts.long_functions, ["x.rs:3 long, 72 lines"]);
    }

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

//! Checks the house rules that can be checked in the text of the sources.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use crate::count::assertions::{self, Size};
use crate::count::{find, flaws, rows, wording};
use crate::files::{is_test_file, sources};
use crate::messages;
use crate::product::read;
use crate::ratchet;
use crate::scan::{Kind, lines, without_strings};
use crate::verdicts;

/// The limit of the lines in a file. A file with this many lines or more should be divided.
const LINES_MAX: usize = 600;

/// The minimum number of assertions in a thousand lines of each crate, as `cargo xtask census` counts them. A developer
/// raises a crate's number when the crate exceeds the number. No developer lowers a number.
const ASSERTIONS: [(&str, usize); 20] = [
    ("base", 16),
    ("formats", 13),
    ("page", 13),
    ("device", 15),
    ("wal", 12),
    ("heap", 12),
    ("tree", 12),
    ("archive", 12),
    ("mirror", 6),
    ("txn", 12),
    ("table", 13),
    ("recovery", 12),
    ("restore", 12),
    ("engine", 12),
    ("steal", 10),
    ("sim", 6),
    ("types", 8),
    ("rdb", 6),
    ("server", 3),
    ("cli", 3),
];

/// Crates below the engine. They may not use a clock, threads, files or output directly.
const BELOW_ENGINE: [&str; 13] = [
    "base", "formats", "page", "device", "wal", "heap", "tree", "archive", "mirror", "txn",
    "table", "recovery", "restore",
];

/// Banned calls below the engine, each with a replacement.
const BANNED: [(&str, &str); 9] = [
    ("Instant::now", "the Clock"),
    ("SystemTime::now", "the Clock"),
    ("std::fs", "the Disk"),
    ("thread::spawn", "steps that the engine drives"),
    ("thread::sleep", "steps that the engine drives"),
    ("println!", "a result or a report"),
    ("eprintln!", "a result or a report"),
    ("print!", "a result or a report"),
    ("RandomState", "a seeded hash"),
];

/// Macros and functions that write to stdout or stderr. Serving threads may not use these: a full disk would end the
/// thread, and a pipe without a reader would block the thread.
const PRINTS: [&str; 6] = [
    "println!",
    "print!",
    "eprintln!",
    "eprint!",
    "stdout()",
    "stderr()",
];

/// The files that may print: the module that prints the results of commands, the writer of log messages, and programs
/// and tests for developers.
const PRINTERS: [&str; 5] = [
    "crates/cli/src/output.rs",
    "crates/logging/src/writer.rs",
    "crates/xtask/src/",
    "crates/differ/src/",
    "crates/server/src/fuzz/",
];

/// The files that call the operating system, each with the permitted calls of [`BANNED`].
const BOUNDARY: [(&str, &[&str]); 9] = [
    ("crates/device/src/descriptors.rs", &["std::fs"]),
    ("crates/device/src/file.rs", &["std::fs"]),
    ("crates/device/src/file/dirs.rs", &["std::fs"]),
    ("crates/device/src/file/locks.rs", &["std::fs"]),
    ("crates/device/src/file/real.rs", &["std::fs"]),
    ("crates/device/src/file/regular.rs", &["std::fs"]),
    ("crates/device/src/in_memory.rs", &["std::fs"]),
    ("crates/device/src/write_cache.rs", &["std::fs"]),
    (
        "crates/device/src/clock.rs",
        &["Instant::now", "SystemTime::now", "std::fs"],
    ),
];

/// Returns all faults below `root`.
pub fn check(root: &Path) -> Result<Vec<String>> {
    let mut faults = Vec::new();
    for path in sources(root)? {
        let name = path
            .strip_prefix(root)
            .unwrap_or(&path)
            .display()
            .to_string();
        let source = fs::read_to_string(&path).with_context(|| name.clone())?;
        faults.extend(judge(&name, &source, is_test_file(root, &path)));
        for page in format_pages(&source) {
            if !root.join(&page).exists() {
                faults.push(format!("{name}: {page} does not exist"));
            }
        }
    }
    let sources = read(root)?;
    let found = find(&sources);
    faults.extend(ratchet::check(root, &rows(&sources, &found), &found)?);
    faults.extend(wording::too_long(&sources));
    faults.extend(messages::check(root, &sources.product)?);
    faults.extend(verdicts::check(root)?);
    let switched = flaws::in_assertions(&sources.product).into_iter();
    faults.extend(switched.map(|place| format!("{place}: a flaw switches an assertion off")));
    faults.extend(too_few(&assertions::sizes(&sources.product)));
    Ok(faults)
}

/// Returns a fault for each crate that has fewer assertions than [`ASSERTIONS`] requires.
fn too_few(crates: &BTreeMap<String, Size>) -> Vec<String> {
    let fault = |(name, floor): (&str, usize)| {
        let density = crates.get(name).map_or(0, |size| size.density());
        (density < floor).then(|| {
            format!(
                "crates/{name}: {density} assertions in a thousand lines, and there were {floor}"
            )
        })
    };
    ASSERTIONS.into_iter().filter_map(fault).collect()
}

/// Returns the faults of one file. `name` is its path in the workspace. `is_test` is true if the file consists of
/// tests only.
fn judge(name: &str, source: &str, is_test: bool) -> Vec<String> {
    let mut faults = Vec::new();
    let count = source.lines().count();
    if count >= LINES_MAX {
        faults.push(format!("{name}: {count} lines; split it below {LINES_MAX}"));
    }
    let root_file = name.ends_with("/src/lib.rs") || name.ends_with("/src/main.rs");
    if root_file && !source.starts_with("//! ") {
        faults.push(format!("{name}: the crate does not open with what it is"));
    }
    for (number, (kind, line)) in lines(source).into_iter().enumerate() {
        let place = format!("{name}:{}", number + 1);
        let test = is_test || kind == Kind::Test;
        let code = if kind == Kind::Comment {
            String::new()
        } else {
            without_strings(line)
        };
        for word in unfinished_words() {
            if line.contains(&word) {
                faults.push(format!("{place}: {word}; finish it or open an issue"));
            }
        }
        if let Some(path) = machine_path(line).filter(|_| !test) {
            faults.push(format!("{place}: a path of one machine: {path}"));
        }
        if !test && below_engine(name) {
            for (call, instead) in BANNED {
                if calls(&code, call) && !allowed(name, call) {
                    faults.push(format!("{place}: {call} below the engine; use {instead}"));
                }
            }
        } else if !test && may_not_print(name) {
            for call in PRINTS.into_iter().filter(|call| calls(&code, call)) {
                faults.push(format!(
                    "{place}: {call}; use tracing, or cli::output in a verb"
                ));
            }
        }
    }
    faults
}

/// Returns whether `code` calls `call`. A `print!` within `eprint!` does not count.
fn calls(code: &str, call: &str) -> bool {
    code.match_indices(call).any(|(at, _)| {
        let before = code[..at].chars().next_back();
        !before.is_some_and(|c| c.is_alphanumeric() || c == '_')
    })
}

fn below_engine(name: &str) -> bool {
    BELOW_ENGINE
        .iter()
        .any(|folder| name.starts_with(&format!("crates/{folder}/src/")))
}

/// Returns whether a file may not print. Libraries and the command may not print, except for [`PRINTERS`]. Examples may
/// print.
fn may_not_print(name: &str) -> bool {
    name.contains("/src/") && !PRINTERS.iter().any(|printer| name.starts_with(printer))
}

fn allowed(name: &str, call: &str) -> bool {
    BOUNDARY
        .iter()
        .any(|(file, calls)| *file == name && calls.contains(&call))
}

/// Returns the words that mark unfinished work. They are put together here, so that this file does not contain them.
fn unfinished_words() -> [String; 3] {
    [
        ["TO", "DO"].concat(),
        ["FIX", "ME"].concat(),
        ["XX", "X"].concat(),
    ]
}

/// Returns the start of a path that exists only on a developer's machine. `None`: the line has no path of this kind.
fn machine_path(line: &str) -> Option<&'static str> {
    [
        "/tm\u{70}/",
        "/hom\u{65}/",
        "/wor\u{6b}/",
        "/roo\u{74}/",
        "/User\u{73}/",
    ]
    .into_iter()
    .find(|path| line.contains(path))
}

/// Returns the pages about formats that a source mentions.
fn format_pages(source: &str) -> Vec<String> {
    let mut pages = Vec::new();
    for (at, _) in source.match_indices("docs/formats/") {
        let page: String = source[at..]
            .chars()
            .take_while(|c| c.is_ascii_alphanumeric() || matches!(c, '/' | '-' | '_' | '.'))
            .collect();
        let page = page.trim_end_matches('.');
        if page.ends_with(".md") {
            pages.push(page.to_owned());
        }
    }
    pages
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_banned_call_is_found_in_code_and_not_in_words() {
        let bad = "//! Doc.\nfn f() { let t = Instant::now(); }\n";
        assert_eq!(judge("crates/wal/src/x.rs", bad, false).len(), 1);
        assert_eq!(judge("crates/engine/src/x.rs", bad, false).len(), 0);
        assert_eq!(judge("crates/device/src/clock.rs", bad, false).len(), 0);
        let words = "// Instant::now is banned\nfn f() { g(\"Instant::now\"); }\n";
        assert_eq!(judge("crates/wal/src/x.rs", words, false).len(), 0);
        let tests = "#[cfg(test)]\nmod tests {\n    fn f() { println!(); }\n}\n";
        assert_eq!(judge("crates/wal/src/x.rs", tests, false).len(), 0);
        assert_eq!(
            judge("crates/wal/src/x.rs", "fn f() { println!(); }", false).len(),
            1
        );
    }

    #[test]
    fn only_the_output_of_verbs_and_the_log_may_print() {
        let source = "fn f() { eprintln!(\"x\"); }\n";
        for (name, faults) in [
            ("crates/server/src/x.rs", 1),
            ("crates/logd/src/x.rs", 1),
            ("crates/engine/src/x.rs", 1),
            ("crates/cli/src/verb/x.rs", 1),
            ("crates/wal/src/x.rs", 1),
            ("crates/cli/src/output.rs", 0),
            ("crates/engine/examples/x.rs", 0),
        ] {
            assert_eq!(judge(name, source, false).len(), faults, "{name}");
            assert_eq!(judge(name, source, true).len(), 0, "{name}");
        }
    }

    #[test]
    fn unfinished_work_is_found_everywhere() {
        for word in unfinished_words() {
            let source = format!("// {word}: later\n");
            assert_eq!(judge("crates/cli/tests/x.rs", &source, true).len(), 1);
        }
    }

    #[test]
    fn machine_paths_are_allowed_in_tests_only() {
        let source = ["fn f() { open(\"/tm", "p/x\") }\n"].concat();
        assert_eq!(judge("crates/cli/src/x.rs", &source, false).len(), 1);
        assert_eq!(judge("crates/cli/tests/x.rs", &source, true).len(), 0);
    }

    #[test]
    fn long_files_and_undocumented_crates_are_found() {
        let long = "fn f() {}\n".repeat(LINES_MAX);
        assert_eq!(judge("crates/wal/src/x.rs", &long, false).len(), 1);
        assert_eq!(
            judge("crates/wal/src/lib.rs", "fn f() {}\n", false).len(),
            1
        );
    }

    #[test]
    fn a_crate_that_asserts_less_than_its_floor_is_a_fault() {
        let counts = |assertions| Size {
            lines: 1000,
            code: 1000,
            assertions,
        };
        let mut crates: BTreeMap<String, Size> = ASSERTIONS
            .into_iter()
            .map(|(name, floor)| (name.to_owned(), counts(floor)))
            .collect();
        assert!(too_few(&crates).is_empty());
        crates.insert("wal".to_owned(), counts(0));
        assert_eq!(too_few(&crates).len(), 1);
        crates.remove("txn");
        assert_eq!(too_few(&crates).len(), 2);
    }

    #[test]
    fn mentioned_format_pages_are_listed() {
        let source = ["see `docs/", "formats/page.md`, docs/", "formats/*.md"].concat();
        assert_eq!(
            format_pages(&source),
            [["docs/", "formats/page.md"].concat()]
        );
    }
}

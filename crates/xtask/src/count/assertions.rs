//! Counts the assertions in code that ships.

use std::collections::BTreeMap;

use crate::product::Source;
use crate::scan::{Kind, lines, without_strings};

/// Macros that state an invariant.
const ASSERTIONS: [&str; 6] = [
    "assert!",
    "assert_eq!",
    "assert_ne!",
    "debug_assert!",
    "debug_assert_eq!",
    "debug_assert_ne!",
];

/// The size and the assertions of one crate, without tests.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Size {
    /// Lines of every kind.
    pub lines: usize,
    /// Lines with code.
    pub code: usize,
    /// Assertions.
    pub assertions: usize,
}

impl Size {
    /// Returns the number of assertions in a thousand lines, rounded down.
    pub fn density(self) -> usize {
        (self.assertions * 1000)
            .checked_div(self.lines)
            .unwrap_or(0)
    }
}

/// Returns the sizes of the crates by their folders.
pub fn sizes(sources: &[Source]) -> BTreeMap<String, Size> {
    let mut sizes: BTreeMap<String, Size> = BTreeMap::new();
    for source in sources {
        add(
            &source.text.text,
            sizes.entry(source.text.folder.clone()).or_default(),
        );
    }
    sizes
}

fn add(source: &str, size: &mut Size) {
    for (kind, line) in lines(source) {
        if kind == Kind::Test {
            continue;
        }
        size.lines += 1;
        if kind == Kind::Comment || line.trim().is_empty() {
            continue;
        }
        size.code += 1;
        size.assertions += assertions(&without_strings(line));
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn assertions_are_counted_outside_tests_only() {
        let source = "// assert!(no)\n\nfn f() { assert!(a < b); debug_assert_eq!(a, b); }\n\
                      #[cfg(test)]\nmod tests {\n fn f() { assert!(true); }\n}\n";
        let mut size = Size::default();
        add(source, &mut size);
        let expected = Size {
            lines: 3,
            code: 1,
            assertions: 2,
        };
        assert_eq!(size, expected);
        assert_eq!(size.density(), 666);
    }
}

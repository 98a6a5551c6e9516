//! The scripts and functions whose newest run was long.
//!
//! Such a script is noted in [`Flights`](crate::flights::Flights) at the begin of its next run. Other scripts are noted
//! when they have run for some time. Until then, loops that need their latches wait.

use std::cell::RefCell;
use std::collections::HashSet;

/// The greatest number of names. When there are more, the loop forgets them all and learns them anew.
const NAMES_MAX: usize = 1024;

/// The names of long scripts: a SHA-1, or the name of a function.
#[derive(Debug, Default)]
pub(super) struct LongScripts {
    names: RefCell<HashSet<Box<str>>>,
}

impl LongScripts {
    /// Returns whether the newest run of this script was long.
    pub(super) fn contains(&self, name: &str) -> bool {
        let names = self.names.borrow();
        !names.is_empty() && names.contains(name)
    }

    /// Notes whether a run of this script was long. `was_expected` is the result of [`contains`](Self::contains) before
    /// the run.
    pub(super) fn note(&self, name: &str, was_expected: bool, is_long: bool) {
        if was_expected == is_long {
            return;
        }
        let mut names = self.names.borrow_mut();
        if !is_long {
            names.remove(name);
            return;
        }
        if names.len() >= NAMES_MAX {
            names.clear();
        }
        names.insert(Box::from(name));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_newest_run_counts_and_the_names_are_bounded() {
        let scripts = LongScripts::default();
        scripts.note("a", false, true);
        assert!(scripts.contains("a") && !scripts.contains("b"));
        scripts.note("a", true, false);
        assert!(!scripts.contains("a"));
        for at in 0..3 * NAMES_MAX {
            scripts.note(&at.to_string(), false, true);
            assert!(scripts.names.borrow().len() <= NAMES_MAX);
        }
        assert!(scripts.contains(&(3 * NAMES_MAX - 1).to_string()));
    }
}

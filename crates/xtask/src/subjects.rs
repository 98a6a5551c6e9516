//! Checks that the subjects of commits are short enough to be read in a list.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

/// The time of the newest commit that the rule does not check. It is a time and not a hash, because a shallow clone may
/// lack the commit.
const SINCE: &str = "2026-11-28T18:50:55Z";

/// The maximum number of characters of a subject.
const CHARACTERS_MAX: usize = 72;

/// Returns a fault for each too long subject in the commits after [`SINCE`].
///
/// Sources without a history, for example an unpacked archive, have no commits to check. The function then prints a
/// message and returns no faults.
///
/// # Errors
/// `git` cannot be run.
pub fn check(root: &Path) -> Result<Vec<String>> {
    let mut git = Command::new("git");
    let since = format!("--since={SINCE}");
    git.current_dir(root)
        .args(["log", "--format=%h %s", &since]);
    let output = git.output().context("running git log")?;
    if !output.status.success() {
        let why = String::from_utf8_lossy(&output.stderr);
        println!("no commit is judged: {}", why.trim());
    }
    let log = String::from_utf8_lossy(&output.stdout);
    Ok(log.lines().filter_map(judge).collect())
}

/// Returns the fault of a line of `git log`, which is a hash and a subject. `None`: the subject is short enough.
fn judge(line: &str) -> Option<String> {
    let (hash, subject) = line.split_once(' ')?;
    let count = subject.chars().count();
    (count > CHARACTERS_MAX).then(|| {
        format!(
            "commit {hash}: a subject of {count} characters, at most {CHARACTERS_MAX}: {subject}"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_subject_of_seventy_three_characters_is_a_fault() {
        assert_eq!(
            judge(&format!("1a2b3c {}", "x".repeat(CHARACTERS_MAX))),
            None
        );
        let fault = judge(&format!("1a2b3c {}", "x".repeat(CHARACTERS_MAX + 1)));
        assert!(fault.is_some_and(|fault| fault.starts_with("commit 1a2b3c: a subject of 73 ")));
    }
}

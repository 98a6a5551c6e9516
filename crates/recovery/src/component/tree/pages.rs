//! The two checks of a tree's pages. The first checks each page as it is on disk. The second runs after a restart in
//! memory, and checks all pages together. The pages on disk were written at different moments, so they form one tree
//! only after a restart.

use perdura_base::{Error, Gsn, Pid, Result};
use perdura_device::Access;
use perdura_tree::check::{Fault, Keys, check};
use perdura_tree::file::PAGES;
use perdura_tree::scrub::scrub;
use perdura_tree::tree::Tree;

use crate::anchor::Anchor;
use crate::findings::{Findings, Problem, TreeFindings};
use crate::options::RestartOptions;
use crate::sections::tree::TREE_DIR;
use crate::sections::tree::TreeAnchor;
use crate::tree::open_pages;

fn lost(keys: Option<&Keys>) -> String {
    keys.map_or(String::new(), |keys| format!(" Lost: {keys}."))
}

/// Checks each page on disk.
pub(super) fn check_pages(
    options: &RestartOptions,
    anchor: &Anchor,
    named: &TreeAnchor,
    found: &mut Findings,
) {
    let opened = open_pages(options, anchor, named, Access::Buffered);
    match opened.and_then(|(file, _)| scrub(&file)) {
        Err(error) => found.problem(format!("{TREE_DIR}/{PAGES}"), &error),
        Ok(scrubbed) => {
            for page in &scrubbed.damaged {
                let (pid, expected) = (page.pid, page.expected);
                found.problems.push(Problem {
                    file: format!("{TREE_DIR}/{PAGES}"),
                    offset: Some(page.offset),
                    what: format!(
                        "page {pid}: expected {expected}, found something else.{}",
                        lost(page.keys.as_ref())
                    ),
                });
            }
            let findings = TreeFindings {
                page_bytes: named.page_bytes,
                whole: scrubbed.whole,
                torn: scrubbed.torn,
                unwritten: scrubbed.unwritten,
                ..TreeFindings::default()
            };
            found.trees.insert(TREE_DIR, findings);
        }
    }
}

/// Checks a tree after a restart. Returns the error of the first page that fails a check. A restart may succeed without
/// a read of that page, but the page's rows are lost.
pub(super) fn check_tree(tree: &Tree, eosl: Gsn, found: &mut Findings) -> Result<()> {
    let checked = check(tree, eosl)?;
    if let Some(findings) = found.trees.get_mut(TREE_DIR) {
        findings.leaves = checked.leaves;
        findings.inner = checked.inner;
        findings.free = checked.free;
    }
    let errors = checked.faults.iter().map(|fault| error_of(tree, fault));
    let errors: Vec<Error> = errors.collect();
    for (fault, error) in checked.faults.iter().zip(&errors) {
        let offset = Some(offset_of(tree, fault.pid));
        // If the page is damaged on disk, the check of the disk has reported it already.
        let mut problems = found.problems.iter();
        if !problems.any(|problem| problem.offset == offset) {
            found.problem("tree", error);
        }
    }
    errors.into_iter().next().map_or(Ok(()), Err)
}

fn offset_of(tree: &Tree, pid: Pid) -> u64 {
    u64::from(pid.0) * perdura_base::num::to_u64(tree.shape().page_bytes)
}

fn error_of(tree: &Tree, fault: &Fault) -> Error {
    Error::corrupt(
        format!("{TREE_DIR}/{PAGES}"),
        offset_of(tree, fault.pid),
        format!("page {}: {}", fault.pid, fault.expected),
        "something else",
        format!(
            "The rows of the page cannot be read, but a restart may not need it.{} Restore the \
             database from a copy.",
            lost(fault.lost.as_ref())
        ),
    )
}

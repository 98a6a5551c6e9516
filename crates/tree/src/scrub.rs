//! The scrub: checks all pages of a file as they are on disk before a restart.
//!
//! Pages on disk were written at different times, so each page is checked alone. A page of zeros was never written.
//! Only a restart finds out whether the log has the page.

use crate::check::{Keys, children};
use crate::file::PageFile;
use perdura_base::num::to_u64;
use perdura_base::{Pid, Result};
use perdura_page::tree_page::{Kind, Node};
use std::collections::BTreeSet;

/// A page damaged on disk, without a copy in the double-write file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Damaged {
    /// The page.
    pub pid: Pid,
    /// The page's offset in the file, bytes.
    pub offset: u64,
    /// A description of the expected page.
    pub expected: &'static str,
    /// The range of keys that the damaged page had. The page on disk that leads to the damaged page shows the range.
    /// `None`: no page leads to it.
    pub keys: Option<Keys>,
}

/// The result of a scrub.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Scrubbed {
    /// The number of whole pages.
    pub whole: u64,
    /// The number of damaged pages that a restart can restore from the double-write file.
    pub torn: u64,
    /// The number of pages that were never written.
    pub unwritten: u64,
    /// The damaged pages that cannot be restored.
    pub damaged: Vec<Damaged>,
}

/// Reads all pages of a file.
///
/// # Errors
/// Errors of the disk; as `PageFile::restorable`.
pub fn scrub(file: &PageFile) -> Result<Scrubbed> {
    let restorable = file.restorable()?;
    let mut scrubbed = Scrubbed::default();
    let mut buffer = file.buffer();
    for pid in (0..file.pages()?).map(Pid) {
        file.read_raw(pid, &mut buffer)?;
        let opened = Node::open(&buffer, pid, file.database());
        let Err(malformed) = opened else {
            scrubbed.whole += 1;
            continue;
        };
        if restorable.contains(&pid) {
            scrubbed.torn += 1;
        } else if buffer.iter().all(|byte| *byte == 0) {
            scrubbed.unwritten += 1;
        } else {
            scrubbed.damaged.push(Damaged {
                pid,
                offset: file.offset(pid),
                expected: malformed.expected,
                keys: None,
            });
        }
    }
    let damaged = to_u64(scrubbed.damaged.len());
    let seen = scrubbed.whole + scrubbed.torn + scrubbed.unwritten + damaged;
    assert_eq!(seen, u64::from(file.pages()?), "each page is one of these");
    find_keys(file, &mut scrubbed.damaged)?;
    Ok(scrubbed)
}

/// Sets `keys` of the damaged pages. Searches the file for the pages that lead to them.
fn find_keys(file: &PageFile, damaged: &mut [Damaged]) -> Result<()> {
    if damaged.is_empty() {
        return Ok(());
    }
    assert!(damaged.is_sorted_by_key(|page| page.pid), "pages ascend");
    let wanted: BTreeSet<Pid> = damaged.iter().map(|page| page.pid).collect();
    let mut buffer = file.buffer();
    for pid in (0..file.pages()?).map(Pid) {
        file.read_raw(pid, &mut buffer)?;
        let Ok(node) = Node::open(&buffer, pid, file.database()) else {
            continue;
        };
        if node.kind() != Kind::Inner {
            continue;
        }
        let leads_to = children(node).into_iter();
        for child in leads_to.filter(|child| wanted.contains(&child.pid)) {
            let mut found = damaged.iter_mut().filter(|page| page.pid == child.pid);
            if let Some(page) = found.next() {
                page.keys = Some(child.keys);
            }
        }
    }
    Ok(())
}

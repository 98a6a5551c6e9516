//! The check of a tree's links, the references from page to page. A single page does not show whether links are right.
//!
//! The check of a single page ([`Node::open`](perdura_page::tree_page::Node::open)) covers the page's bytes, keys and
//! fences. The check in this module compares each page with the page that leads to it: the table, the level and the
//! fences must match. The check starts from the meta page and follows the tables and the list of free pages. It must
//! reach every used page, and each only once.

use crate::contract::{Answer, insist};
use crate::pool::Pinned;
use crate::tree::{META, Tree};
use perdura_base::num::to_usize;
use perdura_base::{Error, Gsn, Pid, Result, TableId};
use perdura_page::tree_page::{Kind, Node};

/// A range of keys of a table. The end is exclusive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Keys {
    /// The table.
    pub table: TableId,
    /// The first key.
    pub low: Vec<u8>,
    /// The end of the range. `None`: the range reaches to the table's end.
    pub high: Option<Vec<u8>>,
}

impl std::fmt::Display for Keys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let low = self.low.escape_ascii();
        match &self.high {
            Some(high) => {
                let high = high.escape_ascii();
                write!(f, "table {}, keys from \"{low}\" to \"{high}\"", self.table)
            }
            None => write!(f, "table {}, keys from \"{low}\" on", self.table),
        }
    }
}

/// A damaged or wrongly linked page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// The page.
    pub pid: Pid,
    /// A description of the page that was expected.
    pub expected: String,
    /// The keys of the rows lost with the page. Always `None` for the meta page, with which the rows of all tables are
    /// lost. For any other page, `None` means that no rows are lost.
    pub lost: Option<Keys>,
}

/// The numbers of pages and rows in a tree, and its faults.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Checked {
    /// The number of leaves.
    pub leaves: u64,
    /// The number of inner pages, which lead to other pages.
    pub inner: u64,
    /// The number of free pages.
    pub free: u64,
    /// The number of rows.
    pub rows: u64,
    /// The faults.
    pub faults: Vec<Fault>,
}

/// A page reached from another page, with the properties that it must have.
pub(crate) struct Expected {
    pub pid: Pid,
    /// The page's level. `None`: the page is a root, and may have any level.
    level: Option<u8>,
    pub keys: Keys,
}

/// The progress of a check.
struct Check<'t> {
    tree: &'t Tree,
    eosl: Gsn,
    /// The first page that was never used.
    next: u32,
    reached: Vec<bool>,
    found: Checked,
}

/// Checks all pages of a tree. [`Tree::find_tables`] must have been called. No other thread may use the tree. `eosl`
/// is the end of the stable log. To make room in memory, the check may write dirty pages with changes up to `eosl`.
///
/// # Errors
/// Errors of the disk; [`Usage`](Error::Usage) if memory is full of dirty pages that cannot be written before the log
/// is flushed. A damaged page is not an error but a [`Fault`].
pub fn check(tree: &Tree, eosl: Gsn) -> Result<Checked> {
    let roots = tree.roots.read();
    let next = roots.next;
    let mut check = Check {
        tree,
        eosl,
        next,
        reached: vec![false; to_usize(u64::from(next))],
        found: Checked::default(),
    };
    check.reach(META);
    for (table, root) in &roots.tables {
        let keys = Keys {
            table: *table,
            low: Vec::new(),
            high: None,
        };
        check.table(Expected {
            pid: *root,
            level: None,
            keys,
        })?;
    }
    check.free(roots.free)?;
    check.unreached();
    let counted = check.found.leaves + check.found.inner + check.found.free;
    assert!(counted <= u64::from(next), "a page is counted once");
    Ok(check.found)
}

impl Check<'_> {
    fn fault(&mut self, pid: Pid, expected: impl Into<String>, lost: Option<Keys>) {
        self.found.faults.push(Fault {
            pid,
            expected: expected.into(),
            lost,
        });
    }

    /// Marks a page as reached. Returns false if the page was already reached, or was never used according to the meta
    /// page.
    fn reach(&mut self, pid: Pid) -> bool {
        let seen = self.reached.get_mut(to_usize(u64::from(pid.0)));
        seen.is_some_and(|seen| !std::mem::replace(seen, true))
    }

    /// Reads all pages of a table.
    fn table(&mut self, root: Expected) -> Result<()> {
        let mut open = vec![root];
        while let Some(expected) = open.pop() {
            if !self.reach(expected.pid) {
                let pid = expected.pid;
                let what = match pid.0 < self.next {
                    true => "a page that one other leads to",
                    false => "a page that was used, before the end that the meta page names",
                };
                self.fault(pid, what, Some(expected.keys));
                continue;
            }
            let pinned = match pin(self.tree, self.eosl, expected.pid)? {
                Ok(pinned) => pinned,
                Err(what) => {
                    self.fault(expected.pid, what, Some(expected.keys));
                    continue;
                }
            };
            let page = pinned.read();
            let node = page.node();
            let wrong = differs(node, &expected);
            let children = match node.kind() {
                Kind::Inner if wrong.is_none() => children(node),
                _ => Vec::new(),
            };
            let rows = u64::try_from(node.len()).unwrap_or(u64::MAX);
            let is_leaf = node.level() == 0;
            drop(page);
            drop(pinned);
            if let Some(what) = wrong {
                self.fault(expected.pid, what, Some(expected.keys));
            } else if is_leaf {
                self.found.leaves += 1;
                self.found.rows += rows;
            } else {
                self.found.inner += 1;
                open.extend(children);
            }
        }
        Ok(())
    }

    /// Follows the list of free pages from `first`.
    fn free(&mut self, first: Option<Pid>) -> Result<()> {
        let mut at = first;
        while let Some(pid) = at {
            if !self.reach(pid) {
                self.fault(pid, "a free page that is named once", None);
                return Ok(());
            }
            let next = match pin(self.tree, self.eosl, pid)? {
                Ok(pinned) => {
                    let page = pinned.read();
                    let node = page.node();
                    match node.kind() {
                        Kind::Free => Ok(node.next_free()),
                        _ => Err(String::from("a free page")),
                    }
                }
                Err(what) => Err(what),
            };
            match next {
                Ok(next) => at = next,
                Err(what) => {
                    self.fault(pid, what, None);
                    return Ok(());
                }
            }
            self.found.free += 1;
        }
        Ok(())
    }

    /// Reports pages that no page leads to. After any fault, reports none of these pages, because a damaged page hides
    /// its links.
    fn unreached(&mut self) {
        if !self.found.faults.is_empty() {
            return;
        }
        assert_eq!(self.reached.len(), to_usize(u64::from(self.next)));
        let lone: Vec<Pid> = (0..self.next)
            .zip(&self.reached)
            .filter(|(_, reached)| !**reached)
            .map(|(pid, _)| Pid(pid))
            .collect();
        for pid in lone {
            self.fault(
                pid,
                "a page that a table or the row of free pages leads to",
                None,
            );
        }
    }
}

/// Pins a page. If the page is damaged, the inner result is an error that describes the expected page.
fn pin(tree: &Tree, eosl: Gsn, pid: Pid) -> Result<std::result::Result<Pinned<'_>, String>> {
    let pool = tree.pool();
    let call = || Ok(pool.pin(pid)?.map_or(Answer::NoFrame, Answer::Done));
    match insist(call, || pool.write_step(eosl)) {
        Ok(Some(pinned)) => Ok(Ok(pinned)),
        Ok(None) => Err(Error::Usage(String::from(
            "the pages in memory are dirty, and wait for the log",
        ))),
        Err(Error::Corrupt(damage)) => Ok(Err(damage.expected.clone())),
        Err(error) => Err(error),
    }
}

/// Returns a description of the first expected property that the page lacks. `None`: the page is as expected.
fn differs(node: Node<'_>, expected: &Expected) -> Option<String> {
    let Keys { table, low, high } = &expected.keys;
    let is_node = matches!(node.kind(), Kind::Inner | Kind::Leaf);
    if !is_node || node.table() != *table {
        return Some(format!("a page of table {table}"));
    }
    if let Some(level) = expected.level.filter(|level| *level != node.level()) {
        return Some(format!("a page of level {level}"));
    }
    if node.low() != &low[..] || node.high() != high.as_deref() {
        return Some(String::from("the fences that lead to it"));
    }
    None
}

/// Returns the pages that an inner page leads to, with their expected properties.
pub(crate) fn children(node: Node<'_>) -> Vec<Expected> {
    assert!(
        node.kind() == Kind::Inner && node.level() > 0,
        "an inner page"
    );
    let high_of = |at: usize| match at + 1 < node.len() {
        true => Some(node.key(at + 1).to_vec()),
        false => node.high().map(<[u8]>::to_vec),
    };
    let child = |at: usize| Expected {
        pid: node.child(at),
        level: Some(node.level() - 1),
        keys: Keys {
            table: node.table(),
            low: node.key(at).to_vec(),
            high: high_of(at),
        },
    };
    (0..node.len()).map(child).collect()
}

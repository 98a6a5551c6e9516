//! The redo of one operation. The page is found by the operation's key, through the tree (Algorithms 2 and 5), or by
//! the page number in the log (Algorithm 1).

use crate::contract::{Answer, Operation, done};
use crate::dirty_pages::{DirtyPages, Skip};
use crate::tree::{Tree, put};
use perdura_base::flaw::{Flaw, armed};
use perdura_base::{Error, Gsn, Pid, Result, TableId};
use perdura_page::tree_page::{Kind, Node};

/// The result of the redo of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Redone {
    /// The operation was missing in its page, and has been applied.
    Applied,
    /// The table of dirty pages shows that the operation is in its page.
    Skipped(Skip),
    /// The operation's page was read and already has the operation.
    Had,
    /// The operation's key now belongs to a different page. A change of structure has moved the row there, with all its
    /// older changes.
    Moved,
}

/// The source of the page number of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum By {
    /// The tree, in which the row's key was looked up. The page is the row's leaf now.
    Key,
    /// The operation in the log. The page was the row's leaf when the operation was logged, but may have a different
    /// use now.
    Page,
}

/// Returns whether a page is the leaf of an operation's row. The fences alone do not show this: a freed page may be
/// used again as an inner page with fences around the key.
fn is_leaf_of(node: Node<'_>, operation: &Operation<'_>) -> bool {
    node.kind() == Kind::Leaf && node.table() == operation.table && node.covers(operation.key)
}

impl Tree {
    /// Returns the page number of a key's leaf. Does not read the leaf, because the leaf's parent has the number.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn leaf_of(&self, table: TableId, key: &[u8]) -> Result<Answer<Pid>> {
        let roots = self.roots.read();
        let path = done!(self.path(&roots, table, key, 1)?);
        let parent = path.last().map(|(_, pinned)| pinned.read());
        let leaf = match (parent, roots.tables.get(&table)) {
            (Some(parent), _) => parent.node().child_of(key),
            (None, Some(root)) => *root,
            (None, None) => return Err(Error::Usage(format!("there is no table {table}"))),
        };
        Ok(Answer::Done(leaf))
    }

    /// Redoes an operation in the leaf of its key. `table` is the dirty page table, if the restart method uses one.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn redo_by_key(
        &self,
        gsn: Gsn,
        operation: &Operation<'_>,
        table: Option<&mut DirtyPages>,
    ) -> Result<Answer<Redone>> {
        let pid = done!(self.leaf_of(operation.table, operation.key)?);
        let found = Operation { pid, ..*operation };
        self.redo_at(gsn, &found, table, By::Key)
    }

    /// Redoes an operation in the page that the log names.
    ///
    /// # Errors
    /// As [`Pool::pin`](crate::pool::Pool::pin).
    pub fn redo_by_page(
        &self,
        gsn: Gsn,
        operation: &Operation<'_>,
        table: &mut DirtyPages,
    ) -> Result<Answer<Redone>> {
        self.redo_at(gsn, operation, Some(table), By::Page)
    }

    /// Redoes an operation in page `operation.pid`. `by` is the source of this page number.
    fn redo_at(
        &self,
        gsn: Gsn,
        operation: &Operation<'_>,
        table: Option<&mut DirtyPages>,
        by: By,
    ) -> Result<Answer<Redone>> {
        let pid = operation.pid;
        if let Some(skip) = table.as_ref().and_then(|table| table.skips(pid, gsn)) {
            return Ok(Answer::Done(Redone::Skipped(skip)));
        }
        let Some(pinned) = self.pool.pin(pid)? else {
            return Ok(Answer::NoFrame);
        };
        let mut page = pinned.write();
        let mut node = page.node();
        if let Some(table) = table {
            table.raise(pid, node.node().plsn());
        }
        let is_here = is_leaf_of(node.node(), operation);
        if !is_here && by == By::Page && !armed(Flaw::FencesIgnored) {
            return Ok(Answer::Done(Redone::Moved));
        }
        if gsn <= node.node().plsn() {
            return Ok(Answer::Done(Redone::Had));
        }
        let has_room = |row: &[u8]| node.node().has_room_for(operation.key, row);
        let is_known = is_here || armed(Flaw::FencesIgnored);
        if !is_known || !operation.after.is_none_or(has_room) {
            let expected = "the leaf of a row, with room for what the log puts into it";
            return Err(self.damaged(pid, expected));
        }
        self.pool.monitor().lock().note(pid, gsn);
        put(&mut node, operation.key, operation.after);
        node.set_plsn(gsn);
        Ok(Answer::Done(Redone::Applied))
    }
}

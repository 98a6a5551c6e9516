//! The merge of a sparse leaf with a neighbour, and of the inner pages above.

use crate::contract::{Answer, Records, done};
use crate::structure::Plan;
use crate::tree::Tree;
use perdura_base::{Pid, Result, TableId};
use perdura_page::tree_page::{Node, NodeMut};

/// Two pages under one parent that could be merged into one.
struct Neighbours {
    left: (Pid, Vec<u8>),
    right: (Pid, Vec<u8>),
    /// The key of the right page in the parent.
    key: Vec<u8>,
}

impl Tree {
    /// Merges the leaf of a key with a neighbour, if one page has ample room for the rows of both. Then merges the
    /// inner pages above under the same condition. The right page of two merged pages becomes free. Returns whether the
    /// leaf was merged.
    ///
    /// # Errors
    /// `Usage` if the table does not exist; as [`Pool::pin`](crate::pool::Pool::pin).
    pub fn merge(&self, table: TableId, key: &[u8], log: &dyn Records) -> Result<Answer<bool>> {
        let mut roots = self.roots.write();
        let path = done!(self.path(&roots, table, key, 0)?);
        let mut plan = Plan::new(&roots);
        let mut copies: Vec<(Pid, Vec<u8>)> = path
            .iter()
            .map(|(pid, pinned)| (*pid, pinned.read().bytes().to_vec()))
            .collect();
        drop(path);
        // The parent of the last merged pages, and the key of the right page, which the parent loses. The next round
        // may merge this parent too.
        let mut dropped: Option<(Pid, Vec<u8>)> = None;
        while copies.len() > 1 {
            let Some((pid, bytes)) = copies
                .pop()
                .filter(|(_, bytes)| Node::over(bytes).is_sparse())
            else {
                break;
            };
            let Some((parent, parent_bytes)) = copies.last_mut() else {
                break;
            };
            let both = done!(self.neighbours(pid, bytes, &Node::over(parent_bytes))?);
            let Some(Neighbours {
                left: (left, mut left_bytes),
                right: (right, right_bytes),
                key,
            }) = both
            else {
                break;
            };
            let merged = NodeMut::over(&mut left_bytes).merged_with(&Node::over(&right_bytes));
            plan.image(left, merged);
            self.free_page(&mut plan, right);
            NodeMut::over(parent_bytes).remove(&key);
            dropped = Some((*parent, key));
            let parent = (*parent, Node::over(parent_bytes).len());
            if copies.len() == 1 && parent.1 == 1 {
                // The root has only one child left, which becomes the root.
                self.free_page(&mut plan, parent.0);
                plan.root(table, left);
                dropped = None;
                break;
            }
        }
        match (dropped, plan.is_empty()) {
            (None, true) => return Ok(Answer::Done(false)),
            (Some((parent, key)), _) => plan.drop_child(parent, key),
            (None, false) => {}
        }
        done!(self.change(&mut roots, &plan, log)?);
        Ok(Answer::Done(true))
    }

    /// Returns a page and a neighbour under the same parent, if one page has ample room for the rows of both.
    fn neighbours(
        &self,
        pid: Pid,
        bytes: Vec<u8>,
        parent: &Node<'_>,
    ) -> Result<Answer<Option<Neighbours>>> {
        let at = parent.find(Node::over(&bytes).low());
        let at = at.map_err(|_| self.damaged(parent.pid(), "the low fence of a child"))?;
        if parent.child(at) != pid {
            return Err(self.damaged(parent.pid(), "the page that was found below"));
        }
        let beside = [
            Some(at + 1).filter(|at| *at < parent.len()),
            at.checked_sub(1),
        ];
        for other in beside.into_iter().flatten() {
            let other_pid = parent.child(other);
            let Some(pinned) = self.pool().pin(other_pid)? else {
                return Ok(Answer::NoFrame);
            };
            let other_bytes = pinned.read().bytes().to_vec();
            let is_right = other > at;
            let (left, right) = if is_right {
                ((pid, bytes.clone()), (other_pid, other_bytes))
            } else {
                ((other_pid, other_bytes), (pid, bytes.clone()))
            };
            if Node::over(&left.1).may_take(&Node::over(&right.1)) {
                let key = parent.key(at.max(other)).to_vec();
                return Ok(Answer::Done(Some(Neighbours { left, right, key })));
            }
        }
        Ok(Answer::Done(None))
    }
}

//! The creation of tables, and the split of a leaf and of the full inner pages above it.

use crate::contract::{Answer, Records, done};
use crate::structure::Plan;
use crate::tree::{META, Tree};
use perdura_base::{Error, Pid, Result, TableId};
use perdura_page::tree_page::{Kind, Node, NodeMut, format, separator_between};

impl Tree {
    /// Makes a table without rows.
    ///
    /// # Errors
    /// `Usage` if the table exists or the meta page is full; errors of the disk if the file cannot grow.
    pub fn make_table(&self, table: TableId, log: &dyn Records) -> Result<Answer<()>> {
        let mut roots = self.roots.write();
        if roots.tables.contains_key(&table) {
            return Err(Error::Usage(format!("there is a table {table}")));
        }
        let Some(meta) = self.pool().pin(META)? else {
            return Ok(Answer::NoFrame);
        };
        if !meta.read().node().has_room_for(&[0; 4], &[0; 4]) {
            let text = "the tree has no room for another table";
            return Err(Error::Usage(String::from(text)));
        }
        let mut plan = Plan::new(&roots);
        let pid = done!(self.take_page(&mut plan)?);
        let leaf = self.spec(Kind::Leaf, 0, table, pid);
        plan.root(table, pid);
        plan.image(pid, format(self.shape().page_bytes, &leaf));
        drop(meta);
        self.change(&mut roots, &plan, log)
    }

    /// Splits the leaf of a new key, and the full inner pages above this leaf.
    pub(crate) fn split(
        &self,
        table: TableId,
        key: &[u8],
        log: &dyn Records,
    ) -> Result<Answer<()>> {
        let mut roots = self.roots.write();
        let path = done!(self.path(&roots, table, key, 0)?);
        let mut plan = Plan::new(&roots);
        // The page that was split off in the level below, with its first key.
        let mut new: Option<(Vec<u8>, Pid)> = None;
        for (pid, pinned) in path.iter().rev() {
            let page = pinned.read();
            let node = page.node();
            let separator = match &new {
                None => leaf_separator(node, key),
                Some((below, child)) => {
                    // The new cell has a length, the key and the four bytes of a child. It also needs a slot.
                    if node.room() >= below.len() + 8 {
                        plan.put_child(*pid, below, *child);
                        new = None;
                        break;
                    }
                    node.key(node.middle()).to_vec()
                }
            };
            let right = done!(self.take_page(&mut plan)?);
            let mut copy = page.bytes().to_vec();
            let image = NodeMut::over(&mut copy).right_of(&separator, right);
            plan.image(right, image);
            plan.cut(*pid, &separator);
            if let Some((below, child)) = new {
                let to = if below < separator { *pid } else { right };
                plan.put_child(to, &below, child);
            }
            new = Some((separator, right));
        }
        if let (Some((separator, right)), Some((old, pinned))) = (new, path.first()) {
            let level = pinned.read().node().level() + 1;
            let root = done!(self.take_page(&mut plan)?);
            let spec = self.spec(Kind::Inner, level, table, root);
            plan.image(root, format(self.shape().page_bytes, &spec));
            plan.put_child(root, b"", *old);
            plan.put_child(root, &separator, right);
            plan.root(table, root);
        }
        drop(path);
        self.change(&mut roots, &plan, log)
    }
}

/// Returns the key that splits a leaf without room for `key`. A `key` after all keys of the leaf gets a new leaf, and
/// the old leaf stays full. So rows inserted in ascending order fill their leaves.
fn leaf_separator(node: Node<'_>, key: &[u8]) -> Vec<u8> {
    let last = node.key(node.len() - 1);
    if last < key {
        return separator_between(last, key).to_vec();
    }
    let middle = node.middle();
    separator_between(node.key(middle - 1), node.key(middle)).to_vec()
}

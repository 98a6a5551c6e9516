//! The items in a range of ranks, read from the front or from the back. A step costs O(1) on average, because a cursor
//! leaves its leaf only at the leaf's end.

use smallvec::SmallVec;

use super::node::{Child, Item, Node};
use crate::entry::Entry;

/// The items in a range of ranks.
pub(crate) struct Range<'a> {
    root: &'a Node,
    from: u64,
    to: u64,
    front: Option<Cursor<'a>>,
    back: Option<Cursor<'a>>,
}

impl<'a> Range<'a> {
    pub(super) fn new(root: &'a Node, from: u64, to: u64) -> Range<'a> {
        Range {
            root,
            from,
            to,
            front: None,
            back: None,
        }
    }
}

impl Iterator for Range<'_> {
    type Item = (f64, Entry);

    fn next(&mut self) -> Option<(f64, Entry)> {
        if self.from == self.to {
            return None;
        }
        let cursor = self
            .front
            .get_or_insert_with(|| Cursor::seek(self.root, self.from));
        self.from += 1;
        cursor.next().map(Item::open)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = usize::try_from(self.to - self.from).ok();
        (left.unwrap_or(usize::MAX), left)
    }
}

impl DoubleEndedIterator for Range<'_> {
    fn next_back(&mut self) -> Option<(f64, Entry)> {
        if self.from == self.to {
            return None;
        }
        let cursor = self
            .back
            .get_or_insert_with(|| Cursor::seek(self.root, self.to));
        self.to -= 1;
        cursor.prev().map(Item::open)
    }
}

/// A position between two items.
struct Cursor<'a> {
    /// The inner nodes above the leaf, each with the index of the child that leads to the leaf.
    path: SmallVec<[(&'a [Child], usize); 6]>,
    leaf: &'a [Item],
    /// The number of items in the leaf that come before the position.
    at: usize,
}

impl<'a> Cursor<'a> {
    /// Returns the position before the item at `rank`, or after the last item if `rank` is too high.
    fn seek(root: &'a Node, mut rank: u64) -> Cursor<'a> {
        let (mut node, mut path) = (root, SmallVec::<[(&[Child], usize); 6]>::new());
        loop {
            match node {
                Node::Leaf(items) => {
                    let at = usize::try_from(rank).unwrap_or(usize::MAX);
                    return Cursor {
                        path,
                        leaf: items.as_slice(),
                        at: at.min(items.len()),
                    };
                }
                Node::Inner(children) => {
                    let mut at = 0;
                    while at + 1 < children.len() && rank >= children[at].count {
                        rank -= children[at].count;
                        at += 1;
                    }
                    path.push((children.as_slice(), at));
                    node = &children[at].node;
                }
            }
        }
    }

    fn next(&mut self) -> Option<Item> {
        if self.at == self.leaf.len() {
            self.climb(|at, count| Some(at + 1).filter(|at| *at < count), |_| 0)?;
            self.at = 0;
        }
        let item = self.leaf.get(self.at).copied();
        self.at += 1;
        item
    }

    fn prev(&mut self) -> Option<Item> {
        if self.at == 0 {
            self.climb(|at, _| at.checked_sub(1), |count| count - 1)?;
            self.at = self.leaf.len();
        }
        self.at -= 1;
        self.leaf.get(self.at).copied()
    }

    /// Moves to a neighbouring leaf. `step` gets a child's index and the number of children, and returns the index of
    /// the child's neighbour. `begin` gets a node's number of children, and returns the index of the child to enter.
    fn climb(
        &mut self,
        step: impl Fn(usize, usize) -> Option<usize>,
        begin: impl Fn(usize) -> usize,
    ) -> Option<()> {
        loop {
            let (children, at) = self.path.pop()?;
            let Some(at) = step(at, children.len()) else {
                continue;
            };
            self.path.push((children, at));
            let mut node = &children[at].node;
            while let Node::Inner(children) = node {
                let at = begin(children.len());
                self.path.push((children.as_slice(), at));
                node = &children[at].node;
            }
            if let Node::Leaf(items) = node {
                self.leaf = items.as_slice();
            }
            return Some(());
        }
    }
}

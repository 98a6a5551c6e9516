//! A node and everything below it: descents, splits and merges.
//!
//! Every function that changes a node gets the tree's count of bytes and updates it.

use super::array::{filled, heap_bytes, level, parts, put, trim};
use super::score_of;
use crate::entry::Entry;

/// The maximum number of items of a leaf.
pub(super) const ITEMS_MAX: usize = 64;
/// The maximum number of children of an inner node.
pub(super) const CHILDREN_MAX: usize = 32;

/// A score, and the entry with the place of the member's row.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Item {
    /// The score, as an integer that sorts as the score does.
    pub(super) key: u64,
    pub(super) entry: Entry,
}

impl Item {
    pub(super) fn open(self) -> (f64, Entry) {
        (score_of(self.key), self.entry)
    }
}

/// The edges of the tree, left and right, that a node touches.
#[derive(Clone, Copy)]
pub(super) struct Edges {
    pub(super) left: bool,
    pub(super) right: bool,
}

impl Edges {
    pub(super) const BOTH: Edges = Edges {
        left: true,
        right: true,
    };

    /// Returns the edges of the tree that child `at` of this node touches. The node has `count` children.
    pub(super) fn of_child(self, at: usize, count: usize) -> Edges {
        Edges {
            left: self.left && at == 0,
            right: self.right && at + 1 == count,
        }
    }

    /// Returns the index at which a full node is split to make room for an item at `at`. `len` is the node's length.
    pub(super) fn cut(self, at: usize, len: usize) -> usize {
        if self.right && at == len {
            len
        } else if self.left && at == 0 {
            0
        } else {
            len / 2
        }
    }
}

/// A child node, with the smallest item and the count of items in the child.
pub(super) struct Child {
    /// The smallest item below the child.
    pub(super) low: Item,
    /// The number of items below the child.
    pub(super) count: u64,
    pub(super) node: Node,
}

impl Child {
    /// Makes a child of a node. The node must not be empty.
    pub(super) fn of(node: Node) -> Child {
        let low = node.low().expect("a child has items");
        let count = node.count();
        Child { low, count, node }
    }
}

/// A leaf, or an inner node.
pub(super) enum Node {
    Leaf(Vec<Item>),
    Inner(Vec<Child>),
}

impl Default for Node {
    fn default() -> Node {
        Node::Leaf(Vec::new())
    }
}

impl Node {
    pub(super) fn of_children(children: [Child; 2], bytes: &mut usize) -> Node {
        Node::Inner(filled(children.into_iter(), 2, bytes))
    }

    /// Builds a tree from ascending items. Its nodes are at most seven eighths full.
    pub(super) fn build(items: impl ExactSizeIterator<Item = Item>, bytes: &mut usize) -> Node {
        let mut level: Vec<Node> = parts(items, ITEMS_MAX, bytes).map(Node::Leaf).collect();
        while level.len() > 1 {
            let children = level.into_iter().map(Child::of);
            level = parts(children, CHILDREN_MAX, bytes)
                .map(Node::Inner)
                .collect();
        }
        level.pop().unwrap_or_default()
    }

    pub(super) fn low(&self) -> Option<Item> {
        match self {
            Node::Leaf(items) => items.first().copied(),
            Node::Inner(children) => children.first().map(|child| child.low),
        }
    }

    pub(super) fn count(&self) -> u64 {
        match self {
            Node::Leaf(items) => u64::try_from(items.len()).unwrap_or(u64::MAX),
            Node::Inner(children) => children.iter().map(|child| child.count).sum(),
        }
    }

    /// Returns the number of items or children in this node alone.
    fn width(&self) -> usize {
        match self {
            Node::Leaf(items) => items.len(),
            Node::Inner(children) => children.len(),
        }
    }

    pub(super) fn width_max(&self) -> usize {
        match self {
            Node::Leaf(_) => ITEMS_MAX,
            Node::Inner(_) => CHILDREN_MAX,
        }
    }

    /// Inserts an item at a rank. If this splits the node, returns the new node, which follows this one.
    pub(super) fn insert_at(
        &mut self,
        rank: u64,
        item: Item,
        edges: Edges,
        bytes: &mut usize,
    ) -> Option<Node> {
        match self {
            Node::Leaf(items) => {
                let at = usize::try_from(rank).unwrap_or(usize::MAX);
                put::<_, ITEMS_MAX>(items, at, item, edges, bytes).map(Node::Leaf)
            }
            Node::Inner(children) => {
                let (at, rank) = find(children, |before, count| before <= count, rank)?;
                let below = edges.of_child(at, children.len());
                let child = &mut children[at];
                let split = child.node.insert_at(rank, item, below, bytes);
                let right = split.map(Child::of);
                child.count = child.count + 1 - right.as_ref().map_or(0, |right| right.count);
                child.low = child.node.low().expect("a child has items");
                debug_assert_eq!(
                    child.count,
                    child.node.count(),
                    "what was split off is no longer counted here"
                );
                put::<_, CHILDREN_MAX>(children, at + 1, right?, edges, bytes).map(Node::Inner)
            }
        }
    }

    /// Removes the item at a rank. Returns `None` if the item does not exist.
    pub(super) fn remove_at(&mut self, rank: u64, bytes: &mut usize) -> Option<Item> {
        match self {
            Node::Leaf(items) => {
                let at = usize::try_from(rank).unwrap_or(usize::MAX);
                let removed = (at < items.len()).then(|| items.remove(at));
                trim(items, bytes);
                removed
            }
            Node::Inner(children) => {
                let (at, rank) = find(children, |before, count| before < count, rank)?;
                let child = &mut children[at];
                let removed = child.node.remove_at(rank, bytes)?;
                child.count -= 1;
                debug_assert_eq!(child.count, child.node.count(), "one item less below");
                match child.node.low() {
                    Some(low) => child.low = low,
                    None => {
                        let emptied = children.remove(at);
                        emptied.node.forget(bytes);
                        trim(children, bytes);
                        return Some(removed);
                    }
                }
                if child.node.width() * 4 < child.node.width_max() && children.len() > 1 {
                    mend(children, at, bytes);
                }
                Some(removed)
            }
        }
    }

    /// Subtracts the array of an emptied node from the count of bytes.
    fn forget(self, bytes: &mut usize) {
        *bytes -= match self {
            Node::Leaf(items) => heap_bytes(&items),
            Node::Inner(children) => heap_bytes(&children),
        };
    }

    /// Replaces this node by its only child while the node has exactly one child. A node without children becomes an
    /// empty leaf.
    pub(super) fn shed_root(&mut self, bytes: &mut usize) {
        while let Node::Inner(children) = self
            && children.len() < 2
        {
            *bytes -= heap_bytes(children);
            let only = children.pop().map(|child| child.node);
            *self = only.unwrap_or_default();
        }
    }

    pub(super) fn at(&self, mut rank: u64) -> Option<Item> {
        let mut node = self;
        loop {
            match node {
                Node::Leaf(items) => return items.get(usize::try_from(rank).ok()?).copied(),
                Node::Inner(children) => {
                    let (at, inside) = find(children, |before, count| before < count, rank)?;
                    rank = inside;
                    node = &children[at].node;
                }
            }
        }
    }

    /// Returns the number of items that `pred` accepts, and the first item that it refuses. `pred` must accept a prefix
    /// of the items.
    pub(super) fn partition_point(
        &self,
        pred: &mut impl FnMut(&Item) -> bool,
    ) -> (u64, Option<Item>) {
        let (mut node, mut before) = (self, 0);
        // The smallest item after the current node. It is in an ancestor, as the `low` of a child.
        let mut behind_node = None;
        loop {
            match node {
                Node::Leaf(items) => {
                    let here = items.partition_point(&mut *pred);
                    let rank = before + u64::try_from(here).unwrap_or(u64::MAX);
                    return (rank, items.get(here).copied().or(behind_node));
                }
                Node::Inner(children) => {
                    let behind = children.partition_point(|child| pred(&child.low));
                    let next = children.get(behind).map(|child| child.low);
                    behind_node = next.or(behind_node);
                    let Some(at) = behind.checked_sub(1) else {
                        return (before, behind_node);
                    };
                    before += children[..at].iter().map(|child| child.count).sum::<u64>();
                    node = &children[at].node;
                }
            }
        }
    }
}

/// Returns the index of the first child that `inside` accepts, and the rank within that child. A rank within a child is
/// `rank` less the counts of the children before it. `inside` gets this rank and the child's count.
fn find(
    children: &[Child],
    inside: impl Fn(u64, u64) -> bool,
    mut rank: u64,
) -> Option<(usize, u64)> {
    for (at, child) in children.iter().enumerate() {
        if inside(rank, child.count) {
            return Some((at, rank));
        }
        rank -= child.count;
    }
    None
}

/// Merges a thin child with a neighbour, if the merged node has some room left. Otherwise makes the two about equally
/// wide.
fn mend(children: &mut Vec<Child>, at: usize, bytes: &mut usize) {
    let left = if at + 1 < children.len() { at } else { at - 1 };
    let right = children.remove(left + 1);
    let child = &mut children[left];
    let split = match (&mut child.node, right.node) {
        (Node::Leaf(a), Node::Leaf(b)) => level(a, b, ITEMS_MAX, bytes).map(Node::Leaf),
        (Node::Inner(a), Node::Inner(b)) => level(a, b, CHILDREN_MAX, bytes).map(Node::Inner),
        _ => unreachable!("all leaves are equally deep"),
    };
    child.count += right.count;
    if let Some(split) = split {
        let right = Child::of(split);
        children[left].count -= right.count;
        children.insert(left + 1, right);
    }
    debug_assert!(
        children
            .iter()
            .all(|child| child.count == child.node.count()),
        "neighbours that were brought together share their items"
    );
    trim(children, bytes);
}

//! The order-statistics index of a sorted set: a B+tree of (score, entry) pairs, with counts.
//!
//! A sorted set must answer three questions: the rank of a member, the member at a rank, and the members between two
//! scores or between two members. So an inner node keeps for each child the number of items below it. One descent then
//! answers each question. An item is 16 bytes: the score as an integer that sorts as the score does, and the [`Entry`]
//! with the place of the row. The member itself is only in a page, so no byte is stored twice. To find an item's rank,
//! a caller passes a predicate that reads pages. Items are inserted and removed by rank, so undoing a change reads no
//! page. This is necessary because a rollback restores the pages first.
//!
//! Memory matters more than the last nanosecond. The array of a node grows by eight items at a time. So a node that is
//! two thirds full takes little more than two thirds of the memory of a full one. An insertion at the tree's edge
//! splits a node at the node's end and not in the middle. So ascending scores (times, counters) leave full nodes.
//!
//! Invariants, which tests verify with [`check`](OrderIndex::check): all leaves are equally deep; items ascend
//! strictly. A child's `low` is exactly the child's smallest item, and never a removed item. A removed item has no row,
//! so it could not be compared. A child's `count` is exact. A node that is not at an edge of the tree is at least a
//! quarter full. `bytes` is the size of the arrays.
//!
//! -0.0 and 0.0 are one score here, because the two compare equal. A caller that displays a score reads it from the
//! row.

mod array;
mod node;
mod range;
#[cfg(test)]
mod tests;

use crate::entry::Entry;
use node::{Child, Edges, Item, Node};
pub(crate) use range::Range;

/// The bit that marks a negative score.
const SIGN: u64 = 1 << 63;

/// Returns an integer that sorts as the score does. The caller must refuse NaN.
fn key_of(score: f64) -> u64 {
    // The addition turns -0.0 into 0.0 and leaves every other score unchanged.
    let bits = (score + 0.0).to_bits();
    if bits & SIGN == 0 { bits | SIGN } else { !bits }
}

/// Returns the score that [`key_of`] made this integer from.
fn score_of(key: u64) -> f64 {
    f64::from_bits(if key & SIGN == 0 { !key } else { key & !SIGN })
}

/// Items in the order of (score, member), with ranks.
#[derive(Default)]
pub(crate) struct OrderIndex {
    root: Node,
    len: u64,
    /// The bytes of the nodes' arrays.
    bytes: usize,
}

impl OrderIndex {
    /// Returns an empty index.
    pub(crate) fn new() -> OrderIndex {
        OrderIndex::default()
    }

    /// Returns an index of items that are already in ascending order.
    pub(crate) fn from_sorted(items: Vec<(f64, Entry)>) -> OrderIndex {
        let mut index = OrderIndex::new();
        debug_assert!(
            items.is_sorted_by_key(|(score, _)| key_of(*score)),
            "the items ascend"
        );
        index.len = u64::try_from(items.len()).unwrap_or(u64::MAX);
        let items = items.into_iter().map(|(score, entry)| Item {
            key: key_of(score),
            entry,
        });
        index.root = Node::build(items, &mut index.bytes);
        index
    }

    /// Returns the number of items.
    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    /// Returns the size of the nodes' arrays, bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Inserts an item at a rank. The caller has found this rank for it.
    ///
    /// # Panics
    /// Panics if the index has fewer than `rank` items.
    pub(crate) fn insert_at(&mut self, rank: u64, score: f64, entry: Entry) {
        assert!(rank <= self.len, "rank {rank} of {}", self.len);
        let item = Item {
            key: key_of(score),
            entry,
        };
        let split = self
            .root
            .insert_at(rank, item, Edges::BOTH, &mut self.bytes);
        if let Some(right) = split {
            let left = Child::of(std::mem::take(&mut self.root));
            self.root = Node::of_children([left, Child::of(right)], &mut self.bytes);
        }
        self.len += 1;
        debug_assert_eq!(self.root.count(), self.len, "each item is counted once");
    }

    /// Removes the item at a rank and returns it.
    ///
    /// # Panics
    /// Panics if the item does not exist.
    pub(crate) fn remove_at(&mut self, rank: u64) -> (f64, Entry) {
        assert!(rank < self.len, "rank {rank} of {}", self.len);
        let removed = self.root.remove_at(rank, &mut self.bytes);
        let removed = removed.expect("a rank below the length");
        self.len -= 1;
        self.root.shed_root(&mut self.bytes);
        debug_assert_eq!(self.root.count(), self.len, "one item has left the tree");
        removed.open()
    }

    /// Returns the item at a rank, or `None` if the rank is too high.
    pub(crate) fn at(&self, rank: u64) -> Option<(f64, Entry)> {
        self.root.at(rank).map(Item::open)
    }

    /// Returns the number of items before the first item that `pred` refuses. `pred` must accept a prefix of the items,
    /// and refuse all later items.
    pub(crate) fn partition_point(&self, pred: impl FnMut(f64, Entry) -> bool) -> u64 {
        self.partition(pred).0
    }

    /// Like [`partition_point`](Self::partition_point), but also returns the first item that `pred` refuses.
    pub(crate) fn partition(
        &self,
        mut pred: impl FnMut(f64, Entry) -> bool,
    ) -> (u64, Option<(f64, Entry)>) {
        let mut pred = |item: &Item| pred(score_of(item.key), item.entry);
        let (rank, next) = self.root.partition_point(&mut pred);
        (rank, next.map(Item::open))
    }

    /// Returns the items at the ranks from `from` up to, but not including, `to`. The caller can read the items from
    /// the front and from the back.
    pub(crate) fn range(&self, from: u64, to: u64) -> Range<'_> {
        let to = to.min(self.len);
        Range::new(&self.root, from.min(to), to)
    }

    /// Returns all items.
    pub(crate) fn iter(&self) -> Range<'_> {
        self.range(0, self.len)
    }
}

//! The order-statistics index of a sorted set: a B+tree of (score, entry) that counts.
//!
//! A sorted set must answer three questions: the rank of a member, the member at a rank, and the stretch between two
//! scores or two members. So an inner node keeps for each child the number of items below it, and each question takes
//! one descent. An item is 16 bytes: the score as an integer that sorts like it, and the [`Entry`] with the place of
//! the row. The member itself is only in its page, so nothing is stored twice. A caller finds an item's rank by a
//! predicate that reads pages, and inserts and removes items by rank. So undoing a change reads no page. This matters
//! because a rollback restores the pages first.
//!
//! Memory matters more than the last nanosecond. The array of a node grows by eight items at a time. So a node that is
//! two thirds full takes little more than two thirds of the memory of a full one. A node at the tree's edge is split at
//! its end and not in the middle, so that ascending scores (times, counters) leave full nodes behind.
//!
//! Invariants, which [`check`](OrderIndex::check) walks in tests: all leaves are equally deep; items ascend strictly. A
//! child's `low` is exactly its smallest item, because a separator that named a removed row could not be compared. A
//! child's `count` is exact. A node that is not at an edge of the tree has at least a quarter of its items. `bytes` is
//! the size of the arrays.
//!
//! -0.0 and 0.0 are the same score here, because they compare equal. A caller that displays a score reads it from the
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

/// Returns the score of a sorting integer.
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

    /// Removes the item at a rank.
    ///
    /// # Panics
    /// Panics if there is no such item.
    pub(crate) fn remove_at(&mut self, rank: u64) -> (f64, Entry) {
        assert!(rank < self.len, "rank {rank} of {}", self.len);
        let removed = self.root.remove_at(rank, &mut self.bytes);
        let removed = removed.expect("a rank below the length");
        self.len -= 1;
        self.root.shed_root(&mut self.bytes);
        debug_assert_eq!(self.root.count(), self.len, "one item has left the tree");
        removed.open()
    }

    /// Returns the item at a rank.
    pub(crate) fn at(&self, rank: u64) -> Option<(f64, Entry)> {
        self.root.at(rank).map(Item::open)
    }

    /// Returns the number of items for which `pred` holds. `pred` must hold for a prefix of the items and for no other.
    pub(crate) fn partition_point(&self, pred: impl FnMut(f64, Entry) -> bool) -> u64 {
        self.partition(pred).0
    }

    /// Like [`partition_point`](Self::partition_point), but also returns the first item for which `pred` does not hold.
    pub(crate) fn partition(
        &self,
        mut pred: impl FnMut(f64, Entry) -> bool,
    ) -> (u64, Option<(f64, Entry)>) {
        let mut pred = |item: &Item| pred(score_of(item.key), item.entry);
        let (rank, next) = self.root.partition_point(&mut pred);
        (rank, next.map(Item::open))
    }

    /// Returns the items from rank `from` to before rank `to`. They can be read from both ends.
    pub(crate) fn range(&self, from: u64, to: u64) -> Range<'_> {
        let to = to.min(self.len);
        Range::new(&self.root, from.min(to), to)
    }

    /// Returns all items.
    pub(crate) fn iter(&self) -> Range<'_> {
        self.range(0, self.len)
    }
}

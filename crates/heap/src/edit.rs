//! Changes of a collection's index. A transaction notes the inverse of each.

use crate::entry::Entry;

/// A change of a collection's index.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Edit {
    /// A name was added.
    Add(Entry),
    /// A name was removed.
    Remove(Entry),
    /// An item was put before the item at this index.
    ItemAdd(usize, Entry),
    /// The item at this index was removed.
    ItemRemove(usize),
    /// The row of the item at this index moved to a new slot.
    ItemMove(usize, Entry),
    /// A member was added with this rank and score.
    ScoreAdd(u64, f64, Entry),
    /// The member of this rank was removed.
    ScoreRemove(u64),
}

/// The owner of a collection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Owner {
    /// The header of a key.
    Header,
    /// A [`Draft`](crate::Draft).
    Draft,
    /// The collection has no owner, and its rows are to be removed.
    Orphan,
}

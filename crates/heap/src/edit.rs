//! Changes of a collection, as its index makes them and as a transaction notes their inverses.

use crate::entry::Entry;

/// A change of a collection's index.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Edit {
    /// A name was written.
    Add(Entry),
    /// A name went away.
    Remove(Entry),
    /// An item was put before the one at this place.
    ItemAdd(usize, Entry),
    /// The item at this place went away.
    ItemRemove(usize),
    /// The item at this place lies in another slot.
    ItemMove(usize, Entry),
    /// A member got this rank and score.
    ScoreAdd(u64, f64, Entry),
    /// The member of this rank went away.
    ScoreRemove(u64),
}

/// The owner of a collection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Owner {
    /// The header of a key.
    Header,
    /// A [`Draft`](crate::Draft).
    Draft,
    /// No owner: its rows are to be removed.
    Orphan,
}

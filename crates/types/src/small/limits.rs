//! Checks of a transaction's limits before an element is put in a packed collection.
//!
//! A hash is checked at every write of a field. Other types are checked only when an element is added, as in Redis. If
//! a limit is lowered, a collection above the new limit stays packed until the next check, which turns it into rows.
//! Raising a limit does not turn rows into a packed collection.

use perdura_txn::{Packing, Shape};

use super::{New, Packed};

/// Returns whether a new element may be added to a packed hash, list or sorted set. For sets see
/// [`may_join_set`].
pub(crate) fn may_join(packed: &Packed<'_>, new: New<'_>, packing: Packing) -> bool {
    let (entries, bytes) = match packed.shape() {
        Shape::Hash => (packing.hash_entries, packing.hash_bytes),
        Shape::List => (packing.list_entries, u8::MAX),
        Shape::Set => (packing.set_entries, packing.set_bytes),
        Shape::Zset => (packing.zset_entries, packing.zset_bytes),
        Shape::Stream => (0, 0),
    };
    packed.len() < usize::from(entries) && longest(new) <= usize::from(bytes)
}

/// Returns whether a new member may be added to a packed set. `integers` is true if the new member
/// and all others are integers.
pub(crate) fn may_join_set(
    packed: &Packed<'_>,
    member: &[u8],
    integers: bool,
    packing: Packing,
) -> bool {
    match integers {
        true => packed.len() < usize::from(packing.set_integers),
        false => may_join(packed, New::One(member), packing),
    }
}

/// Returns whether a field of a packed hash may get a new value.
pub(crate) fn may_change(packed: &Packed<'_>, new: New<'_>, packing: Packing) -> bool {
    packed.len() <= usize::from(packing.hash_entries)
        && longest(new) <= usize::from(packing.hash_bytes)
}

fn longest(new: New<'_>) -> usize {
    match new {
        New::One(text) | New::Scored(text, _) => text.len(),
        New::Pair(field, value) => field.len().max(value.len()),
    }
}

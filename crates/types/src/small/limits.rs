//! Checks of whether a packed collection may take an element, by the limits of its transaction.
//!
//! The limits are checked where Redis checks them: for a hash, at every write of a field, and for
//! other types, only when an element is added. So after a limit is lowered, a larger collection is
//! turned into rows at the next write that checks the limit. Raising a limit does not turn rows
//! into a packed collection.

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

/// Returns whether a field of a packed hash may get another value.
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

//! Checks of whether a packed collection may take an element, by the limits of its transaction.
//!
//! The limits are checked where Redis checks them. For a hash that is every write of a field, for
//! the others only a new element. So a limit that is lowered later turns a collection into rows at
//! the next write that checks it. A limit that is raised brings no collection back.

use perdura_txn::{Packing, Shape};

use super::{New, Packed};

/// Returns whether a new element may join a packed hash, list or sorted set. For sets see
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

/// Returns whether a new member may join a packed set. `integers` is true if it and all others are
/// integers.
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

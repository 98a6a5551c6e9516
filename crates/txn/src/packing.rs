//! The limits up to which a collection is packed.

/// The limits of packed collections, which the caller of a transaction sets. A limit beyond what
/// a packed row can hold (`perdura_types::small`) has no effect: the row's limit is reached first.
///
/// A limit applies to later writes alone. Each row says whether it is packed, so no read, restart or
/// checkpoint depends on these numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Packing {
    /// Fields of a hash.
    pub hash_entries: u8,
    /// Bytes of a field or of its value.
    pub hash_bytes: u8,
    /// Items of a list.
    pub list_entries: u8,
    /// Members of a set of integers.
    pub set_integers: u8,
    /// Members of any other set.
    pub set_entries: u8,
    /// Bytes of a member of any other set.
    pub set_bytes: u8,
    /// Members of a sorted set.
    pub zset_entries: u8,
    /// Bytes of a member of a sorted set.
    pub zset_bytes: u8,
}

impl Packing {
    /// The limits of a row's format.
    pub const FULL: Packing = Packing {
        hash_entries: u8::MAX,
        hash_bytes: u8::MAX,
        list_entries: u8::MAX,
        set_integers: u8::MAX,
        set_entries: u8::MAX,
        set_bytes: u8::MAX,
        zset_entries: u8::MAX,
        zset_bytes: u8::MAX,
    };
}

impl Default for Packing {
    fn default() -> Self {
        Packing::FULL
    }
}

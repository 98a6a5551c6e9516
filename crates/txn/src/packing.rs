//! The size limits for packing a collection in a single row.

/// The size limits of packed collections. The caller of a transaction sets them. The format of a packed row has limits
/// too (`perdura_types::small`); the lower limit applies.
///
/// A new limit affects only writes after it was set. Each row says whether it is packed, so no read, restart or
/// checkpoint depends on these numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Packing {
    /// The maximum number of fields of a packed hash.
    pub hash_entries: u8,
    /// The maximum length of a field name or a value of a packed hash, bytes.
    pub hash_bytes: u8,
    /// The maximum number of items of a packed list.
    pub list_entries: u8,
    /// The maximum number of members of a packed set of integers.
    pub set_integers: u8,
    /// The maximum number of members of any other packed set.
    pub set_entries: u8,
    /// The maximum length of a member of any other packed set, bytes.
    pub set_bytes: u8,
    /// The maximum number of members of a packed sorted set.
    pub zset_entries: u8,
    /// The maximum length of a member of a packed sorted set, bytes.
    pub zset_bytes: u8,
}

impl Packing {
    /// No limits except the limits of the row format.
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

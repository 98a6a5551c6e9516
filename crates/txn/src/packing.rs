//! The limits up to which a collection is stored packed in a single row.

/// The limits up to which a collection is packed. The caller of a transaction sets them. The format
/// of a packed row has limits too (`perdura_types::small`); the lower limit applies.
///
/// A limit applies only to later writes. Each row says whether it is packed, so no read, restart or checkpoint depends
/// on these numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Packing {
    /// The most fields of a packed hash.
    pub hash_entries: u8,
    /// The most bytes of a field, or of its value, in a packed hash.
    pub hash_bytes: u8,
    /// The most items of a packed list.
    pub list_entries: u8,
    /// The most members of a packed set, if all members are integers.
    pub set_integers: u8,
    /// The most members of any other packed set.
    pub set_entries: u8,
    /// The most bytes of a member of such a set.
    pub set_bytes: u8,
    /// The most members of a packed sorted set.
    pub zset_entries: u8,
    /// The most bytes of a member of a packed sorted set.
    pub zset_bytes: u8,
}

impl Packing {
    /// No limits but those of the row format.
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

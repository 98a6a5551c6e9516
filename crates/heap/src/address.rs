//! Keys and collections, named with the table that they are in.

use perdura_base::TableId;
use perdura_page::CollectionId;

use crate::geometry::KeyHash;

/// A key of a table, with its hash.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TableKey<'a> {
    /// The table.
    pub table: TableId,
    /// The bytes of the key.
    pub key: &'a [u8],
    /// The [hash](crate::Geometry::hash) of the key.
    pub hash: KeyHash,
}

impl<'a> TableKey<'a> {
    /// Returns the table, the key and its hash as one value.
    #[must_use]
    pub fn new(table: TableId, key: &'a [u8], hash: KeyHash) -> TableKey<'a> {
        TableKey { table, key, hash }
    }
}

/// A collection of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TableCollection {
    /// The table.
    pub table: TableId,
    /// The id of the collection in its home partition.
    pub id: CollectionId,
}

impl TableCollection {
    /// Returns the table and the collection's id as one value.
    #[must_use]
    pub fn new(table: TableId, id: CollectionId) -> TableCollection {
        TableCollection { table, id }
    }
}

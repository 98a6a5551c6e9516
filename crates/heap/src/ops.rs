//! Changes of indexes, noted so that a rollback undoes them.
//!
//! Indexes are derived from rows and have no before-images. An operation describes the change that a rollback undoes.

use perdura_base::TableId;
use perdura_page::{CollectionId, End, Shape};

use crate::edit::{Edit, Owner};
use crate::entry::Entry;

/// A change of an index that a rollback undoes.
#[derive(Clone, Copy)]
pub(crate) enum Op {
    Inserted {
        table: TableId,
        entry: Entry,
        key: KeyCopy,
    },
    Removed {
        table: TableId,
        entry: Entry,
        key: KeyCopy,
    },
    /// A row was added to a secondary index.
    IndexAdded {
        table: TableId,
        index: u16,
        key: KeyCopy,
    },
    /// A row was removed from a secondary index.
    IndexRemoved {
        table: TableId,
        index: u16,
        entry: Entry,
        key: KeyCopy,
    },
    ExpiryAdded {
        table: TableId,
        entry: Entry,
        expiry_ms: u64,
    },
    ExpiryRemoved {
        table: TableId,
        entry: Entry,
        expiry_ms: u64,
    },
    /// An index of a collection was changed; `inverse` undoes the change.
    Edited {
        table: TableId,
        id: CollectionId,
        inverse: Edit,
    },
    /// `count` items were added at an end of a list.
    Pushed {
        table: TableId,
        id: CollectionId,
        end: End,
        count: usize,
    },
    /// Items were removed from an end of a list. `items` locates them among the items that the transaction has popped
    /// in the partition.
    Popped {
        table: TableId,
        id: CollectionId,
        end: End,
        items: PoppedItems,
    },
    /// A collection without elements was made.
    Made { table: TableId, id: CollectionId },
    /// A collection without elements was removed.
    Unmade {
        table: TableId,
        id: CollectionId,
        shape: Shape,
        owner: Owner,
    },
    /// A collection lost its header.
    Orphaned { table: TableId, id: CollectionId },
    /// A draft was claimed by a header.
    Claimed { table: TableId, id: CollectionId },
}

impl Op {
    pub(crate) fn table(&self) -> TableId {
        match self {
            Op::Inserted { table, .. }
            | Op::Removed { table, .. }
            | Op::IndexAdded { table, .. }
            | Op::IndexRemoved { table, .. }
            | Op::ExpiryAdded { table, .. }
            | Op::ExpiryRemoved { table, .. }
            | Op::Edited { table, .. }
            | Op::Pushed { table, .. }
            | Op::Popped { table, .. }
            | Op::Made { table, .. }
            | Op::Unmade { table, .. }
            | Op::Orphaned { table, .. }
            | Op::Claimed { table, .. } => *table,
        }
    }
}

/// The position and length of a key's copy in the bytes that `PartUndo` keeps. The length is 0 if the table has no
/// ordered index.
#[derive(Clone, Copy, Default)]
pub(crate) struct KeyCopy {
    pub(crate) at: usize,
    pub(crate) bytes: usize,
}

/// The items of one removal, as a range of the items that the transaction has popped in the partition. `from` is the
/// index of the first item.
#[derive(Clone, Copy)]
pub(crate) struct PoppedItems {
    pub(crate) from: usize,
    pub(crate) count: usize,
}

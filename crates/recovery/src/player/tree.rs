//! The methods of redoing operations on a tree, as data: the source of the table of dirty pages, and the pages that are
//! read ahead.
//!
//! # Source
//! *Implementing Performance Competitive Logical Recovery* (002), section 5: Log0, Log1, Log2, SQL1, SQL2; ARIES is our
//! addition.

/// The source of the table of dirty pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Table {
    /// No table: each operation's page is read (Algorithm 2).
    None,
    /// Built from Δ records (Algorithm 4). Pages are found by keys.
    Deltas,
    /// Built from the pages that operations name and from BW records (Algorithm 3). Pages are found by the operations'
    /// hints.
    Writes,
    /// Built from the pages that operations name and from the list of dirty pages in the record of the checkpoint's
    /// end. Pages are found by the operations' hints.
    Checkpoint,
}

/// The pages that are read before redo needs them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ahead {
    /// No pages.
    Nothing,
    /// Only the inner pages (appendix A.1).
    Index,
    /// The inner pages, and then the dirty pages in the order in which Δ records name them (PF-list, appendix A).
    List,
    /// The inner pages, and then the dirty pages in the order of their rLSNs.
    Table,
    /// The pages of the next operations in the log.
    Log,
}

impl Ahead {
    /// Returns whether the inner pages are loaded before redo begins. They are not needed if operations name their
    /// pages.
    pub(crate) fn loads_index(self, table: Table) -> bool {
        let finds_by_key = matches!(table, Table::None | Table::Deltas);
        finds_by_key && self != Ahead::Nothing
    }

    /// Returns whether the pages of operations are read before redo reaches the operations.
    pub(crate) fn reads_data(self) -> bool {
        match self {
            Ahead::Nothing | Ahead::Index => false,
            Ahead::List | Ahead::Table | Ahead::Log => true,
        }
    }
}

/// A method of restarting a tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TreePlay {
    /// The source of the table of dirty pages.
    pub table: Table,
    /// The pages that are read ahead.
    pub ahead: Ahead,
}

impl Table {
    /// Returns whether the analysis reads operations, in addition to the tree's records.
    pub(crate) fn reads_operations(self) -> bool {
        match self {
            Table::None | Table::Deltas => false,
            Table::Writes | Table::Checkpoint => true,
        }
    }
}

//! The types that describe a method of redoing operations on a tree. A method is a choice of two things: the source of
//! the table of dirty pages, and the pages to read ahead.
//!
//! # Source
//! *Implementing Performance Competitive Logical Recovery* (002), section 5: Log0, Log1, Log2, SQL1, SQL2; ARIES is our
//! addition.

/// The source of the table of dirty pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Table {
    /// No table. The page of each operation is read (Algorithm 2).
    None,
    /// The table is built from Δ records (Algorithm 4). Redo finds pages by keys.
    Deltas,
    /// The table is built from the pages that operations name and from BW records (Algorithm 3). Redo finds pages by
    /// the operations' hints.
    Writes,
    /// The table has the pages that operations name, and the dirty pages that the checkpoint's end record lists. Redo
    /// finds pages by the operations' hints.
    Checkpoint,
}

/// The pages that a restart reads ahead of redo.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ahead {
    /// No pages.
    Nothing,
    /// Only the inner pages (appendix A.1).
    Index,
    /// The inner pages, and then the dirty pages in the order of the Δ records (PF-list, appendix A).
    List,
    /// The inner pages, and then the dirty pages in the order of their rLSNs. The rLSN of a page is the lowest number
    /// of an operation on the page that may not be on disk.
    Table,
    /// The pages of the next operations in the log.
    Log,
}

impl Ahead {
    /// Returns whether the inner pages are loaded before redo begins. They are not needed if redo finds pages by hints.
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
    /// The pages to read ahead of redo.
    pub ahead: Ahead,
}

impl Table {
    /// Returns whether the analysis, which builds the table, reads operations besides the tree's own records.
    pub(crate) fn reads_operations(self) -> bool {
        match self {
            Table::None | Table::Deltas => false,
            Table::Writes | Table::Checkpoint => true,
        }
    }
}

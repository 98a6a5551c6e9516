//! The ways to redo operations on a tree, as data: a table of dirty pages, and the pages that are
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
    /// Of Δ records (Algorithm 4). Pages are found by keys.
    Deltas,
    /// Of the operations' own pages and BW records (Algorithm 3). Pages are found by the operations' hints.
    Writes,
    /// Of the operations' own pages and the dirty pages in the checkpoint's end. Pages are found by hints.
    Checkpoint,
}

/// The pages that are read before redo wants them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ahead {
    /// Nothing.
    Nothing,
    /// The pages that lead to others (appendix A.1), and no more.
    Index,
    /// The pages that lead to others, and then the dirty ones in the order in which Δ records name them (PF-list,
    /// appendix A).
    List,
    /// The pages that lead to others, and then the dirty ones in the order of their rLSNs.
    Table,
    /// The pages of the operations that come next in the log.
    Log,
}

impl Ahead {
    /// Returns whether redo begins with the pages that lead to others in memory. If operations name their pages, it
    /// needs none of them.
    pub(crate) fn loads_index(self, table: Table) -> bool {
        let finds_by_key = matches!(table, Table::None | Table::Deltas);
        finds_by_key && self != Ahead::Nothing
    }

    /// Returns whether pages of operations are read before redo comes to them.
    pub(crate) fn reads_data(self) -> bool {
        match self {
            Ahead::Nothing | Ahead::Index => false,
            Ahead::List | Ahead::Table | Ahead::Log => true,
        }
    }
}

/// A way to restart a tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TreePlay {
    /// The source of its table of dirty pages.
    pub table: Table,
    /// The pages that it reads ahead.
    pub ahead: Ahead,
}

impl Table {
    /// Returns whether the analysis reads operations, too.
    pub(crate) fn reads_operations(self) -> bool {
        match self {
            Table::None | Table::Deltas => false,
            Table::Writes | Table::Checkpoint => true,
        }
    }
}

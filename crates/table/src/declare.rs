//! The declarations that `table!` makes. They are constants, so the compiler computes the places of columns and finds
//! mistakes.

use crate::layout::{COLUMNS_MAX, Layout, Place};
use crate::types::Type;

/// The maximum number of columns of a key or an index.
pub const INDEX_COLUMNS_MAX: usize = 8;

/// The kind of address in a table's log records: each record refers to a page or to a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Addressing {
    /// Page addresses: a log record of a change refers to a page and to bytes in the page.
    Page,
    /// Row keys: a log record has the key of the changed row, or the command that changed the row.
    Key,
}

/// The order of the primary index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// The order of the keys' hashes. The index finds a row only by its whole key.
    Hashed,
    /// Two orders: by the keys' hashes and by the keys' bytes. The index finds rows by whole keys and by key ranges.
    Ordered,
}

impl Addressing {
    /// Returns the word for this addressing in `table!`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Addressing::Page => "page",
            Addressing::Key => "key",
        }
    }
}

impl Order {
    /// Returns the word for this order in `table!`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Order::Hashed => "hashed",
            Order::Ordered => "ordered",
        }
    }
}

/// A declared secondary index.
#[derive(Debug, Clone, Copy)]
pub struct IndexDeclaration {
    /// The index's name.
    pub name: &'static str,
    /// True if no two rows of the table may have equal values in all columns of the index.
    pub unique: bool,
    /// The index's columns and their types.
    pub columns: &'static [(&'static str, Type)],
}

/// A declared table.
#[derive(Debug, Clone, Copy)]
pub struct Declaration {
    /// The table's name.
    pub name: &'static str,
    /// The addressing of the table.
    pub addressing: Addressing,
    /// The order of the primary index.
    pub order: Order,
    /// True if each partition has a copy of each row.
    pub replicated: bool,
    /// Key columns; empty for a table with row ids.
    pub key: &'static [(&'static str, Type)],
    /// Value columns.
    pub columns: &'static [(&'static str, Type)],
    /// Secondary indexes.
    pub indexes: &'static [IndexDeclaration],
}

impl Declaration {
    /// Returns the declaration with this addressing.
    #[must_use]
    pub const fn with_addressing(self, addressing: Addressing) -> Declaration {
        Declaration { addressing, ..self }
    }

    /// Returns the declaration with this order.
    #[must_use]
    pub const fn with_order(self, order: Order) -> Declaration {
        Declaration { order, ..self }
    }

    /// Returns the declaration with `replicated` set: each partition has a copy of each row.
    #[must_use]
    pub const fn in_all_partitions(self) -> Declaration {
        Declaration {
            replicated: true,
            ..self
        }
    }

    /// Makes the compilation fail if the declared table is impossible.
    ///
    /// # Panics
    /// If the table is impossible, with the reason.
    pub const fn check(&self) {
        assert!(!self.name.is_empty(), "a table has a name");
        assert!(
            self.key.len() <= INDEX_COLUMNS_MAX,
            "a key has at most 8 columns"
        );
        assert!(
            self.columns.len() <= COLUMNS_MAX,
            "a table has at most 64 value columns"
        );
        assert!(
            !(self.replicated && self.key.is_empty()),
            "a replicated table has key columns"
        );
        let mut at = 0;
        while at < self.key.len() {
            let name = self.key[at].0;
            assert!(
                position(self.columns, name).is_none(),
                "a column of the key is not one of the value"
            );
            at += 1;
        }
        let mut at = 0;
        while at < self.indexes.len() {
            self.check_index(&self.indexes[at]);
            at += 1;
        }
    }

    const fn check_index(&self, index: &IndexDeclaration) {
        assert!(!index.columns.is_empty(), "an index has columns");
        assert!(
            index.columns.len() <= INDEX_COLUMNS_MAX,
            "an index has at most 8 columns"
        );
        assert!(
            !index.unique || self.keeps_unique(index),
            "a unique index contains the first key column, or its table is `replicated`: rows are \
             compared within one partition, and the first key column decides the partition. Add \
             that column to the index, or declare a plain `index`"
        );
        let mut at = 0;
        while at < index.columns.len() {
            let (name, kind) = index.columns[at];
            let declared = match (position(self.key, name), position(self.columns, name)) {
                (Some(at), _) => self.key[at].1,
                (None, Some(at)) => self.columns[at].1,
                (None, None) => panic!("an index names columns of its table"),
            };
            assert!(
                kind.is(declared),
                "an index column has the type of its column"
            );
            at += 1;
        }
    }

    /// Returns whether rows with equal index columns are always in one partition. A unique index needs this, because a
    /// verb compares only rows of one partition.
    const fn keeps_unique(&self, index: &IndexDeclaration) -> bool {
        if self.replicated {
            return true;
        }
        !self.key.is_empty() && position(index.columns, self.key[0].0).is_some()
    }

    /// Returns the layout of the table's values.
    #[must_use]
    pub const fn layout(&self) -> Layout {
        let mut layout = Layout {
            fixed_bytes: 0,
            variables: 0,
        };
        let mut at = 0;
        while at < self.columns.len() {
            layout = layout.with(self.columns[at].1).0;
            at += 1;
        }
        layout
    }

    /// Returns the index of a value column in `columns`, and the column's place in the value of a row.
    ///
    /// # Panics
    /// If the table has no column of this name.
    #[must_use]
    pub const fn column(&self, name: &str) -> (usize, Place) {
        let Some(wanted) = position(self.columns, name) else {
            panic!("the table has no such column")
        };
        let mut layout = Layout {
            fixed_bytes: 0,
            variables: 0,
        };
        let mut at = 0;
        loop {
            let (next, place) = layout.with(self.columns[at].1);
            if at == wanted {
                return (at, place);
            }
            layout = next;
            at += 1;
        }
    }

    /// Returns the number of a key column.
    ///
    /// # Panics
    /// If the key has no column of this name.
    #[must_use]
    pub const fn key_column(&self, name: &str) -> usize {
        match position(self.key, name) {
            Some(at) => at,
            None => panic!("the key has no such column"),
        }
    }

    /// Returns the number of an index.
    ///
    /// # Panics
    /// If the table has no index of this name.
    #[must_use]
    pub const fn index(&self, name: &str) -> usize {
        let mut at = 0;
        while at < self.indexes.len() {
            if equal(self.indexes[at].name, name) {
                return at;
            }
            at += 1;
        }
        panic!("the table has no such index")
    }

    /// Returns whether the first column of an index is the first key column. That column determines a row's partition.
    #[must_use]
    pub const fn leads_home(&self, index: usize) -> bool {
        let first = self.indexes[index].columns[0].0;
        !self.key.is_empty() && equal(self.key[0].0, first)
    }
}

const fn position(columns: &[(&str, Type)], name: &str) -> Option<usize> {
    let mut at = 0;
    while at < columns.len() {
        if equal(columns[at].0, name) {
            return Some(at);
        }
        at += 1;
    }
    None
}

/// Compares two strings. Constants need this function, because `==` on strings is not constant.
const fn equal(a: &str, b: &str) -> bool {
    let (a, b) = (a.as_bytes(), b.as_bytes());
    if a.len() != b.len() {
        return false;
    }
    let mut at = 0;
    while at < a.len() {
        if a[at] != b[at] {
            return false;
        }
        at += 1;
    }
    true
}

//! The properties of a table that the layer above gives to the heap. They are the secondary indexes, the choice of a
//! row's partition, and the logging of pages.
//!
//! The heap does not interpret rows. A layer with columns implements [`Derive`]. `Derive` returns a row's keys in the
//! table's secondary indexes.

use std::fmt::Debug;
use std::sync::Arc;

/// Derives the keys of secondary indexes from rows.
///
/// [`index_key`](Self::index_key) must be a pure function: an unchanged row must always have unchanged keys. Otherwise
/// the key derived when a row is removed would not find the row's entry.
pub trait Derive: Send + Sync + Debug {
    /// Returns the number of secondary indexes.
    fn indexes(&self) -> usize;

    /// Appends the key under which an index lists a row. The index is in the order of the bytes of these keys. A key of
    /// the index must not be a prefix of another key, because the heap appends the row's primary key.
    fn index_key(&self, index: usize, key: &[u8], value: &[u8], out: &mut Vec<u8>);
}

/// The form of a table.
#[derive(Clone, Debug, Default)]
pub struct TableForm {
    /// True if the table also has an index in the order of the bytes of its keys.
    pub ordered: bool,
    /// True if the table is key-addressed: log records name keys, and pages have no log records.
    pub keyed: bool,
    /// True if the caller chooses a row's partition; otherwise the hash of the row's key decides.
    pub placed: bool,
    /// The derivation of the table's secondary indexes; `None`: the table has none.
    pub derive: Option<Arc<dyn Derive>>,
}

impl TableForm {
    /// Returns the number of secondary indexes of the table.
    #[must_use]
    pub fn indexes(&self) -> usize {
        self.derive.as_ref().map_or(0, |derive| derive.indexes())
    }

    /// Returns whether a restart has to read every row, even with a sidecar of entries for the hash index.
    pub(crate) fn reads_every_row(&self) -> bool {
        self.ordered || self.keyed || self.derive.is_some()
    }
}

/// The form of a table of bytes. If the value is true, the table also has an index in the order of its keys.
impl From<bool> for TableForm {
    fn from(ordered: bool) -> TableForm {
        TableForm {
            ordered,
            ..TableForm::default()
        }
    }
}

/// An ordered index of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Which {
    /// The index by the table's keys.
    Primary,
    /// The secondary index with this number.
    Secondary(usize),
}

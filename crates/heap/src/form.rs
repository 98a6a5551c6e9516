//! The properties of a table that the layer above gives to the heap. They are the secondary indexes of its rows, the
//! way a row's partition is chosen, and whether its pages are logged.
//!
//! The heap does not interpret rows. A layer whose rows have columns implements [`Derive`], which returns a row's keys
//! in the secondary indexes of its table.

use std::fmt::Debug;
use std::sync::Arc;

/// Derives the keys of secondary indexes from rows.
///
/// It must be a pure function: the same row has the same keys at any time. Otherwise the key derived when a row is
/// removed would not find the row's entry.
pub trait Derive: Send + Sync + Debug {
    /// Returns the number of secondary indexes.
    fn indexes(&self) -> usize;

    /// Appends the key of a row in an index. The index is in the order of the key's bytes. No key of the index may be a
    /// prefix of another, because the heap appends the row's primary key to it.
    fn index_key(&self, index: usize, key: &[u8], value: &[u8], out: &mut Vec<u8>);
}

/// The form of a table.
#[derive(Clone, Debug, Default)]
pub struct TableForm {
    /// True if the table also has an index in the order of the bytes of its keys.
    pub ordered: bool,
    /// True if the table's log records name keys. Its pages then have no log records.
    pub keyed: bool,
    /// True if the caller chooses a row's partition; otherwise the hash of its key does.
    pub placed: bool,
    /// Its secondary indexes.
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

/// An index that has an order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Which {
    /// The index by the table's keys.
    Primary,
    /// A secondary index.
    Secondary(usize),
}

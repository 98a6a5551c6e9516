//! The properties of a table that the heap gets from the layer above. They are the indexes of its rows, the chooser of
//! a row's partition, and whether its pages are logged.
//!
//! The heap reads no row. A layer that gives rows columns returns by [`Derive`] the keys that a row has in the
//! secondary indexes of its table.

use std::fmt::Debug;
use std::sync::Arc;

/// A derivation of the keys of secondary indexes from rows.
///
/// It is a pure function: a row has the same keys at any time. When the row is removed, the derived key must find its
/// entry.
pub trait Derive: Send + Sync + Debug {
    /// Returns the number of secondary indexes.
    fn indexes(&self) -> usize;

    /// Appends the key of a row in an index. Its order is that of its bytes, and no key of the index is the beginning
    /// of another: the row's primary key follows it.
    fn index_key(&self, index: usize, key: &[u8], value: &[u8], out: &mut Vec<u8>);
}

/// The form of a table.
#[derive(Clone, Debug, Default)]
pub struct TableForm {
    /// True if its keys are also in an index by their bytes.
    pub ordered: bool,
    /// True if its log records name keys: its pages have no records.
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

    /// Returns whether a restart has to read every row, whatever entries of the hash index it is given.
    pub(crate) fn reads_every_row(&self) -> bool {
        self.ordered || self.keyed || self.derive.is_some()
    }
}

/// A table of bytes, whose keys are also in an index by their bytes if the value is true.
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

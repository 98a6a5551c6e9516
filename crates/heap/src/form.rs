//! What a layer above knows of a table, which the heap has to know to keep it: which indexes its rows are in,
//! who chooses a row's partition, and whether its pages are logged.
//!
//! The heap reads no row. A layer that gives rows columns says by [`Derive`] which keys a row has in the
//! secondary indexes of its table.

use std::fmt::Debug;
use std::sync::Arc;

/// Derives the keys of secondary indexes from rows.
///
/// It is a pure function: the same row has the same keys at any time, because an entry is found by the key that
/// is derived when the row goes.
pub trait Derive: Send + Sync + Debug {
    /// How many secondary indexes there are.
    fn indexes(&self) -> usize;

    /// Appends the key of a row in an index. Its order is that of its bytes, and no key of the index is the
    /// beginning of another: the row's primary key follows it.
    fn index_key(&self, index: usize, key: &[u8], value: &[u8], out: &mut Vec<u8>);
}

/// The form of a table.
#[derive(Clone, Debug, Default)]
pub struct TableForm {
    /// Its keys are also in an index by their bytes.
    pub ordered: bool,
    /// Its log records name keys: its pages have none.
    pub keyed: bool,
    /// The caller chooses a row's partition; otherwise the hash of its key does.
    pub placed: bool,
    /// Its secondary indexes.
    pub derive: Option<Arc<dyn Derive>>,
}

impl TableForm {
    /// How many secondary indexes the table has.
    #[must_use]
    pub fn indexes(&self) -> usize {
        self.derive.as_ref().map_or(0, |derive| derive.indexes())
    }

    /// Whether a restart has to read every row, whatever entries of the hash index it is given.
    pub(crate) fn reads_every_row(&self) -> bool {
        self.ordered || self.keyed || self.derive.is_some()
    }
}

/// A table of bytes, whose keys are also in an index by their bytes or not.
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
    /// By the table's keys.
    Primary,
    /// A secondary one.
    Secondary(usize),
}

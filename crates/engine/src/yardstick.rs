//! Databases that log or archive less than the product does. They exist only to compare the product's performance with
//! theirs.
//!
//! Only [`Db::open_by`](crate::Db::open_by) and [`Core::open_by`](crate::Core::open_by) open them; no setting does. A
//! crash loses the data that the log lacks.

use std::sync::Arc;

use perdura_txn::Sink;
use perdura_wal::{Scheme, Wal};

/// The part of a commit that the log and the archive get.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Yardstick {
    /// Log and archive get the whole commit. All functions that open a database use this, except `open_by`.
    #[default]
    Product,
    /// Log and archive get nothing. A crash loses all commits after the newest image.
    Unlogged,
    /// Only this many bytes of each frame of effects. Such a frame cannot be replayed.
    Cut(usize),
    /// The log gets the whole commit. The archive gets unsorted copies of the log's records. A restore
    /// cannot use these copies.
    Unsorted,
}

impl Yardstick {
    /// Returns the logging scheme of a new database.
    pub(crate) fn scheme(self) -> Scheme {
        match self {
            Yardstick::Unlogged => Scheme::Unlogged,
            Yardstick::Product | Yardstick::Cut(_) | Yardstick::Unsorted => Scheme::Differential,
        }
    }

    /// Returns where the records of commits go.
    pub(crate) fn sink(self, wal: Arc<Wal>) -> Sink {
        match self {
            Yardstick::Unlogged => Sink::Unlogged(wal),
            Yardstick::Cut(bytes) => Sink::Cut(wal, bytes),
            Yardstick::Product | Yardstick::Unsorted => Sink::Append(wal),
        }
    }
}

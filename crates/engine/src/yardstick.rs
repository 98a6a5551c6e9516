//! The yardstick's databases, whose log or archive gets less than the product's, for comparisons of figures.
//!
//! No setting names them. [`Db::open_by`](crate::Db::open_by) and [`Core::open_by`](crate::Core::open_by) are the way
//! in. Such a database loses what its log lacks.

use std::sync::Arc;

use perdura_txn::Sink;
use perdura_wal::{Scheme, Wal};

/// The share of a commit that the log and the archive get.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Yardstick {
    /// All of it: every other open is by this one.
    #[default]
    Product,
    /// Nothing. A crash loses what the newest image does not have.
    Unlogged,
    /// Only this many bytes of each frame of effects, which cannot be replayed.
    Cut(usize),
    /// All of it in the log. The archive gets copies in the log's order, which restore nothing.
    Unsorted,
}

impl Yardstick {
    /// Returns the scheme of a database that is made.
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

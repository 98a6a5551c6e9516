//! The generator of numbers for transactions, and of sequence numbers for physical changes.

use std::sync::atomic::{AtomicU64, Ordering};

use crossbeam_utils::CachePadded;
use perdura_base::{Incarnation, TxnId};
use perdura_wal::Wal;

use crate::options::Route;
use crate::txn::Routed;

/// The number of bits by which a life's [`Incarnation`] is shifted left. The result is the life's first number. A life
/// is the time from one open of the database to the next. It has 2^32 numbers of each kind. So no number is used twice,
/// and a restart need not search the log for the highest number.
const NUMBER_SHIFT: u32 = 32;

/// The generator of unused numbers in one life.
pub(crate) struct Numbers(CachePadded<AtomicU64>);

impl Numbers {
    /// Returns the generator for a life.
    pub fn of(life: Incarnation) -> Numbers {
        let first = u64::from(life.0) << NUMBER_SHIFT;
        Numbers(CachePadded::new(AtomicU64::new(first)))
    }

    /// Returns the next unused number.
    pub fn next(&self) -> u64 {
        let number = self.0.fetch_add(1, Ordering::Relaxed);
        debug_assert_ne!(number, u64::MAX, "a life has room for its numbers");
        number
    }

    /// Returns the number and the stream of a new transaction.
    pub fn route(&self, route: Route, wal: &Wal) -> Routed {
        let id = TxnId(self.next());
        let stream = route.stream(wal, id);
        Routed { id, stream }
    }
}

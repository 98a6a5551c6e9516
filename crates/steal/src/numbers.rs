//! Numbers of transactions and of physical changes.

use std::sync::atomic::{AtomicU64, Ordering};

use crossbeam_utils::CachePadded;
use perdura_base::{Incarnation, TxnId};
use perdura_wal::Wal;

use crate::options::Route;
use crate::txn::Routed;

/// The first number of an incarnation is the incarnation shifted left by this many bits. So no number is used twice,
/// and a restart need not search for the highest. A life has 2^32 numbers of each kind.
const NUMBER_SHIFT: u32 = 32;

/// The numbers of one life.
pub(crate) struct Numbers(CachePadded<AtomicU64>);

impl Numbers {
    /// Returns the numbers of a life.
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

    /// Gives a new transaction its number and its stream.
    pub fn route(&self, route: Route, wal: &Wal) -> Routed {
        let id = TxnId(self.next());
        let stream = route.stream(wal, id);
        Routed { id, stream }
    }
}

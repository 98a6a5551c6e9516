//! The patience of a caller with latches that others hold.
//!
//! An event loop must not wait while another thread computes under a latch. It waits for a short time, and then decides
//! whether to wait on.

use std::fmt;
use std::time::Duration;

use perdura_base::PartitionId;
use perdura_heap::{Heap, PartitionGuard};

/// The time between two questions to the caller. Almost all transactions hold their latches for a shorter time.
const INTERVAL: Duration = Duration::from_micros(100);

/// The patience of a transaction's caller with latches that others hold.
#[derive(Clone, Copy, Default)]
pub struct Patience<'a> {
    /// Returns whether the caller waits on for this partition's latch. `None`: the caller waits as long as necessary.
    waits_on: Option<&'a dyn Fn(PartitionId) -> bool>,
    /// Notes that the transaction ended because partitions are absent. `None`: the caller waits until they are loaded.
    absent: Option<&'a dyn Fn()>,
}

impl fmt::Debug for Patience<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Patience")
            .field("ends", &self.waits_on.is_some())
            .finish()
    }
}

impl<'a> Patience<'a> {
    /// The patience of a caller who waits for a latch as long as necessary.
    pub const ENDLESS: Patience<'static> = Patience {
        waits_on: None,
        absent: None,
    };

    /// Returns the patience of a caller who decides about each latch that another thread holds. The executor calls
    /// `waits_on` with the partition, at first after 0.1 ms and then repeatedly. The caller waits on while that returns
    /// true. It may hold other latches of the transaction at that time, so `waits_on` must not run a transaction.
    pub fn while_true(waits_on: &'a dyn Fn(PartitionId) -> bool) -> Self {
        Patience {
            waits_on: Some(waits_on),
            absent: None,
        }
    }

    /// Returns the patience of a caller who does not wait while a restart loads partitions. The executor calls
    /// `absent`, asks the loader for the partitions, and ends the transaction with
    /// [`Error::Undeclared`](perdura_base::Error::Undeclared).
    #[must_use]
    pub fn unless_absent(self, absent: &'a dyn Fn()) -> Self {
        Patience {
            absent: Some(absent),
            ..self
        }
    }

    /// Returns the function to call when partitions are absent. `None`: the caller waits until they are loaded.
    pub(crate) fn leaves_absent(&self) -> Option<&'a dyn Fn()> {
        self.absent
    }

    /// Takes a latch. Returns `None` if the caller's patience has ended.
    #[inline]
    pub(crate) fn latch<'h>(&self, heap: &'h Heap, id: PartitionId) -> Option<PartitionGuard<'h>> {
        match heap.try_lock(id) {
            Some(part) => Some(part),
            None => self.wait(heap, id),
        }
    }

    #[cold]
    fn wait<'h>(&self, heap: &'h Heap, id: PartitionId) -> Option<PartitionGuard<'h>> {
        let Some(waits_on) = self.waits_on else {
            return Some(heap.lock(id));
        };
        loop {
            if let Some(part) = heap.lock_for(id, INTERVAL) {
                return Some(part);
            }
            if !waits_on(id) {
                return None;
            }
        }
    }
}

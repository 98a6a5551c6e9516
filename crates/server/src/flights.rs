//! The commands that run beside the loops: see [`crate::beside`].
//!
//! A loop must not wait for the latches that such a command holds. So each loop looks here before it runs a request. A
//! flight is noted here before its thread takes latches, and until its loop has taken over the result.

use crate::engine::PartitionSet;
use parking_lot::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// The partitions of the commands that run beside the loops.
#[derive(Debug, Default)]
pub(crate) struct Flights {
    /// The number of commands.
    count: AtomicUsize,
    /// The index of each command's loop, and the command's partitions.
    held: Mutex<Vec<(usize, PartitionSet)>>,
    /// The number of commands that have landed.
    landings: AtomicU64,
}

impl Flights {
    /// Returns whether a command runs beside a loop.
    #[inline]
    pub(crate) fn any(&self) -> bool {
        self.count.load(Ordering::Acquire) > 0
    }

    /// Returns whether a command beside a loop holds one of these partitions.
    pub(crate) fn holds(&self, partitions: &PartitionSet) -> bool {
        let held = self.held.lock();
        held.iter().any(|(_, held)| held.intersects(partitions))
    }

    /// Returns the number of commands that have landed so far.
    pub(crate) fn landings(&self) -> u64 {
        self.landings.load(Ordering::Acquire)
    }

    /// Notes the command of a loop.
    pub(crate) fn begin(&self, event_loop: usize, partitions: PartitionSet) {
        let mut held = self.held.lock();
        debug_assert!(
            held.iter().all(|(of, _)| *of != event_loop),
            "one command runs beside a loop"
        );
        held.push((event_loop, partitions));
        self.count.store(held.len(), Ordering::Release);
    }

    /// Notes that the command of a loop has landed.
    pub(crate) fn end(&self, event_loop: usize) {
        let mut held = self.held.lock();
        held.retain(|(of, _)| *of != event_loop);
        self.count.store(held.len(), Ordering::Release);
        self.landings.fetch_add(1, Ordering::Release);
    }
}

//! The purge removes invisible data in the background. Each step is a transaction.
//!
//! An expired key is hidden from readers at once, and the purge removes it later. The same applies to the elements of a
//! deleted collection, and to the pages and indexes of flushed tables. If a step fails or is never taken, nothing is
//! lost: a restart finds the work again.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use parking_lot::Mutex;
use perdura_base::{Epoch, PartitionId};
use perdura_heap::DetachedTable;

/// A purge step drops the indexes of at most this many flushed tables. A table counts once for each partition.
const DROPPED_TABLES: usize = 16;

/// A callback of the purge. It gets the expired keys that were removed, and the epoch of the removal. The number before
/// each key is that of the key's Redis database: the index of the table's name in the options' list of names.
pub type ExpiredListener = Box<dyn Fn(&[(u8, Vec<u8>)], Epoch) + Send + Sync>;

/// The indexes of flushed or dropped tables, to be dropped when no latch is held.
#[must_use = "`reclaim_flushed` hands the tables' indexes and pages to the purge"]
pub struct Flushed(Vec<DetachedTable>);

impl Flushed {
    /// Takes the tables that a drop or a flush has detached.
    pub(crate) fn of(detached: Vec<DetachedTable>) -> Flushed {
        Flushed(detached)
    }
}

/// The work of the purge, and the listener for removed keys.
#[derive(Default)]
pub(crate) struct Purge {
    /// The search for pages to free ends after this many more partitions without a result.
    reclaim_left: AtomicU32,
    next: AtomicU32,
    /// True while the purge is stopped.
    held: AtomicBool,
    /// The indexes of flushed tables, to be dropped.
    flushed: Mutex<Vec<DetachedTable>>,
    expired: OnceLock<ExpiredListener>,
}

impl Purge {
    /// Stops the purge or lets it continue.
    pub fn hold(&self, held: bool) {
        self.held.store(held, Ordering::SeqCst);
    }

    /// Returns whether the purge is stopped.
    pub fn is_held(&self) -> bool {
        self.held.load(Ordering::SeqCst)
    }

    /// Returns the partition for the next purge step. Steps visit the partitions in turn.
    pub fn next_partition(&self, partitions: u32) -> PartitionId {
        let turn = self.next.fetch_add(1, Ordering::Relaxed) % partitions;
        PartitionId(u16::try_from(turn).expect("at most 256 partitions"))
    }

    /// Starts a search of every partition for pages to free.
    pub fn start_reclaim(&self, partitions: u32) {
        assert!(partitions > 0, "there are partitions to search");
        self.reclaim_left.store(partitions, Ordering::Relaxed);
    }

    /// Returns whether partitions are still searched for pages to free.
    pub fn is_reclaiming(&self) -> bool {
        self.reclaim_left.load(Ordering::Relaxed) > 0
    }

    /// Notes that a partition had no page to free.
    pub fn note_pass(&self, partitions: u32) {
        let pass = |left: u32| left.checked_sub(1);
        let left = (self.reclaim_left).fetch_update(Ordering::Relaxed, Ordering::Relaxed, pass);
        assert!(
            left.unwrap_or(0) <= partitions,
            "a pass visits each partition once"
        );
    }

    /// Takes over the indexes of flushed tables.
    pub fn take_flushed(&self, flushed: Flushed) {
        self.flushed.lock().extend(flushed.0);
    }

    /// Drops the indexes of at most [`DROPPED_TABLES`] flushed tables. The number is limited because dropping millions
    /// of entries would delay the calling thread. Returns the number of tables.
    pub fn drop_flushed(&self) -> usize {
        let gone = {
            let mut flushed = self.flushed.lock();
            let kept = flushed.len().saturating_sub(DROPPED_TABLES);
            flushed.split_off(kept)
        };
        assert!(gone.len() <= DROPPED_TABLES, "a step is short");
        gone.len()
    }

    /// Sets the listener. Later calls have no effect.
    pub fn on_expired(&self, listener: ExpiredListener) {
        let _the_first_stays = self.expired.set(listener);
    }

    /// Returns whether a listener is set.
    pub fn tells_of_expired(&self) -> bool {
        self.expired.get().is_some()
    }

    /// Passes removed keys to the listener, if one is set.
    pub fn tell_expired(&self, expired: &[(u8, Vec<u8>)], removed: Epoch) {
        if let Some(listener) = self.expired.get().filter(|_| !expired.is_empty()) {
            listener(expired, removed);
        }
    }
}

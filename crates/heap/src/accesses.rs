//! The time of the last access to each key, in memory only.
//!
//! Seconds are kept in an array parallel to the places of a hash index, four bytes a place. The array exists only if
//! the times of access are switched on. A read writes the current second to its key's place under the partition's latch
//! and touches no page, so the log and the images do not contain these times. After a restart every key counts as used
//! when the database was opened.
//!
//! The first noted access allocates the array. So switching the times on costs nothing at a start, however many keys
//! there are.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

/// The size in bytes of the access time that is kept for one place.
pub(crate) const ACCESS_BYTES: usize = size_of::<AtomicU32>();
/// The value of a place without a noted access.
pub(crate) const NEVER: u32 = 0;

/// The time of the last access to each place of a hash index, in seconds since 1970.
pub(crate) struct Accesses {
    /// The time since which accesses are noted. If a key has no noted access, this time counts as its last access.
    since: u32,
    seconds: OnceLock<Box<[AtomicU32]>>,
}

/// Returns an array for this many places, with no access noted.
pub(crate) fn unnoted(places: usize) -> Box<[AtomicU32]> {
    (0..places).map(|_| AtomicU32::new(NEVER)).collect()
}

impl Accesses {
    pub(crate) fn new(since: u32) -> Accesses {
        Accesses {
            since,
            seconds: OnceLock::new(),
        }
    }

    /// Notes that the entry at `place` was used at `second`. `places` is the number of places of the index.
    pub(crate) fn note(&self, place: usize, places: usize, second: u32) {
        if second == NEVER && self.seconds.get().is_none() {
            return;
        }
        let seconds = self.seconds.get_or_init(|| unnoted(places));
        debug_assert_eq!(seconds.len(), places, "a second for each place");
        let noted = &seconds[place];
        // A write would take the cache line from other threads.
        if noted.load(Ordering::Relaxed) != second {
            noted.store(second, Ordering::Relaxed);
        }
    }

    /// Returns the noted access of a place; [`NEVER`] if none was noted.
    pub(crate) fn noted(&self, place: usize) -> u32 {
        let seconds = self.seconds.get();
        seconds.map_or(NEVER, |seconds| seconds[place].load(Ordering::Relaxed))
    }

    /// Returns the time of the last access to the entry in a place.
    pub(crate) fn last(&self, place: usize) -> u32 {
        match self.noted(place) {
            NEVER => self.since,
            second => second,
        }
    }

    /// Returns whether any access has been noted.
    pub(crate) fn is_any(&self) -> bool {
        self.seconds.get().is_some()
    }

    /// Returns accesses with the same `since` and with `seconds` as the noted times. If `seconds` is `None`, the result
    /// has no noted access.
    pub(crate) fn moved(&self, seconds: Option<Box<[AtomicU32]>>) -> Accesses {
        Accesses {
            since: self.since,
            seconds: seconds.map_or_else(OnceLock::new, OnceLock::from),
        }
    }
}

/// Converts milliseconds to whole seconds. Returns at least 1, and so never [`NEVER`].
pub(crate) fn seconds(ms: u64) -> u32 {
    u32::try_from(ms / 1000).unwrap_or(u32::MAX).max(1)
}

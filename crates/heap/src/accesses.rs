//! The time at which each key was last used, in memory only.
//!
//! Seconds are kept in an array parallel to the places of a hash index, four bytes a place. The array exists only if
//! the times of access are switched on. A read writes the current second to its key's place under the partition's latch
//! and touches no page, so the log and the images do not contain these times. After a restart every key counts as used
//! when the database was opened.
//!
//! The first access that is noted allocates the array. So switching it on costs nothing at a start, whatever the number
//! of keys.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

/// The bytes of access time for each place of an index.
pub(crate) const ACCESS_BYTES: usize = size_of::<AtomicU32>();
/// The value of a place without a noted access.
pub(crate) const NEVER: u32 = 0;

/// The second of the last access by place of a hash index, since 1970.
pub(crate) struct Accesses {
    /// The time at which noting began. It counts as the access of every key that has had none since.
    since: u32,
    seconds: OnceLock<Box<[AtomicU32]>>,
}

/// Returns room for the accesses of the given number of places.
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
        seconds[place].store(second, Ordering::Relaxed);
    }

    /// Returns the noted access of a place; [`NEVER`] if none was noted.
    pub(crate) fn noted(&self, place: usize) -> u32 {
        let seconds = self.seconds.get();
        seconds.map_or(NEVER, |seconds| seconds[place].load(Ordering::Relaxed))
    }

    /// Returns the time at which the entry in a place was last used.
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

    /// Returns accesses that begin at the same time as these and have the given seconds; `None`: nothing was noted.
    pub(crate) fn moved(&self, seconds: Option<Box<[AtomicU32]>>) -> Accesses {
        Accesses {
            since: self.since,
            seconds: seconds.map_or_else(OnceLock::new, OnceLock::from),
        }
    }
}

/// Returns the whole seconds of a time in milliseconds, never [`NEVER`].
pub(crate) fn seconds(ms: u64) -> u32 {
    u32::try_from(ms / 1000).unwrap_or(u32::MAX).max(1)
}

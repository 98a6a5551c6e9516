//! When each key was last used, in memory only.
//!
//! A coarse clock beside the index: an array of seconds parallel to the places of a hash index,
//! which exists only if it is asked for and takes four bytes a place. A read writes its second
//! there under the partition's latch and touches no page, so the log and the images know nothing of
//! it. After a restart every key counts as used when the database was opened.
//!
//! The array is made by the first access that is noted, so asking for it costs nothing at a start,
//! however many keys there are.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

/// Bytes for each place of an index.
pub(crate) const ACCESS_BYTES: usize = size_of::<AtomicU32>();
/// No access has been noted.
pub(crate) const NEVER: u32 = 0;

/// Seconds since 1970 by place of a hash index.
pub(crate) struct Accesses {
    /// When noting began: the access of every key that has none since.
    since: u32,
    seconds: OnceLock<Box<[AtomicU32]>>,
}

/// Room for the accesses of so many places.
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

    /// Notes the access of the entry in a place of an index that has `places`.
    pub(crate) fn note(&self, place: usize, places: usize, second: u32) {
        if second == NEVER && self.seconds.get().is_none() {
            return;
        }
        let seconds = self.seconds.get_or_init(|| unnoted(places));
        debug_assert_eq!(seconds.len(), places, "a second for each place");
        seconds[place].store(second, Ordering::Relaxed);
    }

    /// What was noted of a place; [`NEVER`]: nothing.
    pub(crate) fn noted(&self, place: usize) -> u32 {
        let seconds = self.seconds.get();
        seconds.map_or(NEVER, |seconds| seconds[place].load(Ordering::Relaxed))
    }

    /// When the entry in a place was last used.
    pub(crate) fn last(&self, place: usize) -> u32 {
        match self.noted(place) {
            NEVER => self.since,
            second => second,
        }
    }

    /// Whether anything has been noted.
    pub(crate) fn is_any(&self) -> bool {
        self.seconds.get().is_some()
    }

    /// What was noted in the order of another array, or nothing of it.
    pub(crate) fn moved(&self, seconds: Option<Box<[AtomicU32]>>) -> Accesses {
        Accesses {
            since: self.since,
            seconds: seconds.map_or_else(OnceLock::new, OnceLock::from),
        }
    }
}

/// The whole seconds of a time in milliseconds, never [`NEVER`].
pub(crate) fn seconds(ms: u64) -> u32 {
    u32::try_from(ms / 1000).unwrap_or(u32::MAX).max(1)
}

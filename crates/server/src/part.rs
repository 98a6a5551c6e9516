//! A part of the state that all loops share: a table of observers behind a mutex.

use crate::sync::Mutex;
use crate::sync::atomic::{AtomicBool, Ordering};

/// A table of observers that may be empty.
pub(crate) trait Observers {
    /// Returns whether the table has no observer.
    fn is_empty(&self) -> bool;
}

/// A table of observers behind a mutex. A flag says whether the table has any, so no
/// loop locks an empty table.
#[derive(Debug, Default)]
pub(crate) struct Part<T> {
    table: Mutex<T>,
    in_use: AtomicBool,
}

impl<T: Observers> Part<T> {
    /// Returns whether the table has an observer.
    #[inline]
    pub(crate) fn is_in_use(&self) -> bool {
        self.in_use.load(Ordering::Acquire)
    }

    /// Calls `f` with the locked table.
    pub(crate) fn with<R>(&self, f: impl FnOnce(&mut T) -> R) -> R {
        let mut table = self.table.lock();
        let result = f(&mut table);
        self.in_use.store(!table.is_empty(), Ordering::Release);
        result
    }
}

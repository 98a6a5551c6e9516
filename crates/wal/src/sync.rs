//! The locks and atomics of the log. With the `shuttle` feature, the `shuttle` crate provides these types. Tests then
//! interleave threads: at each use of a lock or an atomic, a different thread may run.

#[cfg(not(feature = "shuttle"))]
pub(crate) use parking_lot::Mutex;
#[cfg(not(feature = "shuttle"))]
pub(crate) use std::sync::atomic::{AtomicU64, Ordering};

#[cfg(feature = "shuttle")]
pub(crate) use shuttle::sync::atomic::{AtomicU64, Ordering};
#[cfg(feature = "shuttle")]
pub(crate) use under_shuttle::Mutex;

#[cfg(feature = "shuttle")]
mod under_shuttle {
    use shuttle::sync::{Mutex as Inner, MutexGuard, PoisonError};

    /// A mutex with the interface of the production mutex. Neither mutex can be poisoned.
    pub(crate) struct Mutex<T>(Inner<T>);

    impl<T> Mutex<T> {
        pub fn new(value: T) -> Self {
            Mutex(Inner::new(value))
        }

        pub fn lock(&self) -> MutexGuard<'_, T> {
            self.0.lock().unwrap_or_else(PoisonError::into_inner)
        }

        pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
            self.0.try_lock().ok()
        }
    }
}

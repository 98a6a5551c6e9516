//! The locks and atomics of the log. With the `shuttle` feature, test versions of them replace the real ones. At each use of
//! a test version, a different thread may run.

#[cfg(not(feature = "shuttle"))]
pub(crate) use parking_lot::{Mutex, RwLock};
#[cfg(not(feature = "shuttle"))]
pub(crate) use std::sync::atomic::{AtomicU64, Ordering};

#[cfg(feature = "shuttle")]
pub(crate) use shuttle::sync::atomic::{AtomicU64, Ordering};
#[cfg(feature = "shuttle")]
pub(crate) use shuttle_parking_lot::{Mutex, RwLock};

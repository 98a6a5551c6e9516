//! The locks and atomics of the tables that loops share. With the `shuttle` feature, test versions of them replace the
//! real ones. At each use of a test version, a different thread may run.

#[cfg(not(feature = "shuttle"))]
pub(crate) use {parking_lot::Mutex, std::sync::atomic};
#[cfg(feature = "shuttle")]
pub(crate) use {shuttle::sync::atomic, shuttle_parking_lot::Mutex};

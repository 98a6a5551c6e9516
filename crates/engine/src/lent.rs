//! The archive of an open database, shared with users other than the archiver.

use std::sync::Arc;

use parking_lot::Mutex;
use perdura_archive::Store;

/// A shared cell that holds the archive while the archiver has it open, and is empty otherwise.
#[derive(Clone, Default)]
pub struct Lent(Arc<Mutex<Option<Arc<Store>>>>);

impl Lent {
    /// Returns the archive, if it is open.
    #[must_use]
    pub fn get(&self) -> Option<Arc<Store>> {
        self.0.lock().clone()
    }

    /// Puts an open archive into the cell, or empties the cell.
    pub(crate) fn set(&self, store: Option<Arc<Store>>) {
        *self.0.lock() = store;
    }
}

//! The archive of an open database, lent to users beside the archiver.

use std::sync::Arc;

use parking_lot::Mutex;
use perdura_archive::Store;

/// The archive while the archiver has it open, for its other users.
#[derive(Clone, Default)]
pub struct Lent(Arc<Mutex<Option<Arc<Store>>>>);

impl Lent {
    /// Returns the archive, if it is open.
    #[must_use]
    pub fn get(&self) -> Option<Arc<Store>> {
        self.0.lock().clone()
    }

    /// Lends the archive, or ends that.
    pub(crate) fn set(&self, store: Option<Arc<Store>>) {
        *self.0.lock() = store;
    }
}

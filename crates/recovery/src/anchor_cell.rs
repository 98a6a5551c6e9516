//! The anchor in memory, and the one way to change it: durable before it is visible.

use parking_lot::Mutex;
use perdura_base::Result;
use perdura_wal::anchor::{Anchor, AnchorFile};

/// The anchor of an open database.
pub struct AnchorCell {
    file: AnchorFile,
    /// Serializes updates; held during the anchor's I/O.
    updating: Mutex<()>,
    /// The record as it is on disk; held for a copy only.
    record: Mutex<Anchor>,
}

impl AnchorCell {
    /// A cell over an open file and the record read from it.
    #[must_use]
    pub fn new(file: AnchorFile, record: Anchor) -> Self {
        AnchorCell {
            file,
            updating: Mutex::new(()),
            record: Mutex::new(record),
        }
    }

    /// A copy of the record.
    #[must_use]
    pub fn get(&self) -> Anchor {
        self.record.lock().clone()
    }

    /// Looks at the record without a copy.
    pub fn with<R>(&self, look: impl FnOnce(&Anchor) -> R) -> R {
        look(&self.record.lock())
    }

    /// Changes the record: written and synced before anyone can read it. On an error the record
    /// in memory is unchanged; what is on the disk is one of the two.
    pub fn update(&self, change: impl FnOnce(&mut Anchor)) -> Result<Anchor> {
        let _updating = self.updating.lock();
        let mut next = self.get();
        change(&mut next);
        next.seq += 1;
        self.file.write(&next)?;
        self.record.lock().clone_from(&next);
        Ok(next)
    }
}

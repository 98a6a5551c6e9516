//! A disk without syncs: writes stay in the operating system's cache until the history is over.
//!
//! A history ends when its process drops the database, not with a loss of power. So it need not wait for syncs, which
//! would take most of an hour at the paper's size. With and without syncs, it leaves the same files.

use std::sync::Arc;

use parking_lot::Mutex;
use perdura_base::Result;
use perdura_device::{Access, Disk, DiskLayer, File, FileLayer};

/// A disk whose syncs do nothing, and whose files are accessed through the operating system's cache.
pub(super) struct UnsyncedDisk {
    disk: Arc<dyn Disk>,
    /// The files that were opened.
    files: Mutex<Vec<Arc<dyn File>>>,
}

struct UnsyncedFile(Arc<dyn File>);

impl UnsyncedDisk {
    pub fn new(disk: Arc<dyn Disk>) -> UnsyncedDisk {
        UnsyncedDisk {
            disk,
            files: Mutex::default(),
        }
    }

    /// Makes all writes durable, and forgets the opened files.
    ///
    /// # Errors
    /// Errors of the disk.
    pub fn settle(&self) -> Result<()> {
        let files = std::mem::take(&mut *self.files.lock());
        files.iter().try_for_each(|file| file.sync())
    }
}

impl DiskLayer for UnsyncedDisk {
    fn behind(&self) -> &dyn Disk {
        self.disk.as_ref()
    }

    fn in_front(&self, _: &str, file: Arc<dyn File>) -> Arc<dyn File> {
        self.files.lock().push(Arc::clone(&file));
        Arc::new(UnsyncedFile(file))
    }

    fn access(&self, _: Access) -> Access {
        Access::Buffered
    }

    fn sync_dir(&self, _: &str) -> Result<()> {
        Ok(())
    }
}

impl FileLayer for UnsyncedFile {
    fn behind(&self) -> &dyn File {
        self.0.as_ref()
    }

    fn sync(&self) -> Result<()> {
        Ok(())
    }
}

//! A disk without syncs: writes stay in the operating system's cache until the history is over.
//!
//! A history ends when its process drops the database, not with a loss of power. So it need not wait for syncs, which
//! would take most of an hour at the paper's size. With and without syncs, it leaves the same files.

use std::any::Any;
use std::sync::Arc;

use parking_lot::Mutex;
use perdura_base::Result;
use perdura_device::{Access, Disk, File};

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

    fn noted(&self, file: Arc<dyn File>) -> Arc<dyn File> {
        self.files.lock().push(Arc::clone(&file));
        Arc::new(UnsyncedFile(file))
    }
}

impl Disk for UnsyncedDisk {
    fn create(&self, path: &str, _access: Access) -> Result<Arc<dyn File>> {
        Ok(self.noted(self.disk.create(path, Access::Buffered)?))
    }

    fn open(&self, path: &str, _access: Access) -> Result<Arc<dyn File>> {
        Ok(self.noted(self.disk.open(path, Access::Buffered)?))
    }

    fn list(&self, dir: &str) -> Result<Vec<String>> {
        self.disk.list(dir)
    }

    fn make_dir(&self, dir: &str) -> Result<()> {
        self.disk.make_dir(dir)
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        self.disk.rename(from, to)
    }

    fn publish(&self, from: &str, to: &str) -> Result<()> {
        self.disk.publish(from, to)
    }

    fn remove(&self, path: &str) -> Result<()> {
        self.disk.remove(path)
    }

    fn sync_dir(&self, _dir: &str) -> Result<()> {
        Ok(())
    }

    fn lock(&self, path: &str) -> Result<Box<dyn Any + Send + Sync>> {
        self.disk.lock(path)
    }

    fn name(&self) -> String {
        self.disk.name()
    }
}

impl File for UnsyncedFile {
    fn len(&self) -> Result<u64> {
        self.0.len()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<usize> {
        self.0.read_at(offset, buf)
    }

    fn will_read(&self, offset: u64, len: u64) {
        self.0.will_read(offset, len);
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> Result<()> {
        self.0.write_at(offset, data)
    }

    fn allocate(&self, len: u64) -> Result<()> {
        self.0.allocate(len)
    }

    fn set_len(&self, len: u64) -> Result<()> {
        self.0.set_len(len)
    }

    fn sync(&self) -> Result<()> {
        Ok(())
    }

    fn path(&self) -> &str {
        self.0.path()
    }

    fn is_direct(&self) -> bool {
        false
    }
}

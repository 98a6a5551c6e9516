//! A disk whose new files cost no transfer, as if their space had been written before.
//!
//! A log that recycles its segments writes each of them with zeros only once. A short run would measure little else than
//! this first time. The modelled disks leave it out in the same way.

use std::any::Any;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use perdura_base::Result;
use perdura_device::{Access, Disk, DurableQueue, File, FileId, Locks, LogWayReport, Through};

/// A disk in front of another one. Allocating space for a file only sets the file's length.
pub(super) struct LaidOut(Arc<dyn Disk>);

struct LaidOutFile(Arc<dyn File>);

impl LaidOut {
    /// Puts such a disk in front of `disk`.
    pub fn new(disk: Arc<dyn Disk>) -> LaidOut {
        LaidOut(disk)
    }
}

impl Disk for LaidOut {
    fn create(&self, path: &str, access: Access) -> Result<Arc<dyn File>> {
        Ok(Arc::new(LaidOutFile(self.0.create(path, access)?)))
    }

    fn open(&self, path: &str, access: Access) -> Result<Arc<dyn File>> {
        Ok(Arc::new(LaidOutFile(self.0.open(path, access)?)))
    }

    fn list(&self, dir: &str) -> Result<Vec<String>> {
        self.0.list(dir)
    }

    fn make_dir(&self, dir: &str) -> Result<()> {
        self.0.make_dir(dir)
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        self.0.rename(from, to)
    }

    fn publish(&self, from: &str, to: &str) -> Result<()> {
        self.0.publish(from, to)
    }

    fn remove(&self, path: &str) -> Result<()> {
        self.0.remove(path)
    }

    fn sync_dir(&self, dir: &str) -> Result<()> {
        self.0.sync_dir(dir)
    }

    fn lock(&self, path: &str) -> Result<Box<dyn Any + Send + Sync>> {
        self.0.lock(path)
    }

    fn lock_present(&self, path: &str) -> Result<Option<Box<dyn Any + Send + Sync>>> {
        self.0.lock_present(path)
    }

    fn identity(&self, path: &str) -> Result<Option<FileId>> {
        self.0.identity(path)
    }

    fn keep_locked(&self, locks: &Locks) {
        self.0.keep_locked(locks);
    }

    fn durable_queue(&self) -> Result<Box<dyn DurableQueue>> {
        self.0.durable_queue()
    }

    fn log_way(&self) -> Option<LogWayReport> {
        self.0.log_way()
    }

    fn name(&self) -> String {
        self.0.name()
    }
}

impl File for LaidOutFile {
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
        self.0.set_len(len.max(self.0.len()?))
    }

    fn set_len(&self, len: u64) -> Result<()> {
        self.0.set_len(len)
    }

    fn sync(&self) -> Result<()> {
        self.0.sync()
    }

    fn write_durable(&self, offset: u64, parts: &[&[u8]], through: Through) -> Result<()> {
        self.0.write_durable(offset, parts, through)
    }

    fn direct_fd(&self) -> Option<BorrowedFd<'_>> {
        self.0.direct_fd()
    }

    fn identity(&self) -> Result<Option<FileId>> {
        self.0.identity()
    }

    fn path(&self) -> &str {
        self.0.path()
    }

    fn is_direct(&self) -> bool {
        self.0.is_direct()
    }
}

#[cfg(test)]
mod tests {
    use perdura_device::MemDisk;

    use super::*;

    #[test]
    fn allocation_sets_the_length_and_never_shortens() {
        let disk = LaidOut::new(Arc::new(MemDisk::new()));
        let file = disk.create("f", Access::Direct).unwrap();
        file.allocate(8192).unwrap();
        file.allocate(4096).unwrap();
        assert_eq!(file.len().unwrap(), 8192);
        file.write_durable(4096, &[b"durable"], Through::WriteAndSync)
            .unwrap();
        let mut back = [0; 7];
        let again = disk.open("f", Access::Buffered).unwrap();
        assert_eq!(again.read_at(4096, &mut back).unwrap(), 7);
        assert_eq!(&back, b"durable");
    }
}

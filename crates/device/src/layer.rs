//! Layers: disks and files in front of others.
//!
//! A layer names what is behind it and replaces some verbs. All other verbs go to what is behind, with one exception:
//! durable writes. They are made of the layer's own writes and syncs, so that none of them bypasses the layer. A layer
//! that durable writes may bypass forwards `durable_queue` and `direct_fd` itself.

use std::any::Any;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use perdura_base::Result;

use crate::durable::in_sequence;
use crate::{Access, Disk, DurableQueue, File, FileId, Locks, LogWayReport, Through, WaitQueue};

/// A disk in front of another one. See the verbs of [`Disk`].
#[allow(missing_docs)]
pub trait DiskLayer: Send + Sync + 'static {
    /// Returns the disk behind the layer.
    fn behind(&self) -> &dyn Disk;

    /// Returns a file that was created or opened behind the layer, with the layer's file in front.
    fn in_front(&self, path: &str, file: Arc<dyn File>) -> Arc<dyn File>;

    /// Returns the access to files behind the layer.
    fn access(&self, asked: Access) -> Access {
        asked
    }

    fn sync_dir(&self, dir: &str) -> Result<()> {
        self.behind().sync_dir(dir)
    }

    fn lock(&self, path: &str) -> Result<Box<dyn Any + Send + Sync>> {
        self.behind().lock(path)
    }

    fn durable_queue(&self) -> Result<Box<dyn DurableQueue>> {
        Ok(Box::new(WaitQueue::new(Through::WriteAndSync)))
    }

    fn log_way(&self) -> Option<LogWayReport> {
        None
    }
}

impl<L: DiskLayer> Disk for L {
    fn create(&self, path: &str, access: Access) -> Result<Arc<dyn File>> {
        let file = self.behind().create(path, self.access(access))?;
        Ok(self.in_front(path, file))
    }

    fn open(&self, path: &str, access: Access) -> Result<Arc<dyn File>> {
        let file = self.behind().open(path, self.access(access))?;
        Ok(self.in_front(path, file))
    }

    fn list(&self, dir: &str) -> Result<Vec<String>> {
        self.behind().list(dir)
    }

    fn make_dir(&self, dir: &str) -> Result<()> {
        self.behind().make_dir(dir)
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        self.behind().rename(from, to)
    }

    fn publish(&self, from: &str, to: &str) -> Result<()> {
        self.behind().publish(from, to)
    }

    fn remove(&self, path: &str) -> Result<()> {
        self.behind().remove(path)
    }

    fn sync_dir(&self, dir: &str) -> Result<()> {
        DiskLayer::sync_dir(self, dir)
    }

    fn lock(&self, path: &str) -> Result<Box<dyn Any + Send + Sync>> {
        DiskLayer::lock(self, path)
    }

    fn lock_present(&self, path: &str) -> Result<Option<Box<dyn Any + Send + Sync>>> {
        self.behind().lock_present(path)
    }

    fn identity(&self, path: &str) -> Result<Option<FileId>> {
        self.behind().identity(path)
    }

    fn keep_locked(&self, locks: &Locks) {
        self.behind().keep_locked(locks);
    }

    fn durable_queue(&self) -> Result<Box<dyn DurableQueue>> {
        DiskLayer::durable_queue(self)
    }

    fn log_way(&self) -> Option<LogWayReport> {
        DiskLayer::log_way(self)
    }

    fn name(&self) -> String {
        self.behind().name()
    }
}

/// A file in front of another one. See the verbs of [`File`].
#[allow(missing_docs)]
pub trait FileLayer: Send + Sync {
    /// Returns the file behind the layer.
    fn behind(&self) -> &dyn File;

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<usize> {
        self.behind().read_at(offset, buf)
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> Result<()> {
        self.behind().write_at(offset, data)
    }

    fn allocate(&self, len: u64) -> Result<()> {
        self.behind().allocate(len)
    }

    fn sync(&self) -> Result<()> {
        self.behind().sync()
    }

    fn write_durable(&self, offset: u64, parts: &[&[u8]], _through: Through) -> Result<()> {
        in_sequence(offset, parts, |at, part| self.write_at(at, part))?;
        self.sync()
    }

    fn direct_fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

impl<L: FileLayer> File for L {
    fn len(&self) -> Result<u64> {
        self.behind().len()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<usize> {
        let got = FileLayer::read_at(self, offset, buf)?;
        assert!(got <= buf.len(), "{got} bytes were read into {}", buf.len());
        Ok(got)
    }

    fn will_read(&self, offset: u64, len: u64) {
        self.behind().will_read(offset, len);
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> Result<()> {
        FileLayer::write_at(self, offset, data)
    }

    fn allocate(&self, len: u64) -> Result<()> {
        FileLayer::allocate(self, len)
    }

    fn set_len(&self, len: u64) -> Result<()> {
        self.behind().set_len(len)
    }

    fn sync(&self) -> Result<()> {
        FileLayer::sync(self)
    }

    fn write_durable(&self, offset: u64, parts: &[&[u8]], through: Through) -> Result<()> {
        FileLayer::write_durable(self, offset, parts, through)
    }

    fn direct_fd(&self) -> Option<BorrowedFd<'_>> {
        FileLayer::direct_fd(self)
    }

    fn identity(&self) -> Result<Option<FileId>> {
        self.behind().identity()
    }

    fn path(&self) -> &str {
        self.behind().path()
    }

    fn is_direct(&self) -> bool {
        self.behind().is_direct()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;
    use crate::{MemDisk, conformance};

    /// A layer that counts writes and syncs.
    struct Counting(MemDisk, Arc<AtomicU32>);

    struct CountingFile(Arc<dyn File>, Arc<AtomicU32>);

    impl DiskLayer for Counting {
        fn behind(&self) -> &dyn Disk {
            &self.0
        }

        fn in_front(&self, _: &str, file: Arc<dyn File>) -> Arc<dyn File> {
            Arc::new(CountingFile(file, Arc::clone(&self.1)))
        }
    }

    impl FileLayer for CountingFile {
        fn behind(&self) -> &dyn File {
            self.0.as_ref()
        }

        fn write_at(&self, offset: u64, data: &[u8]) -> Result<()> {
            self.1.fetch_add(1, Ordering::Relaxed);
            self.0.write_at(offset, data)
        }

        fn sync(&self) -> Result<()> {
            self.1.fetch_add(100, Ordering::Relaxed);
            self.0.sync()
        }
    }

    #[test]
    fn a_layer_is_a_disk() {
        conformance::disk(|| Arc::new(Counting(MemDisk::new(), Arc::default())));
    }

    #[test]
    fn no_durable_write_bypasses_a_layer() {
        let counts = Arc::new(AtomicU32::new(0));
        let disk = Counting(MemDisk::new(), Arc::clone(&counts));
        let file = disk.create("f", Access::Direct).unwrap();
        file.write_durable(0, &[b"one", b"two"], Through::Dsync)
            .unwrap();
        assert_eq!(counts.load(Ordering::Relaxed), 102);
        assert!(file.direct_fd().is_none());
        assert_eq!(file.len().unwrap(), 6);
    }
}

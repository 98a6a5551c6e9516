//! A disk whose new files cost no transfer, as if their space had been written before.
//!
//! A log that recycles its segments writes each of them with zeros only once. A short run would measure little else than
//! this first time. The modelled disks leave it out in the same way.

use std::os::fd::BorrowedFd;
use std::sync::Arc;

use perdura_base::Result;
use perdura_device::{Disk, DiskLayer, DurableQueue, File, FileLayer, LogWayReport, Through};

/// A disk in front of another one. Allocating space for a file only sets the file's length.
pub(super) struct LaidOut(Arc<dyn Disk>);

struct LaidOutFile(Arc<dyn File>);

impl LaidOut {
    /// Puts such a disk in front of `disk`.
    pub fn new(disk: Arc<dyn Disk>) -> LaidOut {
        LaidOut(disk)
    }
}

impl DiskLayer for LaidOut {
    fn behind(&self) -> &dyn Disk {
        self.0.as_ref()
    }

    fn in_front(&self, _: &str, file: Arc<dyn File>) -> Arc<dyn File> {
        Arc::new(LaidOutFile(file))
    }

    fn durable_queue(&self) -> Result<Box<dyn DurableQueue>> {
        self.0.durable_queue()
    }

    fn log_way(&self) -> Option<LogWayReport> {
        self.0.log_way()
    }
}

impl FileLayer for LaidOutFile {
    fn behind(&self) -> &dyn File {
        self.0.as_ref()
    }

    fn allocate(&self, len: u64) -> Result<()> {
        self.0.set_len(len.max(self.0.len()?))
    }

    fn write_durable(&self, offset: u64, parts: &[&[u8]], through: Through) -> Result<()> {
        self.0.write_durable(offset, parts, through)
    }

    fn direct_fd(&self) -> Option<BorrowedFd<'_>> {
        self.0.direct_fd()
    }
}

#[cfg(test)]
mod tests {
    use perdura_device::{Access, MemDisk};

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

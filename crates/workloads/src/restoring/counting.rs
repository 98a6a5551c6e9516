//! A disk that counts the pages that are read from a file. The count is of bytes that the disk returns, so it does not
//! depend on what a restore reports.

use std::any::Any;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use perdura_base::Result;
use perdura_base::limits::PAGE_BYTES;
use perdura_base::num::to_u64;
use perdura_device::{Access, Disk, File, FileId};

/// A file, and the part of it that is pages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pages {
    /// The path of the file.
    pub path: String,
    /// The offsets of the pages in the file.
    pub at: Range<u64>,
}

/// A disk in front of another one.
pub struct CountingDisk {
    inner: Arc<dyn Disk>,
    pages: Pages,
    bytes: Arc<AtomicU64>,
}

impl CountingDisk {
    /// Puts a disk that counts the reads of `pages` in front of `inner`.
    #[must_use]
    pub fn new(inner: Arc<dyn Disk>, pages: Pages) -> CountingDisk {
        CountingDisk {
            inner,
            pages,
            bytes: Arc::default(),
        }
    }

    /// Returns the number of pages that were read. A page that was read twice counts twice, and a started page counts
    /// as one.
    #[must_use]
    pub fn pages_read(&self) -> u64 {
        let bytes = self.bytes.load(Ordering::Relaxed);
        bytes.div_ceil(to_u64(PAGE_BYTES))
    }

    fn counted(&self, path: &str, inner: Arc<dyn File>) -> Arc<dyn File> {
        if path != self.pages.path {
            return inner;
        }
        Arc::new(CountedFile {
            inner,
            at: self.pages.at.clone(),
            bytes: Arc::clone(&self.bytes),
        })
    }
}

impl Disk for CountingDisk {
    fn create(&self, path: &str, access: Access) -> Result<Arc<dyn File>> {
        Ok(self.counted(path, self.inner.create(path, access)?))
    }

    fn open(&self, path: &str, access: Access) -> Result<Arc<dyn File>> {
        Ok(self.counted(path, self.inner.open(path, access)?))
    }

    fn list(&self, dir: &str) -> Result<Vec<String>> {
        self.inner.list(dir)
    }

    fn make_dir(&self, dir: &str) -> Result<()> {
        self.inner.make_dir(dir)
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        self.inner.rename(from, to)
    }

    fn publish(&self, from: &str, to: &str) -> Result<()> {
        self.inner.publish(from, to)
    }

    fn remove(&self, path: &str) -> Result<()> {
        self.inner.remove(path)
    }

    fn sync_dir(&self, dir: &str) -> Result<()> {
        self.inner.sync_dir(dir)
    }

    fn lock(&self, path: &str) -> Result<Box<dyn Any + Send + Sync>> {
        self.inner.lock(path)
    }

    fn lock_present(&self, path: &str) -> Result<Option<Box<dyn Any + Send + Sync>>> {
        self.inner.lock_present(path)
    }

    fn identity(&self, path: &str) -> Result<Option<FileId>> {
        self.inner.identity(path)
    }

    fn name(&self) -> String {
        self.inner.name()
    }
}

/// A file whose reads of pages are counted. It has no descriptor, so no read can bypass it.
struct CountedFile {
    inner: Arc<dyn File>,
    at: Range<u64>,
    bytes: Arc<AtomicU64>,
}

impl File for CountedFile {
    fn len(&self) -> Result<u64> {
        self.inner.len()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<usize> {
        let count = self.inner.read_at(offset, buf)?;
        let end = (offset + to_u64(count)).min(self.at.end);
        let of_pages = end.saturating_sub(offset.max(self.at.start));
        self.bytes.fetch_add(of_pages, Ordering::Relaxed);
        Ok(count)
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> Result<()> {
        self.inner.write_at(offset, data)
    }

    fn allocate(&self, len: u64) -> Result<()> {
        self.inner.allocate(len)
    }

    fn set_len(&self, len: u64) -> Result<()> {
        self.inner.set_len(len)
    }

    fn sync(&self) -> Result<()> {
        self.inner.sync()
    }

    fn identity(&self) -> Result<Option<FileId>> {
        self.inner.identity()
    }

    fn path(&self) -> &str {
        self.inner.path()
    }

    fn is_direct(&self) -> bool {
        self.inner.is_direct()
    }
}

#[cfg(test)]
mod tests {
    use perdura_device::MemDisk;

    use super::*;

    #[test]
    fn each_read_of_a_page_counts_and_no_other_byte() {
        let page = to_u64(PAGE_BYTES);
        let pages = Pages {
            path: "pages".into(),
            at: 4096..4096 + 3 * page,
        };
        let disk = CountingDisk::new(Arc::new(MemDisk::new()), pages);
        let mut buf = vec![0; 4 * PAGE_BYTES];
        for path in ["pages", "other"] {
            let file = disk.create(path, Access::Buffered).unwrap();
            file.write_at(0, &buf).unwrap();
            file.write_at(to_u64(buf.len()), &buf).unwrap();
        }
        let file = disk.open("pages", Access::Buffered).unwrap();
        file.read_at(0, &mut buf[..4096]).unwrap();
        disk.open("other", Access::Buffered)
            .and_then(|other| other.read_at(4096, &mut buf))
            .unwrap();
        file.read_at(4096 + 3 * page, &mut buf).unwrap();
        assert_eq!(disk.pages_read(), 0, "the head, the tail, and another file");
        file.read_at(0, &mut buf).unwrap();
        assert_eq!(
            disk.pages_read(),
            3,
            "three whole pages and a part of the head"
        );
        file.read_at(4096 + page, &mut buf[..PAGE_BYTES]).unwrap();
        assert_eq!(
            disk.pages_read(),
            4,
            "a page that is read twice counts twice"
        );
    }
}

//! A disk that counts the pages that are read from a file. The count is of bytes that the disk returns, so it does not
//! depend on what a restore reports.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use perdura_base::Result;
use perdura_base::limits::PAGE_BYTES;
use perdura_base::num::to_u64;
use perdura_device::{Disk, DiskLayer, File, FileLayer};

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
}

impl DiskLayer for CountingDisk {
    fn behind(&self) -> &dyn Disk {
        self.inner.as_ref()
    }

    fn in_front(&self, path: &str, file: Arc<dyn File>) -> Arc<dyn File> {
        if path != self.pages.path {
            return file;
        }
        Arc::new(CountedFile {
            inner: file,
            at: self.pages.at.clone(),
            bytes: Arc::clone(&self.bytes),
        })
    }
}

/// A file whose reads of pages are counted. It has no descriptor, so no read can bypass it.
struct CountedFile {
    inner: Arc<dyn File>,
    at: Range<u64>,
    bytes: Arc<AtomicU64>,
}

impl FileLayer for CountedFile {
    fn behind(&self) -> &dyn File {
        self.inner.as_ref()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<usize> {
        let count = self.inner.read_at(offset, buf)?;
        let end = (offset + to_u64(count)).min(self.at.end);
        let of_pages = end.saturating_sub(offset.max(self.at.start));
        self.bytes.fetch_add(of_pages, Ordering::Relaxed);
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use perdura_device::{Access, MemDisk};

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

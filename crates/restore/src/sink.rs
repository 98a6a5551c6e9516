//! The destinations of the pages that a merge join makes: an image, or a backup.

use perdura_archive::backup::{BackupWriter, PageEntry};
use perdura_base::limits::PAGE_BYTES;
use perdura_base::num::{to_u32, to_u64};
use perdura_base::{PageId, Result};
use perdura_device::AlignedBuf;
use perdura_heap::Geometry;
use perdura_recovery::image::{DirEntry, ImageFile, Place, Places, disk_of};

use crate::part::{PageSink, Part};

/// The maximum number of pages in one write to an image.
pub(crate) const WRITE_PAGES: usize = 64;

/// A [`PageSink`] that writes to an image. Adjacent pages are written together.
pub(crate) struct ImageSink<'a> {
    images: &'a [ImageFile],
    places: Places,
    /// The most pages that are collected for a write.
    pages: usize,
    buf: AlignedBuf,
    /// The index of the image file that the collected pages belong to. `first` is the place of the first of these
    /// pages.
    file: usize,
    first: Place,
    len: usize,
}

impl<'a> ImageSink<'a> {
    /// Makes a sink that collects at most `pages` pages for a write.
    pub(crate) fn new(images: &'a [ImageFile], geometry: Geometry, pages: usize) -> ImageSink<'a> {
        assert!(pages > 0, "a page is made in memory");
        ImageSink {
            images,
            places: Places::new(geometry, to_u32(images.len())),
            pages,
            buf: AlignedBuf::zeroed(pages * PAGE_BYTES),
            file: 0,
            first: Place(0),
            len: 0,
        }
    }

    /// Writes the collected pages to the image.
    fn flush(&mut self) -> Result<()> {
        if self.len > 0 {
            self.images[self.file].write(self.first, &self.buf[..self.len * PAGE_BYTES])?;
        }
        self.len = 0;
        Ok(())
    }
}

impl PageSink for ImageSink<'_> {
    /// Returns a buffer for the page. First writes the collected pages if the buffer is full or this page does not
    /// directly follow.
    fn page(&mut self, id: PageId) -> Result<&mut [u8]> {
        let place = self.places.place(id);
        let is_beside = place.0 == self.first.0 + to_u64(self.len);
        if self.len == self.pages || !is_beside {
            self.flush()?;
        }
        if self.len == 0 {
            self.file = disk_of(self.places.partition(id), self.images.len());
            self.first = place;
        }
        assert_eq!(
            place.0,
            self.first.0 + to_u64(self.len),
            "pages that are written together stand side by side"
        );
        let at = self.len * PAGE_BYTES;
        self.len += 1;
        Ok(&mut self.buf[at..at + PAGE_BYTES])
    }

    fn drop_last(&mut self) {
        assert!(self.len > 0, "a page was made");
        self.len -= 1;
    }

    fn keep_last(&mut self, _local: u32, _entry: &DirEntry) -> Result<()> {
        Ok(())
    }

    fn end_partition(&mut self, _part: &mut Part) -> Result<()> {
        self.flush()
    }
}

/// Writes pages to a backup.
pub(crate) struct BackupSink {
    writer: BackupWriter,
    page: AlignedBuf,
}

impl BackupSink {
    pub(crate) fn new(writer: BackupWriter) -> BackupSink {
        BackupSink {
            writer,
            page: AlignedBuf::zeroed(PAGE_BYTES),
        }
    }

    /// Returns the partition's number if the backup has key-addressed tables. Without them, no restore needs the number, and
    /// the known one is of the older backup's instant.
    fn numbers_of(&self, part: &mut Part) -> Option<u64> {
        part.pseq = part.pseq.filter(|_| self.writer.is_consistent());
        part.pseq
    }

    /// Returns the writer, after all partitions have ended.
    pub(crate) fn into_writer(self) -> BackupWriter {
        self.writer
    }
}

impl PageSink for BackupSink {
    fn page(&mut self, _id: PageId) -> Result<&mut [u8]> {
        Ok(&mut self.page[..])
    }

    fn drop_last(&mut self) {}

    fn keep_last(&mut self, local: u32, entry: &DirEntry) -> Result<()> {
        let entry = PageEntry {
            local,
            useq: entry.useq,
            crc: entry.crc,
            digest: entry.digest,
        };
        self.writer.push(entry, &self.page)
    }

    fn end_partition(&mut self, part: &mut Part) -> Result<()> {
        self.writer
            .end_partition(self.numbers_of(part), std::mem::take(&mut part.sidecar));
        part.entries.clear();
        Ok(())
    }
}

//! A buffer pool for pages of an image, for a replay that accesses the image in random order.
//!
//! # Source
//! R. W. Carr, J. L. Hennessy, "WSClock", SOSP 1981, section 2: the clock algorithm with one bit for each frame.

use std::collections::HashMap;

use perdura_base::limits::PAGE_BYTES;
use perdura_base::{PageId, Result};
use perdura_device::AlignedBuf;
use perdura_recovery::image::{ImageFile, Place, Places, disk_of};

/// A frame: room for a page in memory.
#[derive(Debug, Clone, Copy, Default)]
struct Frame {
    page: Option<PageId>,
    /// True if the page was used since the clock's hand last passed the frame.
    is_used: bool,
    is_dirty: bool,
}

/// A pool with a fixed number of frames.
pub(crate) struct Pool<'a> {
    images: &'a [ImageFile],
    places: Places,
    frames: Vec<Frame>,
    bytes: AlignedBuf,
    at: HashMap<PageId, usize>,
    hand: usize,
    /// The number of pages read.
    pub(crate) reads: u64,
    /// The number of pages written.
    pub(crate) writes: u64,
}

impl<'a> Pool<'a> {
    /// Makes an empty pool of `frames` frames, at least one.
    pub(crate) fn new(images: &'a [ImageFile], places: Places, frames: usize) -> Pool<'a> {
        assert!(frames > 0, "a page is changed in memory");
        Pool {
            images,
            places,
            frames: vec![Frame::default(); frames],
            bytes: AlignedBuf::zeroed(frames * PAGE_BYTES),
            at: HashMap::with_capacity(frames),
            hand: 0,
            reads: 0,
            writes: 0,
        }
    }

    /// Returns the frame that has a page, and marks the frame as used. `None`: the page is not in the pool.
    pub(crate) fn find(&mut self, page: PageId) -> Option<usize> {
        let frame = *self.at.get(&page)?;
        debug_assert_eq!(self.frames[frame].page, Some(page), "one page a frame");
        self.frames[frame].is_used = true;
        Some(frame)
    }

    /// Chooses the frame to use next. Also returns the page in it, if that page was changed and so must be written
    /// first.
    pub(crate) fn choose(&mut self) -> (usize, Option<PageId>) {
        loop {
            let at = self.hand;
            self.hand = (self.hand + 1) % self.frames.len();
            let frame = &mut self.frames[at];
            if !std::mem::take(&mut frame.is_used) {
                return (at, frame.page.filter(|_| frame.is_dirty));
            }
        }
    }

    /// Assigns a frame to a page, and drops the page that was in the frame. Returns the frame's bytes.
    fn take(&mut self, frame: usize, page: PageId) -> &mut [u8] {
        let before = std::mem::replace(
            &mut self.frames[frame],
            Frame {
                page: Some(page),
                is_used: true,
                is_dirty: false,
            },
        );
        assert!(!before.is_dirty, "a changed page was written");
        if let Some(before) = before.page {
            self.at.remove(&before);
        }
        self.at.insert(page, frame);
        assert!(
            self.at.len() <= self.frames.len(),
            "a pool has as many pages as frames"
        );
        &mut self.bytes[frame * PAGE_BYTES..(frame + 1) * PAGE_BYTES]
    }

    /// Begins a page of zeros in a frame.
    pub(crate) fn begin(&mut self, frame: usize, page: PageId) {
        self.take(frame, page).fill(0);
    }

    /// Reads a page into a frame. Returns the number of bytes read, which is less than a page at the end of the file.
    pub(crate) fn read(&mut self, frame: usize, page: PageId) -> Result<usize> {
        let (disk, place) = self.place(page);
        let image = &self.images[disk];
        self.reads += 1;
        image.read(place, self.take(frame, page))
    }

    /// Marks the page in a frame as changed. Returns the page's bytes, which the caller may change.
    pub(crate) fn change(&mut self, frame: usize) -> &mut [u8] {
        debug_assert!(self.frames[frame].page.is_some(), "a frame with a page");
        self.frames[frame].is_dirty = true;
        &mut self.bytes[frame * PAGE_BYTES..(frame + 1) * PAGE_BYTES]
    }

    /// Returns the bytes of the page in a frame.
    pub(crate) fn bytes(&self, frame: usize) -> &[u8] {
        &self.bytes[frame * PAGE_BYTES..(frame + 1) * PAGE_BYTES]
    }

    /// Writes a frame's page to the image. The page's number determines the position in the image.
    pub(crate) fn write_back(&mut self, frame: usize) -> Result<()> {
        let page = self.frames[frame].page.expect("a frame with a page");
        let (disk, place) = self.place(page);
        self.images[disk].write(place, self.bytes(frame))?;
        self.writes += 1;
        self.frames[frame].is_dirty = false;
        Ok(())
    }

    /// Returns the frames with changed pages, in the order of the pages' places in the image.
    pub(crate) fn dirty(&self) -> Vec<(usize, PageId)> {
        let frames = self.frames.iter().enumerate();
        let dirty = frames.filter(|(_, frame)| frame.is_dirty);
        let mut dirty: Vec<(usize, PageId)> =
            dirty.filter_map(|(at, f)| Some((at, f.page?))).collect();
        dirty.sort_by_key(|(_, page)| self.place(*page));
        dirty
    }

    /// Makes all written pages durable.
    pub(crate) fn sync(&self) -> Result<()> {
        self.images.iter().try_for_each(ImageFile::sync)
    }

    fn place(&self, page: PageId) -> (usize, Place) {
        let partition = self.places.partition(page);
        (
            disk_of(partition, self.images.len()),
            self.places.place(page),
        )
    }
}

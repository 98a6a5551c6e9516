//! Pages that stand side by side in the image are written together.

use perdura_base::limits::PAGE_BYTES;
use perdura_base::num::to_u64;
use perdura_base::{PageId, Result};
use perdura_device::AlignedBuf;

use crate::image::{ImageFile, Place, Places};

/// Pages that are written at once.
const WRITE_PAGES: usize = 64;

/// Pages that are being made, and where they will be.
pub(super) struct PageOutput {
    places: Places,
    buf: AlignedBuf,
    first: Place,
    len: usize,
}

impl PageOutput {
    pub(super) fn new(places: Places) -> PageOutput {
        PageOutput {
            places,
            buf: AlignedBuf::zeroed(WRITE_PAGES * PAGE_BYTES),
            first: Place(0),
            len: 0,
        }
    }

    /// Where to make a page. What stands elsewhere is written first.
    pub(super) fn page(&mut self, file: &ImageFile, page: PageId) -> Result<&mut [u8]> {
        let place = self.places.place(page);
        let is_beside = place.0 == self.first.0 + to_u64(self.len);
        if self.len == WRITE_PAGES || !is_beside {
            self.flush(file)?;
        }
        if self.len == 0 {
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

    /// Gives up the page that was made last.
    pub(super) fn drop_last(&mut self) {
        assert!(self.len > 0, "a page was made");
        self.len -= 1;
    }

    /// Writes what has been made.
    pub(super) fn flush(&mut self, file: &ImageFile) -> Result<()> {
        if self.len > 0 {
            file.write(self.first, &self.buf[..self.len * PAGE_BYTES])?;
        }
        self.len = 0;
        Ok(())
    }
}

//! The pages file of an image: its header, and pages side by side.

use std::sync::Arc;

use perdura_base::checksum::crc32c;
use perdura_base::cursor::Writer;
use perdura_base::limits::{FORMAT_VERSION, PAGE_BYTES, SECTOR_BYTES};
use perdura_base::{Error, ImageSlot, PageId, Result, Uuid};
use perdura_device::{Access, AlignedBuf, Disk, File};

use super::{DirEntry, PAGES_HEADER_BYTES, Place, folder, pages_path};
use perdura_page::digest::page_crc;

/// The pages file of an image.
pub struct ImageFile {
    file: Arc<dyn File>,
    number: u8,
}

impl ImageFile {
    /// Creates the folder and an empty pages file. Both are durable on return. `number` is the index of `disk` among
    /// the image disks.
    ///
    /// # Errors
    /// Errors of the disk.
    pub fn create(disk: &dyn Disk, slot: ImageSlot, uuid: &Uuid, number: u8) -> Result<()> {
        disk.make_dir(folder(slot))?;
        let tmp = format!("{}.tmp", pages_path(slot));
        match disk.remove(&tmp) {
            Err(error) if !error.is_not_found() => return Err(error),
            Ok(()) | Err(_) => {}
        }
        let file = disk.create(&tmp, Access::Buffered)?;
        file.write_at(0, &encode_pages_header(slot, uuid, number))?;
        file.sync()?;
        disk.rename(&tmp, &pages_path(slot))?;
        disk.sync_dir(folder(slot))
    }

    /// Opens the pages file of a slot and checks that it belongs to the database.
    pub fn open(disk: &dyn Disk, slot: ImageSlot, uuid: &Uuid) -> Result<ImageFile> {
        let path = pages_path(slot);
        let file = disk.open(&path, Access::Direct)?;
        let mut head = AlignedBuf::zeroed(SECTOR_BYTES);
        let got = file.read_at(0, &mut head)?;
        let number = head[DISK_NUMBER];
        if !is_pages_header(&head[..got], slot, uuid, number) {
            return Err(wrong_pages_header(&path, &head[..got], uuid));
        }
        Ok(ImageFile { file, number })
    }

    /// Opens the pages file of a slot. The caller is about to rewrite all pages, so a header that fails its check is
    /// rewritten here.
    ///
    /// # Errors
    /// [`Error::Foreign`] for a foreign database's file. Errors of the disk.
    pub fn open_to_rewrite(
        disk: &dyn Disk,
        slot: ImageSlot,
        uuid: &Uuid,
        number: u8,
    ) -> Result<ImageFile> {
        match ImageFile::open(disk, slot, uuid) {
            Err(Error::Corrupt(_)) => {}
            opened => return opened,
        }
        let file = disk.open(&pages_path(slot), Access::Direct)?;
        let mut head = AlignedBuf::zeroed(SECTOR_BYTES);
        head.copy_from_slice(&encode_pages_header(slot, uuid, number));
        file.write_at(0, &head)?;
        Ok(ImageFile { file, number })
    }

    /// Returns the index of this file's disk among the image disks, as it was when the database was made.
    #[must_use]
    pub fn disk_number(&self) -> u8 {
        self.number
    }

    /// Writes pages that lie side by side in the file, beginning at `first`. They are not durable before
    /// [`sync`](Self::sync).
    pub fn write(&self, first: Place, bytes: &[u8]) -> Result<()> {
        assert!(
            bytes.len().is_multiple_of(PAGE_BYTES) && first.offset() >= PAGES_HEADER_BYTES,
            "whole pages are written, behind the header"
        );
        self.file.write_at(first.offset(), bytes)
    }

    /// Reads pages that lie side by side in the file, beginning at `first`. Returns how many bytes were read. The
    /// caller compares the pages with the directory.
    pub fn read(&self, first: Place, bytes: &mut [u8]) -> Result<usize> {
        debug_assert!(
            bytes.len().is_multiple_of(perdura_base::limits::PAGE_BYTES),
            "there is room for whole pages"
        );
        self.file.read_at(first.offset(), bytes)
    }

    /// Makes everything written durable.
    pub fn sync(&self) -> Result<()> {
        self.file.sync()
    }

    /// Returns whether `bytes` match the page's entry in the directory.
    #[must_use]
    pub fn is_listed(page: PageId, bytes: &[u8], entry: &DirEntry) -> bool {
        page_crc(page, bytes) == entry.crc && perdura_page::layout::useq(bytes) == entry.useq
    }
}

/// The offset of the disk's number in the header of a pages file.
const DISK_NUMBER: usize = 7;

/// Appends the fields of a pages file's header, without the header's zeros and checksum.
fn put_pages_header(out: &mut Vec<u8>, slot: ImageSlot, uuid: &Uuid, number: u8) {
    out.put(b"PIMG");
    out.put_u16(FORMAT_VERSION);
    out.put_u8(if slot == ImageSlot::A { 0 } else { 1 });
    out.put_u8(number);
    out.put(&uuid.0);
}

/// Returns whether `head` is a valid header with these fields.
fn is_pages_header(head: &[u8], slot: ImageSlot, uuid: &Uuid, number: u8) -> bool {
    let mut fields = Vec::with_capacity(32);
    put_pages_header(&mut fields, slot, uuid, number);
    let (Some(rest), Some((body, crc))) =
        (head.strip_prefix(&fields[..]), head.split_last_chunk::<4>())
    else {
        return false;
    };
    let zeros = rest.split_last_chunk::<4>();
    head.len() == SECTOR_BYTES
        && zeros.is_some_and(|(zeros, _)| *zeros == [0; SECTOR_BYTES][..zeros.len()])
        && crc32c(body) == u32::from_le_bytes(*crc)
}

fn encode_pages_header(slot: ImageSlot, uuid: &Uuid, number: u8) -> Vec<u8> {
    let mut out = Vec::with_capacity(SECTOR_BYTES);
    put_pages_header(&mut out, slot, uuid, number);
    out.put_zeros(SECTOR_BYTES - 4 - out.len());
    out.put_u32(crc32c(&out));
    assert!(
        is_pages_header(&out, slot, uuid, number),
        "the header that is written is the one that is read"
    );
    out
}

fn wrong_pages_header(path: &str, head: &[u8], uuid: &Uuid) -> Error {
    let whole = head.len() == SECTOR_BYTES
        && head[SECTOR_BYTES - 4..] == crc32c(&head[..SECTOR_BYTES - 4]).to_le_bytes()
        && head.starts_with(b"PIMG");
    let owner: [u8; 16] = head.get(8..24).map_or([0; 16], |bytes| {
        bytes.try_into().expect("sixteen bytes were taken")
    });
    if whole && owner != uuid.0 {
        return Error::Foreign {
            file: path.to_owned(),
            why: format!(
                "its header names another database, {}, and the anchor names {uuid}. Nothing was \
                 changed. Restore both from one backup",
                Uuid(owner)
            ),
        };
    }
    Error::corrupt(
        path,
        0,
        "the header of an image",
        "other bytes",
        "This image cannot be used. The other image is used if it is complete.",
    )
}

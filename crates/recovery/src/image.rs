//! The two images' files.
#![doc = include_str!("../../../docs/formats/image.md")]

use std::sync::Arc;

use perdura_base::checksum::{affine_constant, crc32c, crc32c_append, linear_digest};
use perdura_base::cursor::{Reader, Writer};
use perdura_base::limits::{FORMAT_VERSION, PAGE_BYTES, SECTOR_BYTES};
use perdura_base::num::{round_up, to_u32, to_u64, to_usize};
use perdura_base::{CkptEpoch, Error, ImageSlot, PageId, PartitionId, Result, Useq, Uuid};
use perdura_device::{Access, AlignedBuf, Disk, File, read_exact_at};
use perdura_heap::Geometry;

use crate::anchor::Anchor;

pub use crate::places::{PAGES_HEADER_BYTES, Place, Places};

/// Bytes of a directory entry.
const ENTRY_BYTES: usize = 28;
/// Bytes of the logged region's complement at a page's start.
const META_BYTES: usize = 16;

/// The folder of an image.
#[must_use]
pub fn folder(slot: ImageSlot) -> &'static str {
    match slot {
        ImageSlot::A => "image-a",
        ImageSlot::B => "image-b",
    }
}

/// The path of the pages file of a slot.
#[must_use]
pub fn pages_path(slot: ImageSlot) -> String {
    format!("{}/pages", folder(slot))
}

/// The path of the directory of checkpoint `k` in a slot.
#[must_use]
pub fn directory_path(slot: ImageSlot, k: CkptEpoch) -> String {
    format!("{}/directory-{:020}", folder(slot), k.0)
}

/// The inverse of [`directory_path`] for a name without its folder.
#[must_use]
pub fn directory_number(name: &str) -> Option<CkptEpoch> {
    let digits = name.strip_prefix("directory-")?;
    let is_number = digits.len() == 20 && digits.bytes().all(|b| b.is_ascii_digit());
    is_number.then_some(CkptEpoch(digits.parse().ok()?))
}

/// Whether there is a pages file that holds more than its header.
///
/// # Errors
/// The disk's.
pub fn holds_pages(disk: &dyn Disk, slot: ImageSlot) -> Result<bool> {
    match disk.open(&pages_path(slot), Access::Buffered) {
        Ok(file) => Ok(file.len()? > PAGES_HEADER_BYTES),
        Err(error) if error.is_not_found() => Ok(false),
        Err(error) => Err(error),
    }
}

/// What the directory says of one page.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DirEntry {
    /// The checkpoint that wrote the page into this slot; 0 if the page is not in the image.
    pub epoch: CkptEpoch,
    /// Its update number in the image.
    pub useq: Useq,
    /// CRC-32C of page number and bytes.
    pub crc: u32,
    /// XOR-linear digest of the logged region.
    pub digest: u64,
}

impl DirEntry {
    /// Describes a page as checkpoint `k` writes it.
    #[must_use]
    pub fn describe(page: PageId, bytes: &[u8], k: CkptEpoch, summer: &PageSummer) -> DirEntry {
        DirEntry {
            epoch: k,
            useq: perdura_page::layout::useq(bytes),
            crc: page_crc(page, bytes),
            digest: summer.digest(bytes),
        }
    }

    /// Whether the page is in the image.
    #[must_use]
    pub fn is_present(&self) -> bool {
        self.epoch.0 != 0
    }
}

fn page_crc(page: PageId, bytes: &[u8]) -> u32 {
    crc32c_append(crc32c(&page.0.to_le_bytes()), bytes)
}

/// Computes XOR-linear digests of pages.
pub struct PageSummer {
    zeros: u64,
}

impl PageSummer {
    /// A summer.
    #[must_use]
    pub fn new() -> Self {
        PageSummer {
            zeros: affine_constant(PAGE_BYTES - META_BYTES),
        }
    }

    /// The digest of a page's logged region.
    #[must_use]
    pub fn digest(&self, page: &[u8]) -> u64 {
        linear_digest(&page[META_BYTES..], self.zeros)
    }
}

impl Default for PageSummer {
    fn default() -> Self {
        Self::new()
    }
}

/// The entries of one image, in memory: by partition, by local page index.
#[derive(Debug, Clone, Default)]
pub struct Directory {
    parts: Vec<Vec<DirEntry>>,
}

impl Directory {
    /// A directory that lists nothing.
    #[must_use]
    pub fn empty(partitions: u16) -> Self {
        Directory {
            parts: vec![Vec::new(); usize::from(partitions)],
        }
    }

    /// The entry of a page, present or not.
    #[must_use]
    pub fn get(&self, partition: PartitionId, local: u32) -> DirEntry {
        let entries = &self.parts[usize::from(partition.0)];
        entries
            .get(to_usize(u64::from(local)))
            .copied()
            .unwrap_or_default()
    }

    /// Sets the entry of a page.
    pub fn set(&mut self, partition: PartitionId, local: u32, entry: DirEntry) {
        let entries = &mut self.parts[usize::from(partition.0)];
        let at = to_usize(u64::from(local));
        if entries.len() <= at {
            entries.resize(at + 1, DirEntry::default());
        }
        entries[at] = entry;
    }

    /// The present pages of a partition, ascending.
    pub fn present(&self, partition: PartitionId) -> impl Iterator<Item = (u32, DirEntry)> + '_ {
        let entries = &self.parts[usize::from(partition.0)];
        (0u32..)
            .zip(entries.iter().copied())
            .filter(|(_, entry)| entry.is_present())
    }

    /// How many pages are present.
    #[must_use]
    pub fn pages(&self) -> u64 {
        let present = |entries: &Vec<DirEntry>| entries.iter().filter(|e| e.is_present()).count();
        to_u64(self.parts.iter().map(present).sum())
    }

    /// XOR of all present pages' digests.
    #[must_use]
    pub fn proof(&self) -> u64 {
        self.parts
            .iter()
            .flatten()
            .fold(0, |sum, entry| sum ^ entry.digest)
    }

    /// The encoded section of a partition.
    #[must_use]
    pub fn encode_section(&self, partition: PartitionId, sidecar: &[u8]) -> Vec<u8> {
        let count = self.present(partition).count();
        let mut out = Vec::with_capacity(4 + count * ENTRY_BYTES + sidecar.len());
        out.put_u32(to_u32(count));
        for (local, entry) in self.present(partition) {
            out.put_u32(local);
            out.put_u64(entry.epoch.0);
            out.put_u32(entry.useq.0);
            out.put_u32(entry.crc);
            out.put_u64(entry.digest);
        }
        out.put(sidecar);
        out
    }

    /// Reads a section's entries into this directory and returns the sidecar's bytes.
    fn decode_section<'a>(
        &mut self,
        partition: PartitionId,
        bytes: &'a [u8],
        k: CkptEpoch,
        geometry: &Geometry,
    ) -> Option<&'a [u8]> {
        let mut r = Reader::new(bytes);
        let count = r.u32()?;
        let mut next = 0;
        for _ in 0..count {
            let local = r.u32()?;
            let entry = DirEntry {
                epoch: CkptEpoch(r.u64()?),
                useq: Useq(r.u32()?),
                crc: r.u32()?,
                digest: r.u64()?,
            };
            let sound = local >= next && entry.is_present() && entry.epoch <= k;
            if !sound || geometry.page_id(partition, local).is_none() {
                return None;
            }
            next = local + 1;
            self.set(partition, local, entry);
        }
        r.bytes(r.remaining())
    }
}

/// The pages file of an image.
pub struct ImageFile {
    file: Arc<dyn File>,
    number: u8,
}

/// Makes the files of both images for a new database: a folder on the data disk for directories,
/// and a pages file on each image disk.
///
/// A pages file of another database is replaced only where a creation may have left it that did
/// not get as far as the anchor: on the data disk, which has no anchor, and without a page in it.
/// On a disk apart it may belong to a database whose anchor is elsewhere, and whose log has been
/// cut because the image is there.
///
/// # Errors
/// [`Error::Foreign`] for a file that is not to be replaced; the disks'.
pub fn create_images(data: &dyn Disk, images: &[Arc<dyn Disk>], uuid: &Uuid) -> Result<()> {
    for slot in ImageSlot::ALL {
        data.make_dir(folder(slot))?;
        for (number, disk) in (0u8..).zip(images) {
            match ImageFile::open(disk.as_ref(), slot, uuid) {
                // Left by an attempt that was killed, perhaps before its name was durable.
                Ok(_) => disk.sync_dir(folder(slot))?,
                Err(error) if error.is_not_found() => {
                    ImageFile::create(disk.as_ref(), slot, uuid, number)?;
                }
                Err(error @ Error::Io { .. }) => return Err(error),
                Err(_) => {
                    let path = pages_path(slot);
                    let beside_anchor = std::ptr::addr_eq(data, disk.as_ref());
                    if !beside_anchor || holds_pages(disk.as_ref(), slot)? {
                        return Err(another_databases(disk.as_ref(), path));
                    }
                    disk.remove(&path)?;
                    ImageFile::create(disk.as_ref(), slot, uuid, number)?;
                }
            }
        }
    }
    Ok(())
}

fn another_databases(disk: &dyn Disk, path: String) -> Error {
    Error::Foreign {
        why: format!(
            "{} holds an image of another database; give this one a place of its own, or remove \
             the file if no database needs it",
            disk.name()
        ),
        file: path,
    }
}

impl ImageFile {
    /// Creates the folder and an empty pages file, durable on return. `number` is the disk's place
    /// among those of the images.
    ///
    /// # Errors
    /// The disk's.
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

    /// Opens the pages file of a slot and checks whose it is.
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

    /// Opens the pages file of a slot that is about to be rewritten whole: a header that does not
    /// check out is written again, too.
    ///
    /// # Errors
    /// [`Error::Foreign`] for another database's file; the disk's.
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

    /// The place among the images' disks that its disk was made for.
    #[must_use]
    pub fn disk_number(&self) -> u8 {
        self.number
    }

    /// Writes pages that lie side by side, beginning with `first`. Not durable before
    /// [`sync`](Self::sync).
    pub fn write(&self, first: Place, bytes: &[u8]) -> Result<()> {
        self.file.write_at(first.offset(), bytes)
    }

    /// Reads pages that lie side by side. Whether they are the right ones the directory tells.
    pub fn read(&self, first: Place, bytes: &mut [u8]) -> Result<usize> {
        self.file.read_at(first.offset(), bytes)
    }

    /// Makes everything written durable.
    pub fn sync(&self) -> Result<()> {
        self.file.sync()
    }

    /// Whether `bytes` are what the directory lists for the page.
    #[must_use]
    pub fn is_listed(page: PageId, bytes: &[u8], entry: &DirEntry) -> bool {
        page_crc(page, bytes) == entry.crc && perdura_page::layout::useq(bytes) == entry.useq
    }
}

/// Where the header of a pages file has its disk's number.
const DISK_NUMBER: usize = 7;

/// What of a pages file's header is not zeros, its checksum aside.
fn put_pages_header(out: &mut Vec<u8>, slot: ImageSlot, uuid: &Uuid, number: u8) {
    out.put(b"PIMG");
    out.put_u16(FORMAT_VERSION);
    out.put_u8(if slot == ImageSlot::A { 0 } else { 1 });
    out.put_u8(number);
    out.put(&uuid.0);
}

/// Whether the bytes are those of [`encode_pages_header`].
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
        && zeros.is_some_and(|(zeros, _)| zeros.iter().all(|byte| *byte == 0))
        && crc32c(body) == u32::from_le_bytes(*crc)
}

fn encode_pages_header(slot: ImageSlot, uuid: &Uuid, number: u8) -> Vec<u8> {
    let mut out = Vec::with_capacity(SECTOR_BYTES);
    put_pages_header(&mut out, slot, uuid, number);
    out.put_zeros(SECTOR_BYTES - 4 - out.len());
    out.put_u32(crc32c(&out));
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
                "its header names another database, {}; the anchor is that of {uuid}. Nothing was \
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
        "The image cannot be trusted; the other one is used if it is complete.",
    )
}

/// Writes one directory file, section by section.
pub struct DirectoryWriter {
    disk: Arc<dyn Disk>,
    file: Arc<dyn File>,
    slot: ImageSlot,
    k: CkptEpoch,
    head: Vec<u8>,
    head_room: u64,
    at: u64,
    partitions: u16,
    sections: u16,
}

/// Bytes of a directory's head before it is padded.
fn head_bytes(partitions: u16) -> usize {
    40 + 20 * usize::from(partitions) + 4
}

fn head_room(partitions: u16) -> u64 {
    round_up(to_u64(head_bytes(partitions)), to_u64(SECTOR_BYTES))
}

impl DirectoryWriter {
    /// Starts the directory of checkpoint `k`.
    pub fn create(
        disk: &Arc<dyn Disk>,
        slot: ImageSlot,
        k: CkptEpoch,
        uuid: &Uuid,
        geometry: &Geometry,
    ) -> Result<DirectoryWriter> {
        let tmp = format!("{}.tmp", directory_path(slot, k));
        match disk.remove(&tmp) {
            Err(error) if !error.is_not_found() => return Err(error),
            Ok(()) | Err(_) => {}
        }
        let file = disk.create(&tmp, Access::Buffered)?;
        let mut head = Vec::with_capacity(head_bytes(geometry.partitions));
        head.put(b"PDIR");
        head.put_u16(FORMAT_VERSION);
        head.put_u8(if slot == ImageSlot::A { 0 } else { 1 });
        head.put_u8(0);
        head.put(&uuid.0);
        head.put_u64(k.0);
        head.put_u16(geometry.partitions);
        head.put_u16(geometry.chunk_pages);
        head.put_u32(0);
        let head_room = head_room(geometry.partitions);
        Ok(DirectoryWriter {
            disk: Arc::clone(disk),
            file,
            slot,
            k,
            head,
            head_room,
            at: head_room,
            partitions: geometry.partitions,
            sections: 0,
        })
    }

    /// Appends the next partition's section.
    pub fn add_section(&mut self, bytes: &[u8]) -> Result<()> {
        self.file.write_at(self.at, bytes)?;
        self.head.put_u64(self.at);
        self.head.put_u64(to_u64(bytes.len()));
        self.head.put_u32(crc32c(bytes));
        self.at += to_u64(bytes.len());
        self.sections += 1;
        Ok(())
    }

    /// Completes the file and gives it its name; durable on return. Returns its CRC for the
    /// anchor.
    pub fn finish(mut self) -> Result<u32> {
        assert_eq!(
            self.sections, self.partitions,
            "every partition has a section"
        );
        let crc = crc32c(&self.head);
        self.head.put_u32(crc);
        self.head.resize(to_usize(self.head_room), 0);
        self.file.write_at(0, &self.head)?;
        self.file.sync()?;
        let path = directory_path(self.slot, self.k);
        self.disk.rename(&format!("{path}.tmp"), &path)?;
        self.disk.sync_dir(folder(self.slot))?;
        Ok(crc)
    }
}

/// Removes directory files of a slot other than checkpoint `k`'s, and leftovers.
pub fn remove_old_directories(disk: &dyn Disk, slot: ImageSlot, k: CkptEpoch) -> Result<()> {
    let keep = directory_path(slot, k);
    for name in disk.list(folder(slot))? {
        let path = format!("{}/{name}", folder(slot));
        let ours = name
            .strip_suffix(".tmp")
            .map_or_else(|| directory_number(&name), directory_number)
            .is_some();
        if ours && path != keep {
            disk.remove(&path)?;
        }
    }
    Ok(())
}

/// A directory read back, with where each partition's sidecar is.
pub struct LoadedDirectory {
    /// The entries.
    pub directory: Directory,
    /// Sidecar bytes by partition.
    pub sidecars: Vec<Vec<u8>>,
    /// Bytes read.
    pub bytes: u64,
}

/// Reads and checks the directory of the checkpoint that the anchor names for a slot.
///
/// # Errors
/// [`Error::Corrupt`] naming what does not hold; the caller falls back to the other image.
pub fn read_directory(
    disk: &dyn Disk,
    anchor: &Anchor,
    slot: ImageSlot,
    geometry: &Geometry,
) -> Result<LoadedDirectory> {
    let status = anchor.image(slot);
    let (k, head_crc, uuid) = (status.k, status.directory_crc, &anchor.uuid);
    let path = directory_path(slot, k);
    let bad = |offset: u64, expected: &str, found: &str| {
        Error::corrupt(
            path.clone(),
            offset,
            expected,
            found,
            "The image cannot be used; the other one is, if it is complete.",
        )
    };
    let file = disk.open(&path, Access::Buffered)?;
    let mut head = vec![0; to_usize(head_room(geometry.partitions))];
    read_exact_at(file.as_ref(), 0, &mut head)?;
    let used = head_bytes(geometry.partitions);
    let (covered, crc) = head[..used].split_at(used - 4);
    if crc != crc32c(covered).to_le_bytes() || crc32c(covered) != head_crc {
        return Err(bad(
            0,
            "the directory head that the anchor names",
            "another checksum",
        ));
    }
    let mut r = Reader::new(covered);
    let fields = (|| {
        let magic = r.array::<4>()?;
        let version = r.u16()?;
        let of_slot = r.u8()?;
        r.u8()?;
        Some((
            magic,
            version,
            of_slot,
            Uuid(r.array()?),
            CkptEpoch(r.u64()?),
            r.u16()?,
            r.u16()?,
        ))
    })();
    let slot_byte = u8::from(slot == ImageSlot::B);
    let expected = (
        *b"PDIR",
        FORMAT_VERSION,
        slot_byte,
        *uuid,
        k,
        geometry.partitions,
        geometry.chunk_pages,
    );
    if fields != Some(expected) {
        return Err(bad(
            0,
            "this database's directory of this checkpoint",
            "another one's fields",
        ));
    }
    let mut out = LoadedDirectory {
        directory: Directory::empty(geometry.partitions),
        sidecars: Vec::new(),
        bytes: to_u64(head.len()),
    };
    let mut table = Reader::new(&covered[40..]);
    for partition in (0..geometry.partitions).map(PartitionId) {
        let place = (|| Some((table.u64()?, table.u64()?, table.u32()?)))();
        let Some((offset, len, crc)) = place else {
            return Err(bad(0, "a section for every partition", "fewer"));
        };
        if len > file.len()? {
            return Err(bad(offset, "a section within the file", "a longer one"));
        }
        let mut section = vec![0; to_usize(len)];
        read_exact_at(file.as_ref(), offset, &mut section)?;
        if crc32c(&section) != crc {
            return Err(bad(
                offset,
                "the section the head names",
                "another checksum",
            ));
        }
        let sidecar = out
            .directory
            .decode_section(partition, &section, k, geometry);
        let Some(sidecar) = sidecar else {
            return Err(bad(
                offset,
                "a well-formed section",
                "fields out of their ranges",
            ));
        };
        out.sidecars.push(sidecar.to_vec());
        out.bytes += len;
    }
    Ok(out)
}

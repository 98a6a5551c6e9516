//! The reading of a run: opening it, and returning its records in order.
//!
//! Opening reads and checks the header, the footer and all parts between the blocks and the footer. One of these parts
//! is the index: a list of the blocks of each partition or range of pages. A [`RunCursor`] reads the blocks of some
//! pages, several blocks with one I/O, and bypasses the system's cache. The cursor checks each block and returns the
//! block's records. The memory of a cursor does not depend on the length of the run: the cursor has one buffer and the
//! records of one block.
//!
//! If a run is damaged, the error gives the offset of the damage. Damage is a wrong checksum, a record out of order, or
//! a record outside the bounds in the index.

mod by_epoch;
mod cursor;
mod frames;

use std::sync::Arc;

use perdura_base::checksum::crc32c;
use perdura_base::limits::SECTOR_BYTES;
use perdura_base::num::{round_up, to_u64, to_usize};
use perdura_base::{Epoch, Error, PartitionId, Pos, Result, Uuid};
use perdura_device::{Access, AlignedBuf, Disk, File, read_exact_at};
use perdura_page::RegionDigest;
use perdura_page::digest::bound;

use crate::name::RunId;
use crate::record::{EpochSpan, PageAt};
use crate::run::footer::{FOOTER_BYTES, Footer, PART_NAMES, PARTS, Part};
use crate::run::header::HEADER_BYTES;
use crate::run::{
    BlockEntry, Digests, Frames, Moments, PageSet, RunHeader, damage, index, summary,
};

pub use by_epoch::{FrameOfEpoch, FramesByEpoch};
pub use cursor::RunCursor;
pub use frames::FrameCursor;

/// The number of bytes that a cursor reads with one I/O, rounded up to whole sectors. If fewer bytes of the scope are
/// left, the cursor reads only the rest.
pub const READ_BYTES: usize = 256 * 1024;

/// An open run.
pub struct Run {
    file: Arc<dyn File>,
    header: RunHeader,
    header_crc: u32,
    len: u64,
    records: u64,
    updates: u64,
    index: Vec<BlockEntry>,
    pages: PageSet,
    digests: Digests,
    moments: Moments,
    ends: Vec<Pos>,
    /// The ordered frames. `None`: the run carries none.
    frames: Option<Frames>,
}

/// The choice of pages for reading records.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Scope {
    /// All pages.
    All,
    /// The pages of a partition.
    Partition(PartitionId),
    /// The pages of a partition whose local indexes are in the range.
    Pages(PartitionId, std::ops::Range<u32>),
}

impl Scope {
    /// Returns the scope's first page and end. The end is the page after the last page. `None` as the end: the scope
    /// reaches to the end of the run.
    fn bounds(&self) -> (PageAt, Option<PageAt>) {
        let at = |partition: PartitionId, local| PageAt { partition, local };
        match self {
            Scope::All => (at(PartitionId(0), 0), None),
            Scope::Partition(p) => {
                let next = p.0.checked_add(1).map(|next| at(PartitionId(next), 0));
                (at(*p, 0), next)
            }
            Scope::Pages(p, locals) => (at(*p, locals.start), Some(at(*p, locals.end))),
        }
    }
}

/// Reads any range of bytes by reading the whole sectors around it.
pub(crate) fn read(file: &dyn File, from: u64, to: u64) -> Result<Vec<u8>> {
    let sector = to_u64(SECTOR_BYTES);
    let start = from / sector * sector;
    let mut buf = AlignedBuf::zeroed(to_usize(round_up(to - start, sector)));
    read_exact_at(file, start, &mut buf)?;
    Ok(buf[to_usize(from - start)..to_usize(to - start)].to_vec())
}

impl Run {
    /// Opens the run `id` of database `uuid` in folder `dir`.
    ///
    /// # Errors
    /// [`Error::Corrupt`], [`Error::Version`]; [`Error::Foreign`] for a run of another database; errors of the disk.
    pub fn open(disk: &dyn Disk, dir: &str, id: RunId, uuid: &Uuid) -> Result<Run> {
        let file = disk.open(&id.path(dir), Access::Direct)?;
        let run = Run::read(file)?;
        if run.header.uuid != *uuid {
            return Err(Error::Foreign {
                file: run.file.path().to_owned(),
                why: format!("it is of database {}, not of {uuid}", run.header.uuid),
            });
        }
        if run.header.id != id {
            let found = format!("that of {}", run.header.id.name());
            return Err(damage(
                run.file.path(),
                0,
                "the header of the run of that name",
                found,
            ));
        }
        Ok(run)
    }

    /// Opens a file that holds a run.
    ///
    /// # Errors
    /// [`Error::Corrupt`], [`Error::Version`]; errors of the disk.
    pub fn read(file: Arc<dyn File>) -> Result<Run> {
        let (path, len) = (file.path().to_owned(), file.len()?);
        if len < to_u64(SECTOR_BYTES) || !len.is_multiple_of(to_u64(SECTOR_BYTES)) {
            let found = format!("{len} bytes");
            return Err(damage(&path, len, "a file of whole sectors", found));
        }
        let head = read(file.as_ref(), 0, to_u64(HEADER_BYTES))?;
        let (header, header_crc) = RunHeader::decode(&path, &head)?;
        let foot = read(file.as_ref(), len - to_u64(FOOTER_BYTES), len)?;
        let footer = Footer::decode(&path, &foot, len, header_crc)?;
        let from = footer.parts[0].offset;
        let rest = read(file.as_ref(), from, len - to_u64(FOOTER_BYTES))?;
        let zeros = &rest[to_usize(footer.parts_end() - from)..];
        if let Some(at) = zeros.iter().position(|byte| *byte != 0) {
            let offset = footer.parts_end() + to_u64(at);
            return Err(damage(
                &path,
                offset,
                "zeros before the footer",
                "another byte",
            ));
        }
        Parts::of(&path, &footer, &rest)?.decode(file, header, header_crc, &footer)
    }

    /// Returns the contents of the header.
    #[must_use]
    pub fn header(&self) -> &RunHeader {
        &self.header
    }

    /// Returns the run's identity.
    #[must_use]
    pub fn id(&self) -> RunId {
        self.header.id
    }

    /// Returns the size of the file, bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.len
    }

    /// Returns the number of records in the run and the number of updates that they hold.
    #[must_use]
    pub fn counts(&self) -> (u64, u64) {
        (self.records, self.updates)
    }

    /// Returns the index entries of the blocks.
    #[must_use]
    pub fn index(&self) -> &[BlockEntry] {
        &self.index
    }

    /// Returns the pages that have a record in the run.
    #[must_use]
    pub fn pages(&self) -> &PageSet {
        &self.pages
    }

    /// Returns the digests of the run's records.
    #[must_use]
    pub fn digests(&self) -> &Digests {
        &self.digests
    }

    /// Returns the moments that the run lists.
    #[must_use]
    pub fn moments(&self) -> &Moments {
        &self.moments
    }

    /// Returns whether a restore can stop at the end of this epoch.
    #[must_use]
    pub fn has_moment(&self, epoch: Epoch) -> bool {
        let epochs = self.header.id.epochs;
        epochs.contains(epoch)
            && (!self.header.only_listed_moments
                || epoch == epochs.last()
                || self.moments.has(epoch))
    }

    /// Returns whether a moment forbids a net record of this span in the run. Two cases forbid the record: each epoch
    /// of the run is a moment, or a listed moment lies in the span before the span's last epoch.
    fn parts(&self, span: EpochSpan) -> bool {
        let list = self.moments.list();
        let first = list.partition_point(|m| m.epoch < span.first);
        let next = list.get(first).map(|m| m.epoch);
        !self.header.only_listed_moments || next.is_some_and(|m| m < span.last)
    }

    /// Returns the run's end position in each stream of the log.
    #[must_use]
    pub fn ends(&self) -> &[Pos] {
        &self.ends
    }

    /// Returns the records of `scope`, in order.
    #[must_use]
    pub fn cursor(self: &Arc<Run>, scope: &Scope) -> RunCursor {
        RunCursor::new(Arc::clone(self), scope)
    }

    /// Reads every block and checks it: checksums, order, counts, pages, digests.
    ///
    /// # Errors
    /// [`Error::Corrupt`]; errors of the disk.
    pub fn verify(self: &Arc<Run>, region: &RegionDigest) -> Result<()> {
        let mut cursor = self.cursor(&Scope::All);
        let (mut records, mut updates) = (0u64, 0u64);
        let mut digests = Digests::default();
        let mut pages = PageSet::default();
        let mut page = None;
        while cursor.advance()? {
            let record = cursor.record();
            records += 1;
            updates = updates.saturating_add(record.updates.count);
            let PageAt { partition, local } = record.at;
            let id = self.header.chunks.page_id(partition, local);
            let id = id.expect("the cursor has checked that the page has an id");
            let digest = region.of_fragments(record.fragments());
            digests.add(record.tag, partition, bound(id, digest));
            if page.replace(record.at) != Some(record.at) {
                pages.push(record.at);
            }
        }
        let path = self.file.path();
        if (records, updates) != self.counts() {
            let expected = format!("{} records of {} updates", self.records, self.updates);
            let found = format!("{records} of {updates}");
            return Err(damage(
                path,
                self.len - to_u64(FOOTER_BYTES),
                expected,
                found,
            ));
        }
        if pages != self.pages {
            let found = "a set with other pages";
            return Err(damage(
                path,
                self.len,
                "the set of the records' pages",
                found,
            ));
        }
        self.verify_frames()
    }
}

/// The bytes of the parts between the blocks and the footer.
struct Parts<'a> {
    path: &'a str,
    bytes: [&'a [u8]; PARTS],
    frames: Option<&'a [u8]>,
}

impl<'a> Parts<'a> {
    /// Splits `rest` into the parts and verifies the checksum of each part. `rest` begins with the first part.
    fn of(path: &'a str, footer: &Footer, rest: &'a [u8]) -> Result<Parts<'a>> {
        let of = |name: &str, part: &Part| {
            let from = to_usize(part.offset - footer.parts[0].offset);
            let bytes = &rest[from..from + to_usize(u64::from(part.bytes))];
            let crc = crc32c(bytes);
            if crc != part.crc {
                let expected = format!("the run's {name}, checksum {:08x}", part.crc);
                let found = format!("bytes with {crc:08x}");
                return Err(damage(path, part.offset, expected, found));
            }
            Ok(bytes)
        };
        let mut bytes = [&rest[..0]; PARTS];
        for (i, (part, slot)) in footer.parts.iter().zip(&mut bytes).enumerate() {
            *slot = of(PART_NAMES[i], part)?;
        }
        let frames = footer.frames.as_ref();
        let frames = frames.map(|part| of("frames", part)).transpose()?;
        Ok(Parts {
            path,
            bytes,
            frames,
        })
    }

    fn decode(
        &self,
        file: Arc<dyn File>,
        header: RunHeader,
        header_crc: u32,
        footer: &Footer,
    ) -> Result<Run> {
        let [
            index_part,
            pages_part,
            digests_part,
            moments_part,
            ends_part,
        ] = self.bytes;
        let or = |i: usize| {
            let expected = format!("the run's {}, as this build writes it", PART_NAMES[i]);
            damage(self.path, footer.parts[i].offset, expected, "other values")
        };
        if header.carries_frames != self.frames.is_some() {
            let expected = "a part with the frames exactly if the header names them";
            return Err(damage(self.path, file.len()?, expected, "another footer"));
        }
        let index_at = footer.parts[0].offset;
        let decode = |part| Frames::decode(part, &header, index_at);
        let frames = match self.frames.map(decode) {
            None => None,
            Some(Some(frames)) => Some(frames),
            Some(None) => {
                let expected = "the run's frames, as this build writes them";
                return Err(damage(
                    self.path,
                    footer.parts_end(),
                    expected,
                    "other values",
                ));
            }
        };
        let blocks_end = frames
            .as_ref()
            .map_or(index_at, |frames| frames.begin(index_at));
        let index = index::decode(index_part, &header, blocks_end).ok_or_else(|| or(0))?;
        let records = index.iter().map(|entry| u64::from(entry.records)).sum();
        if to_u64(index.len()) != u64::from(footer.blocks) || footer.records != records {
            return Err(or(0));
        }
        let partitions = header.chunks.partitions;
        let epochs = header.id.epochs;
        Ok(Run {
            len: file.len()?,
            file,
            header,
            header_crc,
            records,
            updates: footer.updates,
            index,
            pages: PageSet::decode(pages_part, &header).ok_or_else(|| or(1))?,
            digests: Digests::decode(digests_part, partitions).ok_or_else(|| or(2))?,
            moments: Moments::decode(moments_part, epochs).ok_or_else(|| or(3))?,
            ends: summary::decode_ends(ends_part).ok_or_else(|| or(4))?,
            frames,
        })
    }
}

//! Reading a run: opened by header and footer, its records in order.
//!
//! Opening reads the two ends of the file and all that is behind the blocks, and checks it; after that the index says
//! which blocks hold a partition or a range of its pages. A [`RunCursor`] reads those, several at once and around the
//! system's cache, checks each and hands out its records. It holds one buffer and one block's records, whatever the
//! length of the run.
//!
//! A run that is not as the format says is refused with the place of the damage: a record out of order, or one that the
//! index does not admit, as well as a checksum that does not hold.

use std::sync::Arc;

use perdura_base::checksum::crc32c;
use perdura_base::limits::SECTOR_BYTES;
use perdura_base::num::{round_up, to_u64, to_usize};
use perdura_base::{Epoch, Error, PartitionId, Pos, Result, Uuid};
use perdura_device::{Access, AlignedBuf, Disk, File, read_exact_at};
use perdura_page::RegionDigest;
use perdura_page::digest::bound;

use crate::name::RunId;
use crate::record::{EpochSpan, PageAt, RunRecord};
use crate::run::block::{self, BlockHead, Unpacker};
use crate::run::body::Decoded;
use crate::run::footer::{FOOTER_BYTES, Footer, PART_NAMES, PARTS};
use crate::run::header::HEADER_BYTES;
use crate::run::{BlockEntry, Digests, Moments, PageSet, RunHeader, damage, index, summary};

/// How much a cursor reads at once, bytes.
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
}

/// Which pages of a run are read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Scope {
    /// All.
    All,
    /// Those of a partition.
    Partition(PartitionId),
    /// Those of a partition with these local indexes.
    Pages(PartitionId, std::ops::Range<u32>),
}

impl Scope {
    /// The first page of the scope and the one behind it; `None` is the end of all.
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

/// Reads bytes that need not be whole sectors, by reading the sectors that they are in.
fn read(file: &dyn File, from: u64, to: u64) -> Result<Vec<u8>> {
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
    /// [`Error::Corrupt`], [`Error::Version`]; [`Error::Foreign`] for another database's; the disk's.
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
    /// [`Error::Corrupt`], [`Error::Version`]; the disk's.
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

    /// What the header says.
    #[must_use]
    pub fn header(&self) -> &RunHeader {
        &self.header
    }

    /// Which run it is.
    #[must_use]
    pub fn id(&self) -> RunId {
        self.header.id
    }

    /// Bytes of the file.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.len
    }

    /// Its records, and the update numbers that they account for.
    #[must_use]
    pub fn counts(&self) -> (u64, u64) {
        (self.records, self.updates)
    }

    /// The blocks.
    #[must_use]
    pub fn index(&self) -> &[BlockEntry] {
        &self.index
    }

    /// The pages that have a record.
    #[must_use]
    pub fn pages(&self) -> &PageSet {
        &self.pages
    }

    /// The digests of its records.
    #[must_use]
    pub fn digests(&self) -> &Digests {
        &self.digests
    }

    /// The moments that it lists.
    #[must_use]
    pub fn moments(&self) -> &Moments {
        &self.moments
    }

    /// Whether a restore can stop behind this epoch.
    #[must_use]
    pub fn has_moment(&self, epoch: Epoch) -> bool {
        let epochs = self.header.id.epochs;
        epochs.contains(epoch)
            && (!self.header.only_listed_moments
                || epoch == epochs.last()
                || self.moments.has(epoch))
    }

    /// Whether a moment of the run has some epochs of the span and not the others.
    fn parts(&self, span: EpochSpan) -> bool {
        let list = self.moments.list();
        let first = list.partition_point(|m| m.epoch < span.first);
        let next = list.get(first).map(|m| m.epoch);
        !self.header.only_listed_moments || next.is_some_and(|m| m < span.last)
    }

    /// Where each stream's part of the run ends.
    #[must_use]
    pub fn ends(&self) -> &[Pos] {
        &self.ends
    }

    /// The records of `scope`, in order.
    #[must_use]
    pub fn cursor(self: &Arc<Run>, scope: &Scope) -> RunCursor {
        RunCursor::new(Arc::clone(self), scope)
    }

    /// Reads every block and checks it: checksums, order, counts, pages, digests.
    ///
    /// # Errors
    /// [`Error::Corrupt`]; the disk's.
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
        Ok(())
    }
}

/// The bytes of the parts behind the blocks.
struct Parts<'a> {
    path: &'a str,
    bytes: [&'a [u8]; PARTS],
}

impl<'a> Parts<'a> {
    /// Takes the parts out of `rest`, which begins with the first, and checks their checksums.
    fn of(path: &'a str, footer: &Footer, rest: &'a [u8]) -> Result<Parts<'a>> {
        let mut bytes = [&rest[..0]; PARTS];
        for (i, (part, slot)) in footer.parts.iter().zip(&mut bytes).enumerate() {
            let from = to_usize(part.offset - footer.parts[0].offset);
            *slot = &rest[from..from + to_usize(u64::from(part.bytes))];
            let crc = crc32c(slot);
            if crc != part.crc {
                let expected = format!("the run's {}, checksum {:08x}", PART_NAMES[i], part.crc);
                let found = format!("bytes with {crc:08x}");
                return Err(damage(path, part.offset, expected, found));
            }
        }
        Ok(Parts { path, bytes })
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
        let blocks_end = footer.parts[0].offset;
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
        })
    }
}

/// The records of a run, or of some of its pages, one after the other.
pub struct RunCursor {
    run: Arc<Run>,
    /// The pages wanted: from the first, to the second.
    from: PageAt,
    to: Option<PageAt>,
    /// The blocks that are left, as indexes into the run's index.
    blocks: std::ops::Range<usize>,
    /// The block that is open.
    head: Option<(BlockHead, BlockEntry)>,
    raw: Vec<u8>,
    unpacker: Unpacker,
    left: u32,
    next: usize,
    current: Option<Decoded>,
    last: Option<(PageAt, Epoch, u32)>,
    buf: AlignedBuf,
    /// Where the buffer's first byte is in the file, and how many bytes were read.
    window: (u64, usize),
    reads: u64,
}

impl RunCursor {
    fn new(run: Arc<Run>, scope: &Scope) -> RunCursor {
        let (from, to) = scope.bounds();
        // The block before the first that begins at `from` or behind may end with it.
        let first = run.index.partition_point(|entry| entry.first < from);
        let end = to.map_or(run.index.len(), |to| {
            run.index.partition_point(|entry| entry.first < to)
        });
        let first = first.saturating_sub(1).min(end);
        debug_assert!(end <= run.index.len(), "blocks of the run");
        let blocks = &run.index[first..end];
        let span = blocks.first().zip(blocks.last());
        let bytes = span.map_or(0, |(first, last)| last.end() - first.offset);
        let buf_len = to_usize(round_up(bytes, to_u64(SECTOR_BYTES))).min(READ_BYTES);
        RunCursor {
            run,
            from,
            to,
            blocks: first..end,
            head: None,
            raw: Vec::new(),
            unpacker: Unpacker::default(),
            left: 0,
            next: 0,
            current: None,
            last: None,
            // A block begins and ends anywhere in a sector.
            buf: AlignedBuf::zeroed(buf_len + 2 * SECTOR_BYTES),
            window: (0, 0),
            reads: 0,
        }
    }

    /// How many reads it has made.
    #[must_use]
    pub fn reads(&self) -> u64 {
        self.reads
    }

    /// The run.
    #[must_use]
    pub fn run(&self) -> &Arc<Run> {
        &self.run
    }

    /// Goes on to the next record. `false`: there is none. Makes one read at most, apart from blocks that turn out to
    /// have no page of the scope.
    ///
    /// # Errors
    /// [`Error::Corrupt`]; the disk's. The cursor is of no use after an error.
    #[inline]
    pub fn advance(&mut self) -> Result<bool> {
        loop {
            if self.left == 0 && !self.open_block()? {
                self.current = None;
                return Ok(false);
            }
            let decoded = self.decode()?;
            if decoded.at() < self.from {
                continue;
            }
            if self.to.is_some_and(|to| to <= decoded.at()) {
                self.left = 0;
                self.blocks = 0..0;
                self.current = None;
                return Ok(false);
            }
            self.current = Some(decoded);
            return Ok(true);
        }
    }

    /// The record that [`advance`](Self::advance) went to.
    ///
    /// # Panics
    /// If it went to none.
    #[inline]
    #[must_use]
    pub fn record(&self) -> RunRecord<'_> {
        let decoded = self.current.as_ref().expect("the cursor is at a record");
        decoded.record(&self.raw)
    }

    /// The place of the record in the order of runs; `None` at the end.
    #[inline]
    #[must_use]
    pub fn key(&self) -> Option<(PageAt, Epoch, u32)> {
        self.current.as_ref().map(Decoded::key)
    }

    /// Decodes the next record of the open block.
    #[inline]
    fn decode(&mut self) -> Result<Decoded> {
        let (head, entry) = self.head.as_ref().expect("a block is open");
        let before = self.page_before(head);
        let decoded = Decoded::read(&self.raw, self.next, head, before);
        let Some(decoded) = decoded else {
            return Err(self.misplaced("a record, as this build writes it"));
        };
        let key = decoded.key();
        let (tag, epochs) = decoded.bounds();
        let is_admitted = entry.tags.0 <= tag
            && tag <= entry.tags.1
            && entry.epochs.0 <= epochs.first
            && epochs.last <= entry.epochs.1;
        if !is_admitted || self.last.is_some_and(|last| key < last) {
            return Err(
                self.misplaced("a record at its place in the order, within the index's bounds")
            );
        }
        if decoded.is_net() && self.run.parts(epochs) {
            return Err(self.misplaced("records that are combined between two moments of the run"));
        }
        if before != decoded.at() || self.next == 0 {
            let chunks = self.run.header.chunks;
            let has_id = chunks.page_id(decoded.at().partition, decoded.at().local);
            if has_id.is_none() {
                return Err(self.misplaced("a record of a page that has an id"));
            }
        }
        self.last = Some(key);
        self.next = decoded.end;
        self.left -= 1;
        if self.left == 0 && self.next != self.raw.len() {
            return Err(self.misplaced("the end of the block behind its last record"));
        }
        Ok(decoded)
    }

    /// The page of the record before the next one of the block: the block's first for the first.
    #[inline]
    fn page_before(&self, head: &BlockHead) -> PageAt {
        if self.next == 0 {
            return head.first;
        }
        self.last.map_or(head.first, |(at, ..)| at)
    }

    #[cold]
    fn misplaced(&self, expected: &str) -> Error {
        let offset = self.head.as_ref().map_or(0, |(_, entry)| entry.offset);
        let found = format!("other bytes at byte {} of the block's records", self.next);
        damage(self.run.file.path(), offset, expected, found)
    }

    /// Reads, checks and opens the next block. `false`: there is none.
    fn open_block(&mut self) -> Result<bool> {
        let Some(i) = self.blocks.next() else {
            return Ok(false);
        };
        let run = Arc::clone(&self.run);
        let entry = run.index[i];
        self.fill(&entry)?;
        let from = to_usize(entry.offset - self.window.0);
        let bytes = &self.buf[from..from + to_usize(u64::from(entry.bytes))];
        self.raw.clear();
        let place = (run.header_crc, entry.offset);
        let head = block::open(
            run.file.path(),
            bytes,
            place,
            &mut self.unpacker,
            &mut self.raw,
        )?;
        let says = (entry.first, entry.records, entry.tags.0, entry.epochs.0);
        if says != (head.first, head.records, head.tag_min, head.epoch_min) {
            let expected = "the block that the index describes";
            let found = format!("another head, {head:?}");
            return Err(damage(run.file.path(), entry.offset, expected, found));
        }
        self.head = Some((head, entry));
        (self.left, self.next) = (head.records, 0);
        Ok(true)
    }

    /// Has the block in the buffer. Reads ahead, no further than the last block that is wanted.
    fn fill(&mut self, entry: &BlockEntry) -> Result<()> {
        let (start, len) = self.window;
        if start <= entry.offset && entry.end() <= start + to_u64(len) {
            return Ok(());
        }
        let sector = to_u64(SECTOR_BYTES);
        let start = entry.offset / sector * sector;
        let last = self
            .blocks
            .end
            .checked_sub(1)
            .map(|i| self.run.index[i].end());
        let end = last.unwrap_or(0).min(entry.offset + to_u64(READ_BYTES));
        let len = to_usize(round_up(end.max(entry.end()) - start, sector));
        assert!(len <= self.buf.len(), "{len} bytes fit the buffer");
        self.window = (start, 0);
        read_exact_at(self.run.file.as_ref(), start, &mut self.buf[..len])?;
        self.window = (start, len);
        self.reads += 1;
        Ok(())
    }
}

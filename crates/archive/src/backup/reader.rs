//! The reading of a backup.
//!
//! Opening reads the header, the footer and the table of sections. The offset of a page follows from its rank among all
//! pages of the backup. Each section is checked when the section is read, and each page is checked against the page's
//! entry. So a restore never uses damaged bytes.

use std::sync::Arc;

use perdura_base::checksum::crc32c;
use perdura_base::limits::{PAGE_BYTES, SECTOR_BYTES};
use perdura_base::num::{to_u64, to_usize};
use perdura_base::{CkptEpoch, Error, PartitionId, Result, Uuid};
use perdura_device::{Access, AlignedBuf, Disk, File, read_exact_at};
use perdura_page::digest::{bound, page_crc};
use perdura_page::layout;

use super::footer::{FOOTER_BYTES, Footer};
use super::header::{BackupHeader, HEADER_BYTES};
use super::section::{PageEntry, Section, TABLE_ENTRY_BYTES, TableEntry, decode_table};
use super::used::{UsedPage, decode_used};
use super::writer::file_len;
use super::{BackupId, damage};
use crate::reader::read;

/// The maximum number of pages in one read.
pub const READ_PAGES: usize = 64;

/// An open backup.
pub struct Backup {
    file: Arc<dyn File>,
    header: BackupHeader,
    len: u64,
    pages: u64,
    table: Vec<TableEntry>,
    /// For each partition, the rank of its first page among all pages of the backup.
    ranks: Vec<u64>,
}

impl Backup {
    /// Opens the backup `id` of database `uuid` in folder `dir`.
    ///
    /// # Errors
    /// [`Error::Corrupt`], [`Error::Version`]; [`Error::Foreign`] for a backup of another database; errors of the disk.
    pub fn open(disk: &dyn Disk, dir: &str, id: BackupId, uuid: &Uuid) -> Result<Backup> {
        let file = disk.open(&id.path(dir), Access::Direct)?;
        Backup::read(file)?.checked(&id.name(), uuid)
    }

    /// Opens the increment `id` of database `uuid` in folder `dir`.
    ///
    /// # Errors
    /// Those of [`open`](Self::open).
    pub fn open_increment(disk: &dyn Disk, dir: &str, id: BackupId, uuid: &Uuid) -> Result<Backup> {
        let name = id.increment_name();
        let file = disk.open(&format!("{dir}/{name}"), Access::Direct)?;
        Backup::read(file)?.checked(&name, uuid)
    }

    /// Fails if the file is not the one of this name and database.
    fn checked(self, name: &str, uuid: &Uuid) -> Result<Backup> {
        let path = self.file.path();
        if self.header.uuid != *uuid {
            return Err(Error::Foreign {
                file: path.to_owned(),
                why: format!("it is of database {}, not of {uuid}", self.header.uuid),
            });
        }
        if self.header.name() != name {
            let found = format!("that of {}", self.header.name());
            let expected = "the header of the file of that name";
            return Err(damage(path, 0, expected, found));
        }
        Ok(self)
    }

    /// Opens a file that holds a backup.
    ///
    /// # Errors
    /// [`Error::Corrupt`], [`Error::Version`]; errors of the disk.
    pub fn read(file: Arc<dyn File>) -> Result<Backup> {
        let (path, len) = (file.path().to_owned(), file.len()?);
        let least = to_u64(HEADER_BYTES + SECTOR_BYTES);
        if len < least || !len.is_multiple_of(to_u64(SECTOR_BYTES)) {
            let found = format!("{len} bytes");
            return Err(damage(&path, len, "a file of whole sectors", found));
        }
        let head = read(file.as_ref(), 0, to_u64(HEADER_BYTES))?;
        let (header, header_crc) = BackupHeader::decode(&path, &head)?;
        let footer_at = len - to_u64(FOOTER_BYTES);
        let foot = read(file.as_ref(), footer_at, len)?;
        let footer = Footer::decode(&path, &foot, len, header_crc)?;
        let bytes = to_u64(usize::from(header.chunks.partitions) * TABLE_ENTRY_BYTES);
        let end = footer.table_at.checked_add(bytes);
        let end = end.filter(|end| *end <= footer_at && file_len(*end) == len);
        let Some(end) = end else {
            let expected = format!("a table of {} partitions", header.chunks.partitions);
            let found = format!("one at {}", footer.table_at);
            return Err(damage(&path, footer_at, expected, found));
        };
        let rest = read(file.as_ref(), footer.table_at, footer_at)?;
        let (bytes, zeros) = rest.split_at(to_usize(end - footer.table_at));
        if crc32c(bytes) != footer.table_crc {
            let expected = "the table with the footer's checksum";
            return Err(damage(&path, footer.table_at, expected, "another one"));
        }
        if let Some(at) = zeros.iter().position(|byte| *byte != 0) {
            let expected = "zeros before the footer";
            return Err(damage(&path, end + to_u64(at), expected, "another byte"));
        }
        let table = decode_table(bytes).unwrap_or_default();
        let ranks = ranks(&table, &footer)
            .ok_or_else(|| damage(&path, footer.table_at, "sections in order", "other values"))?;
        Ok(Backup {
            file,
            header,
            len,
            pages: footer.pages,
            table,
            ranks,
        })
    }

    /// Returns the contents of the header.
    #[must_use]
    pub fn header(&self) -> &BackupHeader {
        &self.header
    }

    /// Returns the path of the file.
    #[must_use]
    pub fn path(&self) -> &str {
        self.file.path()
    }

    /// Returns the size of the file, bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.len
    }

    /// Returns the number of pages in the backup.
    #[must_use]
    pub fn pages(&self) -> u64 {
        self.pages
    }

    /// Returns the XOR of the digests of a partition's pages. Each digest includes the page's id.
    #[must_use]
    pub fn proof(&self, partition: PartitionId) -> u64 {
        self.table[usize::from(partition.0)].proof
    }

    /// Reads the section of a partition.
    ///
    /// # Errors
    /// [`Error::Corrupt`]; errors of the disk.
    pub fn section(&self, partition: PartitionId) -> Result<Section> {
        let entry = &self.table[usize::from(partition.0)];
        let end = entry.end().expect("the table was checked");
        let bytes = read(self.file.as_ref(), entry.offset, end)?;
        let section = (crc32c(&bytes) == entry.crc)
            .then(|| Section::decode(&bytes, self.header.consistent))
            .flatten()
            .filter(|section| to_u64(section.pages.len()) == u64::from(entry.pages));
        let chunks = self.header.chunks;
        let sound = section.filter(|section| {
            let ids =
                |page: &PageEntry| Some((chunks.page_id(partition, page.local)?, page.digest));
            let ids: Option<Vec<_>> = section.pages.iter().map(ids).collect();
            let proof = |ids: Vec<_>| {
                ids.into_iter()
                    .fold(0, |sum, (id, digest)| sum ^ bound(id, digest))
            };
            ids.map(proof) == Some(entry.proof)
        });
        sound.ok_or_else(|| {
            let expected = format!("the section of partition {partition}");
            damage(self.file.path(), entry.offset, expected, "other bytes")
        })
    }

    /// Reads a partition's section of an increment, and the used pages that the section lists.
    ///
    /// # Errors
    /// Those of [`section`](Self::section); [`Error::Corrupt`] for a list that does not have the increment's own pages.
    pub fn used(&self, partition: PartitionId) -> Result<(Section, Vec<UsedPage>)> {
        let section = self.section(partition)?;
        let base = self.header.continues().map_or(CkptEpoch(0), |base| base.k);
        let used = decode_used(&section.sidecar).filter(|used| {
            let is_held = |page: &UsedPage| (base..=self.header.id.k).contains(&page.holder);
            let is_own = |page: &&UsedPage| page.holder == self.header.id.k;
            let own = used.iter().filter(is_own).map(|page| page.entry);
            used.iter().all(is_held) && own.eq(section.pages.iter().copied())
        });
        let used = used.ok_or_else(|| {
            let expected = format!("the used pages of partition {partition}");
            let at = self.table[usize::from(partition.0)].offset;
            damage(self.file.path(), at, expected, "another list")
        })?;
        Ok((section, used))
    }

    /// Reads consecutive pages of a partition into the first bytes of `buf`. `entries` are the entries of these pages.
    /// `nth` is the index of the first of these pages in the partition's section.
    ///
    /// # Errors
    /// [`Error::Corrupt`] for a page that does not match its entry; errors of the disk.
    ///
    /// # Panics
    /// If the section has fewer than `nth + entries.len()` pages.
    pub fn read_pages(
        &self,
        partition: PartitionId,
        nth: usize,
        entries: &[PageEntry],
        buf: &mut AlignedBuf,
    ) -> Result<()> {
        let listed = to_usize(u64::from(self.table[usize::from(partition.0)].pages));
        assert!(nth + entries.len() <= listed, "pages that are listed");
        let rank = self.ranks[usize::from(partition.0)] + to_u64(nth);
        let offset = to_u64(HEADER_BYTES) + rank * to_u64(PAGE_BYTES);
        let bytes = &mut buf[..entries.len() * PAGE_BYTES];
        read_exact_at(self.file.as_ref(), offset, bytes)?;
        for (i, (entry, page)) in entries.iter().zip(bytes.chunks(PAGE_BYTES)).enumerate() {
            let id = self.header.chunks.page_id(partition, entry.local);
            let id = id.expect("the section was checked");
            if page_crc(id, page) != entry.crc || layout::useq(page) != entry.useq {
                let at = offset + to_u64(i * PAGE_BYTES);
                let expected = format!("page {id} with the checksum that is listed");
                return Err(damage(self.file.path(), at, expected, "other bytes"));
            }
        }
        Ok(())
    }

    /// Reads and checks the whole backup.
    ///
    /// # Errors
    /// Those of [`section`](Self::section) and [`read_pages`](Self::read_pages); [`Error::Corrupt`] if `digest` of a
    /// page differs from the digest in the page's entry.
    pub fn verify(&self, digest: impl Fn(&[u8]) -> u64) -> Result<()> {
        let mut buf = AlignedBuf::zeroed(READ_PAGES * PAGE_BYTES);
        for partition in (0..self.header.chunks.partitions).map(PartitionId) {
            let section = self.section(partition)?;
            if self.header.continues().is_some() {
                self.used(partition)?;
            }
            for (nth, some) in section.pages.chunks(READ_PAGES).enumerate() {
                self.read_pages(partition, nth * READ_PAGES, some, &mut buf)?;
                for (entry, page) in some.iter().zip(buf.chunks(PAGE_BYTES)) {
                    if digest(page) != entry.digest {
                        let entry_at = self.table[usize::from(partition.0)].offset;
                        let expected = format!("the digest of local page {}", entry.local);
                        return Err(damage(self.file.path(), entry_at, expected, "another one"));
                    }
                }
            }
        }
        Ok(())
    }
}

/// Returns, for each section, the rank of its partition's first page among all pages. `None`: there is a gap or an
/// overlap between the pages and the sections.
fn ranks(table: &[TableEntry], footer: &Footer) -> Option<Vec<u64>> {
    let pages_end = footer.pages.checked_mul(to_u64(PAGE_BYTES))?;
    let mut at = pages_end.checked_add(to_u64(HEADER_BYTES))?;
    let (mut ranks, mut rank) = (Vec::with_capacity(table.len()), 0u64);
    for entry in table {
        if entry.offset != at {
            return None;
        }
        ranks.push(rank);
        rank += u64::from(entry.pages);
        at = entry.end()?;
    }
    (rank == footer.pages && at == footer.table_at).then_some(ranks)
}

//! The writing of a backup from pages that arrive in the order of its partitions.
//!
//! Pushing a page makes at most one write. A separate state machine, [`BackupTail`], writes the end of the file, one
//! I/O a step.

use std::sync::Arc;

use perdura_base::checksum::crc32c;
use perdura_base::limits::{PAGE_BYTES, SECTOR_BYTES};
use perdura_base::num::{round_up, to_u32, to_u64, to_usize};
use perdura_base::{PartitionId, Result};
use perdura_device::Disk;
use perdura_page::digest::{bound, page_crc};

use super::footer::{FOOTER_BYTES, Footer};
use super::header::{BackupHeader, HEADER_BYTES};
use super::section::{PageEntry, Section, TableEntry, encode_table};
use crate::output::{Ending, Output, Progress, WRITE_BYTES};

/// The facts about a finished backup.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BackupSummary {
    /// The contents of the backup's header.
    pub header: BackupHeader,
    /// The size of the backup's file, bytes.
    pub bytes: u64,
    /// CRC-32C of the file.
    pub crc: u32,
    /// The number of pages in the backup.
    pub pages: u64,
    /// XOR of the digests of all pages. Each digest includes the page's id.
    pub proof: u64,
}

/// A state machine that writes a backup. The caller pushes the pages ordered by partition and local page.
pub struct BackupWriter {
    header: BackupHeader,
    header_crc: u32,
    out: Output,
    sections: Vec<(Section, u64)>,
    pages: Vec<PageEntry>,
    proof: u64,
}

impl BackupWriter {
    /// Begins a backup in folder `dir`, which exists. If a crash left a temporary file of this backup, removes that
    /// file.
    ///
    /// # Errors
    /// Errors of the disk.
    pub fn create(disk: Arc<dyn Disk>, dir: &str, header: BackupHeader) -> Result<BackupWriter> {
        let mut out = Output::create(disk, dir, header.path(dir))?;
        out.pending = header.encode();
        let header_crc = crc32c(&out.pending[..HEADER_BYTES - 4]);
        assert_eq!(out.pending.len(), HEADER_BYTES, "pages follow the header");
        Ok(BackupWriter {
            header,
            header_crc,
            out,
            sections: Vec::new(),
            pages: Vec::new(),
            proof: 0,
        })
    }

    /// Returns whether each partition has a sequence number.
    #[must_use]
    pub fn is_consistent(&self) -> bool {
        self.header.consistent
    }

    /// Returns the partition whose pages are being added.
    fn partition(&self) -> PartitionId {
        PartitionId(u16::try_from(self.sections.len()).unwrap_or(u16::MAX))
    }

    /// Adds a page of the current partition. Makes at most one write.
    ///
    /// # Errors
    /// Errors of the disk.
    ///
    /// # Panics
    /// If the page's index is not above the index of the page before, or the page does not match its entry.
    pub fn push(&mut self, entry: PageEntry, bytes: &[u8]) -> Result<()> {
        assert_eq!(bytes.len(), PAGE_BYTES, "a whole page");
        let last = self.pages.last();
        assert!(
            last.is_none_or(|last| last.local < entry.local),
            "pages ascend"
        );
        let id = self.header.chunks.page_id(self.partition(), entry.local);
        let id = id.expect("a page of the geometry");
        assert_eq!(
            page_crc(id, bytes),
            entry.crc,
            "the page {id} that is listed"
        );
        self.proof ^= bound(id, entry.digest);
        self.pages.push(entry);
        self.out.pending.extend_from_slice(bytes);
        self.flush()
    }

    /// Ends the current partition.
    ///
    /// # Panics
    /// If all partitions have ended; if `pseq` is missing for a consistent image, or given for an inconsistent one.
    pub fn end_partition(&mut self, pseq: Option<u64>, sidecar: Vec<u8>) {
        assert!(
            self.partition().0 < self.header.chunks.partitions,
            "a partition has one section"
        );
        assert_eq!(
            pseq.is_some(),
            self.header.consistent,
            "a number for each partition of a consistent image"
        );
        let pages = std::mem::take(&mut self.pages);
        let section = Section {
            pseq,
            pages,
            sidecar,
        };
        self.sections
            .push((section, std::mem::take(&mut self.proof)));
    }

    fn flush(&mut self) -> Result<()> {
        while self.out.pending.len() >= WRITE_BYTES {
            self.out.write()?;
        }
        Ok(())
    }

    /// Ends the backup: encodes the sections and writes them. The returned state machine makes the last writes.
    ///
    /// # Errors
    /// Errors of the disk.
    ///
    /// # Panics
    /// If a partition has not ended.
    pub fn finish(mut self) -> Result<BackupTail> {
        assert_eq!(
            self.partition().0,
            self.header.chunks.partitions,
            "every partition has a section"
        );
        let (mut table, mut pages, mut proof) = (Vec::new(), 0, 0);
        for (section, of_section) in std::mem::take(&mut self.sections) {
            let bytes = section.encode();
            table.push(TableEntry {
                offset: self.out.offset(),
                bytes: to_u64(bytes.len()),
                crc: crc32c(&bytes),
                pages: to_u32(section.pages.len()),
                proof: of_section,
            });
            pages += to_u64(section.pages.len());
            proof ^= of_section;
            self.out.pending.extend_from_slice(&bytes);
            self.flush()?;
        }
        let table_bytes = encode_table(&table);
        let footer = Footer {
            header_crc: self.header_crc,
            table_crc: crc32c(&table_bytes),
            table_at: self.out.offset(),
            pages,
        };
        self.out.pending.extend_from_slice(&table_bytes);
        let len = file_len(self.out.offset());
        let zeros = to_usize(len - to_u64(FOOTER_BYTES) - self.out.offset());
        let filled = self.out.pending.len() + zeros;
        self.out.pending.resize(filled, 0);
        self.out.pending.extend_from_slice(&footer.encode());
        assert_eq!(self.out.offset(), len, "the file ends with its footer");
        self.flush()?;
        Ok(BackupTail {
            summary: BackupSummary {
                header: self.header,
                bytes: len,
                crc: 0,
                pages,
                proof,
            },
            ending: Ending::new(self.out),
        })
    }

    /// Discards the backup and removes its file.
    ///
    /// # Errors
    /// Errors of the disk.
    pub fn abandon(self) -> Result<()> {
        self.out.abandon()
    }
}

/// Returns the length of a backup's file. `end` is the end of the table.
pub(super) fn file_len(end: u64) -> u64 {
    round_up(end + to_u64(FOOTER_BYTES), to_u64(SECTOR_BYTES))
}

/// A state machine that finishes the file of a backup, one I/O a step.
pub struct BackupTail {
    summary: BackupSummary,
    ending: Ending,
}

impl BackupTail {
    /// Makes the next I/O. After [`Progress::Done`] the backup is durable under its name.
    ///
    /// # Errors
    /// Errors of the disk; [`perdura_base::Error::Usage`] if a backup of that name exists. Every step after a failed
    /// one returns [`perdura_base::Error::Stopped`].
    pub fn step(&mut self) -> Result<Progress<BackupSummary>> {
        let Progress::Done((bytes, crc)) = self.ending.step()? else {
            return Ok(Progress::More);
        };
        assert_eq!(bytes, self.summary.bytes, "all bytes are written");
        self.summary.crc = crc;
        Ok(Progress::Done(self.summary.clone()))
    }

    /// Takes the remaining steps.
    ///
    /// # Errors
    /// Those of [`step`](Self::step).
    pub fn run(mut self) -> Result<BackupSummary> {
        loop {
            if let Progress::Done(summary) = self.step()? {
                return Ok(summary);
            }
        }
    }
}

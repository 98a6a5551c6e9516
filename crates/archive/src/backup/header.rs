//! The header of a backup. It describes the image and the database, and has the configuration of a restored database.

use perdura_base::checksum::crc32c;
use perdura_base::cursor::{Reader, Writer};
use perdura_base::limits::{FORMAT_VERSION, PAGE_BYTES};
use perdura_base::num::to_u32;
use perdura_base::{CkptEpoch, Epoch, Result, Uuid};
use perdura_page::Chunks;
use perdura_wal::{Archived, SegmentSizes};

use crate::sealed::{is_geometry, unseal};

use super::{BackupId, damage};

/// The size of the header, in bytes. With this size, the pages after the header are aligned.
pub const HEADER_BYTES: usize = 4096;

const MAGIC: &[u8; 4] = b"PBKP";
const CRC_AT: usize = HEADER_BYTES - 4;
const ROOM_BYTES: usize = 3984;
const CONSISTENT: u8 = 1;
const SWEEP: u8 = 0;
const CUT: u8 = 1;
const INCREMENT: u8 = 2;

/// The rule that decides whether a backup's pages contain a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BackupKind {
    /// The pages contain the changes with tags below the image's checkpoint epoch k.
    Sweep,
    /// The pages contain the changes with epochs up to the backup's end.
    Cut,
}

/// The contents of the header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BackupHeader {
    /// The database.
    pub uuid: Uuid,
    /// The backup's name: the end epoch and the checkpoint epoch of its image.
    pub id: BackupId,
    /// The rule that decides whether the pages contain a change.
    pub kind: BackupKind,
    /// Of an increment: the sweep that it continues. Of a cut with key-addressed tables: the sweep or the increment that
    /// has their rows as of the same epoch. `None` in other backups.
    pub base: Option<BackupId>,
    /// True if all pages show one common instant. Then the backup stores a sequence number for each partition.
    pub consistent: bool,
    /// The first epoch of the records that the image may lack. Records of earlier epochs are all in the image.
    pub begin: Epoch,
    /// Wall clock at the end epoch of the image, microseconds since 1970.
    pub wall_us: u64,
    /// The assignment of pages to partitions.
    pub chunks: Chunks,
    /// The seed of the hash function for keys.
    pub hash_seed: u64,
    /// The code of the log's scheme.
    pub scheme: u8,
    /// The number of streams of the log.
    pub streams: u8,
    /// A bit for each family of ordered frames that the log may hold.
    pub families: u8,
    /// The sizes of the log's segments.
    pub segments: SegmentSizes,
}

impl BackupHeader {
    /// Returns how an archive keeps the changes of the database: as page records alone, or with ordered frames.
    #[must_use]
    pub fn archive(&self) -> Archived {
        match self.families {
            0 => Archived::Runs,
            _ => Archived::Carried,
        }
    }

    /// Returns whether the backup has rows of key-addressed tables. They are of one moment, and no record takes a later
    /// change out of them.
    #[must_use]
    pub fn is_of_one_moment(&self) -> bool {
        self.archive() == Archived::Carried
    }

    /// Returns the epoch whose state the backup has. A sweep of page records has the state of its end, once the records
    /// of its epochs are applied. With key-addressed tables, the image is a cut before the first epoch that it lacks.
    #[must_use]
    pub fn moment(&self) -> Epoch {
        match self.is_of_one_moment() {
            true => Epoch(self.begin.0.saturating_sub(1)),
            false => self.id.end,
        }
    }

    /// Returns the path of the file. `dir` is the archive's folder of backups.
    #[must_use]
    pub fn path(&self, dir: &str) -> String {
        format!("{dir}/{}", self.name())
    }

    /// Returns the name of the file.
    #[must_use]
    pub fn name(&self) -> String {
        match self.continues() {
            None => self.id.name(),
            Some(_) => self.id.increment_name(),
        }
    }

    /// Returns the sweep that an increment continues. `None`: the file is a backup.
    #[must_use]
    pub fn continues(&self) -> Option<BackupId> {
        self.base.filter(|_| self.kind == BackupKind::Sweep)
    }

    /// Returns the checkpoint epoch of the image whose rows of key-addressed tables the file has. 0: it has none.
    #[must_use]
    pub fn rows_k(&self) -> CkptEpoch {
        match self.kind {
            BackupKind::Sweep => self.id.k,
            BackupKind::Cut => self.base.map_or(CkptEpoch(0), |base| base.k),
        }
    }

    /// Returns the header's bytes.
    ///
    /// # Panics
    /// If no database can have this geometry, or `begin` contradicts `end`.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        assert!(is_geometry(self.chunks), "{:?} is a geometry", self.chunks);
        assert!(self.is_sound(), "an image begins before it ends");
        let mut out = Vec::with_capacity(HEADER_BYTES);
        out.put(MAGIC);
        out.put_u16(FORMAT_VERSION);
        out.put_u8(match (self.kind, self.base) {
            (BackupKind::Cut, _) => CUT,
            (BackupKind::Sweep, None) => SWEEP,
            (BackupKind::Sweep, Some(_)) => INCREMENT,
        });
        out.put_u8(if self.consistent { CONSISTENT } else { 0 });
        out.put(&self.uuid.0);
        out.put_u64(self.id.k.0);
        out.put_u64(self.begin.0);
        out.put_u64(self.id.end.0);
        out.put_u64(self.wall_us);
        out.put_u32(to_u32(PAGE_BYTES));
        out.put_u16(self.chunks.pages);
        out.put_u16(self.chunks.partitions);
        out.put_u64(self.hash_seed);
        out.put_u8(self.scheme);
        out.put_u8(self.streams);
        out.put_u8(self.families);
        out.put_u8(0);
        out.put_u64(self.segments.first);
        out.put_u64(self.segments.max);
        let base = self.base.unwrap_or(BackupId::cut(Epoch(0)));
        out.put_u64(base.end.0);
        out.put_u64(base.k.0);
        out.put_zeros(ROOM_BYTES);
        assert_eq!(out.len(), CRC_AT, "the fields fill the header");
        out.put_u32(crc32c(&out));
        out
    }

    /// Reads and checks a header. Returns the header and the header's checksum. The footer repeats this checksum.
    ///
    /// # Errors
    /// [`perdura_base::Error::Corrupt`]; [`perdura_base::Error::Version`] for an undamaged header with an unknown
    /// version.
    pub fn decode(file: &str, bytes: &[u8]) -> Result<(BackupHeader, u32)> {
        let (mut r, crc) = unseal(file, bytes, *MAGIC, CRC_AT, damage)?;
        let header = fields(&mut r).filter(BackupHeader::is_sound);
        let header = header.ok_or_else(|| {
            let expected = "a header whose fields are in their ranges";
            damage(file, 0, expected, "other values")
        })?;
        Ok((header, crc))
    }

    /// Returns whether `begin`, the end epoch and the checkpoint epoch are possible together for the backup's kind.
    fn is_sound(&self) -> bool {
        let next = self.id.end.0.saturating_add(1);
        let is_cut = self.consistent && self.is_of_one_moment();
        if let Some(base) = self.continues() {
            let is_later = base.k > CkptEpoch(0) && base.k < self.id.k && base.end <= self.id.end;
            if !is_later || !is_cut {
                return false;
            }
        }
        match self.kind {
            BackupKind::Sweep => self.begin.0 <= next && self.id.k > CkptEpoch(0),
            BackupKind::Cut => {
                let is_plain = !self.consistent && !self.is_of_one_moment();
                let is_of_rows = match self.base {
                    None => is_plain,
                    Some(rows) => is_cut && rows.k > CkptEpoch(0),
                };
                self.begin.0 == next && self.id == BackupId::cut(self.id.end) && is_of_rows
            }
        }
    }
}

/// Reads the fields after the version. Returns `None` if a field is out of its range.
fn fields(r: &mut Reader<'_>) -> Option<BackupHeader> {
    let code = r.u8()?;
    let kind = match code {
        SWEEP | INCREMENT => BackupKind::Sweep,
        CUT => BackupKind::Cut,
        _ => return None,
    };
    let flags = r.u8()?;
    let uuid = Uuid(r.array()?);
    let k = CkptEpoch(r.u64()?);
    let (begin, end) = (Epoch(r.u64()?), Epoch(r.u64()?));
    let wall_us = r.u64()?;
    let page_bytes = r.u32()?;
    let chunks = Chunks {
        pages: r.u16()?,
        partitions: r.u16()?,
    };
    let hash_seed = r.u64()?;
    let (scheme, streams, families) = (r.u8()?, r.u8()?, r.u8()?);
    r.zeros(1)?;
    let (first, max) = (r.u64()?, r.u64()?);
    let base = BackupId {
        end: Epoch(r.u64()?),
        k: CkptEpoch(r.u64()?),
    };
    let base = Some(base).filter(|base| *base != BackupId::cut(Epoch(0)));
    r.zeros(ROOM_BYTES)?;
    let is_sound = flags & !CONSISTENT == 0
        && page_bytes == to_u32(PAGE_BYTES)
        && is_geometry(chunks)
        && streams > 0
        && (base.is_some() == (code == INCREMENT) || code == CUT);
    is_sound.then_some(BackupHeader {
        uuid,
        id: BackupId { end, k },
        kind,
        base,
        consistent: flags & CONSISTENT != 0,
        begin,
        wall_us,
        chunks,
        hash_seed,
        scheme,
        streams,
        families,
        segments: SegmentSizes { first, max },
    })
}

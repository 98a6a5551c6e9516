//! The header of a run: the identity of the run and of its database.

use perdura_base::checksum::crc32c;
use perdura_base::cursor::{Reader, Writer};
use perdura_base::limits::{FORMAT_VERSION, PAGE_BYTES};
use perdura_base::num::to_u32;
use perdura_base::{Epoch, LifeId, Result, Uuid};
use perdura_page::Chunks;

use crate::sealed::{is_geometry, unseal};

use super::damage;
use crate::name::{EpochRange, RunId};

/// The size of the header, bytes.
pub const HEADER_BYTES: usize = 128;

const MAGIC: &[u8; 4] = b"PRUN";
const CRC_AT: usize = 124;
/// The zeros before and after the life's number.
const ROOM_BYTES: [usize; 2] = [3, 60];
/// The code of a run that has only XOR records of pages.
const RECORDS: u8 = 0;
/// The code of a run that also carries ordered frames.
const RECORDS_AND_FRAMES: u8 = 1;

/// The contents of the header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunHeader {
    /// The database.
    pub uuid: Uuid,
    /// The run's identity.
    pub id: RunId,
    /// The assignment of pages to partitions.
    pub chunks: Chunks,
    /// True if the run's records were combined. Then a restore can stop only at a listed moment or at the run's last
    /// epoch.
    pub only_listed_moments: bool,
    /// True if the run carries the ordered frames of its epochs. The run of a database that has declared none has none.
    pub carries_frames: bool,
    /// The life that has the last epoch, by its random number. 0: it is not known.
    pub life: LifeId,
}

impl RunHeader {
    /// Returns the header's bytes.
    ///
    /// # Panics
    /// If no database can have this geometry.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        assert!(is_geometry(self.chunks), "{:?} is a geometry", self.chunks);
        assert!(
            self.id.level > 0 || !self.only_listed_moments,
            "at level 0 each epoch is a moment"
        );
        let mut out = Vec::with_capacity(HEADER_BYTES);
        out.put(MAGIC);
        out.put_u16(FORMAT_VERSION);
        out.put_u8(self.id.level);
        out.put_u8(match self.carries_frames {
            true => RECORDS_AND_FRAMES,
            false => RECORDS,
        });
        out.put(&self.uuid.0);
        out.put_u64(self.id.epochs.begin.0);
        out.put_u64(self.id.epochs.end.0);
        out.put_u32(self.id.generation);
        out.put_u32(to_u32(PAGE_BYTES));
        out.put_u16(self.chunks.pages);
        out.put_u16(self.chunks.partitions);
        out.put_u8(u8::from(self.only_listed_moments));
        out.put_zeros(ROOM_BYTES[0]);
        out.put_u64(self.life.0);
        out.put_zeros(ROOM_BYTES[1]);
        assert_eq!(out.len(), CRC_AT, "the fields fill the header");
        out.put_u32(crc32c(&out));
        out
    }

    /// Reads and checks a header. Returns the header and its checksum. The checksums of the footer and of the blocks
    /// also cover this checksum.
    ///
    /// # Errors
    /// [`perdura_base::Error::Corrupt`]; [`perdura_base::Error::Version`] for an undamaged header with an unknown
    /// version.
    pub fn decode(file: &str, bytes: &[u8]) -> Result<(RunHeader, u32)> {
        let (mut r, crc) = unseal(file, bytes, *MAGIC, CRC_AT, damage)?;
        let header = fields(&mut r).ok_or_else(|| {
            damage(
                file,
                0,
                "a header whose fields are in their ranges",
                "other values",
            )
        })?;
        Ok((header, crc))
    }
}

/// Reads the fields after the version. Returns `None` if a field is out of its range.
fn fields(r: &mut Reader<'_>) -> Option<RunHeader> {
    let level = r.u8()?;
    let content = r.u8()?;
    let uuid = Uuid(r.array()?);
    let epochs = EpochRange::new(Epoch(r.u64()?), Epoch(r.u64()?))?;
    let generation = r.u32()?;
    let page_bytes = r.u32()?;
    let chunks = Chunks {
        pages: r.u16()?,
        partitions: r.u16()?,
    };
    let moments = r.u8()?;
    r.zeros(ROOM_BYTES[0])?;
    let life = LifeId(r.u64()?);
    r.zeros(ROOM_BYTES[1])?;
    let is_sound = content <= RECORDS_AND_FRAMES
        && page_bytes == to_u32(PAGE_BYTES)
        && is_geometry(chunks)
        && moments <= 1
        && (moments == 0 || level > 0);
    is_sound.then_some(RunHeader {
        uuid,
        id: RunId {
            epochs,
            level,
            generation,
        },
        chunks,
        only_listed_moments: moments == 1,
        carries_frames: content == RECORDS_AND_FRAMES,
        life,
    })
}

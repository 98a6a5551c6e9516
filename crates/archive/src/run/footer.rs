//! The footer of a run. It gives the offsets of the parts between the blocks and the footer.

use perdura_base::Result;
use perdura_base::checksum::crc32c;
use perdura_base::cursor::{Reader, Writer};
use perdura_base::limits::{FORMAT_VERSION, SECTOR_BYTES};
use perdura_base::num::{round_up, to_u64};

use super::damage;
use super::header::HEADER_BYTES;

/// The size of the footer, bytes.
pub const FOOTER_BYTES: usize = 128;

const MAGIC: &[u8; 4] = b"PRFT";
const CRC_AT: usize = 124;
const ROOM_BYTES: usize = 4;
/// The number of parts between the blocks and the footer.
pub(crate) const PARTS: usize = 5;
/// The names of the parts in messages.
pub(crate) const PART_NAMES: [&str; PARTS] = ["index", "pages", "digests", "moments", "ends"];

/// The position of a part in the file, and its checksum.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Part {
    pub(crate) offset: u64,
    pub(crate) bytes: u32,
    pub(crate) crc: u32,
}

impl Part {
    fn end(&self) -> Option<u64> {
        self.offset.checked_add(u64::from(self.bytes))
    }
}

/// The contents of the footer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Footer {
    pub(crate) header_crc: u32,
    pub(crate) blocks: u32,
    pub(crate) records: u64,
    pub(crate) updates: u64,
    pub(crate) parts: [Part; PARTS],
    /// The part with the description of the frames. `None`: the run carries no frames.
    pub(crate) frames: Option<Part>,
}

/// Returns the length of a run's file. The parts of the run end at `end`.
pub(crate) fn file_len(end: u64) -> u64 {
    round_up(end + to_u64(FOOTER_BYTES), to_u64(SECTOR_BYTES))
}

impl Footer {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(FOOTER_BYTES);
        out.put(MAGIC);
        out.put_u16(FORMAT_VERSION);
        out.put_zeros(2);
        out.put_u32(self.header_crc);
        out.put_u32(self.blocks);
        out.put_u64(self.records);
        out.put_u64(self.updates);
        for part in &self.parts {
            out.put_u64(part.offset);
            out.put_u32(part.bytes);
            out.put_u32(part.crc);
        }
        let frames = self.frames.unwrap_or_default();
        out.put_u32(frames.bytes);
        out.put_u32(frames.crc);
        out.put_zeros(ROOM_BYTES);
        assert_eq!(out.len(), CRC_AT, "the fields fill the footer");
        out.put_u32(crc32c(&out));
        out
    }

    /// Decodes the footer of a file of `len` bytes. The header of the file has the checksum `header_crc`.
    pub(crate) fn decode(file: &str, bytes: &[u8], len: u64, header_crc: u32) -> Result<Footer> {
        assert_eq!(bytes.len(), FOOTER_BYTES, "the caller has read a footer");
        let offset = len - to_u64(FOOTER_BYTES);
        let crc = Reader::new(&bytes[CRC_AT..]).u32();
        if crc != Some(crc32c(&bytes[..CRC_AT])) {
            let found = "bytes with another checksum: the file was cut or damaged there";
            return Err(damage(file, offset, "a footer with its checksum", found));
        }
        let footer = fields(&bytes[..CRC_AT]);
        let footer = footer
            .filter(|footer| footer.is_sound(len))
            .ok_or_else(|| {
                damage(
                    file,
                    offset,
                    format!("a footer of a file of {len} bytes"),
                    "other values",
                )
            })?;
        if footer.header_crc != header_crc {
            let expected = format!("the footer of the run with header {header_crc:08x}");
            let found = format!("the footer of another, {:08x}", footer.header_crc);
            return Err(damage(file, offset, expected, found));
        }
        Ok(footer)
    }

    /// Returns whether the parts are adjacent and only padding lies between the last part and the footer.
    fn is_sound(&self, len: u64) -> bool {
        let mut end = Some(self.parts[0].offset);
        for part in &self.parts {
            if Some(part.offset) != end {
                return false;
            }
            end = part.end();
        }
        if let Some(frames) = &self.frames {
            end = frames.end();
        }
        let is_end = |end: u64| end < len && file_len(end) == len;
        self.parts[0].offset >= to_u64(HEADER_BYTES) && end.is_some_and(is_end)
    }

    /// Returns the end of the last part.
    pub(crate) fn parts_end(&self) -> u64 {
        let last = self.frames.as_ref().unwrap_or(&self.parts[PARTS - 1]);
        debug_assert!(last.end().is_some(), "the footer was checked");
        last.offset + u64::from(last.bytes)
    }
}

fn fields(bytes: &[u8]) -> Option<Footer> {
    let mut r = Reader::new(bytes);
    if r.array()? != *MAGIC || r.u16()? != FORMAT_VERSION {
        return None;
    }
    r.zeros(2)?;
    let mut footer = Footer {
        header_crc: r.u32()?,
        blocks: r.u32()?,
        records: r.u64()?,
        updates: r.u64()?,
        parts: [Part::default(); PARTS],
        frames: None,
    };
    for part in &mut footer.parts {
        *part = Part {
            offset: r.u64()?,
            bytes: r.u32()?,
            crc: r.u32()?,
        };
    }
    let (bytes, crc) = (r.u32()?, r.u32()?);
    if bytes > 0 {
        footer.frames = Some(Part {
            offset: footer.parts[PARTS - 1].end()?,
            bytes,
            crc,
        });
    } else if crc != 0 {
        return None;
    }
    r.zeros(ROOM_BYTES)?;
    Some(footer)
}

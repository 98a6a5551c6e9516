//! The footer of a backup. It gives the offset of the table of sections.

use perdura_base::Result;
use perdura_base::checksum::crc32c;
use perdura_base::cursor::{Reader, Writer};
use perdura_base::limits::FORMAT_VERSION;
use perdura_base::num::to_u64;

use super::damage;

/// Bytes of the footer.
pub(super) const FOOTER_BYTES: usize = 128;

const MAGIC: &[u8; 4] = b"PBFT";
const CRC_AT: usize = FOOTER_BYTES - 4;
const ROOM_BYTES: usize = 92;

/// The contents of the footer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Footer {
    pub(super) header_crc: u32,
    pub(super) table_crc: u32,
    pub(super) table_at: u64,
    pub(super) pages: u64,
}

impl Footer {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(FOOTER_BYTES);
        out.put(MAGIC);
        out.put_u16(FORMAT_VERSION);
        out.put_zeros(2);
        out.put_u32(self.header_crc);
        out.put_u32(self.table_crc);
        out.put_u64(self.table_at);
        out.put_u64(self.pages);
        out.put_zeros(ROOM_BYTES);
        assert_eq!(out.len(), CRC_AT, "the fields fill the footer");
        out.put_u32(crc32c(&out));
        out
    }

    /// Decodes the footer of a file of `len` bytes. The header of the file has the checksum `header_crc`.
    pub(super) fn decode(file: &str, bytes: &[u8], len: u64, header_crc: u32) -> Result<Footer> {
        assert_eq!(bytes.len(), FOOTER_BYTES, "the caller has read a footer");
        let offset = len - to_u64(FOOTER_BYTES);
        let crc = Reader::new(&bytes[CRC_AT..]).u32();
        if crc != Some(crc32c(&bytes[..CRC_AT])) {
            let found = "bytes with another checksum: the file was cut or damaged there";
            return Err(damage(file, offset, "a footer with its checksum", found));
        }
        let footer = fields(&bytes[..CRC_AT])
            .ok_or_else(|| damage(file, offset, "a backup's footer", "other values"))?;
        if footer.header_crc != header_crc {
            let expected = format!("the footer of the backup with header {header_crc:08x}");
            let found = format!("the footer of another, {:08x}", footer.header_crc);
            return Err(damage(file, offset, expected, found));
        }
        Ok(footer)
    }
}

fn fields(bytes: &[u8]) -> Option<Footer> {
    let mut r = Reader::new(bytes);
    if r.array()? != *MAGIC || r.u16()? != FORMAT_VERSION {
        return None;
    }
    r.zeros(2)?;
    let footer = Footer {
        header_crc: r.u32()?,
        table_crc: r.u32()?,
        table_at: r.u64()?,
        pages: r.u64()?,
    };
    r.zeros(ROOM_BYTES)?;
    Some(footer)
}

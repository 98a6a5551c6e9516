//! The fields that every file of the archive has: a magic number, a version and a checksum.

use perdura_base::checksum::crc32c;
use perdura_base::cursor::Reader;
use perdura_base::limits::{FORMAT_VERSION, PARTITIONS_MAX};
use perdura_base::{Error, Result};
use perdura_page::Chunks;

/// A function that makes an error from the file, the offset, the expected contents and the found contents.
pub(crate) type Damage = fn(&str, u64, String, String) -> Error;

/// Checks the magic number, the version, and the checksum. The checksum is at `crc_at` and covers all bytes before it.
/// Returns a reader that is past the version, and returns the checksum.
///
/// # Errors
/// The error that `damage` makes; [`Error::Version`] if the checksum is right but the version differs.
pub(crate) fn unseal<'a>(
    file: &str,
    bytes: &'a [u8],
    magic: [u8; 4],
    crc_at: usize,
    damage: Damage,
) -> Result<(Reader<'a>, u32)> {
    let mut r = Reader::new(bytes);
    let found: Option<[u8; 4]> = r.array();
    if found != Some(magic) {
        let expected = format!("the magic {}", magic.escape_ascii());
        return Err(damage(file, 0, expected, format!("{found:?}")));
    }
    let crc = bytes.get(..crc_at).map(crc32c);
    let stored = bytes.get(crc_at..).and_then(|rest| Reader::new(rest).u32());
    let Some(crc) = crc.filter(|crc| Some(*crc) == stored) else {
        let expected = format!("{crc_at} bytes with their checksum");
        let found = format!("checksum {stored:x?} of {crc:x?}");
        return Err(damage(file, 0, expected, found));
    };
    match r.u16() {
        Some(FORMAT_VERSION) => Ok((r, crc)),
        found => Err(Error::Version {
            file: file.to_owned(),
            found: found.unwrap_or_default(),
            supported: FORMAT_VERSION,
        }),
    }
}

/// Returns whether a database can have this assignment of pages to partitions.
pub(crate) fn is_geometry(chunks: Chunks) -> bool {
    chunks.pages > 0 && chunks.partitions.is_power_of_two() && chunks.partitions <= PARTITIONS_MAX
}

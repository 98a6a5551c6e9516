//! The common frame of the archive's files: they begin with a magic number and a version, and a checksum seals them.

use perdura_base::checksum::crc32c;
use perdura_base::cursor::Reader;
use perdura_base::limits::{FORMAT_VERSION, PARTITIONS_MAX};
use perdura_base::{Error, Result};
use perdura_page::Chunks;

/// An error that names file and offset: file, offset, what was expected, what was found.
pub(crate) type Damage = fn(&str, u64, String, String) -> Error;

/// Checks a magic number, its version, and the checksum of all bytes before `crc_at`, where it is. Returns the checksum
/// and a reader of the bytes behind the version.
///
/// # Errors
/// Damage, as `damage` words it; [`Error::Version`] for whole bytes of another version.
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

/// Returns whether a database can divide its pages in this way.
pub(crate) fn is_geometry(chunks: Chunks) -> bool {
    chunks.pages > 0 && chunks.partitions.is_power_of_two() && chunks.partitions <= PARTITIONS_MAX
}

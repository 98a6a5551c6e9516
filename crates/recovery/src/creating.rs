//! The identity of a database that is being made.
//!
//! The pages files on image disks name the database. They are made before the anchor, so the creation may be
//! interrupted after them. The next creation then finds files of a database that never existed. On the data disk it can
//! replace them. On another disk it cannot tell them from files of a database whose anchor is elsewhere. Therefore the
//! identity is written to the data disk first, and the next creation takes it from there.
//!
//! The file's format is in docs/formats/image.md.

use std::sync::Arc;

use perdura_base::{Result, Uuid};
use perdura_device::{Access, Disk};

/// The file with the identity. It exists only while a database with images on other disks is being made.
pub(crate) const CREATING_PATH: &str = "creating";
/// The file under construction.
pub(crate) const CREATING_TMP: &str = "creating.tmp";

const PREFIX: &str = "perdura database ";

/// Returns the identity of the database to be made: that of an interrupted creation, or else `drawn`. On return the
/// identity is durable on the data disk. If all images are on the data disk, returns `drawn` and writes nothing.
///
/// # Errors
/// Errors of the disk.
pub(crate) fn begin(data: &dyn Disk, images: &[Arc<dyn Disk>], drawn: Uuid) -> Result<Uuid> {
    let is_apart = |disk: &Arc<dyn Disk>| !std::ptr::addr_eq(data, disk.as_ref());
    if !images.iter().any(is_apart) {
        return Ok(drawn);
    }
    if let Some(uuid) = read(data)? {
        // The interrupted creation may not have made the file's name durable.
        data.sync_dir("")?;
        return Ok(uuid);
    }
    match data.remove(CREATING_TMP) {
        Err(error) if !error.is_not_found() => return Err(error),
        Ok(()) | Err(_) => {}
    }
    let file = data.create(CREATING_TMP, Access::Buffered)?;
    file.write_at(0, encode(&drawn).as_bytes())?;
    file.sync()?;
    data.rename(CREATING_TMP, CREATING_PATH)?;
    data.sync_dir("")?;
    assert_eq!(read(data)?, Some(drawn), "the identity is read as written");
    Ok(drawn)
}

/// Removes the file, because the anchor names the identity now. A file that cannot be removed does no harm: nothing
/// reads it while there is an anchor.
pub(crate) fn end(data: &dyn Disk) {
    let _harmless = data.remove(CREATING_PATH);
}

fn encode(uuid: &Uuid) -> String {
    format!("{PREFIX}{uuid}\n")
}

/// Returns the identity in the file. `None`: there is no file, or the file has other contents. It was synced before it
/// got its name, so other contents are not from an interrupted creation.
fn read(data: &dyn Disk) -> Result<Option<Uuid>> {
    let file = match data.open(CREATING_PATH, Access::Buffered) {
        Ok(file) => file,
        Err(error) if error.is_not_found() => return Ok(None),
        Err(error) => return Err(error),
    };
    let mut bytes = [0; 128];
    let got = file.read_at(0, &mut bytes)?;
    Ok(decode(&bytes[..got]))
}

fn decode(bytes: &[u8]) -> Option<Uuid> {
    let text = std::str::from_utf8(bytes).ok()?;
    let digits = text.strip_prefix(PREFIX)?.strip_suffix('\n')?;
    let number = u128::from_str_radix(&digits.replace('-', ""), 16).ok()?;
    let uuid = Uuid(number.to_be_bytes());
    (encode(&uuid) == text).then_some(uuid)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_identity_is_read_as_written_and_nothing_else_is() {
        let mut uuid = Uuid::default();
        (1..17u8).zip(&mut uuid.0).for_each(|(i, byte)| *byte = i);
        let text = encode(&uuid);
        assert_eq!(
            text,
            "perdura database 01020304-0506-0708-090a-0b0c0d0e0f10\n"
        );
        assert_eq!(decode(text.as_bytes()), Some(uuid));
        for cut in 0..text.len() {
            assert_eq!(decode(&text.as_bytes()[..cut]), None, "{cut} bytes");
        }
        let spaced = text.replace("database 0", "database +");
        assert_eq!(decode(spaced.as_bytes()), None);
    }
}

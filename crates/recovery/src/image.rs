//! The two images' files.
#![doc = include_str!("../../../docs/formats/image.md")]
//!
//! | module | one idea |
//! |---|---|
//! | `pages` | the pages file: its header, and pages side by side |
//! | `directory` | the directory in memory: an entry for each page of an image |
//! | `listing` | the directory file: written section by section, read back, removed |

use std::sync::Arc;

use perdura_base::{CkptEpoch, Error, ImageSlot, Result, Uuid};
use perdura_device::{Access, Disk};

mod directory;
mod listing;
mod pages;

pub use crate::places::{PAGES_HEADER_BYTES, Place, Places, disk_of};
pub use directory::{DirEntry, Directory, PageSummer};
pub use listing::{DirectoryWriter, LoadedDirectory, read_directory, remove_old_directories};
pub use pages::ImageFile;

/// Returns the folder of an image.
#[must_use]
pub fn folder(slot: ImageSlot) -> &'static str {
    match slot {
        ImageSlot::A => "image-a",
        ImageSlot::B => "image-b",
    }
}

/// Returns the path of the pages file of a slot.
#[must_use]
pub fn pages_path(slot: ImageSlot) -> String {
    format!("{}/pages", folder(slot))
}

/// Returns the path of the directory of checkpoint `k` in a slot.
#[must_use]
pub fn directory_path(slot: ImageSlot, k: CkptEpoch) -> String {
    format!("{}/directory-{:020}", folder(slot), k.0)
}

/// Decodes the file name of a [`directory_path`], without the folder. `None`: the name has a different form.
#[must_use]
pub fn directory_number(name: &str) -> Option<CkptEpoch> {
    let digits = name.strip_prefix("directory-")?;
    let is_number = digits.len() == 20 && digits.bytes().all(|b| b.is_ascii_digit());
    is_number.then_some(CkptEpoch(digits.parse().ok()?))
}

/// Returns whether the slot's pages file exists and holds more than its header.
///
/// # Errors
/// Errors of the disk.
pub fn holds_pages(disk: &dyn Disk, slot: ImageSlot) -> Result<bool> {
    match disk.open(&pages_path(slot), Access::Buffered) {
        Ok(file) => Ok(file.len()? > PAGES_HEADER_BYTES),
        Err(error) if error.is_not_found() => Ok(false),
        Err(error) => Err(error),
    }
}

/// Makes the files of the two images of a new database: a folder on the data disk for directories, and a pages file on
/// each image disk.
///
/// The data disk has no anchor yet, so an interrupted creation may have left a pages file on the data disk. If such a
/// file names a foreign database and holds no pages, it is replaced. On any other disk, a foreign database's pages file
/// is never replaced. The foreign database's anchor may be elsewhere, and this database needs the image if its log has
/// been cut. A file of an interrupted creation on such a disk names `uuid`.
///
/// # Errors
/// [`Error::Foreign`] for a foreign database's file that must not be replaced. Errors of the disks.
pub fn create_images(data: &dyn Disk, images: &[Arc<dyn Disk>], uuid: &Uuid) -> Result<()> {
    for slot in ImageSlot::ALL {
        data.make_dir(folder(slot))?;
        for (number, disk) in (0u8..).zip(images) {
            match ImageFile::open(disk.as_ref(), slot, uuid) {
                // An interrupted creation left this file. The file's name may not be durable yet.
                Ok(file) if file.disk_number() == number => disk.sync_dir(folder(slot))?,
                // The interrupted creation had its disks in another order.
                Ok(_) if !holds_pages(disk.as_ref(), slot)? => {
                    disk.remove(&pages_path(slot))?;
                    ImageFile::create(disk.as_ref(), slot, uuid, number)?;
                }
                Ok(_) => return Err(another_databases(disk.as_ref(), pages_path(slot))),
                Err(error) if error.is_not_found() => {
                    ImageFile::create(disk.as_ref(), slot, uuid, number)?;
                }
                Err(error @ Error::Io { .. }) => return Err(error),
                Err(_) => {
                    let path = pages_path(slot);
                    let beside_anchor = std::ptr::addr_eq(data, disk.as_ref());
                    if !beside_anchor || holds_pages(disk.as_ref(), slot)? {
                        return Err(another_databases(disk.as_ref(), path));
                    }
                    disk.remove(&path)?;
                    ImageFile::create(disk.as_ref(), slot, uuid, number)?;
                }
            }
        }
    }
    Ok(())
}

fn another_databases(disk: &dyn Disk, path: String) -> Error {
    Error::Foreign {
        why: format!(
            "{} is an image of another database. Give this database another directory, or remove \
             the file if no database needs it",
            disk.name()
        ),
        file: path,
    }
}

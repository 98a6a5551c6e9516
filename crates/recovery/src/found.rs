//! Finds out what the disks hold: a database, nothing, or the remains of a database.
//!
//! Every caller that opens a database calls this module first. So a restart, a dry run and `verify` refuse the same
//! directories with the same error texts. If a file that every database has is not there, it is reported as *missing*.
//! The error names the file's contents, the cost of the loss, and possible replacements. This module does not judge
//! damaged files. The code that loads the image and scans the log judges them, because only that code knows the usable
//! copies.

use std::sync::Arc;

use perdura_base::limits::{FORMAT_VERSION, SECTOR_BYTES};
use perdura_base::{CkptEpoch, Error, ImageSlot, Result, StreamId};
use perdura_device::{Access, Disk};
use perdura_wal::COPIED;
use perdura_wal::anchor::{ANCHOR_PATH, AnchorFile};
use perdura_wal::segment::{LOG_DIR, SegmentId, check_header, is_foreign};

use crate::anchor::{Anchor, open_anchor};
use crate::creating::{CREATING_PATH, CREATING_TMP};
use crate::image::{ImageFile, directory_number, directory_path, folder, holds_pages, pages_path};
use crate::images::ImageStatus;
use crate::sections::tree::TREE_DIR;

/// The file with the format's version.
pub const VERSION_PATH: &str = "VERSION";

/// Names that a data directory without an anchor may contain: the remains of an interrupted creation, and files that
/// file systems put there.
const KNOWN: [&str; 11] = [
    "LOCK",
    VERSION_PATH,
    "VERSION.tmp",
    CREATING_PATH,
    CREATING_TMP,
    "anchor.tmp",
    "image-a",
    "image-b",
    LOG_DIR,
    "lost+found",
    TREE_DIR,
];

/// Returns whether the directory holds a database. Changes nothing, and needs no lock.
///
/// # Errors
/// [`Error::Foreign`] for files that belong to no database, [`Error::Corrupt`] for a database without an anchor.
pub fn is_database(data: &dyn Disk) -> Result<bool> {
    let names = data.list("")?;
    if names.iter().any(|name| name == ANCHOR_PATH) {
        return Ok(true);
    }
    let stranger = |name: &&String| !KNOWN.contains(&name.as_str());
    if let Some(stranger) = names.iter().find(stranger) {
        return Err(Error::Foreign {
            file: format!("{}/{}", data.name(), stranger.escape_debug()),
            why: "the directory contains other files and no database. Give a new or empty \
                  directory"
                .into(),
        });
    }
    // An interrupted creation leaves no directory file, no page in an image and no log segment. So any of them proves
    // that a database was here.
    for slot in ImageSlot::ALL {
        if !names.iter().any(|name| name == folder(slot)) {
            continue;
        }
        let listed = data.list(folder(slot))?;
        if let Some(name) = listed.iter().find(|name| name.starts_with("directory-")) {
            return Err(without_anchor(data, &format!("{}/{name}", folder(slot))));
        }
        if holds_pages(data, slot)? {
            return Err(without_anchor(data, &pages_path(slot)));
        }
    }
    if names.iter().any(|name| name == LOG_DIR) {
        refuse_log_without_anchor(data, data)?;
    }
    Ok(false)
}

/// Returns the error for an image disk without a directory, or without a pages file.
#[must_use]
pub fn missing_image_dir(dir: &str, number: usize) -> Error {
    Error::corrupt(
        dir,
        0,
        format!("the pages files of image disk {number}"),
        "no such file",
        "It contains pages of both images. Mount the disk, or restore the directory from a \
         backup. If it has moved, give the new place with --image-dir.",
    )
}

fn refuse_log_without_anchor(data: &dyn Disk, log: &dyn Disk) -> Result<()> {
    let names = match log.list(LOG_DIR) {
        Ok(names) => names,
        Err(error) if error.is_not_found() => return Ok(()),
        Err(error) => return Err(error),
    };
    match names.iter().find(|name| SegmentId::parse(name).is_some()) {
        None => Ok(()),
        Some(name) => Err(without_anchor(data, &format!("{LOG_DIR}/{name}"))),
    }
}

fn without_anchor(data: &dyn Disk, sign: &str) -> Error {
    Error::corrupt(
        format!("{}/{ANCHOR_PATH}", data.name()),
        0,
        "the anchor of the database whose files are here",
        format!("no such file, although {sign} exists"),
        "Only the anchor says which image and log are the newest. Restore the anchor and all \
         other files from a backup. Or move the files away to begin a new database.",
    )
}

/// The kinds of text in a `VERSION` file.
enum Version {
    /// The file does not exist, or contains the version of this build.
    Ours,
    /// The file contains this version, which is not the version of this build.
    Other(u16),
    /// The file contains the mark of an unfinished database, or a foreign program's text.
    Foreign(String),
    /// The file contains no version, but a short text that may be a damaged version.
    Garbled(String),
}

/// The maximum length of a text that may be a damaged version, bytes. The mark of an unfinished database is longer, so
/// it is never taken for a damaged version.
const GARBLED_BYTES_MAX: usize = 24;
/// The first word of the mark of an unfinished database.
const UNFINISHED: &str = "unfinished";

fn read_version(data: &dyn Disk) -> Result<Version> {
    let file = match data.open(VERSION_PATH, Access::Buffered) {
        Ok(file) => file,
        Err(error) if error.is_not_found() => return Ok(Version::Ours),
        Err(error) => return Err(error),
    };
    let mut bytes = vec![0; 128];
    let got = file.read_at(0, &mut bytes)?;
    let text = bytes[..got].trim_ascii();
    let version = std::str::from_utf8(text).ok();
    let version = version.and_then(|text| text.strip_prefix("perdura ")?.parse::<u16>().ok());
    let shown = || format!("\"{}\"", text.escape_ascii());
    let is_cut_mark = !text.is_empty() && UNFINISHED.as_bytes().starts_with(text);
    Ok(match version {
        Some(FORMAT_VERSION) => Version::Ours,
        Some(other) => Version::Other(other),
        None if got <= GARBLED_BYTES_MAX
            && !is_cut_mark
            && !text.starts_with(UNFINISHED.as_bytes()) =>
        {
            Version::Garbled(shown())
        }
        None => Version::Foreign(shown()),
    })
}

/// Refuses a database if the file `VERSION` does not contain the version of this build.
///
/// # Errors
/// [`Error::Version`]; [`Error::Foreign`] for a foreign program's file or the mark of an unfinished database.
fn check_version(data: &dyn Disk) -> Result<()> {
    match read_version(data)? {
        Version::Ours => Ok(()),
        Version::Other(found) => Err(Error::Version {
            file: format!("{}/{VERSION_PATH}", data.name()),
            found,
            supported: FORMAT_VERSION,
        }),
        Version::Foreign(text) | Version::Garbled(text) => Err(foreign_version(data, &text)),
    }
}

fn foreign_version(data: &dyn Disk, text: &str) -> Error {
    Error::Foreign {
        file: format!("{}/{VERSION_PATH}", data.name()),
        why: format!("it says {text}"),
    }
}

/// Returns the anchor's file, the anchor, and notes for the operator. `None`: there is no anchor. The anchor contains
/// the format's version, under a checksum. So if the `VERSION` file disagrees with a readable anchor, the `VERSION`
/// file is damaged. A note reports that, and the open does not fail.
///
/// # Errors
/// [`Error::Foreign`] if `VERSION` contains the mark of an unfinished database, or a foreign program's text.
/// [`Error::Version`] or [`Error::Foreign`] if no anchor can be read, and `VERSION` contains anything other than the
/// version of this build. The error of reading the anchor.
pub(crate) fn open_versioned_anchor(
    data: &dyn Disk,
) -> Result<Option<(AnchorFile, Anchor, Vec<String>)>> {
    let opened = open_anchor(data);
    let Ok(Some((file, anchor, mut notes))) = opened else {
        check_version(data)?;
        return opened;
    };
    let said = match read_version(data)? {
        Version::Ours => return Ok(Some((file, anchor, notes))),
        Version::Foreign(text) => return Err(foreign_version(data, &text)),
        Version::Other(number) => format!("version {number}"),
        Version::Garbled(text) => text,
    };
    notes.push(format!(
        "{VERSION_PATH} says {said}, but the anchor says version {FORMAT_VERSION}. The file is \
         damaged. Nothing is lost: the next start writes it again"
    ));
    Ok(Some((file, anchor, notes)))
}

/// Writes the `VERSION` file if it is missing or damaged.
///
/// # Errors
/// [`Error::Version`] or [`Error::Foreign`] if the file has other contents, and no readable anchor proves that the file
/// is damaged. Errors of the disk.
pub fn write_version(disk: &dyn Disk) -> Result<()> {
    if disk.list("")?.iter().any(|name| name == VERSION_PATH) {
        if matches!(read_version(disk)?, Version::Ours) {
            return Ok(());
        }
        // Only a readable anchor proves that the `VERSION` file is damaged, because the anchor contains the
        // version too.
        if !matches!(open_versioned_anchor(disk), Ok(Some(_))) {
            return check_version(disk);
        }
    }
    let tmp = "VERSION.tmp";
    let file = disk.create(tmp, Access::Buffered).or_else(|_| {
        disk.remove(tmp)?;
        disk.create(tmp, Access::Buffered)
    })?;
    file.write_at(0, format!("perdura {FORMAT_VERSION}\n").as_bytes())?;
    file.sync()?;
    disk.rename(tmp, VERSION_PATH)?;
    disk.sync_dir("")
}

/// Marks a database as unfinished. `verb` is the command that makes the database. The database is refused until
/// [`mark_finished`] removes the mark.
///
/// # Errors
/// [`Error::Foreign`] if the directory already has a `VERSION` file. Errors of the disk.
pub fn mark_unfinished(disk: &dyn Disk, verb: &str) -> Result<()> {
    if disk.list("")?.iter().any(|name| name == VERSION_PATH) {
        return Err(Error::Foreign {
            file: format!("{}/{VERSION_PATH}", disk.name()),
            why: "the directory has a database already. Give a new directory".into(),
        });
    }
    let file = disk.create(VERSION_PATH, Access::Buffered)?;
    let text = format!("{UNFINISHED}: {verb} was interrupted, delete this directory\n");
    assert!(
        text.len() > GARBLED_BYTES_MAX,
        "the mark is longer than any damaged version"
    );
    file.write_at(0, text.as_bytes())?;
    file.sync()?;
    disk.sync_dir("")
}

/// Replaces the mark of [`mark_unfinished`] by the version. This makes the database usable.
///
/// # Errors
/// Errors of the disk.
pub fn mark_finished(disk: &dyn Disk) -> Result<()> {
    disk.remove(VERSION_PATH)?;
    write_version(disk)
}

/// Returns the anchor's file, the anchor, and notes for the operator. `None`: these disks hold no database.
///
/// # Errors
/// The errors of [`is_database`]; [`Error::Version`] for an unknown format; the error of reading the anchor.
pub fn find(
    data: &dyn Disk,
    logs: &[Arc<dyn Disk>],
) -> Result<Option<(AnchorFile, Anchor, Vec<String>)>> {
    if !is_database(data)? {
        for log in logs {
            refuse_log_without_anchor(data, log.as_ref())?;
        }
        // An unfinished database may consist of the mark alone, or of a part of the mark.
        check_version(data)?;
        return Ok(None);
    }
    open_versioned_anchor(data)
}

/// Returns whether the error reports a missing file or directory, or a wrong kind of file at the path.
pub(crate) fn is_missing(error: &Error) -> bool {
    error.is_not_found() || error.is_of_another_kind()
}

/// Returns the error for a stream without a directory.
#[must_use]
pub fn missing_log(disk: &str, stream: StreamId) -> Error {
    Error::corrupt(
        format!("{disk}/{LOG_DIR}"),
        0,
        format!("the directory of log stream {stream}"),
        "no such directory",
        "It contains every transaction since the images. Mount the disk, or restore the \
         directory from a backup. If it has moved, give the new place with --log-dir.",
    )
}

/// Refuses missing logs, logs of a foreign database, and logs of a later life than the anchor knows. `segments` has the
/// segments of each log directory; `None` for a missing directory.
///
/// # Errors
/// [`Error::Corrupt`], [`Error::Foreign`]; errors of the disks.
pub(crate) fn check_logs(
    logs: &[Arc<dyn Disk>],
    segments: &[Option<Vec<SegmentId>>],
    anchor: &Anchor,
) -> Result<()> {
    assert_eq!(segments.len(), logs.len(), "each log directory was listed");
    let mut header = vec![0; SECTOR_BYTES];
    for ((stream, disk), ids) in (0u8..).map(StreamId).zip(logs).zip(segments) {
        let Some(ids) = ids else {
            return Err(missing_log(&disk.name(), stream));
        };
        for id in ids.iter().filter(|id| id.stream == stream) {
            check_segment(disk.as_ref(), *id, anchor, &mut header)?;
        }
    }
    Ok(())
}

fn check_segment(disk: &dyn Disk, id: SegmentId, anchor: &Anchor, header: &mut [u8]) -> Result<()> {
    let read = disk
        .open(&id.path(), Access::Buffered)
        .and_then(|file| file.read_at(0, header));
    let got = match read {
        Ok(got) => got,
        // The scan of the log fails later if it needs this file.
        Err(error) if error.is_unreadable() || is_missing(&error) => return Ok(()),
        Err(error) => return Err(error),
    };
    if let Err(fault) = check_header(id, &anchor.uuid, &header[..got])
        && is_foreign(&fault)
    {
        return Err(Error::Foreign {
            file: id.path(),
            why: format!(
                "{fault}, and the anchor to {}. Nothing was changed. Restore the file that this \
                 database had here. If it had no such file, move this one away",
                anchor.uuid
            ),
        });
    }
    if id.incarnation > anchor.incarnation {
        return Err(stale(&format!(
            "{} is a log file of life {} of the database, and the anchor knows only lives up to {}",
            id.path(),
            id.incarnation,
            anchor.incarnation
        )));
    }
    Ok(())
}

fn stale(sign: &str) -> Error {
    Error::corrupt(
        ANCHOR_PATH,
        0,
        "the newest anchor of this database",
        format!("an older anchor, because {sign}"),
        format!(
            "Newer writes would be lost. Restore the newest anchor, or a backup of all files. \
             {COPIED}"
        ),
    )
}

/// Refuses missing images, images of a foreign database, and images that are newer than the anchor. `pages` has, for
/// each slot and image disk, the opened pages file or the error of opening it.
///
/// # Errors
/// [`Error::Corrupt`], [`Error::Foreign`]; errors of the disks.
pub(crate) fn check_images(
    data: &dyn Disk,
    images: &[Arc<dyn Disk>],
    pages: [Vec<Result<ImageFile>>; 2],
    anchor: &Anchor,
) -> Result<()> {
    let newest = anchor.images.iter().map(|image| image.k).max();
    let newest = newest.unwrap_or_default().max(anchor.ckpt_max);
    for (slot, pages) in ImageSlot::ALL.into_iter().zip(pages) {
        assert_eq!(pages.len(), images.len(), "a pages file on each disk");
        for (disk, opened) in images.iter().zip(pages) {
            match opened {
                Err(error) if is_missing(&error) => {
                    let file = format!("{}/{}", disk.name(), pages_path(slot));
                    return Err(missing_image(anchor, slot, file, "the pages"));
                }
                Err(error @ Error::Foreign { .. }) => return Err(error),
                // The code that loads the image judges damage.
                Ok(_) | Err(_) => {}
            }
        }
        let path = directory_path(slot, anchor.image(slot).k);
        let names = match data.list(folder(slot)) {
            Ok(names) => names,
            Err(error) if is_missing(&error) => Vec::new(),
            Err(error) => return Err(error),
        };
        let numbers = names.iter().filter_map(|name| directory_number(name));
        if let Some(k) = numbers.max().filter(|k| *k > newest) {
            return Err(stale(&format!(
                "{} is of checkpoint {k}, and the newest that the anchor knows is {newest}",
                directory_path(slot, k)
            )));
        }
        let listed = names.iter().any(|name| {
            let before = path.strip_suffix(name.as_str());
            before.is_some_and(|folder| folder.ends_with('/'))
        });
        if anchor.image(slot).is_complete() && !listed {
            let file = format!("{}/{path}", data.name());
            return Err(missing_image(anchor, slot, file, "the directory"));
        }
    }
    Ok(())
}

fn missing_image(anchor: &Anchor, slot: ImageSlot, file: String, what: &str) -> Error {
    let ImageStatus { k, .. } = anchor.image(slot);
    let other = slot.other();
    let consequence = if !anchor.image(slot).is_complete() {
        "Nothing is lost: it contained no complete checkpoint.".to_owned()
    } else if anchor.image(other).is_complete() {
        let CkptEpoch(k) = anchor.image(other).k;
        format!("Nothing is lost as long as image {other} (checkpoint {k}) and the log are intact.")
    } else {
        format!("What was written up to checkpoint {k} is in no other file.")
    };
    Error::corrupt(
        file,
        0,
        format!("{what} of image {slot}"),
        "no such file",
        format!(
            "{consequence} Mount the disk, or restore the file from a backup. If the pages are \
             not in the data directory, give their place with --image-dir. `perdura repair` \
             makes a new database of what is left. {COPIED}"
        ),
    )
}

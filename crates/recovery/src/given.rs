//! Checks that the directories in the options of a restart match the anchor. Their count and order must be as when the
//! database was made, and they must hold the logs and images that the anchor names. A restart checks this first,
//! because with wrong directories it would cut the log at a wrong position.

use std::collections::BTreeSet;
use std::sync::Arc;

use perdura_base::{Error, ImageSlot, Result, StreamId, Uuid};
use perdura_device::Disk;
use perdura_wal::segment::{LOG_DIR, SegmentId};

use crate::anchor::Anchor;
use crate::disks::check_image_disks;
use crate::found::{check_images, check_logs, is_missing};
use crate::image::ImageFile;
use crate::options::RestartOptions;

/// Refuses options with directories that do not match the anchor.
///
/// # Errors
/// [`Error::Usage`] with the reason; the errors of [`check_images`], of [`check_logs`] and of the log disks.
pub(crate) fn check_given(options: &RestartOptions, anchor: &Anchor) -> Result<()> {
    let (streams, disks) = (options.disks.logs.len(), options.disks.images.len());
    if usize::from(anchor.streams) != streams {
        return Err(Error::Usage(format!(
            "the database has {} log stream(s), but {streams} log director(ies) were given. Give \
             one for each",
            anchor.streams,
        )));
    }
    check_image_disks(disks, usize::from(anchor.images.disks))?;
    let segments = list_segments(&options.disks.logs)?;
    check_places(&options.disks.logs, &segments)?;
    let pages = open_pages(&options.disks.images, &anchor.uuid);
    check_image_places(&options.disks.images, &pages)?;
    check_images(
        options.disks.data.as_ref(),
        &options.disks.images,
        pages,
        anchor,
    )?;
    check_logs(&options.disks.logs, &segments, anchor)
}

/// Opens the pages files of the two slots, on each image disk in order. Returns each file, or the error of opening it.
fn open_pages(images: &[Arc<dyn Disk>], uuid: &Uuid) -> [Vec<Result<ImageFile>>; 2] {
    ImageSlot::ALL.map(|slot| {
        let open = |disk: &Arc<dyn Disk>| ImageFile::open(disk.as_ref(), slot, uuid);
        images.iter().map(open).collect()
    })
}

/// Refuses image directories that are not in the order in which the database was made. Each pages file contains the
/// number of its directory. Unreadable files are skipped here; the code that loads the image judges them.
fn check_image_places(images: &[Arc<dyn Disk>], pages: &[Vec<Result<ImageFile>>; 2]) -> Result<()> {
    for (place, disk) in images.iter().enumerate() {
        for file in pages.iter().filter_map(|slot| slot[place].as_ref().ok()) {
            if usize::from(file.disk_number()) != place {
                return Err(Error::Usage(format!(
                    "{} is given as image directory {place}, but it is number {}. Give the image \
                     directories in the order in which the database was made",
                    disk.name(),
                    file.disk_number()
                )));
            }
        }
    }
    Ok(())
}

/// Returns the segments in each log directory; `None` where the directory is missing.
fn list_segments(logs: &[Arc<dyn Disk>]) -> Result<Vec<Option<Vec<SegmentId>>>> {
    let list = |disk: &Arc<dyn Disk>| match disk.list(LOG_DIR) {
        Ok(names) => Ok(Some(
            names
                .iter()
                .filter_map(|name| SegmentId::parse(name))
                .collect(),
        )),
        Err(error) if is_missing(&error) => Ok(None),
        Err(error) => Err(error),
    };
    logs.iter().map(list).collect()
}

/// Refuses log directories that are not in the order in which the database was made. If the log is young, no later
/// check would detect the wrong order. Each stream would find only segments of other streams, and the database would
/// open empty.
fn check_places(logs: &[Arc<dyn Disk>], segments: &[Option<Vec<SegmentId>>]) -> Result<()> {
    let found: Vec<BTreeSet<StreamId>> = segments
        .iter()
        .map(|ids| ids.iter().flatten().map(|id| id.stream).collect())
        .collect();
    for (stream, disk) in (0u8..).zip(logs) {
        let id = StreamId(stream);
        let elsewhere = found.iter().position(|streams| streams.contains(&id));
        if let Some(other) = elsewhere.filter(|_| !found[usize::from(stream)].contains(&id)) {
            return Err(Error::Usage(format!(
                "{} is given for log stream {stream}, but the files of that stream are in {}. \
                 Give the log directories in the order in which the database was made",
                disk.name(),
                logs[other].name()
            )));
        }
    }
    Ok(())
}

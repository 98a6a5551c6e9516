//! Creates a database.

use perdura_base::{Error, Result, Uuid};
use perdura_device::Clock;
use perdura_heap::Geometry;
use perdura_wal::anchor::AnchorFile;
use perdura_wal::scheme::Scheme;
use perdura_wal::segment::LOG_DIR;
use perdura_wal::{History, SegmentSizes};

use crate::anchor::Anchor;
use crate::disks::Disks;
use crate::image::create_images;
use crate::images::IMAGE_DISKS_MAX;

/// The properties of a new database that never change.
#[derive(Debug, Clone)]
pub struct NewDatabase {
    /// Its identity.
    pub uuid: Uuid,
    /// Partitions, chunk size, hash seed.
    pub geometry: Geometry,
    /// Number of log streams.
    pub streams: u8,
    /// Sizes of the log's segments.
    pub segments: SegmentSizes,
    /// What its log's records are.
    pub scheme: Scheme,
}

/// Makes the files of a new database. The anchor comes last: without it there is no database.
///
/// # Errors
/// The disks'.
pub fn create(disks: &Disks, clock: &dyn Clock, new: &NewDatabase) -> Result<()> {
    let Disks { data, images, logs } = disks;
    assert_eq!(
        logs.len(),
        usize::from(new.streams),
        "a disk for each stream"
    );
    let image_disks = u8::try_from(images.len()).ok();
    let image_disks = image_disks
        .filter(|disks| (1..=IMAGE_DISKS_MAX).contains(disks))
        .ok_or_else(|| Error::Usage(format!("{} disks for images", images.len())))?;
    create_images(data.as_ref(), images, &new.uuid)?;
    for log in logs {
        log.make_dir(LOG_DIR)?;
    }
    let meaning = (new.scheme, new.streams);
    let history = History::begin(new.uuid, clock.wall_us(), meaning, new.segments);
    let anchor = Anchor::new(history, new.geometry, image_disks);
    AnchorFile::create(data.as_ref(), &anchor.to_record()).map(drop)
}

//! The creation of a database.

use perdura_base::{CkptEpoch, Error, Gsn, LifeId, Result, TableId, Uuid};
use perdura_device::{Access, Clock, Disk};
use perdura_heap::Geometry;
use perdura_tree::bulk::{NewRow, fill};
use perdura_tree::file::{DOUBLE, PAGES, PageFile};
use perdura_tree::tree::Tree;
use perdura_wal::anchor::AnchorFile;
use perdura_wal::scheme::Scheme;
use perdura_wal::segment::LOG_DIR;
use perdura_wal::{History, SegmentSizes};

use crate::anchor::Anchor;
use crate::creating;
use crate::disks::Disks;
use crate::image::create_images;
use crate::images::IMAGE_DISKS_MAX;
use crate::sections::tree::{TREE_DIR, TreeAnchor};
use crate::tree::shape;

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
    /// The scheme of the records in its log.
    pub scheme: Scheme,
}

/// The tree of a new database.
pub struct NewTree<'a> {
    /// The scheme of its records.
    pub scheme: Scheme,
    /// Bytes of a page.
    pub page_bytes: usize,
    /// Its tables.
    pub tables: &'a [TableId],
    /// The rows of the first table, in ascending order of their keys.
    pub rows: &'a mut dyn Iterator<Item = NewRow>,
    /// The percentage of each leaf that is filled with rows.
    pub percent: usize,
}

fn make_tree(data: &dyn Disk, anchor: &mut Anchor, tree: NewTree<'_>) -> Result<()> {
    let named = TreeAnchor {
        scheme: tree.scheme,
        page_bytes: tree.page_bytes,
        rssp: Gsn(0),
        k: CkptEpoch(0),
    };
    anchor.tree = Some(named);
    assert!(
        tree.scheme.has_tree() && !anchor.scheme.has_tree(),
        "a scheme of trees beside one of pages in memory"
    );
    data.make_dir(TREE_DIR)?;
    // A `create` that was killed may have left these files. They belong to no database: an existing database has log
    // segments, and `create` is not called for it.
    for name in [PAGES, DOUBLE] {
        match data.remove(&format!("{TREE_DIR}/{name}")) {
            Err(error) if !error.is_not_found() => return Err(error),
            _ => {}
        }
    }
    let shape = shape(anchor, &named);
    Tree::make(data, TREE_DIR, shape)?;
    let file = PageFile::open(data, TREE_DIR, shape, Access::Buffered)?;
    fill(&file, shape, tree.tables, tree.rows, tree.percent)
}

/// Makes a new database, as [`create`]. If an earlier creation on these disks was interrupted, the database gets the
/// identity that the earlier one had begun to write to the image disks.
///
/// # Errors
/// Errors of [`create`].
pub fn create_or_resume(
    disks: &Disks,
    clock: &dyn Clock,
    new: &NewDatabase,
    tree: Option<NewTree<'_>>,
) -> Result<()> {
    let new = NewDatabase {
        uuid: creating::begin(disks.data.as_ref(), &disks.images, new.uuid)?,
        ..new.clone()
    };
    create(disks, clock, &new, tree)?;
    creating::end(disks.data.as_ref());
    Ok(())
}

/// Makes the files of a new database. The anchor is written last, because the database exists as soon as there is an
/// anchor. The rows of a new tree are written before it, so the new database has these rows from the start.
///
/// # Errors
/// Errors of the disks; errors of [`fill`]; [`Error::Usage`] if pages of a tree cannot have the given size.
pub fn create(
    disks: &Disks,
    clock: &dyn Clock,
    new: &NewDatabase,
    tree: Option<NewTree<'_>>,
) -> Result<()> {
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
    let now_us = clock.wall_us();
    let history = History::begin(new.uuid, now_us, new.scheme, new.streams, new.segments);
    let mut anchor = Anchor::new(history, new.geometry, image_disks);
    anchor.lineage.id = LifeId::of_creation(&new.uuid);
    if let Some(tree) = tree {
        make_tree(data.as_ref(), &mut anchor, tree)?;
    }
    AnchorFile::create(data.as_ref(), &anchor.to_record()).map(drop)
}

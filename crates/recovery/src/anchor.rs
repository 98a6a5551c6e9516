//! The anchor of a database: the log's history, and the decoded sections.
//!
//! `wal` keeps the anchor's record on disk and interprets none of its sections. This module decodes the sections that
//! this build knows. The geometry is a section of the heap. The images and the families of ordered frames are sections
//! of recovery. An unknown section stays in the record unchanged. If an unknown section is required, the anchor cannot
//! be opened.

use std::ops::{Deref, DerefMut};

use perdura_base::{CkptEpoch, Error, ImageSlot, Incarnation, Result};
use perdura_device::Disk;
use perdura_heap::Geometry;
use perdura_wal::Parent;
use perdura_wal::anchor::{ANCHOR_PATH, AnchorFile, Record, Sections, Tag};
use perdura_wal::{ChainLink, Cut, Elsewhere, EpochEnds, History, Lineage, Scheme, StreamScan};

use crate::branch::TimelineName;
use crate::families::{Families, Family};
use crate::images::{ImageStatus, Images};
use crate::losses::{self, AcceptedLoss, Losses};
use crate::restored::{self, RestoredRows};
use crate::sections::mirrored::{self, Mirrored};
use crate::sections::tree::{self as tree_section, RowPages, TreeAnchor};
use crate::{archived, begins, branch, lineage, parent};

/// The tags of the sections that this build knows.
const KNOWN: [Tag; 12] = [
    Tag(Geometry::SECTION),
    Tag(Images::SECTION),
    Tag(Families::SECTION),
    Tag(begins::SECTION),
    Tag(archived::SECTION),
    Tag(parent::SECTION),
    Tag(losses::SECTION),
    Tag(mirrored::SECTION),
    Tag(tree_section::SECTION),
    Tag(lineage::SECTION),
    Tag(branch::SECTION),
    Tag(restored::SECTION),
];

/// The contents of the anchor. An `Anchor` dereferences to the log's history.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Anchor {
    /// The log's history, which the log itself maintains.
    pub history: History,
    /// Partitions, chunk size, hash seed.
    pub geometry: Geometry,
    /// The two images.
    pub images: Images,
    /// The families of ordered frames that the log may hold.
    pub families: Families,
    /// The last epoch recorded as archived, with its end in each stream. `None`: the database is not archived.
    pub archived: Option<EpochEnds>,
    /// The parent of a restored database. `None`: the database was not restored.
    pub parent: Option<Parent>,
    /// The name of the database's timeline. `None`: the first one, which has no name.
    pub timeline: Option<TimelineName>,
    /// The losses that were accepted; see [`accept_loss`](Self::accept_loss).
    pub losses: Losses,
    /// The writer whose newest acknowledged transactions may be only in the memory of nodes, and not on disk. `None`:
    /// every acknowledged transaction is on disk.
    pub mirrored: Option<Mirrored>,
    /// The tree, if the database has one.
    pub tree: Option<TreeAnchor>,
    /// The image that a restore made with ordered frames after it. `None`: the database has no such image.
    pub restored: Option<RestoredRows>,
    /// All sections as they were read, including sections of other builds.
    sections: Sections,
}

impl Deref for Anchor {
    type Target = History;

    fn deref(&self) -> &History {
        &self.history
    }
}

impl DerefMut for Anchor {
    fn deref_mut(&mut self) -> &mut History {
        &mut self.history
    }
}

impl Anchor {
    /// Returns the anchor of a new database.
    #[must_use]
    pub fn new(history: History, geometry: Geometry, image_disks: u8) -> Anchor {
        Anchor {
            images: Images::empty(image_disks, history.streams),
            history,
            geometry,
            families: Families::default(),
            archived: None,
            parent: None,
            timeline: None,
            losses: Losses::default(),
            mirrored: None,
            tree: None,
            restored: None,
            sections: Sections::default(),
        }
    }

    /// Notes that the log may hold frames of a family. Returns whether the family was not declared before.
    pub fn declare(&mut self, family: Family) -> bool {
        let before = self.families;
        self.families = before.with(family);
        self.families != before
    }

    /// Returns the trees that the anchor names: one or none.
    #[must_use]
    pub fn trees(&self) -> &[TreeAnchor] {
        self.tree.as_slice()
    }

    /// Returns where the pages with the clients' rows are: in the tree if there is one, otherwise in the images.
    #[must_use]
    pub fn row_pages(&self) -> RowPages<'_> {
        self.tree.as_ref().map_or(RowPages::Images, RowPages::Tree)
    }

    /// Decodes the sections of a record.
    ///
    /// # Errors
    /// [`Error::Corrupt`] with the section's name and offset, if a section is missing, has a payload that its component
    /// never writes, or is required and not known to this build.
    pub fn of(record: Record) -> Result<Anchor> {
        refuse_required(&record)?;
        let geometry = owned(&record, Tag(Geometry::SECTION), Geometry::decode)?;
        let streams = record.history.streams;
        let images = owned(&record, Tag(Images::SECTION), |payload| {
            Images::decode(payload, streams)
        })?;
        let families = optional(&record, Families::SECTION, Families::decode)?.unwrap_or_default();
        let begins = optional(&record, begins::SECTION, |payload| {
            begins::decode(payload, images.clone())
        })?;
        let images = begins.unwrap_or(images);
        let archived = optional(&record, archived::SECTION, |payload| {
            archived::decode(payload, streams)
        })?;
        let parent = optional(&record, parent::SECTION, parent::decode)?;
        let lineage = optional(&record, lineage::SECTION, lineage::decode)?.unwrap_or_default();
        let timeline = optional(&record, branch::SECTION, branch::decode)?;
        let restored = optional(&record, restored::SECTION, restored::decode)?;
        let losses = optional(&record, losses::SECTION, |payload| {
            losses::decode(payload, &record.history)
        })?;
        let losses = losses.unwrap_or_default();
        let mirrored = optional(&record, mirrored::SECTION, mirrored::decode)?;
        let tree = match record.sections.get(Tag(tree_section::SECTION)) {
            None if !record.history.scheme.has_tree() => None,
            _ => Some(owned(&record, Tag(tree_section::SECTION), |payload| {
                tree_section::decode(payload, record.history.scheme)
            })?),
        };
        let mut history = record.history;
        history.lineage = lineage;
        if history.scheme.has_tree() {
            // An older build wrote the tree's scheme in this field, and no scheme for the pages in memory.
            history.scheme = Scheme::Differential;
        }
        Ok(Anchor {
            history,
            geometry,
            images,
            families,
            archived,
            parent,
            timeline,
            losses,
            mirrored,
            tree,
            restored,
            sections: record.sections,
        })
    }

    /// Returns the record to write. It has the sections that this build does not know, as they were read.
    #[must_use]
    pub fn to_record(&self) -> Record {
        let mut sections = self.sections.clone();
        sections.set(Tag(Geometry::SECTION), true, self.geometry.encode());
        let images = self.images.encode();
        debug_assert!(
            Images::decode(&images, self.history.streams).is_some(),
            "the images read back as those of a log of so many streams"
        );
        sections.set(Tag(Images::SECTION), true, images);
        // Without a declared family the section is left out, so that older builds can open the database.
        if !self.families.is_empty() {
            sections.set(Tag(Families::SECTION), true, self.families.encode());
        }
        match begins::encode(&self.images) {
            Some(begins) => sections.set(Tag(begins::SECTION), false, begins),
            None => sections.remove(Tag(begins::SECTION)),
        }
        match &self.archived {
            Some(archived) => {
                let payload = archived::encode(archived);
                sections.set(Tag(archived::SECTION), true, payload);
            }
            None => sections.remove(Tag(archived::SECTION)),
        }
        if let Some(parent) = &self.parent {
            sections.set(Tag(parent::SECTION), false, parent::encode(parent));
        }
        let images = &self.images;
        let has_image = |rows: &&RestoredRows| images.iter().any(|image| image.k == rows.image);
        match self.restored.as_ref().filter(has_image) {
            Some(rows) => sections.set(Tag(restored::SECTION), true, restored::encode(rows)),
            None => sections.remove(Tag(restored::SECTION)),
        }
        assert!(
            self.losses.iter().all(|loss| loss.agrees_with(self)),
            "{:?} in a history with {:?}",
            self.losses,
            self.chain
        );
        if !self.losses.is_empty() {
            sections.set(Tag(losses::SECTION), false, losses::encode(&self.losses));
        }
        if self.lineage != Lineage::default() {
            sections.set(Tag(lineage::SECTION), true, lineage::encode(&self.lineage));
        }
        match &self.timeline {
            Some(name) => sections.set(Tag(branch::SECTION), true, branch::encode(name)),
            None => sections.remove(Tag(branch::SECTION)),
        }
        match self.mirrored {
            Some(mirrored) => {
                let payload = mirrored::encode(mirrored);
                sections.set(Tag(mirrored::SECTION), true, payload);
            }
            None => sections.remove(Tag(mirrored::SECTION)),
        }
        if let Some(tree) = &self.tree {
            let payload = tree_section::encode(tree);
            sections.set(Tag(tree_section::SECTION), true, payload);
        }
        Record {
            history: self.history.clone(),
            sections,
        }
    }

    /// Adds the accepted loss of acknowledged transactions to the anchor. `loss` names the life of the database that
    /// lost them. The caller closes this life in the same update of the anchor. Every later update keeps the loss.
    ///
    /// # Errors
    /// [`Error::LogFull`] if the anchor has no room for the loss.
    ///
    /// # Panics
    /// If `loss` loses nothing, or its life is not closed, or the life's chain link has another last epoch than `loss`.
    /// If `loss` has an earlier life or a lower last epoch than the newest accepted loss.
    pub fn accept_loss(&mut self, loss: AcceptedLoss) -> Result<()> {
        let life = loss.incarnation;
        assert!(
            loss.agrees_with(self),
            "{}, life {} is the newest, and the chain has {:?}",
            loss.text(),
            self.incarnation,
            self.link_of(life)
        );
        let before = self.losses.clone();
        self.losses.accept(loss)?;
        if self.chain.len() > self.chain_max() {
            self.losses = before;
            return Err(losses::no_room());
        }
        Ok(())
    }

    /// Returns the chain's link for a closed life of the database. `None`: the chain no longer has this link.
    #[must_use]
    pub fn link_of(&self, life: Incarnation) -> Option<&ChainLink> {
        self.chain.iter().find(|link| link.incarnation == life)
    }

    /// Returns all sections as the next update writes them.
    #[must_use]
    pub fn sections(&self) -> Sections {
        self.to_record().sections
    }

    /// Returns the maximum number of closed incarnations in the anchor, given the present size of its sections.
    #[must_use]
    pub fn chain_max(&self) -> usize {
        self.to_record().chain_max()
    }

    /// Returns the checkpoint epoch of the key-addressed rows in image `k`. They reflect a tag exactly if it is lower.
    #[must_use]
    pub fn rows_as_of(&self, k: CkptEpoch) -> CkptEpoch {
        let restored = self.restored.filter(|restored| restored.image == k);
        let rows = restored.map_or(k, |restored| restored.backup);
        debug_assert!(rows <= k, "the rows are of the image, or older");
        rows
    }

    /// Returns one image's status.
    #[must_use]
    pub fn image(&self, slot: ImageSlot) -> &ImageStatus {
        self.images.get(slot)
    }

    /// Returns one image's status, for changing it.
    pub fn image_mut(&mut self, slot: ImageSlot) -> &mut ImageStatus {
        self.images.get_mut(slot)
    }

    /// Returns the newest complete image, if any.
    #[must_use]
    pub fn newest_image(&self) -> Option<ImageSlot> {
        self.images.newest()
    }

    /// Computes the cut from the scans of all streams. A restart keeps the log up to the cut. With `accept_loss`, the
    /// kept log may lack transactions that only a mirror held. The text of an error names the newest image as an intact
    /// copy of the data.
    ///
    /// # Errors
    /// As [`perdura_wal::decide_cut`].
    pub fn decide_cut(&self, scans: &[StreamScan], accept_loss: bool) -> Result<Cut> {
        let newest = self.newest_image().map(|slot| self.image(slot));
        let elsewhere = newest.map(|image| Elsewhere {
            epoch: image.cover.end_epoch,
            wall_us: image.wall_us,
        });
        let cut = perdura_wal::decide_cut(&self.history, scans, elsewhere, accept_loss)?;
        assert_eq!(cut.cut.len(), scans.len(), "a cut for each stream");
        Ok(cut)
    }
}

/// Decodes an optional section. `None`: the record has no section with this name.
fn optional<T>(
    record: &Record,
    tag: [u8; 4],
    decode: impl Fn(&[u8]) -> Option<T>,
) -> Result<Option<T>> {
    let section = record.sections.get(Tag(tag));
    section.map(|_| owned(record, Tag(tag), decode)).transpose()
}

/// Returns a section that must be there, decoded by its component.
fn owned<T>(record: &Record, tag: Tag, decode: impl Fn(&[u8]) -> Option<T>) -> Result<T> {
    let section = record.sections.get(tag);
    let damage = |found: &str| {
        Error::corrupt(
            ANCHOR_PATH,
            record.offset_of(tag),
            format!("section {tag} as docs/formats/anchor.md describes it"),
            found,
            "The anchor's checksums match, so another build wrote it. Use that build, or restore \
             a backup.",
        )
    };
    let section = section.ok_or_else(|| damage("no section of this name"))?;
    decode(&section.bytes).ok_or_else(|| damage("fields out of their ranges"))
}

fn refuse_required(record: &Record) -> Result<()> {
    let mut strange = record.sections.iter();
    let strange = strange.find(|section| section.required && !KNOWN.contains(&section.tag));
    let Some(section) = strange else {
        return Ok(());
    };
    let known = KNOWN.map(|tag| tag.to_string()).join(", ");
    Err(Error::corrupt(
        ANCHOR_PATH,
        record.offset_of(section.tag),
        format!("no required sections but those that this build knows ({known})"),
        format!("the required section {}", section.tag),
        "A newer build wrote this section, and the database cannot be read without it. Nothing \
         is lost, and nothing was changed. Use the newer build.",
    ))
}

/// Opens the anchor's file and reads it. `Ok(None)` if there is no database here. The strings name the damaged or stale
/// copies of the anchor. The next update writes these copies again.
///
/// # Errors
/// As [`AnchorFile::open`] and [`Anchor::of`].
pub fn open_anchor(disk: &dyn Disk) -> Result<Option<(AnchorFile, Anchor, Vec<String>)>> {
    let Some((file, record, notes)) = AnchorFile::open(disk)? else {
        return Ok(None);
    };
    Ok(Some((file, Anchor::of(record)?, notes)))
}

/// Reads the anchor, and changes nothing.
///
/// # Errors
/// As [`open_anchor`].
pub fn read_anchor(disk: &dyn Disk) -> Result<Option<Anchor>> {
    AnchorFile::read(disk)?.map(Anchor::of).transpose()
}

#[cfg(test)]
mod made;
#[cfg(test)]
mod tests;

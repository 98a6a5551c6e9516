//! The anchor of a database: the log's history, and the decoded sections.
//!
//! `wal` keeps the anchor's record on disk and interprets none of its sections. This module decodes the sections that
//! this build knows. The geometry is a section of the heap. The images and the families of ordered frames are sections
//! of recovery. An unknown section stays in the record unchanged. If an unknown section is required, the anchor cannot
//! be opened.

use std::ops::{Deref, DerefMut};

use perdura_base::{Error, ImageSlot, Incarnation, Result};
use perdura_device::Disk;
use perdura_heap::Geometry;
use perdura_wal::Parent;
use perdura_wal::anchor::{ANCHOR_PATH, AnchorFile, Record, Sections, Tag};
use perdura_wal::{ChainLink, Cut, Elsewhere, EpochEnds, History, Scheme, StreamScan};

use crate::families::{Families, Family};
use crate::images::{ImageStatus, Images};
use crate::losses::{self, AcceptedLoss, Losses};
use crate::sections::mirrored::{self, Mirrored};
use crate::sections::tree::{self as tree_section, RowPages, TreeAnchor};
use crate::{archived, begins, parent};

/// The tags of the sections that this build knows.
const KNOWN: [Tag; 9] = [
    Tag(Geometry::SECTION),
    Tag(Images::SECTION),
    Tag(Families::SECTION),
    Tag(begins::SECTION),
    Tag(archived::SECTION),
    Tag(parent::SECTION),
    Tag(losses::SECTION),
    Tag(mirrored::SECTION),
    Tag(tree_section::SECTION),
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
    /// The losses that were accepted; see [`accept_loss`](Self::accept_loss).
    pub losses: Losses,
    /// The writer whose newest acknowledged transactions may be only in the memory of nodes, and not on disk. `None`:
    /// every acknowledged transaction is on disk.
    pub mirrored: Option<Mirrored>,
    /// The tree, if the database has one.
    pub tree: Option<TreeAnchor>,
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
            losses: Losses::default(),
            mirrored: None,
            tree: None,
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
            losses,
            mirrored,
            tree,
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
        assert!(
            self.losses.iter().all(|loss| loss.agrees_with(self)),
            "{:?} in a history with {:?}",
            self.losses,
            self.chain
        );
        if !self.losses.is_empty() {
            sections.set(Tag(losses::SECTION), false, losses::encode(&self.losses));
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
mod tests {
    use perdura_base::{CkptEpoch, Epoch, Gsn, Incarnation, Pos, Uuid};
    use perdura_device::{Access, MemDisk};
    use perdura_wal::anchor::COPY_BYTES;

    use super::*;
    use crate::anchor_cell::AnchorCell;
    use crate::cover::Cover;
    use crate::families::Family;
    use crate::images::Completion;

    /// Returns the bytes of the example record in docs/formats/anchor.md.
    fn bytes_on_page() -> Vec<u8> {
        let page = include_str!("../../../docs/formats/anchor.md");
        let hex = page.split("```text hex").nth(1).unwrap();
        let hex = hex.split("```").next().unwrap();
        let digits: Vec<u32> = hex.chars().filter_map(|c| c.to_digit(16)).collect();
        let byte = |pair: &[u32]| u8::try_from(pair[0] * 16 + pair[1]).unwrap();
        digits.chunks(2).map(byte).collect()
    }

    fn example() -> Anchor {
        let disk = MemDisk::new();
        let file = disk.create(ANCHOR_PATH, Access::Buffered).unwrap();
        file.write_at(0, &bytes_on_page()).unwrap();
        read_anchor(&disk).unwrap().unwrap()
    }

    #[test]
    fn the_example_on_the_format_page_is_what_the_components_write() {
        let geometry = Geometry {
            partitions: 256,
            chunk_pages: 128,
            hash_seed: 42,
        };
        let written = Anchor::new(example().history, geometry, 1);
        assert_eq!(written.images, example().images);
        let disk = MemDisk::new();
        AnchorFile::create(&disk, &written.to_record()).unwrap();
        let mut bytes = vec![0; bytes_on_page().len()];
        let raw = disk.open(ANCHOR_PATH, Access::Buffered).unwrap();
        raw.read_at(0, &mut bytes).unwrap();
        assert_eq!(bytes, bytes_on_page());
    }

    #[test]
    fn a_section_that_this_build_does_not_know_survives_updates_restarts_and_repair() {
        let strange = Tag(*b"MORE");
        let disk = MemDisk::new();
        let mut record = example().to_record();
        // The unknown section is put between known ones, to show that it keeps its place.
        let known = std::mem::take(&mut record.sections);
        let mut known = known.iter();
        let first = known.next().unwrap();
        record.sections.set(first.tag, true, first.bytes.clone());
        record.sections.set(strange, false, vec![1, 2, 3, 250]);
        let second = known.next().unwrap();
        record.sections.set(second.tag, true, second.bytes.clone());
        AnchorFile::create(&disk, &record).unwrap();
        let expect = |what: &str| {
            let (_, found, _) = AnchorFile::open(&disk).unwrap().unwrap();
            let tags: Vec<Tag> = found.sections.iter().map(|section| section.tag).collect();
            assert_eq!(tags, [first.tag, strange, second.tag], "{what}");
            assert_eq!(
                found.sections.get(strange),
                record.sections.get(strange),
                "{what}"
            );
        };
        for life in 2..5 {
            let (file, anchor, _) = open_anchor(&disk).unwrap().unwrap();
            let cell = AnchorCell::new(file, anchor);
            let update = |change: &dyn Fn(&mut Anchor)| {
                cell.update(|anchor| change(anchor))
                    .map_err(Error::from)
                    .unwrap();
            };
            update(&|anchor| anchor.incarnation = Incarnation(life));
            expect("a restart");
            update(&|anchor| {
                anchor
                    .image_mut(ImageSlot::A)
                    .mark_building(perdura_base::CkptEpoch(1))
            });
            expect("an update of an image");
            // Damages one copy of the anchor. The next life writes it again from the other copy.
            let raw = disk.open(ANCHOR_PATH, Access::Buffered).unwrap();
            let at = perdura_base::num::to_u64(COPY_BYTES) * u64::from(life % 2) + 20;
            raw.write_at(at, &[0xff]).unwrap();
            expect("damage of one copy");
        }
    }

    #[test]
    fn a_loss_that_the_chain_leaves_no_room_for_is_refused_and_changes_nothing() {
        let mut anchor = example();
        let max = u32::try_from(anchor.chain_max()).unwrap();
        anchor.incarnation = Incarnation(max + 2);
        anchor.vouched.epoch = Epoch(7);
        let link = |life| ChainLink {
            incarnation: Incarnation(life),
            durable: Epoch(7),
            start: vec![Pos(0)],
            cut: vec![Pos(0)],
        };
        anchor.chain = (1..=max).map(link).collect();
        let loss = AcceptedLoss {
            incarnation: Incarnation(max + 1),
            durable: Epoch(7),
            acked: Epoch(9),
            wall_us: 1,
        };
        let full = anchor.clone();
        assert!(matches!(anchor.accept_loss(loss), Err(Error::LogFull(_))));
        assert_eq!(anchor, full);
        let room = anchor.chain.len() - 2;
        anchor.chain.truncate(room);
        anchor.accept_loss(loss).unwrap();
        assert!(anchor.chain.len() <= anchor.chain_max());
    }

    #[test]
    fn an_accepted_loss_is_kept_by_every_later_update() {
        let disk = MemDisk::new();
        AnchorFile::create(&disk, &example().to_record()).unwrap();
        let loss = AcceptedLoss {
            incarnation: Incarnation(1),
            durable: Epoch(7),
            acked: Epoch(9),
            wall_us: 1,
        };
        let (file, anchor, _) = open_anchor(&disk).unwrap().unwrap();
        let cell = AnchorCell::new(file, anchor);
        let close = |anchor: &mut Anchor| {
            anchor.incarnation = Incarnation(2);
            anchor.accept_loss(loss).unwrap();
        };
        cell.update(close).map_err(Error::from).unwrap();
        for life in 3..6 {
            let (file, anchor, _) = open_anchor(&disk).unwrap().unwrap();
            assert_eq!(anchor.losses.of(Incarnation(1)), Some(&loss), "{life}");
            assert_eq!(anchor.chain, [], "its link is gone");
            let cell = AnchorCell::new(file, anchor);
            let next = |anchor: &mut Anchor| anchor.incarnation = Incarnation(life);
            cell.update(next).map_err(Error::from).unwrap();
        }
    }

    #[test]
    fn a_required_section_that_this_build_does_not_know_is_refused_by_name_and_place() {
        let mut record = example().to_record();
        record.sections.set(Tag(*b"MORE"), true, vec![1]);
        let disk = MemDisk::new();
        AnchorFile::create(&disk, &record).unwrap();
        let error = open_anchor(&disk).map(drop).unwrap_err();
        let at = record.offset_of(Tag(*b"MORE"));
        assert!(
            matches!(&error, Error::Corrupt(why) if why.offset == at),
            "{error}"
        );
        assert!(
            error.to_string().contains("the required section MORE"),
            "{error}"
        );
        assert_eq!(error.family(), perdura_base::error::Family::Corruption);
    }

    #[test]
    fn a_section_that_is_missing_or_out_of_range_is_named_with_its_offset() {
        for tag in KNOWN {
            let mut whole = example();
            whole.families = Families::default().with(Family::Commands);
            whole.archived = Some(EpochEnds {
                epoch: Epoch(1),
                ends: vec![Pos(4096)],
            });
            whole.parent = Some(Parent {
                uuid: Uuid([1; 16]),
                epoch: Epoch(1),
            });
            whole.incarnation = Incarnation(2);
            whole
                .accept_loss(AcceptedLoss {
                    incarnation: Incarnation(1),
                    durable: Epoch(1),
                    acked: Epoch(3),
                    wall_us: 1,
                })
                .unwrap();
            whole.tree = Some(TreeAnchor {
                scheme: Scheme::Logical,
                page_bytes: 8192,
                rssp: Gsn(1),
                k: CkptEpoch(1),
            });
            whole.mirrored = Some(Mirrored { generation: 1 });
            let image = whole.image_mut(ImageSlot::A);
            image.mark_building(CkptEpoch(1));
            let completion = Completion {
                cover: Cover::of_window(&[Pos(1)], vec![Pos(2)], Epoch(3)),
                begin_epoch: Some(Epoch(2)),
                ..Completion::default()
            };
            image.mark_complete(CkptEpoch(1), completion);
            let whole = whole.to_record();
            let mut odd = whole.clone();
            let payload = whole.sections.get(tag).unwrap().bytes.clone();
            odd.sections
                .set(tag, true, [payload.as_slice(), &[0]].concat());
            let mut without = whole.clone();
            without.sections = Sections::default();
            for section in whole.sections.iter().filter(|section| section.tag != tag) {
                without
                    .sections
                    .set(section.tag, true, section.bytes.clone());
            }
            let may_miss = tag != Tag(Geometry::SECTION) && tag != Tag(Images::SECTION);
            assert_eq!(Anchor::of(without.clone()).is_ok(), may_miss);
            for record in [odd, without].into_iter().take(2 - usize::from(may_miss)) {
                let at = record.offset_of(tag);
                let error = Anchor::of(record).unwrap_err();
                assert!(
                    matches!(&error, Error::Corrupt(why) if why.offset == at),
                    "{error}"
                );
                assert!(
                    error.to_string().contains(&format!("section {tag}")),
                    "{error}"
                );
            }
        }
    }
}

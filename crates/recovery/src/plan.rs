//! The plan of a load: the image to load, and the pages to load from the older image instead.
//!
//! The restart loads the newest image that can be read, and accepts a page only if it matches the directory. If a page
//! of that image is damaged, the restart takes the page from the older image. The module `rule` then tests this page's
//! records against the older image's checkpoint epoch. The log is read from an earlier position. So a database keeps
//! two images, and all log that a restart from the older image needs.
//!
//! A damaged page is found only when it is loaded. Some records may have been played by that time, but nothing durable
//! has changed. The restart makes a new plan, which takes the damaged pages from the older image, and starts over. The
//! module `choice` has a table that chooses an image.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use parking_lot::Mutex;
use perdura_base::flaw::{Flaw, armed};
use perdura_base::limits::PAGE_BYTES;
use perdura_base::num::to_u64;
use perdura_base::{CkptEpoch, Epoch, Error, ImageSlot, PageId, PartitionId, Pos, Result};
use perdura_device::{AlignedBuf, Disk};
use perdura_heap::Geometry;
use perdura_wal::{COPIED, Guard};

use self::choice::{Choice, Fact, Facts, Rank, choose};
use crate::anchor::Anchor;
use crate::base::Base;
use crate::image::{
    DirEntry, Directory, ImageFile, LoadedDirectory, Places, disk_of, folder, read_directory,
};
use crate::rule::ImageKind;

mod choice;

/// The maximum number of pages of one read.
const RUN_PAGES: usize = 64;

/// Pages of one partition that lie side by side in one image.
pub(crate) struct Run {
    pub slot: ImageSlot,
    pub partition: PartitionId,
    pub first: PageId,
    pub entries: Vec<(u32, DirEntry)>,
}

/// A plan: the pages to load into memory, and the first position to read in each stream.
pub struct ImagePlan {
    /// The newest usable image. `None`: there is no image yet.
    pub slot: Option<ImageSlot>,
    /// The checkpoint epoch of the image in `slot`.
    pub k: CkptEpoch,
    /// The directory of the image in `slot`, without the entries of damaged pages.
    pub directory: Directory,
    /// For each partition, the highest sequence number that the image reflects; 0 if the image is not consistent.
    pseq: Vec<u64>,
    /// The sidecar of each partition, a copy of the partition's hash index.
    pub sidecars: Vec<Vec<u8>>,
    /// The position in each stream where reading must begin.
    pub begin: Vec<Pos>,
    /// Pages to load from the older image.
    pub rebuilt: BTreeSet<PageId>,
    /// Pages without an intact copy in the images. These pages are left empty, and their records are skipped.
    pub lost: BTreeSet<PageId>,
    /// Slots whose image is damaged, although the last life's anchor names it as complete. The next life's anchor must
    /// not name it as complete until a checkpoint has rewritten it. The next checkpoint rewrites the damaged slot,
    /// because the other slot has the only good image.
    pub damaged: Vec<ImageSlot>,
    /// Notes for an operator.
    pub notes: Vec<String>,
    /// Count of pages to load.
    pub pages: u64,
    /// Bytes of pages and directories to load.
    pub bytes: u64,
    pub(crate) newest: Base,
    pub(crate) older: Base,
    pub(crate) end_epoch: Epoch,
    pub(crate) files: BTreeMap<ImageSlot, Vec<ImageFile>>,
    pub(crate) places: Places,
    pub(crate) runs: Vec<Vec<Run>>,
    /// Pages that the load found to be damaged.
    pub(crate) bad: Mutex<BTreeSet<BadPage>>,
    /// Buffers that are free again, because their runs were played.
    pub(crate) buffers: Mutex<Vec<AlignedBuf>>,
}

struct Candidate {
    slot: ImageSlot,
    files: Vec<ImageFile>,
    listed: LoadedDirectory,
}

/// A page of one image that does not match the image's directory. The other image may have the page intact.
pub type BadPage = (ImageSlot, PageId);

/// Decides which pages to load into a heap of this shape. `bad` has the pages that earlier attempts found damaged.
/// `lost` has the pages that stay empty.
///
/// # Errors
/// [`Error::Corrupt`] if no complete image can be read, or the older image cannot replace a page in `bad`.
pub fn plan_image(
    geometry: &Geometry,
    data: &dyn Disk,
    images: &[Arc<dyn Disk>],
    anchor: &Anchor,
    bad: &BTreeSet<BadPage>,
    lost: &BTreeSet<PageId>,
) -> Result<ImagePlan> {
    let mut candidates = Candidates {
        geometry,
        data,
        images,
        anchor,
        slots: by_age(anchor),
        opened: [None, None],
    };
    let bad: [BTreeSet<PageId>; 2] = candidates.slots.map(|slot| {
        let of_slot = bad.iter().filter(|(in_slot, _)| Some(*in_slot) == slot);
        let pages = of_slot.map(|(_, page)| *page);
        pages.filter(|page| !lost.contains(page)).collect()
    });
    loop {
        let facts = Facts {
            images: [Rank::Newer, Rank::Older].map(|rank| candidates.fact(rank)),
            has_bad: [Rank::Newer, Rank::Older].map(|rank| !bad[rank.index()].is_empty()),
            whole: candidates.is_whole(),
        };
        match choose(facts) {
            Choice::Open(rank) => candidates.open(rank),
            Choice::Nothing => return Ok(ImagePlan::empty(anchor, images.len())),
            Choice::Load(rank) => return Ok(candidates.plan(rank, lost)),
            Choice::Rebuild => {
                let mut plan = candidates.plan(Rank::Newer, lost);
                let stand_in = candidates.take(Rank::Older);
                plan.replace(geometry, anchor, stand_in, &bad[Rank::Newer.index()]);
                return Ok(plan);
            }
            Choice::Fail(rank) => return Err(candidates.error(rank)),
            Choice::NoOther(rank) => {
                let why = candidates.why_no_other(rank);
                return Err(candidates.plan(rank, lost).give_up(&bad[rank.index()], why));
            }
            Choice::OtherUnusable => {
                let plan = candidates.plan(Rank::Newer, lost);
                let error = candidates.error(Rank::Older);
                let why = format!("the other image cannot be read either: {error}");
                return Err(plan.give_up(&bad[Rank::Newer.index()], &why));
            }
        }
    }
}

/// Returns the slots of the complete images, indexed by [`Rank::index`]. If the scheme has no page records, leaves out
/// the older image, because no records can bring its pages to the state of the newer image.
fn by_age(anchor: &Anchor) -> [Option<ImageSlot>; 2] {
    let mut slots = ImageSlot::ALL.map(|slot| anchor.image(slot).is_complete().then_some(slot));
    slots.sort_by_key(|slot| std::cmp::Reverse(slot.map(|slot| anchor.image(slot).k)));
    if anchor.scheme.guard() == Guard::NoRecords {
        slots[Rank::Older.index()] = None;
    }
    slots
}

/// The slots of the complete images, and the result of opening each image that was opened. [`Rank::index`] indexes the
/// arrays.
struct Candidates<'a> {
    geometry: &'a Geometry,
    data: &'a dyn Disk,
    images: &'a [Arc<dyn Disk>],
    anchor: &'a Anchor,
    slots: [Option<ImageSlot>; 2],
    opened: [Option<Result<Candidate>>; 2],
}

impl Candidates<'_> {
    fn fact(&self, rank: Rank) -> Fact {
        match (self.slots[rank.index()], &self.opened[rank.index()]) {
            (None, _) => Fact::Absent,
            (Some(_), None) => Fact::Unopened,
            (Some(_), Some(Ok(_))) => Fact::Usable,
            (Some(_), Some(Err(error))) if error.is_unreadable() => Fact::Unreadable,
            (Some(_), Some(Err(error))) if is_damage(error) => Fact::Damaged,
            (Some(_), Some(Err(_))) => Fact::Failed,
        }
    }

    /// Returns whether the newer image is consistent, that is, all its pages are as of one instant. Pages of the older
    /// image cannot replace pages of a consistent image.
    fn is_whole(&self) -> bool {
        let newer = self.slots[Rank::Newer.index()];
        newer.is_some_and(|slot| self.anchor.image(slot).consistent)
    }

    fn why_no_other(&self, rank: Rank) -> &'static str {
        if self.anchor.scheme.guard() == Guard::NoRecords {
            return "the log of this database has no records of pages";
        }
        match (rank, self.fact(Rank::Older)) {
            (Rank::Newer, Fact::Usable) => "pages of the other image are damaged too",
            _ => "the other image is not complete",
        }
    }

    fn open(&mut self, rank: Rank) {
        let slot = self.slots[rank.index()].expect("an absent image is not chosen");
        let opened = open_candidate(self.geometry, self.data, self.images, self.anchor, slot);
        self.opened[rank.index()] = Some(opened);
    }

    fn take(&mut self, rank: Rank) -> Candidate {
        match self.opened[rank.index()].take() {
            Some(Ok(candidate)) => candidate,
            Some(Err(_)) | None => unreachable!("an image that is loaded was opened"),
        }
    }

    /// Removes and returns the error with which the image of this rank failed to open.
    fn error(&mut self, rank: Rank) -> Error {
        match self.opened[rank.index()].take() {
            Some(Err(error)) => error,
            Some(Ok(_)) | None => unreachable!("an image that the choice fails with was refused"),
        }
    }

    /// Returns the plan that loads the image of this rank. If it is the older image, a note in the plan says why the
    /// newer image is not loaded.
    fn plan(&mut self, rank: Rank, lost: &BTreeSet<PageId>) -> ImagePlan {
        let mut plan = ImagePlan::empty(self.anchor, self.images.len());
        let newer = (self.slots[0], &self.opened[0]);
        if let (Rank::Older, (Some(slot), Some(Err(error)))) = (rank, newer) {
            plan.notes
                .push(format!("image {slot} cannot be used: {error}"));
            plan.damaged.push(slot);
        } else if let (Rank::Older, (Some(slot), Some(Ok(_)))) = (rank, newer) {
            plan.notes.push(format!(
                "pages of image {slot} are damaged. The other image is loaded instead, with more \
                 of the log"
            ));
            plan.damaged.push(slot);
        }
        let candidate = self.take(rank);
        plan.take(self.geometry, self.anchor, candidate);
        plan.do_without(self.geometry, lost);
        plan
    }
}

/// Returns whether an error proves damage of an image, so that the older image may be loaded. Damage is a missing file,
/// a wrong kind of file, wrong contents, or an unreadable sector. Other failures (no rights, no file handles) do not
/// prove that the image is damaged.
fn is_damage(error: &Error) -> bool {
    error.is_not_found()
        || error.is_of_another_kind()
        || error.is_unreadable()
        || matches!(error, Error::Corrupt(_) | Error::Foreign { .. })
}

fn open_candidate(
    geometry: &Geometry,
    data: &dyn Disk,
    images: &[Arc<dyn Disk>],
    anchor: &Anchor,
    slot: ImageSlot,
) -> Result<Candidate> {
    let files = images
        .iter()
        .map(|disk| ImageFile::open(disk.as_ref(), slot, &anchor.uuid))
        .collect::<Result<_>>()?;
    let listed = read_directory(data, anchor, slot, geometry)?;
    Ok(Candidate {
        slot,
        files,
        listed,
    })
}

impl ImagePlan {
    fn empty(anchor: &Anchor, disks: usize) -> ImagePlan {
        ImagePlan {
            slot: None,
            k: CkptEpoch(0),
            directory: Directory::empty(anchor.geometry.partitions),
            pseq: vec![0; usize::from(anchor.geometry.partitions)],
            sidecars: vec![Vec::new(); usize::from(anchor.geometry.partitions)],
            begin: vec![Pos(0); usize::from(anchor.streams)],
            rebuilt: BTreeSet::new(),
            lost: BTreeSet::new(),
            damaged: Vec::new(),
            notes: Vec::new(),
            pages: 0,
            bytes: 0,
            newest: Base::default(),
            older: Base::default(),
            end_epoch: Epoch(0),
            files: BTreeMap::new(),
            places: Places::of(anchor),
            runs: (0..disks).map(|_| Vec::new()).collect(),
            bad: Mutex::new(BTreeSet::new()),
            buffers: Mutex::new(Vec::new()),
        }
    }

    fn base(anchor: &Anchor, slot: ImageSlot) -> Base {
        let status = anchor.image(slot);
        let kind = match status.consistent && armed(Flaw::CutImageByEpoch) {
            true => ImageKind::Cut(status.cover.end_epoch),
            false => ImageKind::Sweep(status.k),
        };
        Base::new(kind, status.cover.begin.clone())
    }

    fn take(&mut self, geometry: &Geometry, anchor: &Anchor, candidate: Candidate) {
        let slot = candidate.slot;
        assert_eq!(
            candidate.files.len(),
            self.runs.len(),
            "a pages file on each disk"
        );
        assert!(self.slot.is_none(), "{:?} is loaded already", self.slot);
        self.slot = Some(slot);
        self.newest = Self::base(anchor, slot);
        self.k = anchor.image(slot).k;
        self.end_epoch = anchor.image(slot).cover.end_epoch;
        self.begin = self.newest.begin().to_vec();
        self.pages = candidate.listed.directory.pages();
        self.bytes = candidate.listed.bytes + self.pages * to_u64(PAGE_BYTES);
        self.directory = candidate.listed.directory;
        self.sidecars = candidate.listed.sidecars;
        if let Some(pseq) = candidate.listed.pseq {
            assert_eq!(self.pseq.len(), pseq.len(), "a number for each partition");
            self.pseq = pseq;
        }
        self.files.insert(slot, candidate.files);
        for partition in (0..anchor.geometry.partitions).map(PartitionId) {
            let disk = disk_of(partition, self.runs.len());
            let places = self.places;
            let runs = &mut self.runs[disk];
            let before = runs.len();
            for (local, entry) in self.directory.present(partition) {
                let page = page_of(geometry, partition, local);
                let open = runs[before..].last_mut().filter(|run| {
                    let behind = places.place(run.first).0 + to_u64(run.entries.len());
                    run.entries.len() < RUN_PAGES && places.place(page).0 == behind
                });
                match open {
                    Some(run) => run.entries.push((local, entry)),
                    None => runs.push(Run {
                        slot,
                        partition,
                        first: page,
                        entries: vec![(local, entry)],
                    }),
                }
            }
        }
        for runs in &mut self.runs {
            runs.sort_by_key(|run| self.places.place(run.first));
        }
        assert_eq!(
            self.pages_in_runs(),
            self.pages,
            "each page that the directory lists is in one run"
        );
    }

    /// Plans to leave the pages in `lost` empty, even if the image or the log has data of these pages.
    fn do_without(&mut self, geometry: &Geometry, lost: &BTreeSet<PageId>) {
        for page in lost {
            let partition = geometry.partition_of_page(*page);
            let local = geometry.local_index(*page);
            self.directory.set(partition, local, DirEntry::default());
        }
        self.lost.clone_from(lost);
        self.leave_out(geometry, lost);
        assert!(
            self.pages_in_runs() + to_u64(lost.len()) >= self.pages,
            "a page was left out that is not given up"
        );
    }

    fn pages_in_runs(&self) -> u64 {
        let runs = self.runs.iter().flatten();
        runs.map(|run| to_u64(run.entries.len())).sum()
    }

    /// Removes `pages` from the runs to load.
    fn leave_out(&mut self, geometry: &Geometry, pages: &BTreeSet<PageId>) {
        for run in self.runs.iter_mut().flatten() {
            let partition = run.partition;
            run.entries
                .retain(|(local, _)| !pages.contains(&page_of(geometry, partition, *local)));
            if let Some((local, _)) = run.entries.first() {
                run.first = page_of(geometry, partition, *local);
            }
        }
    }

    /// Changes the plan so that the pages in `bad` are loaded from the older image, `stand_in`.
    fn replace(
        &mut self,
        geometry: &Geometry,
        anchor: &Anchor,
        stand_in: Candidate,
        bad: &BTreeSet<PageId>,
    ) {
        let older = stand_in.slot;
        let slot = self.slot.unwrap_or(older);
        self.older = Self::base(anchor, older);
        assert_ne!(slot, older, "an image stands in for the other one");
        self.leave_out(geometry, bad);
        for page in bad {
            let partition = geometry.partition_of_page(*page);
            let local = geometry.local_index(*page);
            let disk = disk_of(partition, self.runs.len());
            self.directory.set(partition, local, DirEntry::default());
            // If the older image does not list a page, the page was all zeros in that image. A page in memory begins as
            // zeros too, so nothing is loaded.
            let entry = stand_in.listed.directory.get(partition, local);
            if entry.is_present() {
                self.runs[disk].push(Run {
                    slot: older,
                    partition,
                    first: *page,
                    entries: vec![(local, entry)],
                });
            }
            self.rebuilt.insert(*page);
            self.notes.push(format!(
                "page {page} of image {slot} is damaged. It was rebuilt from image {older} and \
                 the log"
            ));
        }
        self.files.insert(older, stand_in.files);
        self.damaged.push(slot);
        for (begin, older) in self.begin.iter_mut().zip(self.older.begin()) {
            *begin = (*begin).min(*older);
        }
        assert_eq!(
            self.begin.len(),
            self.older.begin().len(),
            "both images have a beginning in each stream"
        );
        assert!(
            self.pages_in_runs() <= self.pages,
            "a page is loaded from one image"
        );
        assert!(
            self.lost.is_disjoint(&self.rebuilt),
            "a page that is given up was rebuilt"
        );
    }

    /// Returns, for each partition, the highest sequence number that the image reflects. All numbers are 0 if there is
    /// no image, or if a fuzzy sweep made the image.
    #[must_use]
    pub fn pseq(&self) -> &[u64] {
        &self.pseq
    }

    /// Returns the damaged pages that the load found, and empties the plan's set of damaged pages.
    #[must_use]
    pub fn take_bad(&self) -> BTreeSet<BadPage> {
        std::mem::take(&mut *self.bad.lock())
    }

    /// Returns the error for damaged pages that the older image cannot replace.
    #[must_use]
    pub fn give_up(&self, bad: &BTreeSet<PageId>, why: &str) -> Error {
        let worst = bad.first().copied().unwrap_or_default();
        let found = format!("other bytes ({} page(s) are damaged)", bad.len());
        let consequence = format!("It cannot be rebuilt: {why}. Restore a backup. {COPIED}");
        self.damage(worst, found, consequence)
    }

    /// Returns the error for a partition whose pages turned out to be damaged after the database began to serve.
    #[must_use]
    pub(crate) fn found_late(&self, geometry: &Geometry, partition: PartitionId) -> Error {
        let bad = self.bad.lock();
        let mut bad = bad.iter().map(|(_, page)| *page);
        let worst = bad.find(|page| geometry.partition_of_page(*page) == partition);
        let consequence = format!(
            "Partition {partition} cannot be loaded now. Nothing is lost so far. Stop the database, and open it without \
             loading on demand. The restart then takes the page from the other image and the log, if they have it"
        );
        self.damage(worst.unwrap_or_default(), "other bytes".into(), consequence)
    }

    fn damage(&self, page: PageId, found: String, consequence: String) -> Error {
        Error::corrupt(
            format!("{}/pages", folder(self.slot.unwrap_or(ImageSlot::A))),
            self.places.place(page).offset(),
            format!(
                "page {page} as the directory of checkpoint {} lists it",
                self.k
            ),
            found,
            consequence,
        )
    }

    /// Returns the slot of the loaded image if every page was loaded from it. `None`: there is no image, or the image
    /// is damaged.
    #[must_use]
    pub fn trusted_slot(&self) -> Option<ImageSlot> {
        self.slot.filter(|slot| !self.damaged.contains(slot))
    }
}

pub(crate) fn page_of(geometry: &Geometry, partition: PartitionId, local: u32) -> PageId {
    geometry
        .page_id(partition, local)
        .expect("the directory was checked")
}

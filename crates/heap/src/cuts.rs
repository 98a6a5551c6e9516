//! Cuts: instants between transactions. A cut shows all pages as they were at its instant, while writers continue.
//!
//! Making a cut takes all latches in ascending order, so no transaction is half done. The cut notes every partition's
//! sequence number and its number of pages in use, and releases the latches. From then on, until the cut is closed,
//! commits keep the bytes that the cut needs (`kept`). Cuts have ascending numbers, and several may be open: at most
//! one cut of a checkpoint, and any number of snapshots of users.
//!
//! A *checkpoint's* cut also decides, by the tags of records, which changes of a page the image contains. [`Heap::cut`]
//! runs a closure while it holds all latches. The closure sets `G`, the heap's checkpoint epoch, to the cut's epoch k.
//! The first commit that changes a page with an older epoch sets the page's epoch to k, as the visit of a fuzzy sweep
//! would. The commit does so before it encodes the page's record. So a record is in image k exactly if its tag is below
//! k, whether a commit or a visit assigned the epoch. This cut needs no kept bytes of a page that the checkpoint has
//! visited. It needs none either if the image in the checkpoint's slot already contains the page's state at the cut.
//!
//! A *snapshot's* cut takes no checkpoint number and does not change `G`. A change of `G` during a fuzzy sweep would do
//! harm. A page first used between this change and the end of the sweep would get the epoch of a page first used after
//! the sweep.
//!
//! Dropping the [`Cut`] ends the cut. The dropping thread may hold a latch, so it does not wait for latches. A
//! partition whose latch is held closes the ended cut later: at the next commit or visit there, or when the next cut is
//! made.
//!
//! # Source
//! *Rethinking Main Memory OLTP Recovery* (001), section II-C: the asynchronous, transaction-consistent checkpoint.
//! # Deviations
//! Before-images of pages are kept instead of shadow rows: one mechanism serves all tables, and the tag test remains
//! valid. The paper's shadow rows are available too, for key-addressed tables (`shadow`).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use perdura_base::flaw::{Flaw, armed};
use perdura_base::{CkptEpoch, ImageSlot, PageId, PartitionId};
use perdura_page::layout;
use smallvec::SmallVec;

use crate::latches::{Heap, PartitionGuard};
use crate::pages::index;
use crate::partition::Partition;
use crate::undo::{PartUndo, Save};
use crate::visit::Visit;

mod open;

use open::Open;
pub(crate) use open::{AtCut, CutState, Cuts};

/// The purpose of a cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reader {
    /// A checkpoint that writes the image in a slot.
    Checkpoint {
        /// The checkpoint epoch. The closure that runs under the latches publishes it.
        k: CkptEpoch,
        /// The slot of the image that the checkpoint writes.
        slot: ImageSlot,
    },
    /// A user's snapshot.
    Snapshot,
}

/// The form in which a checkpoint's cut keeps the pages of key-addressed tables.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum SnapshotMode {
    /// Byte ranges, as for all other pages.
    #[default]
    Pages,
    /// The form of paper 001: three bits for each slot, and copies of the rows that are overwritten.
    Rows,
}

/// An open cut. Dropping this value ends the cut.
pub struct Cut {
    heap: Arc<Heap>,
    number: u64,
    pseq: Vec<u64>,
    ended: Arc<AtomicBool>,
}

impl std::fmt::Debug for Cut {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "cut {}", self.number)
    }
}

impl Cut {
    /// Returns the sequence number of the cut; later cuts have higher numbers.
    #[must_use]
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Returns the sequence number of each partition at the cut.
    #[must_use]
    pub fn pseq(&self) -> &[u64] {
        &self.pseq
    }

    /// Returns the heap that was cut.
    #[must_use]
    pub fn heap(&self) -> &Arc<Heap> {
        &self.heap
    }

    /// Returns whether the heap has ended the cut to free memory. The pages as of the cut can then no longer be read.
    #[must_use]
    pub fn is_ended(&self) -> bool {
        self.ended.load(Ordering::SeqCst)
    }
}

#[cfg(feature = "flaws")]
impl Cut {
    /// Opens the cut in one partition. A seeded bug uses this to cut the partitions at different times.
    pub fn open_late(&mut self, id: PartitionId, reader: Reader) {
        let mut part = self.heap.lock(id);
        self.pseq[usize::from(id.0)] = part.pseq();
        part.open_cut(self.number, reader, &self.ended);
    }
}

impl Drop for Cut {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::SeqCst);
        self.heap.close_ended();
    }
}

impl Partition {
    /// Returns whether an open cut may need the bytes that a commit overwrites in a page.
    pub(crate) fn is_kept_for_cuts(&self, local: u32) -> bool {
        self.cuts.is_open() && self.cuts.is_due(local, self.pages.page(local))
    }

    /// Keeps, for open cuts, the bytes that a commit has overwritten in a page. `saves` are the indexes of the page's
    /// saves. The caller makes this call for every page that a commit has changed, before it reads the page's epoch.
    pub(crate) fn keep(&mut self, part: &PartUndo, saves: &[usize]) {
        if !self.is_kept_for_cuts(part.saves[saves[0]].local) {
            return;
        }
        let mut saves: SmallVec<[usize; 16]> = saves.into();
        saves.sort_unstable();
        let saves: SmallVec<[&Save; 16]> = saves.iter().map(|i| &part.saves[*i]).collect();
        let local = saves[0].local;
        debug_assert!(
            saves.iter().all(|save| save.local == local),
            "saves of one page"
        );
        let (page, state) = (self.pages.page(local), self.pages.states[index(local)]);
        let epoch = self.cuts.keep(page, state, part, &saves);
        if let Some(epoch) = epoch {
            assert_eq!(
                epoch,
                self.pages.ckpt_epoch(),
                "the checkpoint that cut last"
            );
            layout::set_epoch(self.pages.page_mut(local), epoch);
        }
    }
}

impl Heap {
    /// Makes a cut: runs `mark` while all latches are held, and opens the cut in every partition. For a
    /// checkpoint, `mark` publishes the checkpoint's epoch.
    pub fn cut<T>(self: &Arc<Self>, reader: Reader, mark: impl FnOnce() -> T) -> (Cut, T) {
        let mut parts: Vec<PartitionGuard<'_>> = (0..self.geometry().partitions)
            .map(|id| self.lock(PartitionId(id)))
            .collect();
        let number = self.cuts.newest.fetch_add(1, Ordering::SeqCst) + 1;
        let marked = mark();
        if let Reader::Checkpoint { k, .. } = reader {
            assert_eq!(self.ckpt_epoch(), k, "the checkpoint's number is published");
        } else if armed(Flaw::SnapshotRaisesG) {
            self.set_ckpt_epoch(CkptEpoch(self.ckpt_epoch().0 + 1));
        }
        let ended = Arc::new(AtomicBool::new(false));
        let mut pseq = Vec::with_capacity(parts.len());
        for part in &mut parts {
            pseq.push(part.pseq());
            // The seeded bug: later partitions are cut only when the sweep reaches them.
            let late = armed(Flaw::CutLatchesSingly) && part.id().0 > 0;
            if !late || reader == Reader::Snapshot {
                part.open_cut(number, reader, &ended);
            }
        }
        assert_eq!(
            pseq.len(),
            usize::from(self.geometry().partitions),
            "a number of each partition"
        );
        let cut = Cut {
            heap: Arc::clone(self),
            number,
            pseq,
            ended,
        };
        (cut, marked)
    }

    /// Sets how the cuts of later checkpoints keep pages of key-addressed tables.
    pub fn set_snapshot_mode(&self, mode: SnapshotMode) {
        let by_rows = mode == SnapshotMode::Rows;
        self.cuts.rows.store(by_rows, Ordering::SeqCst);
    }

    /// Returns whether a key-addressed table was ever attached. If so, every checkpoint must be a cut, because the
    /// transactions of such tables have sequence numbers.
    #[must_use]
    pub fn has_keyed(&self) -> bool {
        self.cuts.keyed.load(Ordering::SeqCst)
    }

    /// Returns whether the bytes kept for cuts exceed their [bound](crate::memory::KeptBound). New writers then wait.
    #[must_use]
    pub fn kept_over_bound(&self) -> bool {
        self.memory().is_kept_over_bound()
    }

    /// Visits at most `max` pages of one partition: the partition that keeps the most bytes for cuts. Visits only pages
    /// changed since the checkpoint's cut, and so frees the memory kept for these pages. Returns the partition, or
    /// `None` if no changed page is left to visit.
    pub fn visit_kept(
        &self,
        max: usize,
        slot: ImageSlot,
        k: CkptEpoch,
        mut take: impl FnMut(u32, PageId, Visit<'_>),
    ) -> Option<PartitionId> {
        let ids = (0..self.geometry().partitions).map(PartitionId);
        let fullest = ids.max_by_key(|id| {
            let part = self.lock(*id);
            let counts = part.cuts.has_checkpoint();
            if counts { part.cuts.bytes } else { 0 }
        })?;
        let mut part = self.lock(fullest);
        if !part.cuts.has_checkpoint() {
            return None;
        }
        let pages = part.cuts.pending(max);
        assert!(pages.len() <= max, "no more than the caller has room for");
        for local in &pages {
            let id = part.pages.page_id(*local);
            take(*local, id, part.visit(*local, slot, k));
        }
        (!pages.is_empty()).then_some(fullest)
    }

    /// Frees the memory kept for cuts that have ended. If too much is still kept, ends the oldest snapshot. The caller
    /// holds no latch.
    pub fn make_room(&self) {
        self.close_ended();
        if self.kept_over_bound() {
            // Partition 0 suffices, because a snapshot is open in every partition.
            self.lock(PartitionId(0)).cuts.make_room();
            self.close_ended();
        }
    }

    /// Closes ended cuts in the partitions with free latches.
    fn close_ended(&self) {
        for id in (0..self.geometry().partitions).map(PartitionId) {
            if let Some(mut part) = self.try_lock(id) {
                part.cuts.close_ended();
            }
        }
    }
}

impl Partition {
    /// Closes the checkpoint's cut in this partition. The caller calls it after the visit of the partition's last page.
    pub fn close_checkpoint_cut(&mut self) {
        self.cuts.close_checkpoint();
    }

    fn open_cut(&mut self, number: u64, reader: Reader, ended: &Arc<AtomicBool>) {
        let extent = self.pages.extent();
        let by_rows = reader != Reader::Snapshot && self.cuts.keeps_rows();
        self.cuts.open(Open {
            number,
            by_rows,
            reader,
            extent,
            ended: Arc::clone(ended),
        });
    }
}

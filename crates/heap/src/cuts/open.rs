//! The open cuts of a partition, and the data kept for them.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use perdura_base::CkptEpoch;
use perdura_base::flaw::{Flaw, armed};
use perdura_page::layout;
use smallvec::SmallVec;

use super::Reader;
use crate::kept::Kept;
use crate::memory::{MemoryAccount, MemoryUse};
use crate::pages::{PageState, flag, index};
use crate::pools::Extent;
use crate::shadow::Shadow;
use crate::undo::{PartUndo, Save};
use crate::visit::dirty_bit;

/// The state of a heap's cuts that all its partitions share.
#[derive(Default)]
pub(crate) struct CutState {
    /// The number of the newest cut.
    pub(super) newest: AtomicU64,
    /// True if later checkpoints' cuts keep rows: [`SnapshotMode::Rows`](super::SnapshotMode::Rows).
    pub(super) rows: AtomicBool,
    /// True if a key-addressed table was ever attached.
    pub(crate) keyed: AtomicBool,
    /// The `ended` flag of the snapshot that the heap ended last to free memory. The flag exists while a partition or
    /// the snapshot's owner still holds it.
    ending: Mutex<Weak<AtomicBool>>,
}

/// An open cut in a partition.
pub(super) struct Open {
    pub(super) number: u64,
    pub(super) reader: Reader,
    /// The pages that were in use at the cut.
    pub(super) extent: Extent,
    pub(super) ended: Arc<AtomicBool>,
    /// True for a checkpoint's cut in row mode.
    pub(super) by_rows: bool,
}

impl Open {
    /// Returns whether the cut belongs to a checkpoint and needs the page's bytes at the cut.
    fn needs_shadow(&self, local: u32, pending: Option<u8>) -> bool {
        self.reader != Reader::Snapshot && self.needs(local, pending)
    }

    /// Returns whether the cut needs the versions of a page. A checkpoint's cut does not need them if the page has a
    /// shadow.
    fn needs_version(&self, local: u32, kept: &Kept) -> bool {
        let is_shadowed = self.reader != Reader::Snapshot && kept.shadow.is_some();
        self.needs(local, kept.pending) && !is_shadowed
    }

    /// Returns whether the cut needs the bytes that a commit overwrites in a page. `pending` is the page's
    /// [`Kept::pending`].
    fn needs(&self, local: u32, pending: Option<u8>) -> bool {
        self.extent.holds(local)
            && match self.reader {
                Reader::Snapshot => true,
                Reader::Checkpoint { slot, .. } => {
                    pending.is_some_and(|dirty| dirty & dirty_bit(slot) != 0)
                }
            }
    }
}

/// The open cuts of a partition, and the data kept for them.
pub(crate) struct Cuts {
    shared: Arc<CutState>,
    memory: Arc<MemoryAccount>,
    /// The open cuts, by ascending number.
    pub(super) open: Vec<Open>,
    /// The data kept, by local page.
    kept: Vec<Option<Box<Kept>>>,
    /// The last page that `visit` rebuilt: the page's bytes at the checkpoint's cut.
    image: Vec<u8>,
    /// The bytes that the memory account counts for the kept data.
    pub(super) bytes: usize,
    /// The ranges of bytes that transactions changed and then restored when they aborted, since the checkpoint's cut. A
    /// seeded bug marks the slots in these ranges as modified and does not copy them.
    #[cfg(feature = "flaws")]
    left: Vec<(u32, std::ops::Range<usize>)>,
}

/// The state of a page at a checkpoint's cut.
pub(crate) enum AtCut {
    /// The page was not in use at the cut.
    Born,
    /// The page has not changed since the cut, or has been visited.
    AsItIs,
    /// The page has changed since the cut, but the image in the checkpoint's slot already contains the page's state at
    /// the cut.
    Held,
    /// The page has changed since the cut. [`Cuts::image`] returns its state at the cut.
    Changed,
}

impl Cuts {
    pub(crate) fn new(shared: Arc<CutState>, memory: Arc<MemoryAccount>) -> Cuts {
        Cuts {
            shared,
            memory,
            open: Vec::new(),
            kept: Vec::new(),
            image: Vec::new(),
            bytes: 0,
            #[cfg(feature = "flaws")]
            left: Vec::new(),
        }
    }

    /// Notes that a table is attached, and whether it is key-addressed.
    pub(crate) fn note_keyed(&self, keyed: bool) {
        if keyed {
            self.shared.keyed.store(true, Ordering::SeqCst);
        }
    }

    /// Returns whether checkpoints' cuts keep rows from now on.
    pub(super) fn keeps_rows(&self) -> bool {
        self.shared.rows.load(Ordering::SeqCst)
    }

    /// Returns whether a cut is open.
    pub(crate) fn is_open(&self) -> bool {
        !self.open.is_empty()
    }

    /// Returns whether a checkpoint's cut is open.
    pub(crate) fn has_checkpoint(&self) -> bool {
        self.checkpoint().is_some()
    }

    fn checkpoint(&self) -> Option<(&Open, CkptEpoch)> {
        self.open.iter().find_map(|cut| match cut.reader {
            Reader::Checkpoint { k, .. } => Some((cut, k)),
            Reader::Snapshot => None,
        })
    }

    pub(super) fn open(&mut self, cut: Open) {
        self.close_ended();
        let is_newest = self.open.last().is_none_or(|last| last.number < cut.number);
        assert!(is_newest, "cuts are opened in their order");
        assert!(
            cut.reader == Reader::Snapshot || !self.has_checkpoint(),
            "one checkpoint runs at a time"
        );
        #[cfg(feature = "flaws")]
        if cut.reader != Reader::Snapshot {
            self.left.clear();
        }
        self.open.push(cut);
    }

    /// Closes the cuts that have ended.
    pub(super) fn close_ended(&mut self) {
        let is_ended = |cut: &Open| cut.ended.load(Ordering::SeqCst);
        if self.open.iter().any(is_ended) {
            self.close(is_ended);
        }
    }

    /// Closes the checkpoint's cut: the partition's last page has been visited.
    pub(crate) fn close_checkpoint(&mut self) {
        if self.has_checkpoint() {
            self.close(|cut| cut.reader != Reader::Snapshot);
        }
    }

    fn close(&mut self, is_over: impl Fn(&Open) -> bool) {
        self.open.retain(|cut| !is_over(cut));
        let Cuts { open, kept, .. } = self;
        let has_checkpoint = open.iter().any(|cut| cut.reader != Reader::Snapshot);
        let (mut was, mut is) = (0, 0);
        for (local, of_page) in (0u32..).zip(kept.iter_mut()) {
            let Some(kept) = of_page else { continue };
            was += kept.bytes();
            if !has_checkpoint {
                kept.settle();
            }
            prune(open, local, kept);
            match kept.is_empty() {
                true => *of_page = None,
                false => is += kept.bytes(),
            }
        }
        if !has_checkpoint {
            was += self.image.capacity();
            self.image = Vec::new();
        }
        if self.open.is_empty() {
            let mut left = self.kept.iter().flatten();
            assert!(left.next().is_none(), "nothing is kept without a cut");
            was += index_bytes(&self.kept);
            self.kept = Vec::new();
        }
        self.account(was, is);
    }

    fn of_page(&self, local: u32) -> Option<&Kept> {
        self.kept.get(index(local))?.as_deref()
    }

    fn account(&mut self, was: usize, is: usize) {
        assert!(self.bytes + is >= was, "what is taken off was put on");
        self.bytes = self.bytes + is - was;
        let bytes = |n: usize| u64::try_from(n).unwrap_or(u64::MAX);
        self.memory.change(MemoryUse::Kept, bytes(was), bytes(is));
    }

    /// Returns whether a commit that changes a page must call [`keep`](Self::keep). It must if the page has been
    /// neither changed nor visited since the checkpoint's cut. It must if an open cut needs the bytes that the commit
    /// overwrites.
    pub(super) fn is_due(&self, local: u32, page: &[u8]) -> bool {
        let is_first = |(_, k): (&Open, CkptEpoch)| layout::epoch(page) < k;
        if self.checkpoint().is_some_and(is_first) {
            return true;
        }
        let pending = self.of_page(local).and_then(|kept| kept.pending);
        self.open.iter().any(|cut| cut.needs(local, pending))
    }

    /// Keeps the bytes that a commit has overwritten in a page, if a cut needs them. Returns the epoch that the page
    /// must get before the commit's records are encoded; `None` if its epoch stays.
    pub(super) fn keep(
        &mut self,
        page: &[u8],
        state: PageState,
        part: &PartUndo,
        saves: &[&Save],
    ) -> Option<CkptEpoch> {
        let local = saves[0].local;
        self.close_ended();
        let newest = self.open.last()?.number;
        let mut epoch = None;
        let mut pending = self.of_page(local).and_then(|kept| kept.pending);
        if let Some((cut, k)) = self.checkpoint()
            && layout::epoch(page) < k
        {
            assert!(
                cut.extent.holds(local) && pending.is_none(),
                "a page is older than the checkpoint until its visit or its first change"
            );
            (epoch, pending) = (Some(k), Some(state.dirty));
        }
        let by_rows = self.checkpoint().is_some_and(|(cut, _)| cut.by_rows);
        let begins = by_rows && epoch.is_some() && state.flags & flag::KEYED != 0;
        let needed = self.open.iter().any(|cut| cut.needs(local, pending));
        if epoch.is_none() && !needed {
            return None;
        }
        let mut was = index_bytes(&self.kept);
        if self.kept.len() <= index(local) {
            self.kept.resize_with(index(local) + 1, || None);
        }
        let mut is = index_bytes(&self.kept);
        let of_page = &mut self.kept[index(local)];
        was += of_page.as_ref().map_or(0, |kept| kept.bytes());
        let kept = of_page.get_or_insert_default();
        kept.pending = pending;
        if needed && begins && self.open.iter().any(|cut| cut.needs_shadow(local, pending)) {
            kept.shadow = Some(Shadow::of(page));
        }
        if let Some(shadow) = &mut kept.shadow {
            #[cfg(feature = "flaws")]
            for (_, range) in self.left.iter().filter(|(of, _)| *of == local) {
                shadow.leave_bits(range);
            }
            shadow.keep(page, part, saves);
        }
        if self.open.iter().any(|cut| cut.needs_version(local, kept)) {
            if armed(Flaw::SecondCutOverwritesKept) && !kept.reaches(newest) {
                kept.forget_versions();
            }
            kept.keep(newest, page, part, saves);
        }
        debug_assert!(!kept.is_empty(), "a page has its mark");
        is += kept.bytes();
        self.account(was, is);
        self.make_room();
        epoch
    }

    /// Ends the oldest snapshot if too many bytes are kept. Does nothing while any partition still holds the snapshot
    /// that was ended before.
    pub(super) fn make_room(&mut self) {
        if !self.memory.is_kept_over_bound() {
            return;
        }
        let oldest = self.open.iter().find(|cut| cut.reader == Reader::Snapshot);
        let Some(oldest) = oldest else { return };
        let mut ending = self.shared.ending.lock();
        // The owner of the cut holds one reference.
        if ending.strong_count() <= 1 {
            oldest.ended.store(true, Ordering::SeqCst);
            *ending = Arc::downgrade(&oldest.ended);
            drop(ending);
            self.close_ended();
        }
    }

    /// Returns the state of a page at the checkpoint's cut. The page counts as visited from then on.
    pub(crate) fn visit(&mut self, local: u32, page: &[u8]) -> AtCut {
        let Some((cut, _)) = self.checkpoint() else {
            return AtCut::AsItIs;
        };
        if !cut.extent.holds(local) {
            return AtCut::Born;
        }
        let (number, is_held) = match self.of_page(local).and_then(|kept| kept.pending) {
            None => return AtCut::AsItIs,
            pending => (cut.number, !cut.needs(local, pending)),
        };
        let Cuts {
            open, kept, image, ..
        } = self;
        let place = &mut kept[index(local)];
        let Some(of_page) = place else {
            return AtCut::AsItIs;
        };
        let was = of_page.bytes() + image.capacity();
        if !is_held {
            image.clear();
            image.extend_from_slice(page);
            match &of_page.shadow {
                Some(shadow) => shadow.undo(image),
                None => of_page.undo_to(number, image),
            }
            layout::set_epoch(image, layout::epoch(page));
        }
        debug_assert!(of_page.pending.is_some(), "a page is visited once");
        of_page.settle();
        prune(open, local, of_page);
        let mut is = image.capacity();
        if of_page.is_empty() {
            *place = None;
        } else {
            is += of_page.bytes();
        }
        self.account(was, is);
        if is_held { AtCut::Held } else { AtCut::Changed }
    }

    /// Seeded bug: an abort leaves the bits of its changed slots, so that no later commit copies these slots.
    #[cfg(feature = "flaws")]
    pub(crate) fn leave_bits(&mut self, saves: &[Save]) {
        if !self.checkpoint().is_some_and(|(cut, _)| cut.by_rows) {
            return;
        }
        let left = saves.iter().map(|save| (save.local, save.range()));
        self.left.extend(left);
    }

    /// Returns at most `max` pages changed since the checkpoint's cut and not yet visited.
    pub(super) fn pending(&self, max: usize) -> Vec<u32> {
        let pages = (0u32..).zip(&self.kept);
        let is_pending =
            |kept: &Option<Box<Kept>>| kept.as_ref().is_some_and(|kept| kept.pending.is_some());
        let pending = pages.filter(|(_, kept)| is_pending(kept));
        pending.map(|(local, _)| local).take(max).collect()
    }

    /// Returns the page that the last visit rebuilt: the page's bytes at the checkpoint's cut.
    pub(crate) fn image(&self) -> &[u8] {
        &self.image
    }

    /// Returns the pages that were in use at a cut; `None` if the cut is not open in this partition.
    pub(crate) fn extent_at(&self, number: u64) -> Option<Extent> {
        let cut = self.open.iter().find(|cut| cut.number == number)?;
        (!cut.ended.load(Ordering::SeqCst)).then_some(cut.extent)
    }

    /// Writes the bytes that a page had at an open cut to `out`, if the page has changed since the cut. Returns whether
    /// it has changed.
    pub(crate) fn page_at(&self, number: u64, local: u32, page: &[u8], out: &mut Vec<u8>) -> bool {
        let kept = self.of_page(local);
        let Some(kept) = kept.filter(|kept| kept.reaches(number)) else {
            return false;
        };
        out.clear();
        out.extend_from_slice(page);
        kept.undo_to(number, out);
        true
    }
}

fn index_bytes(kept: &Vec<Option<Box<Kept>>>) -> usize {
    kept.capacity() * size_of::<Option<Box<Kept>>>()
}

/// Drops those versions of a page that no open cut needs.
fn prune(open: &[Open], local: u32, kept: &mut Kept) {
    let cuts: SmallVec<[u64; 4]> = open
        .iter()
        .filter(|cut| cut.needs_version(local, kept))
        .map(|cut| cut.number)
        .collect();
    kept.prune(&cuts);
}

//! A checkpoint's visit of a page.
//!
//! A fuzzy sweep visits page P for checkpoint k under the latch: it assigns `epoch := k` and copies P. So a change is
//! in image k exactly if its record's tag is below k. The epoch is assigned and not toggled, so a cancelled sweep
//! leaves no trace. A page that is born during the sweep has epoch k already, so it is not copied. Its changes have tag
//! k, and the image has zeros for it. If it were copied, a restart would apply its changes twice.
//!
//! Under a [cut](crate::cuts) a change is in image k exactly if it was committed before the cut. Here a page has epoch
//! k for one of three reasons: it was visited, was born since the cut, or has changed since the cut. In the last case
//! the image gets the page as of the cut, unless the image slot already holds that state. The page stays dirty, because
//! it has changed since the cut.
//!
//! # Source
//! Differential logging, algorithm 2 (fuzzy checkpoint).
//! # Deviations
//! Here an epoch replaces the one-bit id, and the copy is made under the latch.

use perdura_base::flaw::{Flaw, armed};
use perdura_base::{CkptEpoch, ImageSlot};
use perdura_page::layout;

use crate::cuts::AtCut;
use crate::pages::index;
use crate::partition::Partition;

/// The result of a checkpoint's visit.
#[derive(Debug, PartialEq, Eq)]
pub enum Visit<'a> {
    /// The page was born during this sweep, or since the cut. The image has zeros for it.
    Born,
    /// The page was never used. It is zeros in memory and in the image.
    Untouched,
    /// Nothing to write. This sweep has already visited the page, or the image slot already holds the right bytes. The
    /// right bytes are the present bytes or, if there is a cut, the bytes as of the cut.
    Clean,
    /// The bytes to write. The caller copies the bytes before it releases the latch. The page's dirty bit is cleared.
    /// If the page has changed since the cut, these are the bytes as of the cut, and the dirty bit stays set.
    Dirty(&'a [u8]),
}

/// Returns the bit of an image slot in the `dirty` bits of a page's state.
pub(crate) fn dirty_bit(slot: ImageSlot) -> u8 {
    match slot {
        ImageSlot::A => 1,
        ImageSlot::B => 2,
    }
}

impl Partition {
    /// Visits one page for checkpoint `k`, which writes its image to `slot`.
    pub fn visit(&mut self, local: u32, slot: ImageSlot, k: CkptEpoch) -> Visit<'_> {
        if !self.pages.is_used(local) {
            return Visit::Untouched;
        }
        if self.cuts.has_checkpoint() {
            return self.visit_cut(local, slot, k);
        }
        let page = self.pages.page_mut(local);
        if layout::epoch(page) == k && !armed(Flaw::BornPagesSwept) {
            return Visit::Born;
        }
        debug_assert!(layout::epoch(page) <= k, "sweeps come in their order");
        self.assign(local, slot, k)
    }

    /// Gives a page the checkpoint's epoch. If there is a cut, the caller has checked that the page has not changed
    /// since the cut.
    fn assign(&mut self, local: u32, slot: ImageSlot, k: CkptEpoch) -> Visit<'_> {
        layout::set_epoch(self.pages.page_mut(local), k);
        let state = self.pages.state(local);
        if state.dirty & dirty_bit(slot) == 0 {
            return Visit::Clean;
        }
        state.dirty &= !dirty_bit(slot);
        Visit::Dirty(self.pages.page(local))
    }

    /// Visits one page under the cut of checkpoint `k`. Returned bytes are the bytes as of the cut.
    fn visit_cut(&mut self, local: u32, slot: ImageSlot, k: CkptEpoch) -> Visit<'_> {
        let page = self.pages.page(local);
        if layout::epoch(page) == k && armed(Flaw::CleanAtCutTakenForBorn) {
            return Visit::Born;
        }
        debug_assert!(layout::epoch(page) <= k, "checkpoints come in their order");
        match self.cuts.visit(local, page) {
            AtCut::Born => Visit::Born,
            AtCut::Held => Visit::Clean,
            AtCut::Changed => {
                if armed(Flaw::KeptVisitClearsDirty) {
                    self.pages.state(local).dirty &= !dirty_bit(slot);
                }
                Visit::Dirty(self.cuts.image())
            }
            AtCut::AsItIs if layout::epoch(page) == k => Visit::Clean,
            AtCut::AsItIs => self.assign(local, slot, k),
        }
    }

    /// Notes that the image slot does not hold the page, because writing the page has failed.
    pub fn mark_dirty(&mut self, local: u32, slot: ImageSlot) {
        if let Some(state) = self.pages.states.get_mut(index(local)) {
            state.dirty |= dirty_bit(slot);
        }
    }

    /// Returns whether the page's dirty bit for an image slot is set: the slot does not hold the present page. For
    /// tests and inspection.
    #[must_use]
    pub fn is_dirty(&self, local: u32, slot: ImageSlot) -> bool {
        self.pages
            .states
            .get(index(local))
            .is_some_and(|s| s.dirty & dirty_bit(slot) != 0)
    }
}

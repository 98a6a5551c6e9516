//! A checkpoint's visit of a page.
//!
//! In a fuzzy sweep:
//!
//! The visit of page P for checkpoint k assigns `epoch := k` and copies P, under the latch. So a change is in image k
//! exactly if its record's tag is below k. The epoch is assigned and never toggled: a cancelled sweep leaves no trace.
//! A page born within the sweep carries k already. Its changes have tag k, the image has zeros there, and visiting it
//! would apply them twice.
//!
//! Under a [cut](crate::cuts) a change is in image k exactly if it was committed before the cut. There `epoch = k` says
//! less: the page was visited, or born since the cut, or has changed since. In the last case the image gets the page as
//! it was, if the slot lacked it then. The page stays dirty, because it has changed since.
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
    /// Born within this sweep, or since the cut: not in the image, which has zeros there.
    Born,
    /// Never used: zeros, in memory and in the image.
    Untouched,
    /// The image slot holds the page as it is, or as it was at the cut; or it was visited before.
    Clean,
    /// The page, to be copied before the latch is released. Its dirty bit is cleared, unless it has changed
    /// since the cut: then these are the cut's bytes.
    Dirty(&'a [u8]),
}

/// Returns a slot's bit among those of a page.
pub(crate) fn dirty_bit(slot: ImageSlot) -> u8 {
    match slot {
        ImageSlot::A => 1,
        ImageSlot::B => 2,
    }
}

impl Partition {
    /// Visits one page for checkpoint `k` into `slot`.
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

    /// Gives a page the checkpoint's epoch. The page has not changed since the last visit that could see it.
    fn assign(&mut self, local: u32, slot: ImageSlot, k: CkptEpoch) -> Visit<'_> {
        layout::set_epoch(self.pages.page_mut(local), k);
        let state = self.pages.state(local);
        if state.dirty & dirty_bit(slot) == 0 {
            return Visit::Clean;
        }
        state.dirty &= !dirty_bit(slot);
        Visit::Dirty(self.pages.page(local))
    }

    /// Visits one page under the cut of checkpoint `k`: the result has the page as of the cut.
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

    /// Notes that the image slot does not hold the page: its write failed.
    pub fn mark_dirty(&mut self, local: u32, slot: ImageSlot) {
        if let Some(state) = self.pages.states.get_mut(index(local)) {
            state.dirty |= dirty_bit(slot);
        }
    }

    /// Returns whether the page's dirty bit for an image slot is set: the slot does not hold the page as it is. For
    /// inspection.
    #[must_use]
    pub fn is_dirty(&self, local: u32, slot: ImageSlot) -> bool {
        self.pages
            .states
            .get(index(local))
            .is_some_and(|s| s.dirty & dirty_bit(slot) != 0)
    }
}

//! A checkpoint's visit of a page.
//!
//! The visit of page P for checkpoint k assigns `epoch := k` and copies P, under the latch, so
//! that a change is in image k exactly if its record's tag is below k. The epoch is assigned and
//! never toggled: a cancelled sweep leaves no trace. A page born within the sweep carries k
//! already; its changes have tag k, the image has zeros there, and visiting it would apply them
//! twice.
//!
//! # Source
//! Differential logging, algorithm 2 (fuzzy checkpoint).
//! # Deviations
//! An epoch instead of a one-bit id; the copy is made under the latch.

use perdura_base::flaw::{Flaw, armed};
use perdura_base::{CkptEpoch, ImageSlot};
use perdura_page::layout;

use crate::pages::index;
use crate::partition::Partition;

/// What a checkpoint's visit found.
#[derive(Debug, PartialEq, Eq)]
pub enum Visit<'a> {
    /// Born within this sweep: not in the image, which has zeros there.
    Born,
    /// Never used: zeros, in memory and in the image.
    Untouched,
    /// The image slot holds the page as it is.
    Clean,
    /// The page, to be copied before the latch is released. Its dirty bit is cleared.
    Dirty(&'a [u8]),
}

fn dirty_bit(slot: ImageSlot) -> u8 {
    match slot {
        ImageSlot::A => 1,
        ImageSlot::B => 2,
    }
}

impl Partition {
    /// Visits one page for checkpoint `k` into `slot`.
    pub fn visit(&mut self, local: u32, slot: ImageSlot, k: CkptEpoch) -> Visit<'_> {
        if local >= self.pages.fresh {
            return Visit::Untouched;
        }
        let page = self.pages.page_mut(local);
        if layout::epoch(page) == k && !armed(Flaw::BornPagesSwept) {
            return Visit::Born;
        }
        debug_assert!(layout::epoch(page) <= k, "sweeps come in their order");
        layout::set_epoch(page, k);
        let state = self.pages.state(local);
        if state.dirty & dirty_bit(slot) == 0 {
            return Visit::Clean;
        }
        state.dirty &= !dirty_bit(slot);
        Visit::Dirty(self.pages.page(local))
    }

    /// Notes that the image slot does not hold the page: its write failed.
    pub fn mark_dirty(&mut self, local: u32, slot: ImageSlot) {
        if let Some(state) = self.pages.states.get_mut(index(local)) {
            state.dirty |= dirty_bit(slot);
        }
    }

    /// Whether the image slot is known to hold the page as it is; for inspection.
    #[must_use]
    pub fn is_dirty(&self, local: u32, slot: ImageSlot) -> bool {
        self.pages
            .states
            .get(index(local))
            .is_some_and(|s| s.dirty & dirty_bit(slot) != 0)
    }
}

//! The extras of a consistent image: the numbers in its sections, and the order of its visits.

use perdura_base::flaw::{Flaw, armed};
use perdura_base::num::to_usize;
use perdura_base::{PageId, PartitionId};
use perdura_heap::{Cut, Visit};

use super::{Activity, Checkpointer, Sweep, VISIT_PAGES};

impl Sweep {
    /// Returns the sequence number of a partition in its section. `None`: the image is fuzzy.
    pub(super) fn pseq(&self, id: PartitionId) -> Option<u64> {
        let cut = self.cut.as_ref()?;
        if armed(Flaw::PseqReadAfterRelease) {
            return Some(cut.heap().lock(id).pseq());
        }
        let pseq = cut.pseq()[usize::from(id.0)];
        assert!(
            pseq <= cut.heap().lock(id).pseq(),
            "partition {id} has gone on from the cut"
        );
        Some(pseq)
    }

    /// While too many old versions are kept, visits pages that have some, out of turn. Returns their partition.
    pub(super) fn visit_kept(
        &self,
        take: &mut impl FnMut(u32, PageId, Visit<'_>),
    ) -> Option<PartitionId> {
        let heap = self.cut.as_ref().map(Cut::heap)?;
        if !heap.kept_over_bound() {
            return None;
        }
        let max = to_usize(u64::from(VISIT_PAGES));
        heap.visit_kept(max, self.slot, self.k, take)
    }
}

impl Checkpointer {
    /// Gives up a fuzzy sweep: from now on ordered frames are logged, which only a consistent image serves. A sweep
    /// whose image may already be named has visited all pages before the first such frame.
    pub fn require_cuts(&mut self) {
        let is_fuzzy = match &self.activity {
            Activity::Idle => false,
            Activity::Running { sweep, .. } => sweep.cut.is_none(),
        };
        if is_fuzzy && self.abandon() {
            assert!(!self.is_running(), "the next one is a cut");
        }
    }
}

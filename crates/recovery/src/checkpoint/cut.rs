//! The parts of a sweep that only a consistent image needs: the sequence numbers in the image's sections, and visits of
//! pages out of turn.

use perdura_base::flaw::{Flaw, armed};
use perdura_base::num::to_usize;
use perdura_base::{PageId, PartitionId};
use perdura_heap::{Cut, Visit};

use super::{Activity, Checkpointer, Sweep, VISIT_PAGES};

impl Sweep {
    /// Returns the sequence number that the image stores in a partition's section. `None`: the image is fuzzy.
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

    /// Visits pages out of turn if memory keeps too many old page versions. Only pages with old versions are visited.
    /// Returns the partition of the visited pages; `None` if none was visited.
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
    /// Gives up a running fuzzy sweep. Called before ordered frames are logged, because they need a consistent image.
    /// A sweep is not given up if the anchor may already name its image. Such a sweep has visited all pages before the
    /// first ordered frame.
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

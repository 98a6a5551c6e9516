//! Seeded bugs of the checkpoint that need code; see [`perdura_base::flaw`].

use std::sync::Arc;

use perdura_base::PartitionId;
use perdura_base::limits::PAGE_BYTES;
use perdura_heap::Reader;

use super::{Checkpointer, Sweep};

impl Sweep {
    /// A seeded bug: opens the cut partition by partition, each time under one latch. The correct code opens the cut
    /// under all latches at once.
    pub(super) fn cut_late(&mut self, id: PartitionId) {
        let (k, slot) = (self.k, self.slot);
        if let Some(cut) = &mut self.cut {
            cut.open_late(id, Reader::Checkpoint { k, slot });
        }
    }
}

impl Checkpointer {
    /// A seeded bug: copies staged pages again at the time of the write, with the changes since they were staged. The
    /// paper copies "asynchronously", which has this effect.
    pub(super) fn recopy(&mut self, id: PartitionId, staged: std::ops::Range<usize>) {
        let Some(staging) = Arc::get_mut(&mut self.staging) else {
            return;
        };
        for at in staged {
            let copy = &mut staging[at * PAGE_BYTES..(at + 1) * PAGE_BYTES];
            let part = self.parts.heap.lock(id);
            if let Some(page) = part.page_bytes(self.staged[at].local) {
                copy.copy_from_slice(page);
            }
        }
    }
}

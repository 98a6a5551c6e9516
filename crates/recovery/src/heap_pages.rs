//! Pages of the heap in a restart and in a checkpoint.

use std::ops::Range;

use perdura_base::{CkptEpoch, Error, ImageSlot, PageId, PartitionId, Result};
use perdura_heap::{Heap, Visit};

/// Puts pages of the image into memory. Records of these pages may be played before or after this call.
pub fn load_pages(heap: &Heap, partition: PartitionId, pages: &[(u32, &[u8])]) {
    let mut part = heap.lock(partition);
    for (local, bytes) in pages {
        part.load_page(*local, bytes);
    }
}

/// Checks that each update of every page was applied exactly once. Called after the image and all records are played.
///
/// # Errors
/// [`Error::Corrupt`] with the id of a page that lacks an update or got an update twice.
pub fn check_replayed(heap: &Heap) -> Result<()> {
    heap.ids().try_for_each(|id| check_partition(heap, id))
}

/// Checks the pages of one partition like [`check_replayed`].
///
/// # Errors
/// As [`check_replayed`].
pub fn check_partition(heap: &Heap, id: PartitionId) -> Result<()> {
    let gaps = heap.lock(id).useq_gaps();
    match gaps.first() {
        None => Ok(()),
        Some(gap) => Err(Error::corrupt(
            format!("page {}", gap.page),
            0,
            format!("every update after number {} once", gap.image_useq.0),
            format!("{gap:?}"),
            "The log lost or repeated a record of this page. Restore a backup.",
        )),
    }
}

/// Visits the given pages of a partition for a checkpoint, and passes each page to `take`. `sweep` has the checkpoint
/// and its slot. The partition's latch is held during the whole call, also while `take` copies.
///
/// Returns the first page that was not visited. `None`: the partition's last page was visited. In this case, the call
/// also appends the sidecar to `sidecar` and closes the checkpoint's cut in the partition.
pub fn visit(
    heap: &Heap,
    (partition, pages): (PartitionId, Range<u32>),
    sweep: (ImageSlot, CkptEpoch),
    sidecar: &mut Vec<u8>,
    mut take: impl FnMut(u32, PageId, Visit<'_>),
) -> Option<u32> {
    let mut part = heap.lock(partition);
    let end = part.pages().min(pages.end);
    for local in pages.start..end {
        let id = heap.geometry().page_id(partition, local);
        let id = id.expect("a page there is has an id");
        take(local, id, part.visit(local, sweep.0, sweep.1));
    }
    if end < part.pages() {
        return Some(end);
    }
    part.sidecar(sidecar);
    part.close_checkpoint_cut();
    None
}

#[cfg(test)]
mod tests;

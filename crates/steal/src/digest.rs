//! The contents of a database in one number.
//!
//! The digest is a sum: each taken slot adds a hash of its bytes. The digest does not depend on the places of rows, on
//! garbage in free slots or on the logging scheme. So equal histories give equal digests.

use perdura_base::PartitionId;
use perdura_base::checksum::{hash64, mix64};
use perdura_heap::Heap;
use perdura_page::layout;

/// Returns the digest of all taken slots as 16 hexadecimal digits.
#[must_use]
pub fn digest(heap: &Heap) -> String {
    let mut sum = 0u64;
    for id in (0..heap.geometry().partitions).map(PartitionId) {
        let part = heap.lock(id);
        for local in 0..part.pages() {
            let Some(page) = part.page_bytes(local) else {
                continue;
            };
            if layout::kind(page) != Some(perdura_page::PageKind::Slotted) {
                continue;
            }
            let Some(class) = layout::class(page) else {
                continue;
            };
            for slot in layout::taken(page, class).filter(|slot| *slot < class.slots()) {
                let of_row = hash64(0, layout::slot(page, class, slot));
                sum = sum.wrapping_add(mix64(of_row));
            }
        }
    }
    format!("{sum:016x}")
}

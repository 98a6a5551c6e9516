//! The code of a seeded bug in loading an image; see [`perdura_base::flaw`].

use perdura_base::limits::PAGE_BYTES;
use perdura_base::{PartitionId, Result};
use perdura_device::AlignedBuf;
use perdura_heap::Heap;

use crate::image::disk_of;
use crate::plan::ImagePlan;

impl ImagePlan {
    /// A seeded bug: loads pages that are in the files but not in the image's directory.
    ///
    /// # Errors
    /// Errors of the disk.
    #[cold]
    pub(super) fn load_junk(&self, heap: &Heap) -> Result<()> {
        let Some(files) = self.slot.and_then(|slot| self.files.get(&slot)) else {
            return Ok(());
        };
        let geometry = heap.geometry();
        let mut buf = AlignedBuf::zeroed(PAGE_BYTES);
        for partition in (0..geometry.partitions).map(PartitionId) {
            for local in 0..u32::from(geometry.chunk_pages) {
                let Some(page) = geometry.page_id(partition, local) else {
                    break;
                };
                let disk = disk_of(partition, files.len());
                let got = files[disk].read(self.places.place(page), &mut buf)?;
                let whole = got == PAGE_BYTES && perdura_page::layout::page_id(&buf) == page;
                let listed = self.directory.get(partition, local).is_present();
                if !listed && whole && buf.iter().any(|b| *b != 0) {
                    heap.lock(partition).load_page(local, &buf);
                }
            }
        }
        Ok(())
    }
}

//! The building of a single partition: pages of the image, records behind it, indexes, and claims of headers.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use perdura_base::limits::PAGE_BYTES;
use perdura_base::num::to_u64;
use perdura_base::{CkptEpoch, ImageSlot, PartitionId, Result};
use perdura_heap::{FoundHeader, Heap, MemoryUse};
use perdura_wal::scheme::Scheme;

use super::Awaited;
use crate::base::Image;
use crate::heap_pages::check_partition;
use crate::indexing::{Indexing, ReadCatalog};
use crate::load::LoadedRun;
use crate::options::RestartOptions;
use crate::owner::pages::page_bytes;
use crate::plan::ImagePlan;

/// The headers of collections that were found so far.
struct Headers {
    /// The headers whose collections are in a partition that is not built yet.
    waiting: BTreeMap<PartitionId, Vec<FoundHeader>>,
    /// For each partition, whether its rows are indexed.
    built: Vec<bool>,
}

/// The image and the records that absent partitions are built of.
pub(super) struct Building {
    heap: Arc<Heap>,
    awaited: Awaited,
    image: ImagePlan,
    /// The parts of the image that have pages of a partition: the disk and the number of each.
    parts: Vec<Vec<(usize, usize)>>,
    forms: Arc<dyn ReadCatalog>,
    scheme: Scheme,
    slot: Option<ImageSlot>,
    headers: Mutex<Headers>,
}

impl Building {
    /// Charges the memory account for all pages of the image, and for the indexes that its sidecars list.
    pub fn new(
        heap: &Arc<Heap>,
        image: ImagePlan,
        awaited: Awaited,
        options: &RestartOptions,
        scheme: Scheme,
    ) -> Building {
        let partitions = usize::from(heap.geometry().partitions);
        let mut parts = vec![Vec::new(); partitions];
        for (disk, runs) in image.runs.iter().enumerate() {
            for (number, run) in runs.iter().enumerate() {
                parts[usize::from(run.partition.0)].push((disk, number));
            }
        }
        let entries = image.sidecars.iter().map(Vec::len).sum::<usize>();
        heap.memory().add(MemoryUse::Pages, page_bytes(&image));
        heap.memory().add(MemoryUse::Indexes, to_u64(entries));
        Building {
            heap: Arc::clone(heap),
            slot: image.trusted_slot(),
            image,
            awaited,
            parts,
            forms: Arc::clone(&options.catalog),
            scheme,
            headers: Mutex::new(Headers {
                waiting: BTreeMap::new(),
                built: vec![false; partitions],
            }),
        }
    }

    /// Returns a heap that has only the pages of the catalog, as of the restart.
    pub fn catalog_heap(&self) -> &Arc<Heap> {
        &self.awaited.catalog_heap
    }

    /// Reads the parts of the image that have pages of a partition. Changes nothing.
    ///
    /// # Errors
    /// Errors of the disk.
    pub fn read(&self, id: PartitionId) -> Result<Vec<LoadedRun>> {
        let parts = self.parts[usize::from(id.0)].iter();
        parts
            .map(|(disk, number)| self.image.read(*disk, *number))
            .collect()
    }

    /// Builds a partition of pages of the image and records behind it.
    ///
    /// # Errors
    /// [`Error::Corrupt`](perdura_base::Error::Corrupt) for damage.
    pub fn build(&self, id: PartitionId, read: Vec<LoadedRun>) -> Result<()> {
        let heap = self.heap.as_ref();
        let mut bad = 0;
        for ((disk, number), part) in self.parts[usize::from(id.0)].iter().zip(read) {
            // From here on the pages themselves count as memory in use.
            let pages = self.image.runs[*disk][*number].entries.len();
            heap.memory()
                .sub(MemoryUse::Pages, to_u64(pages * PAGE_BYTES));
            bad += self.image.play(heap, part)?;
        }
        if bad > 0 {
            return Err(self.image.found_late(heap.geometry(), id));
        }
        self.awaited.tail.play(heap, id)?;
        if self.scheme.counts_updates() {
            check_partition(heap, id)?;
        }
        let indexing = self.indexing();
        indexing.end_replay(heap, id, self.awaited.tag);
        let sidecar = indexing.sidecar(heap, id);
        indexing.build(heap, id, &self.awaited.catalog, sidecar)?;
        let entries = self.image.sidecars[usize::from(id.0)].len();
        heap.memory().sub(MemoryUse::Indexes, to_u64(entries));
        self.claim(id)
    }

    fn indexing(&self) -> Indexing<'_> {
        Indexing {
            scheme: self.scheme,
            k: self.image.k,
            rows: self.awaited.rows,
            slot: self.slot,
            ckpt_floor: CkptEpoch(0),
            sidecars: &self.image.sidecars,
            pseq: self.image.pseq(),
            catalog: self.forms.as_ref(),
        }
    }

    /// Gives collections to their headers, and ends the absence of a partition whose rows are indexed. A header and its
    /// collection may lie in two partitions. Whichever of the two is built later makes the claim, before its rows can
    /// be read.
    fn claim(&self, id: PartitionId) -> Result<()> {
        let mut headers = self.headers.lock();
        let Headers { waiting, built } = &mut *headers;
        let found = self.heap.lock(id).take_headers();
        built[usize::from(id.0)] = true;
        let is_built = |header: &FoundHeader| built[usize::from(header.partition().0)];
        let (due, later): (Vec<_>, Vec<_>) = found.into_iter().partition(is_built);
        for header in due.iter().chain(&waiting.remove(&id).unwrap_or_default()) {
            self.heap.lock(header.partition()).claim(header)?;
        }
        // If a claim has failed, no header of this partition waits.
        for header in later {
            waiting.entry(header.partition()).or_default().push(header);
        }
        assert!(
            waiting.keys().all(|home| !built[usize::from(home.0)]),
            "a header waits only for a partition that is not built"
        );
        self.heap.set_absent(id, false);
        Ok(())
    }

    /// Lists the orphans, which are known when all partitions are built.
    pub fn list_orphans(&self) {
        assert!(
            self.headers.lock().waiting.is_empty(),
            "each header was found, and its collection too"
        );
        for id in self.heap.ids() {
            self.heap.lock(id).list_orphans();
        }
    }
}

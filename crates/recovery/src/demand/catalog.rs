//! The pages of the catalog, which a restart reads before it answers.
//!
//! The catalog's rows lie in pages of many partitions. Two sources name all these pages. A sidecar lists every row of
//! the catalog as of the end of its partition's sweep, and a slotted page without rows is free. A page that became one
//! of the catalog's after that has a record that changed its identity: its table or its kind.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use perdura_base::{PageId, PartitionId, Result, TableId};
use perdura_heap::{Geometry, Heap, MemoryAccount, listed_pages};
use perdura_page::PageKind;

use super::tail::{IdentityChange, SortedTail};
use crate::plan::ImagePlan;

/// The pages that may have rows of the catalog.
pub(super) struct CatalogPages(BTreeMap<PartitionId, BTreeSet<PageId>>);

impl CatalogPages {
    /// Finds all pages that have rows of the catalog, and perhaps some others. `None`: a sidecar is missing or does not
    /// parse.
    pub fn find(image: &ImagePlan, tail: &SortedTail, geometry: &Geometry) -> Option<CatalogPages> {
        let mut pages: BTreeMap<PartitionId, BTreeSet<PageId>> = BTreeMap::new();
        for (id, sidecar) in (0..).map(PartitionId).zip(&image.sidecars) {
            // A restored image has no sidecar of a partition that the archive's runs have changed.
            if sidecar.is_empty() && image.directory.present(id).next().is_some() {
                return None;
            }
            for local in listed_pages(sidecar, TableId::CATALOG)? {
                pages
                    .entry(id)
                    .or_default()
                    .insert(geometry.page_id(id, local)?);
            }
        }
        for (page, change) in tail.identities() {
            let (id, local) = (geometry.partition_of_page(page), geometry.local_index(page));
            // The image's bytes are not known yet. A page that the image does not have was zeros.
            if image.directory.get(id, local).is_present() || is_of_catalog(change) {
                pages.entry(id).or_default().insert(page);
            }
        }
        Some(CatalogPages(pages))
    }

    /// Loads these pages into a new heap, and builds the index of the catalog. `None`: the pages are damaged,
    /// or a row of the catalog lies in other pages as well.
    ///
    /// # Errors
    /// Errors of the disks.
    pub fn load(
        &self,
        image: &ImagePlan,
        tail: &SortedTail,
        geometry: Geometry,
    ) -> Result<Option<Arc<Heap>>> {
        let heap = Heap::new(geometry, Arc::new(MemoryAccount::new(u64::MAX)));
        let is_listed = |page: PageId| {
            let of_partition = self.0.get(&geometry.partition_of_page(page));
            of_partition.is_some_and(|pages| pages.contains(&page))
        };
        if image.load_some(&heap, &is_listed)? > 0 {
            return Ok(None);
        }
        for id in self.0.keys() {
            tail.play_some(&heap, *id, is_listed)?;
            let mut part = heap.lock(*id);
            if !part.useq_gaps().is_empty() {
                return Ok(None);
            }
            part.finish_restart(image.k, None);
            if part.build_catalog_index().is_err() {
                return Ok(None);
            }
        }
        Ok(Some(Arc::new(heap)))
    }
}

/// Returns whether a page with these bytes of identity has rows of the catalog.
fn is_of_catalog(identity: IdentityChange) -> bool {
    let [t0, t1, t2, t3, _, _, kind, _] = identity;
    TableId(u32::from_le_bytes([t0, t1, t2, t3])) == TableId::CATALOG
        && PageKind::from_code(kind) == Some(PageKind::Slotted)
}

//! Headers of collections as a restart finds them.

use perdura_base::{PageId, PartitionId, Result, TableId};
use perdura_page::{Home, Row, Shape, layout};

use crate::damage::damaged;
use crate::pages::Pages;
use crate::row_ref::RowRef;

/// A header that a restart has found. When all partitions have been built, it is compared with the collection that it
/// names.
#[derive(Debug, Clone, Copy)]
pub struct FoundHeader {
    pub(crate) table: TableId,
    pub(crate) home: Home,
    pub(crate) shape: Shape,
    pub(crate) page: PageId,
    pub(crate) slot: usize,
}

impl FoundHeader {
    /// Returns the partition of the collection that the header names.
    #[must_use]
    pub fn partition(&self) -> PartitionId {
        self.home.partition
    }
}

/// Returns the header that a row contains, with its page and slot.
pub(crate) fn found_header(
    pages: &Pages,
    local: u32,
    slot: usize,
    shape: Shape,
    row: &Row<'_>,
) -> Result<FoundHeader> {
    let home = RowRef::new(pages, *row).home();
    let home = home.filter(|home| home.partition.0 < pages.geometry.partitions);
    let damage = || {
        damaged(
            pages,
            local,
            Some(slot),
            "the home of a collection",
            "another value",
        )
    };
    Ok(FoundHeader {
        table: layout::table(pages.page(local)),
        home: home.ok_or_else(damage)?,
        shape,
        page: pages.page_id(local),
        slot,
    })
}

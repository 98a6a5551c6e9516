//! The mapping of pages to partitions. It is pure arithmetic, and fixed when a database is created.
//!
//! The partitions take chunks of pages in turn. This rule never changes, so no allocation state is logged or recovered.
//! `page = chunk * chunk_pages + i`, and the chunk belongs to partition `chunk % partitions`. The *local index* of a
//! page counts only the pages of the page's partition.

use perdura_base::{PageId, PartitionId};

/// The division of the pages among the partitions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Chunks {
    /// The number of partitions, at least 1.
    pub partitions: u16,
    /// The number of pages in a chunk, at least 1.
    pub pages: u16,
}

impl Chunks {
    /// Returns the partition that owns a page.
    #[inline]
    #[must_use]
    pub fn partition_of(self, page: PageId) -> PartitionId {
        let chunk = page.0 / u32::from(self.pages);
        PartitionId(u16::try_from(chunk % u32::from(self.partitions)).unwrap_or(0))
    }

    /// Returns the local index of a page.
    #[inline]
    #[must_use]
    pub fn local_index(self, page: PageId) -> u32 {
        let pages = u32::from(self.pages);
        let chunk = page.0 / pages;
        chunk / u32::from(self.partitions) * pages + page.0 % pages
    }

    /// Returns the page at a local index of a partition; `None` if the page's id would be 2^32 or more.
    #[inline]
    #[must_use]
    pub fn page_id(self, partition: PartitionId, local: u32) -> Option<PageId> {
        debug_assert!(
            partition.0 < self.partitions,
            "a partition of this database"
        );
        let pages = u32::from(self.pages);
        let page = (local / pages)
            .checked_mul(u32::from(self.partitions))?
            .checked_add(u32::from(partition.0))?
            .checked_mul(pages)?
            .checked_add(local % pages)
            .map(PageId)?;
        debug_assert_eq!(
            (self.partition_of(page), self.local_index(page)),
            (partition, local)
        );
        Some(page)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn page_ids_and_local_indexes_are_inverse() {
        for partitions in [1, 2, 256] {
            for pages in [1, 3, 128] {
                let chunks = Chunks { partitions, pages };
                for page in (0..5000).map(PageId) {
                    let p = chunks.partition_of(page);
                    assert!(p.0 < partitions);
                    assert_eq!(chunks.page_id(p, chunks.local_index(page)), Some(page));
                }
            }
        }
    }
}

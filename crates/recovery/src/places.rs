//! The positions of an image's pages in the image's files; see [`crate::image`].

use perdura_base::limits::PAGE_BYTES;
use perdura_base::num::to_u64;
use perdura_base::{PageId, PartitionId};
use perdura_heap::Geometry;

use crate::anchor::Anchor;

/// Bytes of a pages file before the first page.
pub const PAGES_HEADER_BYTES: u64 = 4096;

/// A page's place in the pages file of its disk, counted in pages from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place(pub u64);

impl Place {
    /// Returns the byte offset in the file.
    #[must_use]
    pub fn offset(self) -> u64 {
        PAGES_HEADER_BYTES + self.0 * to_u64(PAGE_BYTES)
    }
}

/// Returns which of `disks` image disks holds the pages of a partition. No other code decides this.
///
/// # Panics
/// If there are no disks: a database has at least one.
#[must_use]
pub fn disk_of(partition: PartitionId, disks: usize) -> usize {
    assert!(disks > 0, "images are on at least one disk");
    usize::from(partition.0) % disks
}

/// The places of a database's pages. A page's place never changes, because it depends only on the geometry and on how
/// many image disks there are.
#[derive(Debug, Clone, Copy)]
pub struct Places {
    geometry: Geometry,
    disks: u32,
}

/// Pages of a partition that lie side by side in a file.
struct Extent {
    /// The local index of the first page.
    start: u32,
    pages: u32,
}

impl Extent {
    /// Returns the extent that contains the page with the local index `local`. The extents of the first chunk have 1,
    /// 1, 2, 4, ... pages. After the first chunk, each chunk is one extent.
    fn of(local: u32, chunk_pages: u32) -> Extent {
        if local >= chunk_pages {
            let start = local - local % chunk_pages;
            return Extent {
                start,
                pages: chunk_pages,
            };
        }
        match local.checked_ilog2() {
            None => Extent { start: 0, pages: 1 },
            Some(power) => {
                let start = 1 << power;
                let pages = start.min(chunk_pages - start);
                Extent { start, pages }
            }
        }
    }
}

impl Places {
    /// Returns the places for the images of a database with this anchor.
    #[must_use]
    pub fn of(anchor: &Anchor) -> Places {
        Places::new(anchor.geometry, u32::from(anchor.images.disks))
    }

    /// Returns the places for images on `disks` disks.
    #[must_use]
    pub fn new(geometry: Geometry, disks: u32) -> Places {
        assert!(disks > 0, "images are on at least one disk");
        Places { geometry, disks }
    }

    /// Returns the partition of a page.
    #[must_use]
    pub fn partition(&self, page: PageId) -> PartitionId {
        self.geometry.partition_of_page(page)
    }

    /// Returns the place of a page in the file of its disk.
    #[must_use]
    pub fn place(&self, page: PageId) -> Place {
        let partition = u32::from(self.geometry.partition_of_page(page).0);
        let local = self.geometry.local_index(page);
        let extent = Extent::of(local, u32::from(self.geometry.chunk_pages));
        debug_assert!(
            (extent.start..extent.start + extent.pages).contains(&local),
            "page {local} lies in {} pages from {} on",
            extent.pages,
            extent.start
        );
        // `here` counts the partitions on the same disk. `before` counts the partitions on that disk that come before
        // this partition.
        let others = u32::from(self.geometry.partitions) - partition % self.disks;
        let here = u64::from(others.div_ceil(self.disks));
        let before = u64::from(partition / self.disks);
        Place(
            here * u64::from(extent.start)
                + before * u64::from(extent.pages)
                + u64::from(local - extent.start),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn shapes() -> impl Iterator<Item = Places> {
        let shape = |(partitions, chunk_pages, disks)| Places {
            geometry: Geometry {
                partitions,
                chunk_pages,
                hash_seed: 0,
            },
            disks,
        };
        [
            (1, 1, 1),
            (1, 128, 1),
            (4, 3, 1),
            (8, 5, 3),
            (16, 128, 1),
            (16, 128, 16),
            (256, 128, 1),
            (256, 64, 5),
        ]
        .into_iter()
        .map(shape)
    }

    fn places_of(shape: &Places, partition: u16, pages: u32) -> Vec<Place> {
        let page = |local| shape.geometry.page_id(PartitionId(partition), local);
        let locals = 0..pages;
        locals
            .map(|local| shape.place(page(local).unwrap()))
            .collect()
    }

    #[test]
    fn no_two_pages_of_a_disk_share_a_place_and_full_chunks_leave_no_place_free() {
        for shape in shapes() {
            let pages = 3 * u32::from(shape.geometry.chunk_pages);
            for disk in 0..shape.disks {
                let mut taken = BTreeSet::new();
                for partition in 0..shape.geometry.partitions {
                    if u32::from(partition) % shape.disks != disk {
                        continue;
                    }
                    for place in places_of(&shape, partition, pages) {
                        assert!(taken.insert(place), "{shape:?} {place:?}");
                    }
                }
                let count = to_u64(taken.len());
                assert!(
                    taken.last().is_none_or(|last| last.0 + 1 == count),
                    "{shape:?}"
                );
            }
        }
    }

    #[test]
    fn a_file_is_at_most_twice_as_long_as_its_pages_if_the_partitions_hold_alike() {
        for shape in shapes() {
            let here = u64::from(u32::from(shape.geometry.partitions).div_ceil(shape.disks));
            for pages in 1..3 * u32::from(shape.geometry.chunk_pages) {
                // The length of the first disk's file, in pages.
                let mut longest = 0;
                for partition in (0..shape.geometry.partitions)
                    .filter(|partition| u32::from(*partition) % shape.disks == 0)
                {
                    let page = shape.geometry.page_id(PartitionId(partition), pages - 1);
                    longest = longest.max(shape.place(page.unwrap()).0 + 1);
                }
                assert!(
                    longest <= 2 * here * u64::from(pages),
                    "{shape:?}: {longest} places for {here} partitions of {pages} pages"
                );
            }
        }
    }

    #[test]
    fn pages_of_an_extent_stand_side_by_side() {
        for shape in shapes() {
            let chunk_pages = u32::from(shape.geometry.chunk_pages);
            let places = places_of(&shape, 0, 2 * chunk_pages);
            for (local, pair) in (0u32..).zip(places.windows(2)) {
                let starts = Extent::of(local + 1, chunk_pages).start == local + 1;
                assert!(starts || pair[1].0 == pair[0].0 + 1, "{shape:?} {local}");
            }
        }
    }
}

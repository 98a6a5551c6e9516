//! The two pools of a partition's pages.
//!
//! A table whose log records name keys changes pages that no record describes. If such a page went to a table whose
//! records are differences of pages, a restart would play them onto bytes that it does not know. So the pages are
//! apart: odd chunks, counted within the partition, are taken for key-addressed tables alone, and even ones for all
//! others. Only the *taking* depends on it. A database that is older than the pools has other tables' pages in odd
//! chunks, which stay what they are until they are freed.
//!
//! A free page of an odd chunk may have been logged before. That does no harm: no record follows.

use perdura_base::flaw::{Flaw, armed};

use crate::pages::{Pages, index};

/// The pages of a partition that were used at some time.
#[derive(Clone, Copy)]
pub(crate) struct Extent {
    fresh: [u32; 2],
    chunk_pages: u32,
}

impl Extent {
    /// Returns whether a page was used at that time.
    pub(crate) fn holds(&self, local: u32) -> bool {
        local < self.fresh[usize::from(local / self.chunk_pages % 2 == 1)]
    }

    /// Returns the first page behind all that were used.
    pub(crate) fn end(&self) -> u32 {
        self.fresh[0].max(self.fresh[1])
    }
}

impl Pages {
    /// Returns the pages that were used until now.
    pub(crate) fn extent(&self) -> Extent {
        Extent {
            fresh: [0, 1].map(|pool| self.pools[pool].fresh),
            chunk_pages: u32::from(self.geometry.chunk_pages),
        }
    }

    /// Returns the pool of a page.
    pub(crate) fn pool_of(&self, local: u32) -> usize {
        index(local) / usize::from(self.geometry.chunk_pages) % 2
    }

    /// Returns the pool that pages of key-addressed tables, or those of all others, are taken from.
    pub(crate) fn pool_for(&self, keyed: bool) -> usize {
        usize::from(keyed && !armed(Flaw::PoolsShared))
    }

    /// Returns whether a page was ever used.
    pub(crate) fn is_used(&self, local: u32) -> bool {
        local < self.pools[self.pool_of(local)].fresh
    }

    /// Returns the pages that were ever used, in ascending order.
    pub(crate) fn used(&self) -> impl DoubleEndedIterator<Item = u32> + use<> {
        let fresh = [0, 1].map(|pool| self.pools[pool].fresh);
        let chunk_pages = u32::from(self.geometry.chunk_pages);
        let chunks = 0..fresh[0].max(fresh[1]).div_ceil(chunk_pages);
        chunks.flat_map(move |chunk| {
            let fresh = fresh[usize::from(chunk % 2 == 1)];
            let first = chunk * chunk_pages;
            first..fresh.min(first + chunk_pages).max(first)
        })
    }

    /// Returns the first page of a pool that was never used.
    pub(crate) fn first_fresh(&self, pool: usize) -> u32 {
        let fresh = self.pools[pool].fresh;
        if self.pool_of(fresh) == pool {
            return fresh;
        }
        let chunk_pages = u32::from(self.geometry.chunk_pages);
        let next = fresh - fresh % chunk_pages + chunk_pages;
        debug_assert_eq!(self.pool_of(next), pool, "chunks belong to pools in turn");
        next
    }
}

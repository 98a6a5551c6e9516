//! The two pools of a partition's pages.
//!
//! The pages of a table whose log records name keys change without page records. Other tables have records that are
//! differences of pages. If such a table got a page of the first kind, a restart would apply these differences to
//! unknown bytes. So each partition has two pools. Key-addressed tables take pages only from odd chunks, counted within
//! the partition, and all other tables only from even chunks. Only *taking* a page depends on the pool. A database from
//! before the pools may have pages of other tables in odd chunks. These pages stay in use until they are freed.
//!
//! A free page of an odd chunk may have old log records. They do no harm, because no later record of that page follows.

use perdura_base::flaw::{Flaw, armed};

use crate::pages::{Pages, index};

/// The pages of a partition that had been used up to a certain time.
#[derive(Clone, Copy)]
pub(crate) struct Extent {
    fresh: [u32; 2],
    chunk_pages: u32,
}

impl Extent {
    /// Returns whether a page had been used up to that time.
    pub(crate) fn holds(&self, local: u32) -> bool {
        local < self.fresh[usize::from(local / self.chunk_pages % 2 == 1)]
    }

    /// Returns the first page behind all pages that had been used.
    pub(crate) fn end(&self) -> u32 {
        self.fresh[0].max(self.fresh[1])
    }
}

impl Pages {
    /// Returns the pages that have been used up to now.
    pub(crate) fn extent(&self) -> Extent {
        Extent {
            fresh: [0, 1].map(|pool| self.pools[pool].fresh),
            chunk_pages: u32::from(self.geometry.chunk_pages),
        }
    }

    /// Returns the index of a page's pool.
    pub(crate) fn pool_of(&self, local: u32) -> usize {
        index(local) / usize::from(self.geometry.chunk_pages) % 2
    }

    /// Returns the index of the pool from which pages of key-addressed tables (`keyed`) or of all other tables are
    /// taken.
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

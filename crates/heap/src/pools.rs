//! The two pools of a partition's pages.
//!
//! Changes of a key-addressed table are logged by key, so its pages change without page records. The records of all
//! other tables are differences of pages. Suppose a table with page records took a page that a key-addressed table had
//! used. A restart would then apply the differences to unknown bytes. So each partition has two pools. Key-addressed
//! tables take pages only from odd chunks, counted within the partition, and all other tables only from even chunks.
//! A database that is older than the pools may have pages of other tables in odd chunks. These pages stay in use until
//! they are freed, because the pool only decides which pages a table may *take*.
//!
//! The log may have old records of a free page in an odd chunk. They do no harm, because no later record of that page
//! follows.

use perdura_base::flaw::{Flaw, armed};

use crate::pages::{Pages, index};

/// The pages of a partition that had been used when this value was made.
#[derive(Clone, Copy)]
pub(crate) struct Extent {
    fresh: [u32; 2],
    chunk_pages: u32,
}

impl Extent {
    /// Returns whether a page had been used when this value was made.
    pub(crate) fn holds(&self, local: u32) -> bool {
        local < self.fresh[usize::from(local / self.chunk_pages % 2 == 1)]
    }

    /// Returns the first local index above all pages of the extent.
    pub(crate) fn end(&self) -> u32 {
        self.fresh[0].max(self.fresh[1])
    }
}

impl Pages {
    /// Returns the extent of the pages used so far.
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

    /// Returns the index of a pool. If `keyed` is true, it is the pool of key-addressed tables. Otherwise it is the
    /// pool of all other tables.
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

    /// Returns a pool's first page that was never used.
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

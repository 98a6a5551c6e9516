//! The pages of an increment: those that the cut before it lacks or has with other bytes.

use perdura_archive::backup::{PageEntry, UsedPage, encode_used, is_keyed};
use perdura_base::{CkptEpoch, PartitionId, Result};
use perdura_page::Chunks;
use perdura_recovery::image::DirEntry;

use crate::last_cut::LastCut;

/// The choice of an increment's pages, one partition after another.
pub(crate) struct Since {
    cut: LastCut,
    chunks: Chunks,
    /// The checkpoint epoch of the image that is copied.
    k: CkptEpoch,
    partition: PartitionId,
    /// The used pages of the current partition.
    used: Vec<UsedPage>,
}

/// Returns the entry of a page in a backup.
pub(crate) fn page_entry(local: u32, listed: &DirEntry) -> PageEntry {
    PageEntry {
        local,
        useq: listed.useq,
        crc: listed.crc,
        digest: listed.digest,
    }
}

/// Returns whether a page of the cut may be the page of an image. Different digests are of different bytes. Equal digests
/// prove nothing.
fn may_be(page: &UsedPage, listed: &DirEntry) -> bool {
    (page.entry.digest, page.entry.useq) == (listed.digest, listed.useq)
}

impl Since {
    pub(crate) fn new(cut: LastCut, chunks: Chunks, k: CkptEpoch) -> Since {
        assert!(cut.k < k, "an increment is later than the cut before");
        Since {
            cut,
            chunks,
            k,
            partition: PartitionId(0),
            used: Vec::new(),
        }
    }

    /// Returns the cut before.
    pub(crate) fn cut(&self) -> &LastCut {
        &self.cut
    }

    /// Begins a partition. `present` are the image's pages. Returns the pages to read: those that a checkpoint wrote after
    /// the cut, and those that the cut lacks.
    pub(crate) fn begin_partition(
        &mut self,
        partition: PartitionId,
        present: impl Iterator<Item = (u32, DirEntry)>,
    ) -> Vec<(u32, DirEntry)> {
        self.partition = partition;
        self.used.clear();
        let mut to_read = Vec::new();
        for (local, listed) in present {
            let entry = page_entry(local, &listed);
            if !is_keyed(self.chunks, &entry) {
                continue;
            }
            let of_cut = self.cut.page(partition, local);
            let is_unchanged =
                |page: &&UsedPage| self.cut.is_older(&listed) && may_be(page, &listed);
            match of_cut.filter(is_unchanged) {
                Some(page) => self.used.push(*page),
                None => {
                    to_read.push((local, listed));
                    let holder = self.k;
                    self.used.push(UsedPage { entry, holder });
                }
            }
        }
        debug_assert!(to_read.len() <= self.used.len(), "pages to read are used");
        to_read
    }

    /// Returns whether the increment leaves out a page, because the cut before has it with the same bytes. The used pages
    /// then name the file that holds it.
    pub(crate) fn is_held(&mut self, local: u32, listed: &DirEntry, bytes: &[u8]) -> Result<bool> {
        let Some(page) = self.cut.page(self.partition, local).copied() else {
            return Ok(false);
        };
        if !may_be(&page, listed) || !self.cut.is_same(self.partition, &page, bytes)? {
            return Ok(false);
        }
        let at = self
            .used
            .binary_search_by_key(&local, |page| page.entry.local);
        self.used[at.expect("a page that is read is used")] = page;
        Ok(true)
    }

    /// Returns the list of the current partition's used pages.
    pub(crate) fn list(&self) -> Vec<u8> {
        encode_used(&self.used)
    }
}

//! The directory of an image in memory: an entry for each page.

use std::sync::LazyLock;

use perdura_base::checksum::{affine_constant, linear_digest};
use perdura_base::cursor::{Reader, Writer};
use perdura_base::limits::PAGE_BYTES;
use perdura_base::num::{to_u32, to_u64, to_usize};
use perdura_base::{CkptEpoch, PageId, PartitionId, Useq};
use perdura_heap::Geometry;
use perdura_page::digest::{bound, page_crc};

/// Bytes of a directory entry.
const ENTRY_BYTES: usize = 28;
/// Bytes at a page's start that are not part of the logged region.
const META_BYTES: usize = 16;

/// The directory's entry for one page.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DirEntry {
    /// The checkpoint that wrote the page into this slot; 0 if the page is not in the image.
    pub epoch: CkptEpoch,
    /// The page's update number, as it is in the image.
    pub useq: Useq,
    /// CRC-32C of the page's id and bytes.
    pub crc: u32,
    /// XOR-linear digest of the logged region.
    pub digest: u64,
}

impl DirEntry {
    /// Makes the directory entry of a page that checkpoint `k` writes.
    #[must_use]
    pub fn describe(page: PageId, bytes: &[u8], k: CkptEpoch, summer: &PageSummer) -> DirEntry {
        DirEntry {
            epoch: k,
            useq: perdura_page::layout::useq(bytes),
            crc: page_crc(page, bytes),
            digest: summer.digest(bytes),
        }
    }

    /// Returns whether the page is in the image.
    #[must_use]
    pub fn is_present(&self) -> bool {
        self.epoch.0 != 0
    }
}

/// Computes XOR-linear digests of pages.
pub struct PageSummer {
    zeros: u64,
}

impl PageSummer {
    /// Makes a summer.
    #[must_use]
    pub fn new() -> Self {
        static ZEROS: LazyLock<u64> = LazyLock::new(|| affine_constant(PAGE_BYTES - META_BYTES));
        PageSummer { zeros: *ZEROS }
    }

    /// Returns the digest of a page's logged region.
    #[must_use]
    pub fn digest(&self, page: &[u8]) -> u64 {
        linear_digest(&page[META_BYTES..], self.zeros)
    }
}

impl Default for PageSummer {
    fn default() -> Self {
        Self::new()
    }
}

/// The entries of one image, in memory. Each partition has a list of entries, in the order of local page indexes.
#[derive(Debug, Clone, Default)]
pub struct Directory {
    parts: Vec<Vec<DirEntry>>,
}

impl Directory {
    /// Returns a directory without entries.
    #[must_use]
    pub fn empty(partitions: u16) -> Self {
        Directory {
            parts: vec![Vec::new(); usize::from(partitions)],
        }
    }

    /// Returns the entry of a page. If the page is not in the image, the entry is not [present](DirEntry::is_present).
    #[must_use]
    pub fn get(&self, partition: PartitionId, local: u32) -> DirEntry {
        let entries = &self.parts[usize::from(partition.0)];
        entries
            .get(to_usize(u64::from(local)))
            .copied()
            .unwrap_or_default()
    }

    /// Sets the entry of a page.
    pub fn set(&mut self, partition: PartitionId, local: u32, entry: DirEntry) {
        let entries = &mut self.parts[usize::from(partition.0)];
        let at = to_usize(u64::from(local));
        if entries.len() <= at {
            entries.resize(at + 1, DirEntry::default());
        }
        entries[at] = entry;
    }

    /// Returns the present pages of a partition, ascending.
    pub fn present(&self, partition: PartitionId) -> impl Iterator<Item = (u32, DirEntry)> + '_ {
        let entries = &self.parts[usize::from(partition.0)];
        (0u32..)
            .zip(entries.iter().copied())
            .filter(|(_, entry)| entry.is_present())
    }

    /// Returns the number of pages that are present.
    #[must_use]
    pub fn pages(&self) -> u64 {
        let present = |entries: &Vec<DirEntry>| entries.iter().filter(|e| e.is_present()).count();
        to_u64(self.parts.iter().map(present).sum())
    }

    /// Returns the digest of each present page of a partition, in ascending order of pages. Each digest is bound to the
    /// page's id.
    pub fn bound_digests(
        &self,
        partition: PartitionId,
        geometry: &Geometry,
    ) -> impl Iterator<Item = (u32, u64)> + '_ {
        let geometry = *geometry;
        self.present(partition).map(move |(local, entry)| {
            let page = geometry.page_id(partition, local);
            let page = page.expect("a page of the image has an id");
            (local, bound(page, entry.digest))
        })
    }

    /// Returns the XOR of the digests of all present pages. Each digest is bound to the page's id.
    #[must_use]
    pub fn proof(&self, geometry: &Geometry) -> u64 {
        let all = (0..geometry.partitions).map(PartitionId);
        all.flat_map(|id| self.bound_digests(id, geometry))
            .fold(0, |sum, (_, digest)| sum ^ digest)
    }

    /// Encodes the section of a partition. `pseq` is the partition's sequence number in a consistent image, otherwise
    /// `None`.
    #[must_use]
    pub fn encode_section(
        &self,
        partition: PartitionId,
        pseq: Option<u64>,
        sidecar: &[u8],
    ) -> Vec<u8> {
        let count = self.present(partition).count();
        let head = if pseq.is_some() { 12 } else { 4 };
        let mut out = Vec::with_capacity(head + count * ENTRY_BYTES + sidecar.len());
        if let Some(pseq) = pseq {
            out.put_u64(pseq);
        }
        out.put_u32(to_u32(count));
        for (local, entry) in self.present(partition) {
            out.put_u32(local);
            out.put_u64(entry.epoch.0);
            out.put_u32(entry.useq.0);
            out.put_u32(entry.crc);
            out.put_u64(entry.digest);
        }
        assert_eq!(
            out.len(),
            head + count * ENTRY_BYTES,
            "an entry has the length by which it is read"
        );
        out.put(sidecar);
        out
    }

    /// Reads a section's entries into this directory and returns the sidecar's bytes. `None`: the section is malformed.
    /// `r` is positioned at the count of entries, after the partition's sequence number (if any).
    pub(super) fn decode_section<'a>(
        &mut self,
        partition: PartitionId,
        mut r: Reader<'a>,
        k: CkptEpoch,
        geometry: &Geometry,
    ) -> Option<&'a [u8]> {
        let count = r.u32()?;
        let mut next = 0;
        for _ in 0..count {
            let local = r.u32()?;
            let entry = DirEntry {
                epoch: CkptEpoch(r.u64()?),
                useq: Useq(r.u32()?),
                crc: r.u32()?,
                digest: r.u64()?,
            };
            let sound = local >= next && entry.is_present() && entry.epoch <= k;
            if !sound || geometry.page_id(partition, local).is_none() {
                return None;
            }
            next = local + 1;
            self.set(partition, local, entry);
        }
        debug_assert!(
            self.present(partition).count() >= to_usize(u64::from(count)),
            "each entry is of a page of its own"
        );
        r.bytes(r.remaining())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_example_of_the_format_page_is_read_and_written_again() {
        let page = include_str!("../../../../docs/formats/image.md");
        let (_, example) = page.split_once("```text hex\n").expect("an example");
        let (example, _) = example.split_once("```").expect("its end");
        let digits: Vec<u8> = example.bytes().filter(u8::is_ascii_hexdigit).collect();
        let byte = |two: &[u8]| u8::from_str_radix(std::str::from_utf8(two).ok()?, 16).ok();
        let bytes: Option<Vec<u8>> = digits.chunks(2).map(byte).collect();
        let bytes = bytes.expect("hex digits");
        let geometry = Geometry {
            partitions: 1,
            chunk_pages: 128,
            hash_seed: 0,
        };
        let mut directory = Directory::empty(1);
        let mut r = Reader::new(&bytes);
        let pseq = r.u64();
        let p = PartitionId(0);
        let sidecar = directory.decode_section(p, r, CkptEpoch(9), &geometry);
        assert_eq!((pseq, sidecar.map(<[u8]>::len)), (Some(258), Some(16)));
        let entry = directory.get(p, 4);
        assert_eq!((entry.epoch, entry.useq), (CkptEpoch(9), Useq(3)));
        assert_eq!(
            (entry.crc, entry.digest),
            (0xdead_beef, 0x0102_0304_0506_0708)
        );
        let again = directory.encode_section(p, pseq, sidecar.unwrap_or_default());
        assert_eq!(again, bytes);
        let fuzzy = directory.encode_section(p, None, sidecar.unwrap_or_default());
        assert_eq!(fuzzy, bytes[8..]);
    }
}

//! The assignment of keys and pages to partitions. The arithmetic is fixed when a database is made.
//!
//! The top bits of a key's hash choose the key's partition. Lower bits choose the place in an index. [`Chunks`] assigns
//! pages to partitions.

use perdura_base::checksum::{hash64, mix64};
use perdura_base::cursor::{Reader, Writer};
use perdura_base::limits::{PAGE_BYTES, PARTITIONS_MAX};
use perdura_base::num::to_u32;
use perdura_base::{PageId, PartitionId};
use perdura_page::{Chunks, CollectionId};

/// The 64-bit hash of a key under the database's seed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct KeyHash(pub u64);

/// The properties fixed at the creation of a database.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Geometry {
    /// The number of virtual partitions: a power of two, at most 256.
    pub partitions: u16,
    /// The number of pages in a chunk, at least one.
    pub chunk_pages: u16,
    /// The seed of the hash of keys.
    pub hash_seed: u64,
}

/// The salts that make the order of entries differ from index to index. Without salts, all indexes would be in one
/// order. Copying rows from one index to a second index would then fill a growing array from one end.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Salts {
    keys: u64,
    collections: u64,
}

impl Salts {
    /// Returns the salt of an index of keys. All tables of a partition have the same salt, so that a cursor stays valid
    /// when two databases swap their contents.
    pub(crate) fn of_keys(self) -> u64 {
        self.keys
    }

    /// Returns the salt of the index of a collection's names. It depends on the collection's id, which a rename of the
    /// key does not change. A partition never has two collections with the same id, even in different tables.
    pub(crate) fn of_collection(self, id: CollectionId) -> u64 {
        mix64(self.collections ^ id.0)
    }
}

impl Geometry {
    /// The tag of the anchor's section that holds the geometry (docs/formats/anchor.md).
    pub const SECTION: [u8; 4] = *b"GEOM";

    /// Returns the payload of the anchor's section.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(16);
        out.put_u32(to_u32(PAGE_BYTES));
        out.put_u16(self.chunk_pages);
        out.put_u16(self.partitions);
        out.put_u64(self.hash_seed);
        out
    }

    /// Reads the payload of the anchor's section; `None` if [`encode`](Self::encode) could not have written it.
    #[must_use]
    pub fn decode(payload: &[u8]) -> Option<Geometry> {
        let mut r = Reader::new(payload);
        let page_bytes = r.u32()?;
        let geometry = Geometry {
            chunk_pages: r.u16()?,
            partitions: r.u16()?,
            hash_seed: r.u64()?,
        };
        let in_range = page_bytes == to_u32(PAGE_BYTES)
            && geometry.chunk_pages > 0
            && (1..=PARTITIONS_MAX).contains(&geometry.partitions)
            && geometry.partitions.is_power_of_two();
        (in_range && r.remaining() == 0).then_some(geometry)
    }

    /// Returns the hash of a key.
    #[must_use]
    pub fn hash(&self, key: &[u8]) -> KeyHash {
        KeyHash(hash64(self.hash_seed, key))
    }

    /// Returns the hash of a key in a partition that the caller has chosen. The top bits are the partition's number.
    /// The lower bits are taken from [`hash`](Self::hash).
    #[must_use]
    pub fn hash_in(&self, partition: PartitionId, key: &[u8]) -> KeyHash {
        debug_assert!(
            partition.0 < self.partitions,
            "a partition of this database"
        );
        let bits = self.partitions.trailing_zeros();
        let low = u64::MAX.checked_shr(bits).unwrap_or(0);
        let top = u64::from(partition.0).checked_shl(64 - bits).unwrap_or(0);
        KeyHash(top | self.hash(key).0 & low)
    }

    /// Returns the salts of the indexes in a partition. They are computed from durable numbers only, because cursors
    /// outlive restarts.
    pub(crate) fn salts(&self, partition: PartitionId) -> Salts {
        let partition = mix64(self.hash_seed ^ mix64(u64::from(partition.0) + 1));
        Salts {
            keys: partition,
            collections: mix64(!partition),
        }
    }

    /// Returns the partition of a key with this hash, from the hash's top bits.
    #[must_use]
    pub fn partition_of(&self, hash: KeyHash) -> PartitionId {
        let bits = self.partitions.trailing_zeros();
        let top = hash.0.checked_shr(64 - bits).unwrap_or(0);
        debug_assert!(
            top < u64::from(self.partitions),
            "each hash has a partition"
        );
        PartitionId(u16::try_from(top).unwrap_or(0))
    }

    /// Returns the assignment of pages to partitions.
    #[inline]
    #[must_use]
    pub fn chunks(&self) -> Chunks {
        Chunks {
            partitions: self.partitions,
            pages: self.chunk_pages,
        }
    }

    /// Returns the partition that owns a page; see [`Chunks`].
    #[inline]
    #[must_use]
    pub fn partition_of_page(&self, page: PageId) -> PartitionId {
        self.chunks().partition_of(page)
    }

    /// Returns the index of a page among the pages of its partition.
    #[inline]
    #[must_use]
    pub fn local_index(&self, page: PageId) -> u32 {
        self.chunks().local_index(page)
    }

    /// Returns the page at a local index of a partition; `None` beyond the 2^32 pages of a heap.
    #[inline]
    #[must_use]
    pub fn page_id(&self, partition: PartitionId, local: u32) -> Option<PageId> {
        self.chunks().page_id(partition, local)
    }

    /// Panics unless the fields are in their ranges. [`Heap::new`](crate::Heap::new) calls it.
    pub(crate) fn assert_sound(&self) {
        assert!(self.partitions.is_power_of_two() && self.partitions <= 256);
        assert!(self.chunk_pages > 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_partition_gets_its_share_of_hashes() {
        let g = Geometry {
            partitions: 256,
            chunk_pages: 128,
            hash_seed: 1,
        };
        assert_eq!(g.partition_of(KeyHash(u64::MAX)), PartitionId(255));
        assert_eq!(g.partition_of(KeyHash(1 << 56)), PartitionId(1));
        let one = Geometry { partitions: 1, ..g };
        assert_eq!(one.partition_of(KeyHash(u64::MAX)), PartitionId(0));
    }

    #[test]
    fn a_chosen_partition_is_in_the_top_bits_and_the_others_stay() {
        for bits in 0..=8 {
            let g = Geometry {
                partitions: 1 << bits,
                chunk_pages: 128,
                hash_seed: 1,
            };
            for partition in (0..g.partitions).map(PartitionId) {
                let (hash, of_key) = (g.hash_in(partition, b"key"), g.hash(b"key"));
                assert_eq!(g.partition_of(hash), partition);
                assert_eq!(hash.0 << bits, of_key.0 << bits);
            }
            let own = g.partition_of(g.hash(b"key"));
            assert_eq!(g.hash_in(own, b"key"), g.hash(b"key"));
        }
    }
}

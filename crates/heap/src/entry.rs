//! The entry of an index: the place of a row.
//!
//! An entry is eight bytes: 30 bits of the key's hash, 24 bits for the local page, 10 bits for the slot. The hash's
//! *top* bits choose the partition, and the entry keeps the hash's *low* bits. So the position of an entry in an index
//! does not depend on the partition. The position is computed from the entry alone, so an index can grow without
//! reading a row. Keys are compared in the page.

use perdura_base::checksum::mix64;

use crate::geometry::KeyHash;

/// The number of local pages that an entry can name.
pub(crate) const LOCAL_PAGES_MAX: u32 = 1 << 24;
const SLOT_BITS: u32 = 10;
const LOCAL_BITS: u32 = 24;
const HASH_MASK: u64 = (1 << 30) - 1;

/// The place of a row, with a part of its key's hash.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Entry(pub(crate) u64);

impl Entry {
    pub(crate) fn new(hash: KeyHash, local: u32, slot: usize) -> Entry {
        debug_assert!(local < LOCAL_PAGES_MAX && slot < 1 << SLOT_BITS);
        let slot = u64::try_from(slot).unwrap_or(0);
        Entry(
            (hash.0 & HASH_MASK) << (LOCAL_BITS + SLOT_BITS) | u64::from(local) << SLOT_BITS | slot,
        )
    }

    pub(crate) fn local(self) -> u32 {
        u32::try_from(self.0 >> SLOT_BITS & u64::from(LOCAL_PAGES_MAX - 1)).unwrap_or(0)
    }

    pub(crate) fn slot(self) -> usize {
        usize::try_from(self.0 & ((1 << SLOT_BITS) - 1)).unwrap_or(0)
    }

    pub(crate) fn hash_is(self, hash: KeyHash) -> bool {
        self.0 >> (LOCAL_BITS + SLOT_BITS) == hash.0 & HASH_MASK
    }

    /// Returns the hash that places the entry in an index with this salt: the entry's 30 hash bits, spread over 64. The
    /// salt is mixed in *before* the bits are spread. If it were added afterwards, the orders of two indexes would
    /// differ only by a rotation. Entries in the order of one index would then fill the second index in clusters.
    pub(crate) fn spread(self, salt: u64) -> u64 {
        mix64(self.0 >> (LOCAL_BITS + SLOT_BITS) ^ salt)
    }
}

/// Returns the hash that places the entries of a key in an index with this salt.
pub(crate) fn spread(hash: KeyHash, salt: u64) -> u64 {
    mix64(hash.0 & HASH_MASK ^ salt)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_keeps_its_place_and_the_low_bits_of_the_hash() {
        let hash = KeyHash(0xdead_beef_f00d_4321);
        let entry = Entry::new(hash, LOCAL_PAGES_MAX - 1, 1011);
        assert_eq!((entry.local(), entry.slot()), (LOCAL_PAGES_MAX - 1, 1011));
        assert!(entry.hash_is(hash));
        assert!(!entry.hash_is(KeyHash(hash.0 ^ 1)));
        assert_eq!(entry.spread(7), spread(hash, 7));
    }
}

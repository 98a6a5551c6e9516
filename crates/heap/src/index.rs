//! The indexes of one table in one partition. All of it is derived from pages.
//!
//! An entry of the hash index is eight bytes: 30 bits of the key's hash, 24 of the local page, 10
//! of the slot. The partition is chosen by the hash's *top* bits and the entry keeps its *low*
//! ones, so that both choices are independent. The index can grow without looking at a row,
//! because the place of an entry follows from the entry alone. Keys are compared in the page.

use std::collections::{BTreeMap, BTreeSet};

use perdura_base::checksum::mix64;
use perdura_page::SlotClass;

use crate::collection::Collections;
use crate::geometry::{KeyHash, Salts};
use crate::hash_index::HashIndex;
use crate::memory::{MemoryAccount, MemoryUse};

/// Local pages that an entry can name.
pub(crate) const LOCAL_PAGES_MAX: u32 = 1 << 24;
const SLOT_BITS: u32 = 10;
const LOCAL_BITS: u32 = 24;
const HASH_MASK: u64 = (1 << 30) - 1;
/// An estimate of what an ordered index takes per key besides the key, bytes.
const ORDERED_ENTRY_BYTES: u64 = 48;
/// An estimate of what the set of expiries takes per row, bytes.
const EXPIRY_ENTRY_BYTES: u64 = 24;

/// Where a row is, with a part of its key's hash.
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

    /// The hash that places the entry in an index of this salt: its 30 bits, spread over 64. The
    /// salt is mixed in *before* the bits are spread: added afterwards it would turn the order of
    /// one index into that of another by a rotation, and leave it clustered.
    pub(crate) fn spread(self, salt: u64) -> u64 {
        mix64(self.0 >> (LOCAL_BITS + SLOT_BITS) ^ salt)
    }
}

/// The hash that places the entries of a key in an index of this salt.
pub(crate) fn spread(hash: KeyHash, salt: u64) -> u64 {
    mix64(hash.0 & HASH_MASK ^ salt)
}

/// What is derived for one table.
pub(crate) struct Table {
    pub(crate) hash: HashIndex,
    pub(crate) ordered: Option<BTreeMap<Box<[u8]>, Entry>>,
    pub(crate) expiries: BTreeSet<(u64, Entry)>,
    pub(crate) collections: Collections,
    /// Per class, pages that may have a free slot; checked when popped.
    pub(crate) open: Vec<Vec<u32>>,
    ordered_bytes: u64,
    accounted: u64,
}

impl Table {
    pub(crate) fn new(ordered: bool, salts: Salts) -> Table {
        Table {
            hash: HashIndex::new(salts.of_keys()),
            ordered: ordered.then(BTreeMap::new),
            expiries: BTreeSet::new(),
            collections: Collections::new(salts),
            open: Vec::new(),
            ordered_bytes: 0,
            accounted: 0,
        }
    }

    /// Adds a key that is not there, used at a second.
    pub(crate) fn insert(&mut self, entry: Entry, second: u32, key: impl FnOnce() -> Box<[u8]>) {
        self.hash.insert_used(entry, second);
        if let Some(ordered) = &mut self.ordered {
            let key = key();
            let bytes = bytes_of(&key);
            if ordered.insert(key, entry).is_none() {
                self.ordered_bytes += bytes;
            }
            debug_assert_eq!(
                ordered.len(),
                self.hash.len(),
                "both indexes have every key"
            );
        }
    }

    pub(crate) fn remove(&mut self, entry: Entry, key: &[u8]) {
        assert!(self.hash.remove(entry), "an indexed row");
        if let Some(ordered) = &mut self.ordered
            && ordered.remove(key).is_some()
        {
            self.ordered_bytes -= bytes_of(key);
            debug_assert_eq!(
                ordered.len(),
                self.hash.len(),
                "both indexes have every key"
            );
        }
    }

    /// During a restart: forgets what was built from rows.
    pub(crate) fn forget_rows(&mut self) {
        self.hash.clear();
        if let Some(ordered) = &mut self.ordered {
            ordered.clear();
        }
        self.ordered_bytes = 0;
        self.expiries.clear();
        self.collections.forget();
    }

    /// Inserts a key that may be there already; whether it was new.
    pub(crate) fn insert_ordered(&mut self, key: &[u8], entry: Entry) -> bool {
        let Some(ordered) = &mut self.ordered else {
            return true;
        };
        self.ordered_bytes += bytes_of(key);
        ordered.insert(key.into(), entry).is_none()
    }

    pub(crate) fn open_list(&mut self, class: SlotClass) -> &mut Vec<u32> {
        if self.open.len() <= class.index() {
            self.open.resize_with(class.index() + 1, Vec::new);
        }
        &mut self.open[class.index()]
    }

    /// Brings the memory account up to date.
    pub(crate) fn account(&mut self, memory: &MemoryAccount) {
        let hash = u64::try_from(self.hash.bytes()).unwrap_or(u64::MAX);
        let expiries = u64::try_from(self.expiries.len()).unwrap_or(u64::MAX) * EXPIRY_ENTRY_BYTES;
        let now = hash + expiries + self.ordered_bytes + self.collections.bytes();
        memory.change(MemoryUse::Indexes, self.accounted, now);
        self.accounted = now;
    }

    /// Takes the table off the memory account.
    pub(crate) fn unaccount(&mut self, memory: &MemoryAccount) {
        memory.sub(MemoryUse::Indexes, self.accounted);
        self.accounted = 0;
    }
}

fn bytes_of(key: &[u8]) -> u64 {
    u64::try_from(key.len()).unwrap_or(u64::MAX) + ORDERED_ENTRY_BYTES
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

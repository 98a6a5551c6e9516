//! The indexes of one table in one partition. All of it is derived from pages.

use std::collections::{BTreeMap, BTreeSet};

use perdura_page::SlotClass;

use crate::collection::Collections;
use crate::entry::Entry;
use crate::geometry::Salts;
use crate::hash_index::HashIndex;
use crate::memory::{MemoryAccount, MemoryUse};

/// An estimate of what an ordered index takes per key besides the key, bytes.
const ORDERED_ENTRY_BYTES: u64 = 48;
/// An estimate of what the set of expiries takes per row, bytes.
const EXPIRY_ENTRY_BYTES: u64 = 24;

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

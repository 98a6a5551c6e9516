//! The indexes of one table in one partition. All indexes are derived from pages.

use std::collections::BTreeSet;

use perdura_page::SlotClass;

use crate::collection::Collections;
use crate::entry::Entry;
use crate::form::TableForm;
use crate::geometry::Salts;
use crate::hash_index::HashIndex;
use crate::keys::{IndexKeys, Keys};
use crate::memory::{MemoryAccount, MemoryUse};

/// An estimate of the bytes that the set of expiries takes per row.
const EXPIRY_ENTRY_BYTES: u64 = 24;

/// The data derived for one table.
pub(crate) struct Table {
    pub(crate) form: TableForm,
    pub(crate) hash: HashIndex,
    pub(crate) ordered: Option<Keys>,
    pub(crate) secondary: Vec<Keys>,
    /// Buffers for the keys of a row in the secondary indexes, before and after a change.
    pub(crate) index_keys: [IndexKeys; 2],
    pub(crate) expiries: BTreeSet<(u64, Entry)>,
    pub(crate) collections: Collections,
    /// The pages that may have a free slot, by slot class. A writer checks a page before it uses the page.
    pub(crate) open: Vec<Vec<u32>>,
    accounted: u64,
}

impl Table {
    pub(crate) fn new(form: TableForm, salts: Salts) -> Table {
        Table {
            hash: HashIndex::new(salts.of_keys()),
            ordered: form.ordered.then(Keys::default),
            secondary: (0..form.indexes()).map(|_| Keys::default()).collect(),
            index_keys: Default::default(),
            form,
            expiries: BTreeSet::new(),
            collections: Collections::new(salts),
            open: Vec::new(),
            accounted: 0,
        }
    }

    /// Adds a key that is not in the index. The key counts as used at `second`.
    pub(crate) fn insert(&mut self, entry: Entry, second: u32, key: &[u8]) {
        self.hash.insert_used(entry, second);
        if let Some(ordered) = &mut self.ordered {
            ordered.insert(key, entry);
            debug_assert_eq!(
                ordered.len(),
                self.hash.len(),
                "both indexes have every key"
            );
        }
    }

    pub(crate) fn remove(&mut self, entry: Entry, key: &[u8]) {
        assert!(self.hash.remove(entry), "an indexed row");
        self.hash.shrink(entry);
        if let Some(ordered) = &mut self.ordered {
            ordered.remove(key);
            debug_assert_eq!(
                ordered.len(),
                self.hash.len(),
                "both indexes have every key"
            );
        }
    }

    /// Discards everything that a restart has built from rows.
    pub(crate) fn forget_rows(&mut self) {
        self.hash.clear();
        let ordered = self.ordered.iter_mut();
        ordered.chain(&mut self.secondary).for_each(Keys::clear);
        self.expiries.clear();
        self.collections.forget();
    }

    /// Inserts a key into the ordered index, if the table has one. Returns false if the key was already in that index.
    pub(crate) fn insert_ordered(&mut self, key: &[u8], entry: Entry) -> bool {
        let ordered = self.ordered.as_mut();
        ordered.is_none_or(|ordered| ordered.insert(key, entry))
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
        let keys = self.ordered.iter().chain(&self.secondary);
        let keys: u64 = keys.map(Keys::bytes).sum();
        let now = hash + expiries + keys + self.collections.bytes();
        memory.change(MemoryUse::Indexes, self.accounted, now);
        self.accounted = now;
    }

    /// Takes the table off the memory account.
    pub(crate) fn unaccount(&mut self, memory: &MemoryAccount) {
        memory.sub(MemoryUse::Indexes, self.accounted);
        self.accounted = 0;
    }
}

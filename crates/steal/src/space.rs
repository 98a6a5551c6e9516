//! Slot locks and free slots of one partition.
//!
//! Locks and free slots are only in memory: locks end with their transactions, and a restart reads the free slots from
//! the pages' bitmaps. A slot is free, or is locked, or holds a row and is not locked. So a slot that a transaction
//! frees cannot be handed out until the transaction has pre-committed and released its lock.

use hashbrown::HashTable;
use perdura_base::TxnId;
use perdura_base::checksum::mix64;

/// A slot within a partition, packed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SlotKey(u64);

impl SlotKey {
    pub fn new(local: u32, slot: u16) -> SlotKey {
        SlotKey(u64::from(local) << 16 | u64::from(slot))
    }

    pub fn local(self) -> u32 {
        u32::try_from(self.0 >> 16).expect("a local page index")
    }

    pub fn slot(self) -> u16 {
        u16::try_from(self.0 & 0xffff).expect("a slot")
    }
}

struct Lock {
    key: SlotKey,
    txn: TxnId,
    held: usize,
}

/// The owner of a slot's lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Holder {
    Nobody,
    /// The transaction that calls [`Space::holder`]. The value is the slot's index in this transaction's list of held
    /// slots.
    Me(usize),
    Other,
}

/// The locks and free slots of one partition.
#[derive(Default)]
pub(crate) struct Space {
    locks: HashTable<Lock>,
    free: Vec<SlotKey>,
}

impl Space {
    pub fn holder(&self, key: SlotKey, txn: TxnId) -> Holder {
        match self.locks.find(mix64(key.0), |lock| lock.key == key) {
            None => Holder::Nobody,
            Some(lock) if lock.txn == txn => Holder::Me(lock.held),
            Some(_) => Holder::Other,
        }
    }

    /// Locks a slot for a transaction.
    ///
    /// # Panics
    /// If the slot is already locked.
    pub fn lock(&mut self, key: SlotKey, txn: TxnId, held: usize) {
        assert_eq!(
            self.holder(key, txn),
            Holder::Nobody,
            "a slot is on the free list or locked, never both"
        );
        let hash = |lock: &Lock| mix64(lock.key.0);
        let lock = Lock { key, txn, held };
        self.locks.insert_unique(mix64(key.0), lock, hash);
    }

    /// Releases a transaction's lock on a slot. `taken` is true if the slot holds a row. If it is false, adds
    /// the slot to the free slots.
    ///
    /// # Panics
    /// If the transaction has not locked the slot.
    pub fn release(&mut self, key: SlotKey, txn: TxnId, taken: bool) {
        let found = self.locks.find_entry(mix64(key.0), |lock| lock.key == key);
        let lock = found.map(|lock| lock.remove().0);
        assert!(
            lock.is_ok_and(|lock| lock.txn == txn),
            "a slot is released by the transaction that has it"
        );
        if !taken {
            self.free.push(key);
        }
    }

    /// Removes and returns the most recently added free slot.
    pub fn pop_free(&mut self) -> Option<SlotKey> {
        self.free.pop()
    }

    /// Adds free slots. The last free slot is handed out first.
    pub fn add_free(&mut self, keys: impl IntoIterator<Item = SlotKey>) {
        self.free.extend(keys);
    }

    pub fn free_len(&self) -> usize {
        self.free.len()
    }

    /// Returns whether any slot is locked.
    pub fn is_locked(&self) -> bool {
        !self.locks.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_freed_slot_is_handed_out_only_after_its_lock_is_gone() {
        let mut space = Space::default();
        let key = SlotKey::new(7, 1000);
        assert_eq!((key.local(), key.slot()), (7, 1000));
        space.add_free([key]);
        assert_eq!(space.pop_free(), Some(key));
        space.lock(key, TxnId(1), 5);
        assert_eq!(space.holder(key, TxnId(1)), Holder::Me(5));
        assert_eq!(space.holder(key, TxnId(2)), Holder::Other);
        assert_eq!(space.pop_free(), None);
        space.release(key, TxnId(1), false);
        assert_eq!(space.holder(key, TxnId(2)), Holder::Nobody);
        assert_eq!((space.free_len(), space.pop_free()), (1, Some(key)));
    }
}

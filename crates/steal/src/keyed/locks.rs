//! The locks on rows, each held by a transaction.

use std::collections::HashMap;

use parking_lot::Mutex;
use perdura_base::checksum::hash64;
use perdura_base::num::to_usize;
use perdura_base::{TableId, TxnId};

/// The number of parts of the locks. Each part has a mutex, so threads rarely wait for one mutex.
const PARTS: u64 = 64;

/// A row, identified by its table and key.
pub type RowKey = (TableId, Vec<u8>);

/// The locked rows, each with the transaction that locked the row.
pub struct Locks {
    parts: Vec<Mutex<HashMap<RowKey, TxnId>>>,
}

impl Locks {
    /// Returns an empty set of locks.
    #[must_use]
    pub fn new() -> Locks {
        Locks {
            parts: (0..PARTS).map(|_| Mutex::default()).collect(),
        }
    }

    fn part(&self, (table, key): &RowKey) -> &Mutex<HashMap<RowKey, TxnId>> {
        let hash = hash64(u64::from(table.0), key);
        &self.parts[to_usize(hash % PARTS)]
    }

    /// Locks a row for a transaction. Returns true if the row was free, and false if this transaction already had the
    /// lock. `None`: another transaction has locked the row.
    pub fn take(&self, row: &RowKey, txn: TxnId) -> Option<bool> {
        let mut part = self.part(row).lock();
        match part.get(row) {
            Some(holder) => (*holder == txn).then_some(false),
            None => {
                part.insert(row.clone(), txn);
                Some(true)
            }
        }
    }

    /// Releases a transaction's lock on a row.
    ///
    /// # Panics
    /// If the transaction has not locked the row.
    pub fn release(&self, row: &RowKey, txn: TxnId) {
        let holder = self.part(row).lock().remove(row);
        assert_eq!(holder, Some(txn), "a row goes back from who has it");
    }
}

impl Default for Locks {
    fn default() -> Self {
        Locks::new()
    }
}

//! The transactions that have rows.

use std::collections::HashMap;

use parking_lot::Mutex;
use perdura_base::checksum::hash64;
use perdura_base::num::to_usize;
use perdura_base::{TableId, TxnId};

/// Parts, so that threads seldom meet.
const PARTS: u64 = 64;

/// A row, by its key.
pub type RowKey = (TableId, Vec<u8>);

/// The rows that transactions have.
pub struct Locks {
    parts: Vec<Mutex<HashMap<RowKey, TxnId>>>,
}

impl Locks {
    /// Makes locks that no transaction has.
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

    /// Gives a row to a transaction. Returns whether the row is new to it. `None`: another
    /// transaction has the row.
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

    /// Releases a row that a transaction has.
    ///
    /// # Panics
    /// If the transaction does not have the row.
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

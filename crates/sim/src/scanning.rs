//! The model of a scan of keys. The scan continues between other steps and across crashes.

use std::collections::BTreeSet;

use crate::model::{Change, State};

/// A scan that has begun.
pub(crate) struct Scanning {
    pub database: u8,
    pub cursor: u64,
    /// The keys that the scan must still return. They existed when the scan began, were never deleted, and were not
    /// yet returned.
    pub due: BTreeSet<u8>,
}

impl Scanning {
    /// Removes the keys that these changes delete or give an expiry. The scan need not return them.
    pub(crate) fn note(&mut self, changes: &[Change]) {
        for change in changes {
            match change {
                Change::Put((database, key), row) => {
                    if *database == self.database && row.expiry_ms.is_some() {
                        self.due.remove(key);
                    }
                }
                Change::Delete((database, key)) => {
                    if *database == self.database {
                        self.due.remove(key);
                    }
                }
                Change::Flush(database) => {
                    if database.is_none_or(|database| database == self.database) {
                        self.due.clear();
                    }
                }
            }
        }
    }

    /// Removes the keys that do not exist after a restart, and the keys that have an expiry. The scan need not return
    /// these keys.
    pub(crate) fn restart(&mut self, live: &State) {
        let there = |key: &u8| live.get(&(self.database, *key));
        self.due
            .retain(|key| there(key).is_some_and(|row| row.expiry_ms.is_none()));
    }
}

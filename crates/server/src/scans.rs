//! The keys that change while KEYS walks over a database in steps.
//!
//! A walk is noted under the latches of its first transaction, which are those of all partitions. Changes are noted under
//! the latch of the changed key's partition. So a walk misses no change that any loop makes between two of its steps.

use crate::part::Observers;
use parking_lot::Mutex;
use std::collections::HashSet;
use std::sync::{Arc, Weak};

/// If more than this many keys change during a walk, the walk begins again.
pub(crate) const TOUCHED_MAX: usize = 8192;

/// The changes of a database since a walk began.
#[derive(Debug, Default)]
pub(crate) struct Changed {
    /// The changed keys: all, or [`TOUCHED_MAX`] + 1 of them.
    pub keys: HashSet<Box<[u8]>>,
    /// True if the database was swapped with another database. The table alone does not show that, because another swap
    /// may have brought the old table back. Between the two swaps, changes of that table were changes in the other
    /// database.
    pub swapped: bool,
}

/// A walk, and the changes since it began.
#[derive(Debug, Default)]
pub(crate) struct Scan {
    /// The changes.
    pub changed: Mutex<Changed>,
}

/// The walks of all loops, each with its database. A walk that has ended is removed at the next change.
#[derive(Debug, Default)]
pub(crate) struct Scans {
    all: Vec<(u8, Weak<Scan>)>,
}

impl Observers for Scans {
    fn is_empty(&self) -> bool {
        self.all.is_empty()
    }
}

impl Scans {
    /// Adds a walk over a database.
    pub(crate) fn add(&mut self, database: u8, scan: &Arc<Scan>) {
        self.all.push((database, Arc::downgrade(scan)));
    }

    /// Notes that a key has changed. The caller holds the latch of the key's partition.
    pub(crate) fn touched(&mut self, database: u8, key: &[u8]) {
        self.all.retain(|(walked, scan)| {
            let Some(scan) = scan.upgrade() else {
                return false;
            };
            if *walked == database {
                let mut changed = scan.changed.lock();
                if changed.keys.len() <= TOUCHED_MAX && !changed.keys.contains(key) {
                    changed.keys.insert(key.into());
                }
                debug_assert!(changed.keys.len() <= TOUCHED_MAX + 1, "a set has a limit");
            }
            true
        });
    }

    /// Notes that databases have been swapped. `databases` has a bit for each of these databases.
    pub(crate) fn swapped(&mut self, databases: u16) {
        for (_, scan) in self.all.iter().filter(|(of, _)| databases >> of & 1 != 0) {
            if let Some(scan) = scan.upgrade() {
                scan.changed.lock().swapped = true;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_walk_hears_of_its_database_until_it_ends() {
        let (mut scans, scan) = (Scans::default(), Arc::new(Scan::default()));
        scans.add(3, &scan);
        scans.touched(3, b"a");
        scans.touched(3, b"a");
        scans.touched(4, b"b");
        scans.swapped(1 << 4);
        let changed = scan.changed.lock();
        assert_eq!((changed.keys.len(), changed.swapped), (1, false));
        drop(changed);
        scans.swapped(1 << 3);
        assert!(scan.changed.lock().swapped);
        for number in 0..2 * TOUCHED_MAX {
            scans.touched(3, number.to_string().as_bytes());
        }
        assert_eq!(scan.changed.lock().keys.len(), TOUCHED_MAX + 1);
        drop(scan);
        assert!(!scans.is_empty());
        scans.touched(3, b"a");
        assert!(scans.is_empty(), "the walk has ended");
    }
}

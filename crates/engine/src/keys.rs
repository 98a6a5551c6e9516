//! Iterating over the keys of a database, and asking for a range of keys.
//!
//! Both work in steps. A step looks at a few hundred keys of one partition under its latch, so writers are not blocked
//! for long. The price is that the result is no snapshot. A key that exists during all steps is returned. A key that
//! appears or disappears between the steps may be returned or not. A transaction can get all keys of one moment
//! with [`Tx::scan_keys`](crate::Tx::scan_keys). It has to hold every latch.

use std::collections::BinaryHeap;
use std::iter::FusedIterator;
use std::ops::{Bound, RangeBounds};

use perdura_base::{Epoch, Error, PartitionSet, Result, TableId};
use perdura_txn::{Ticket, Tx};

use crate::db::Db;

/// The keys that a step found, and the cursor for the next step. A cursor of `None` means that no
/// step follows.
type Step = (Vec<Vec<u8>>, Option<u64>);

/// The approximate number of keys that one step looks at.
const STEP_KEYS: usize = 512;

impl Db {
    /// Returns the keys of a Redis database, 0 to 15, in no order. No latch is held between two keys, so the caller may
    /// write while it iterates.
    #[must_use = "iterators are lazy"]
    pub fn keys(&self, database: u8) -> Keys<'_> {
        Keys {
            db: self,
            database,
            cursor: Some(0),
            found: Vec::new().into_iter(),
        }
    }

    /// Returns the first `limit` keys of a Redis database within a range, in ascending order of their bytes. To
    /// continue, ask for a range after the last returned key.
    ///
    /// Redis databases have no ordered index, so every call looks at all keys and keeps the first `limit` keys. For
    /// frequent ranges, keep the keys in a sorted set (`perdura::types::zset`) as an index.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let db = perdura::Db::open(perdura::Options::new(dir.path()))?;
    /// # db.write(|tx| tx.put(db.database(0), b"user:7", b"Ada", None))?;
    /// let users = db.range(0, "user:".."user;", 100)?;
    /// assert_eq!(users, [b"user:7"]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`Db::read`].
    pub fn range<K: AsRef<[u8]>>(
        &self,
        database: u8,
        range: impl RangeBounds<K>,
        limit: usize,
    ) -> Result<Vec<Vec<u8>>> {
        let mut least = BinaryHeap::new();
        let (mut cursor, mut epoch) = (Some(0), Epoch(0));
        while let Some(at) = cursor.filter(|_| limit > 0) {
            let greatest = least.peek().filter(|_| least.len() == limit);
            let wanted = |key: &[u8]| {
                is_within(key, &range) && greatest.is_none_or(|max: &Vec<u8>| key < max)
            };
            let ((keys, next), ticket) = self.step(database, at, wanted)?;
            assert!(next.is_none_or(|next| next > at), "a scan goes on");
            (cursor, epoch) = (next, epoch.max(ticket.epoch));
            for key in keys {
                least.push(key);
                if least.len() > limit {
                    least.pop();
                }
            }
        }
        self.wait(Ticket { epoch })?;
        assert!(least.len() <= limit, "at most as many as were asked for");
        let mut keys = least.into_sorted_vec();
        keys.dedup();
        Ok(keys)
    }

    /// Takes one step from a cursor. Returns the keys that `wanted` accepts, and the cursor of the next step.
    fn step(
        &self,
        database: u8,
        cursor: u64,
        wanted: impl Fn(&[u8]) -> bool,
    ) -> Result<(Step, Ticket)> {
        let mut parts = PartitionSet::empty();
        if let Some(id) = self.shared.core().partition_of_cursor(cursor) {
            parts.insert(id);
        }
        let scan = |tx: &Tx<'_>, table: TableId| {
            let (rows, next) = tx.scan_keys(table, cursor, STEP_KEYS)?;
            let keys = rows.iter().map(|row| row.key());
            let keys = keys.filter(|key| wanted(key)).map(|key| key.into_owned());
            Ok::<_, Error>((keys.collect(), Some(next).filter(|next| *next != 0)))
        };
        self.transact(&parts, |tx| scan(tx, self.database(database)))
    }
}

fn is_within<K: AsRef<[u8]>>(key: &[u8], range: &impl RangeBounds<K>) -> bool {
    let begun = match range.start_bound() {
        Bound::Included(start) => key >= start.as_ref(),
        Bound::Excluded(start) => key > start.as_ref(),
        Bound::Unbounded => true,
    };
    begun
        && match range.end_bound() {
            Bound::Included(end) => key <= end.as_ref(),
            Bound::Excluded(end) => key < end.as_ref(),
            Bound::Unbounded => true,
        }
}

/// Iterates over the keys of a database; see [`Db::keys`]. The iterator ends after the first error.
pub struct Keys<'a> {
    db: &'a Db,
    database: u8,
    /// The start of the next step. `None`: no step is left.
    cursor: Option<u64>,
    found: std::vec::IntoIter<Vec<u8>>,
}

impl Iterator for Keys<'_> {
    type Item = Result<Vec<u8>>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(key) = self.found.next() {
                return Some(Ok(key));
            }
            let cursor = self.cursor.take()?;
            let stepped = self.db.step(self.database, cursor, |_| true);
            let durable = stepped.and_then(|((keys, next), ticket)| {
                self.db.wait(ticket)?;
                Ok((keys, next))
            });
            match durable {
                Ok((keys, next)) => {
                    assert!(next.is_none_or(|next| next > cursor), "a scan goes on");
                    self.cursor = next;
                    self.found = keys.into_iter();
                }
                Err(error) => return Some(Err(error)),
            }
        }
    }
}

impl FusedIterator for Keys<'_> {}

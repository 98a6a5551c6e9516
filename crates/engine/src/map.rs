//! Ordered maps of bytes, by name.
//!
//! ```
//! # let dir = tempfile::tempdir()?;
//! # let db = perdura::Db::open(perdura::Options::new(dir.path()))?;
//! let events = db.map("events")?; // made if it is not there
//! events.put(b"2026-11-24T08:00", b"opened")?; // durable when it returns
//! events.put(b"2026-11-24T17:30", b"closed")?;
//! events.put(b"2026-11-25T08:00", b"opened")?;
//!
//! let day = events.prefix(b"2026-11-24").collect::<Result<Vec<_>, _>>()?;
//! assert_eq!(day.len(), 2);
//! let last = events.range::<&[u8]>(..).next_back().transpose()?;
//! assert_eq!(last, Some((b"2026-11-25T08:00".to_vec(), b"opened".to_vec())));
//!
//! // Within a larger transaction:
//! db.write(|tx| {
//!     tx.delete(events.table(), b"2026-11-25T08:00")?;
//!     tx.put(events.table(), b"2026-11-26T08:00", b"opened", None)
//! })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A map is a page-addressed table. Each partition keeps an ordered index of the keys that it holds. A range merges the
//! partitions in steps. Each step holds all latches and reads a few hundred entries. Writers may change the map between
//! two steps, so a range is no snapshot. It returns, in order, every entry that exists during the whole iteration.

use std::collections::{BTreeSet, VecDeque};
use std::iter::FusedIterator;
use std::ops::{Bound, RangeBounds};

use perdura_base::{Error, Result, TableId};
use perdura_heap::Which;
use perdura_recovery::{KeyOrder, TableKind};
use perdura_txn::{Ticket, Tx};

use crate::catalog::{CATALOG, Entry, put_next_id, put_table, read_next_id};
use crate::core::{Core, Watch};
use crate::db::Db;
use crate::transact::Attempt;

/// The prefix of the names that the tables of maps have in the catalog. No other table's name begins with it.
const PREFIX: &str = "map/";
/// Count of entries that one step of a range reads.
const STEP_ENTRIES: usize = 256;

/// A key and its value.
pub type KeyValue = (Vec<u8>, Vec<u8>);

/// Returns the name of a map's table in the catalog.
pub(crate) fn table_name(map: &str) -> String {
    format!("{PREFIX}{map}")
}

impl Core {
    /// Finds or makes the table of a map. Also returns the ticket of the transaction that made the table; the default
    /// ticket if the table existed. `watch` gets the bytes of log room that the transaction awaits, if any.
    ///
    /// # Errors
    /// [`Error::Usage`] for an empty name; the errors of a write.
    pub(crate) fn map_table(&self, name: &str, watch: Watch<'_>) -> Result<(TableId, Ticket)> {
        if name.is_empty() {
            return Err(Error::Usage("a map needs a name".into()));
        }
        let name = table_name(name);
        let mut maps = self.maps().lock();
        if let Some(table) = maps.get(&name) {
            return Ok((*table, Ticket::default()));
        }
        let (table, ticket) = self.transact(&self.all_partitions(), |tx| {
            let made = make_map(tx, &name);
            watch(tx.awaits_log());
            made
        })?;
        assert_ne!(table, CATALOG, "the catalog is no map");
        let before = maps.insert(name, table);
        assert!(before.is_none(), "a map is made once");
        Ok((table, ticket))
    }

    /// Returns the first entries of an ordered table within a range, at most `limit`, ascending. If `backward`, returns
    /// the last entries, descending.
    ///
    /// # Errors
    /// As [`Core::transact`].
    pub fn ordered_entries(
        &self,
        table: TableId,
        range: (Bound<&[u8]>, Bound<&[u8]>),
        (backward, limit): (bool, usize),
    ) -> Result<(Vec<KeyValue>, Ticket)> {
        self.transact(&self.all_partitions(), |tx| {
            merged(tx, table, range, (backward, limit))
        })
    }
}

/// Makes the table of a map, under all latches.
fn make_map(tx: &mut Tx<'_>, name: &str) -> Result<TableId> {
    tx.admit(4096)?;
    let table = TableId(read_next_id(tx)?);
    let kind = TableKind::heap(KeyOrder::Ordered);
    let entry = Entry {
        id: table,
        kind,
        schema: Vec::new(),
    };
    put_table(tx, name, &entry)?;
    put_next_id(tx, table.0 + 1)?;
    tx.attach_table(table, true)?;
    Ok(table)
}

/// Returns the result of [`Core::ordered_entries`] within a transaction, merged from all
/// partitions.
fn merged(
    tx: &Tx<'_>,
    table: TableId,
    range: (Bound<&[u8]>, Bound<&[u8]>),
    (backward, limit): (bool, usize),
) -> Result<Vec<KeyValue>> {
    assert!(limit > 0, "a step reads something");
    assert_eq!(
        tx.latched().count(),
        tx.partitions(),
        "one instant of all partitions"
    );
    let mut kept: BTreeSet<KeyValue> = BTreeSet::new();
    for id in tx.latched() {
        tx.view(id, |part| {
            let mut rows = part.rows(table, Which::Primary, range.0, range.1);
            // A partition's entries are in order. So the scan of a partition ends at the first entry that lies beyond
            // the `limit` entries kept so far.
            while let Some(row) = if backward {
                rows.next_back()
            } else {
                rows.next()
            } {
                let key = row.key();
                let edge = if backward { kept.first() } else { kept.last() };
                let is_near = edge.is_none_or(|(edge, _)| (*key > **edge) == backward);
                if kept.len() == limit && !is_near {
                    break;
                }
                kept.insert((key.into_owned(), row.value().into_owned()));
                if kept.len() > limit {
                    let _far = if backward {
                        kept.pop_first()
                    } else {
                        kept.pop_last()
                    };
                }
            }
        })?;
    }
    assert!(kept.len() <= limit, "at most as many as were asked for");
    Ok(if backward {
        kept.into_iter().rev().collect()
    } else {
        kept.into_iter().collect()
    })
}

/// An ordered map of bytes; see [`Db::map`].
#[derive(Clone)]
pub struct Map {
    db: Db,
    table: TableId,
}

impl Db {
    /// Returns the ordered map of a name, or makes it.
    ///
    /// # Errors
    /// As [`Db::write`]; [`Error::Usage`] for an empty name.
    pub fn map(&self, name: &str) -> Result<Map> {
        let (map, ticket) = self.map_later(name)?;
        self.wait(ticket)?;
        Ok(map)
    }

    /// Like [`map`](Self::map), without waiting for durability. A new map is durable when the ticket's epoch is. Writes
    /// to the map are not durable before that.
    ///
    /// # Errors
    /// As [`Db::write_later`]; [`Error::Usage`] for an empty name.
    pub fn map_later(&self, name: &str) -> Result<(Map, Ticket)> {
        loop {
            match self.try_map_later(name)? {
                Attempt::Committed(map, ticket) => return Ok((map, ticket)),
                Attempt::Behind { .. } => self.hold_back(),
            }
        }
    }

    /// Like [`map_later`](Self::map_later), for an event loop or a similar caller, which cannot wait for the log.
    ///
    /// # Errors
    /// As [`Db::write_later`]; [`Error::Usage`] for an empty name.
    pub fn try_map_later(&self, name: &str) -> Result<Attempt<Map>> {
        let made = self.attempt(|watch| self.shared.core().map_table(name, watch))?;
        Ok(match made {
            Attempt::Committed(table, ticket) => {
                let db = self.clone();
                Attempt::Committed(Map { db, table }, ticket)
            }
            Attempt::Behind { bytes } => Attempt::Behind { bytes },
        })
    }

    /// Returns the ordered map of a name; `None` if it does not exist.
    #[must_use]
    pub fn find_map(&self, name: &str) -> Option<Map> {
        let table = *self.shared.core().maps().lock().get(&table_name(name))?;
        let db = self.clone();
        Some(Map { db, table })
    }
}

impl Map {
    /// Returns the map's table, for use in larger transactions.
    #[must_use]
    pub fn table(&self) -> TableId {
        self.table
    }

    /// Returns the value of a key.
    ///
    /// # Errors
    /// As [`Db::read`].
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Vec<u8>>> {
        let key = key.as_ref();
        self.db.read(|tx| {
            let row = tx.peek(self.table, key)?;
            Ok(row.map(|row| row.value().into_owned()))
        })
    }

    /// Sets the value of a key. The change is durable when this returns.
    ///
    /// # Errors
    /// As [`Db::write`].
    pub fn put(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
        let (key, value) = (key.as_ref(), value.as_ref());
        self.db.write(|tx| tx.put(self.table, key, value, None))
    }

    /// Removes a key. Returns whether it was there.
    ///
    /// # Errors
    /// As [`Db::write`].
    pub fn remove(&self, key: impl AsRef<[u8]>) -> Result<bool> {
        let key = key.as_ref();
        self.db.write(|tx| tx.delete(self.table, key))
    }

    /// Returns the number of entries.
    ///
    /// # Errors
    /// As [`Db::read`].
    pub fn len(&self) -> Result<u64> {
        self.db.read(|tx| tx.len(self.table))
    }

    /// Returns whether the map has no entry.
    ///
    /// # Errors
    /// As [`Db::read`].
    pub fn is_empty(&self) -> Result<bool> {
        Ok(self.len()? == 0)
    }

    /// Returns an iterator over the entries within a range, in the order of the bytes of their keys. The iterator is
    /// double-ended.
    #[must_use = "iterators are lazy"]
    pub fn range<K: AsRef<[u8]>>(&self, range: impl RangeBounds<K>) -> MapRange {
        let owned = |bound: Bound<&K>| bound.map(|key| key.as_ref().to_vec());
        MapRange {
            map: self.clone(),
            low: owned(range.start_bound()),
            high: owned(range.end_bound()),
            front: VecDeque::new(),
            back: VecDeque::new(),
            done: false,
        }
    }

    /// Returns the entries with keys that begin with `prefix`.
    #[must_use = "iterators are lazy"]
    pub fn prefix(&self, prefix: impl AsRef<[u8]>) -> MapRange {
        let low = prefix.as_ref().to_vec();
        let high = behind_prefix(&low).map_or(Bound::Unbounded, Bound::Excluded);
        self.range((Bound::Included(low), high))
    }
}

/// Returns the least key that is greater than all keys with this prefix. `None`: no key is greater.
fn behind_prefix(prefix: &[u8]) -> Option<Vec<u8>> {
    let last = prefix.iter().rposition(|byte| *byte != u8::MAX)?;
    let mut next = prefix[..=last].to_vec();
    next[last] += 1;
    Some(next)
}

/// Iterates over a range of a map, ascending or descending. The iterator ends after the first error.
pub struct MapRange {
    map: Map,
    /// The lower bound of the entries that were not read yet. `high` is the upper bound.
    low: Bound<Vec<u8>>,
    high: Bound<Vec<u8>>,
    /// Entries read from the front and not returned yet. `back` has entries from the back. `front` and `back` are
    /// ascending.
    front: VecDeque<KeyValue>,
    back: VecDeque<KeyValue>,
    /// True if all entries have been read.
    done: bool,
}

impl MapRange {
    /// Reads the next entries from one end.
    fn fill(&mut self, backward: bool) -> Result<()> {
        let range = (borrowed(&self.low), borrowed(&self.high));
        let core = self.map.db.shared.core();
        let how = (backward, STEP_ENTRIES);
        let (entries, ticket) = core.ordered_entries(self.map.table, range, how)?;
        self.map.db.wait(ticket)?;
        debug_assert!(
            entries
                .windows(2)
                .all(|pair| (pair[0].0 > pair[1].0) == backward),
            "entries come in order"
        );
        self.done = entries.len() < STEP_ENTRIES;
        if let Some((last, _)) = entries.last() {
            let bound = Bound::Excluded(last.clone());
            if backward {
                self.high = bound;
            } else {
                self.low = bound;
            }
        }
        if backward {
            self.back.extend(entries.into_iter().rev());
        } else {
            self.front.extend(entries);
        }
        Ok(())
    }

    fn step(&mut self, backward: bool) -> Option<Result<KeyValue>> {
        let is_read = |range: &Self| match backward {
            true => !range.back.is_empty(),
            false => !range.front.is_empty(),
        };
        if !is_read(self)
            && !self.done
            && let Err(error) = self.fill(backward)
        {
            self.done = true;
            (self.front, self.back) = (VecDeque::new(), VecDeque::new());
            return Some(Err(error));
        }
        let entry = if backward {
            self.back.pop_back().or_else(|| self.front.pop_back())
        } else {
            self.front.pop_front().or_else(|| self.back.pop_front())
        };
        entry.map(Ok)
    }
}

fn borrowed(bound: &Bound<Vec<u8>>) -> Bound<&[u8]> {
    bound.as_ref().map(Vec::as_slice)
}

impl Iterator for MapRange {
    type Item = Result<KeyValue>;

    fn next(&mut self) -> Option<Self::Item> {
        self.step(false)
    }
}

impl DoubleEndedIterator for MapRange {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.step(true)
    }
}

impl FusedIterator for MapRange {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lies_behind_a_prefix_begins_with_no_byte_of_it() {
        assert_eq!(behind_prefix(b"ab"), Some(b"ac".to_vec()));
        assert_eq!(behind_prefix(b"a\xff\xff"), Some(b"b".to_vec()));
        assert_eq!(behind_prefix(b"\xff"), None);
        assert_eq!(behind_prefix(b""), None);
    }
}

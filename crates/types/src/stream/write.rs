//! Adding, deleting and trimming entries.

use perdura_base::TableId;
use perdura_base::flaw::{Flaw, armed};
use perdura_base::num::to_u64;
use perdura_txn::{Home, Shape, Tx};

use super::node::{self, Node};
use super::{Head, Id, Stream, damaged, home_of, rows};
use crate::Fault;

/// A stream that is being changed. [`finish`](Self::finish) must be called after the last change.
#[derive(Debug)]
#[must_use = "its head is written at the end"]
pub struct Writing {
    pub(super) table: TableId,
    pub(super) home: Home,
    /// The facts about the whole stream. [`finish`](Self::finish) writes them.
    pub head: Head,
    stored: Head,
}

/// The entries that a trim keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Threshold {
    /// This number of entries at the end of the stream.
    Length(u64),
    /// The entries from this id on.
    Id(Id),
}

/// The parameters of a trim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Trim {
    /// The entries to keep.
    pub threshold: Threshold,
    /// True if only whole nodes are removed. Some entries that `threshold` does not keep may then stay.
    pub is_rough: bool,
    /// The maximum number of entries to remove; 0: no maximum.
    pub limit: u64,
}

impl Writing {
    /// Opens the stream of a key, if it exists.
    ///
    /// # Errors
    /// [`Fault::WrongType`]; an abort, which the caller must pass on.
    pub fn open(tx: &Tx<'_>, table: TableId, key: &[u8]) -> Result<Option<Writing>, Fault> {
        let Some(home) = home_of(tx, table, key)? else {
            return Ok(None);
        };
        let head = Stream::new(tx, table, home)?.head;
        Ok(Some(Writing {
            table,
            home,
            head,
            stored: head,
        }))
    }

    /// Opens the stream of a key. Makes an empty stream if the key has none. The caller may leave the new stream empty.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_or_make(
        tx: &mut Tx<'_>,
        table: TableId,
        key: &[u8],
        expiry_ms: Option<u64>,
    ) -> Result<Writing, Fault> {
        if let Some(found) = Writing::open(tx, table, key)? {
            return Ok(found);
        }
        let home = tx.create(table, key, Shape::Stream, expiry_ms)?;
        let head = Head::default();
        tx.element_put(table, home, rows::HEAD, &head.encode())?;
        Ok(Writing {
            table,
            home,
            head,
            stored: head,
        })
    }

    /// Returns the stream for reading, with the changes made so far.
    ///
    /// # Errors
    /// An abort, which the caller must pass on.
    pub fn stream<'a>(&self, tx: &'a Tx<'_>) -> Result<Stream<'a>, Fault> {
        Ok(Stream {
            rows: tx.elements(self.table, self.home)?,
            head: self.head,
        })
    }

    pub(super) fn put(&self, tx: &mut Tx<'_>, name: &[u8], value: &[u8]) -> Result<(), Fault> {
        tx.element_put(self.table, self.home, name, value)?;
        Ok(())
    }

    pub(super) fn remove(&self, tx: &mut Tx<'_>, name: &[u8]) -> Result<bool, Fault> {
        Ok(tx.element_delete(self.table, self.home, name)?)
    }

    /// Adds an entry at the end. `fields` has names and values alternately. The id must be greater than `head.last`.
    ///
    /// # Errors
    /// An abort, which the caller must pass on.
    pub fn add(&mut self, tx: &mut Tx<'_>, id: Id, fields: &[&[u8]]) -> Result<(), Fault> {
        assert!(id > self.head.last, "ids ascend");
        self.append(tx, id, fields)?;
        self.head.last = id;
        self.head.added += 1;
        Ok(())
    }

    /// Puts an entry at the end, like [`add`](Self::add), but does not count the entry as added. Use it to rebuild a
    /// stream from a dump.
    ///
    /// # Errors
    /// An abort, which the caller must pass on.
    pub fn append(&mut self, tx: &mut Tx<'_>, id: Id, fields: &[&[u8]]) -> Result<(), Fault> {
        let stream = self.stream(tx)?;
        let last = stream.rows.len().checked_sub(1);
        let row = last.and_then(|at| stream.rows.at(at));
        let row = row.ok_or_else(|| damaged("a head"))?;
        let base = rows::node_id(&row.field());
        let appended = base.and_then(|base| {
            let mut value = row.value().into_owned();
            node::append(&mut value, base, id, fields).then_some((base, value))
        });
        let (base, value) =
            appended.unwrap_or_else(|| (id, node::new_node(fields, base.is_none())));
        self.put(tx, &rows::node(base), &value)?;
        if self.head.length == 0 {
            self.head.first = id;
        }
        if base == id && self.head.length > 0 && armed(Flaw::NewNodeNotCounted) {
            return Ok(());
        }
        self.head.length += 1;
        Ok(())
    }

    /// Deletes an entry. Returns whether the stream had the entry.
    ///
    /// # Errors
    /// An abort, which the caller must pass on.
    pub fn delete(&mut self, tx: &mut Tx<'_>, id: Id) -> Result<bool, Fault> {
        let stream = self.stream(tx)?;
        let Some(row) = stream.rows.at(stream.node_of(id)) else {
            return Ok(false);
        };
        let Some(base) = rows::node_id(&row.field()) else {
            return Ok(false);
        };
        let mut value = row.value().into_owned();
        let Some(left) = node::delete(&mut value, base, id) else {
            return Ok(false);
        };
        self.replace(tx, base, (left > 0).then_some(&value))?;
        self.head.length -= 1;
        if id == self.head.first && !armed(Flaw::FirstIdStale) {
            self.head.first = self.stream(tx)?.find_first()?;
        }
        self.head.deleted_max = self.head.deleted_max.max(id);
        Ok(true)
    }

    /// Writes the value of a node, or removes the node if there is no value.
    fn replace(&self, tx: &mut Tx<'_>, base: Id, value: Option<&Vec<u8>>) -> Result<(), Fault> {
        let name = rows::node(base);
        match value {
            Some(value) => self.put(tx, &name, value),
            None => {
                let was_there = self.remove(tx, &name)?;
                debug_assert!(was_there, "a node that was read");
                Ok(())
            }
        }
    }

    /// Removes entries from the front, as `trim` says. Returns the number of removed entries.
    ///
    /// # Errors
    /// An abort, which the caller must pass on.
    pub fn trim(&mut self, tx: &mut Tx<'_>, trim: &Trim) -> Result<u64, Fault> {
        let mut trimmed = 0;
        while self.is_above(trim.threshold) {
            let stream = self.stream(tx)?;
            let row = stream.rows.at(stream.first_node());
            let row = row.ok_or_else(|| damaged("a node"))?;
            let base = rows::node_id(&row.field());
            let mut value = row.value().into_owned();
            let base = base.ok_or_else(|| damaged("a node"))?;
            let parsed = Node::parse(base, &value).ok_or_else(|| damaged("a node"))?;
            let live = parsed.live();
            if trim.limit > 0 && trimmed + live > trim.limit {
                break;
            }
            let is_all = match trim.threshold {
                Threshold::Length(max) => self.head.length - live >= max,
                Threshold::Id(min) => parsed.entries().last().is_none_or(|last| last.id < min),
            };
            if is_all {
                self.replace(tx, base, None)?;
                trimmed += live;
                if armed(Flaw::TrimNotCounted) {
                    break;
                }
                self.head.length -= live;
                continue;
            }
            if trim.is_rough {
                break;
            }
            let count = match trim.threshold {
                Threshold::Length(max) => self.head.length - max,
                Threshold::Id(min) => {
                    to_u64(parsed.entries().take_while(|entry| entry.id < min).count())
                }
            };
            if count > 0 {
                node::delete_first(&mut value, base, count);
                self.replace(tx, base, Some(&value))?;
            }
            self.head.length -= count;
            trimmed += count;
            break;
        }
        if trimmed > 0 {
            self.head.first = self.stream(tx)?.find_first()?;
        }
        Ok(trimmed)
    }

    fn is_above(&self, threshold: Threshold) -> bool {
        self.head.length > 0
            && match threshold {
                Threshold::Length(max) => self.head.length > max,
                Threshold::Id(min) => self.head.first < min,
            }
    }

    /// Writes the head.
    ///
    /// # Errors
    /// An abort, which the caller must pass on.
    pub fn finish(self, tx: &mut Tx<'_>) -> Result<(), Fault> {
        debug_assert!(
            self.head.length > 0 || self.head.first == Id::MIN,
            "what is empty has no first entry"
        );
        if self.head != self.stored {
            self.put(tx, rows::HEAD, &self.head.encode())?;
        }
        Ok(())
    }
}

//! Finding, writing and deleting keys.
//!
//! Overwriting or deleting the header of a collection orphans the collection. After a rename the elements and the
//! header may lie in two partitions. In that case `put` and `delete` return the collection's home. The caller then
//! orphans the collection under that partition's latch.

use perdura_base::limits::{KEY_BYTES_MAX, VALUE_BYTES_MAX};
use perdura_base::{Error, Result, TableId};
use perdura_page::{CollectionId, Home, Kind, Place, Row, Shape};

use crate::address::TableKey;
use crate::cells::{self, ChainPlace, Destination, NewRow, chain_of, free_chain, release_slot};
use crate::entry::Entry;
use crate::geometry::KeyHash;
use crate::index::Table;
use crate::ops::{KeyCopy, Op};
use crate::pages::Pages;
use crate::partition::Partition;
use crate::row_ref::RowRef;
use crate::secondary;
use crate::undo::{PartUndo, Undo};

/// The part of an overwritten or deleted key that the caller still has to remove.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Displaced {
    /// The collection of the removed header, if it lies in another partition. The same transaction must
    /// [orphan](Partition::orphan) it there.
    pub foreign: Option<Home>,
}

/// Facts about a row that is being overwritten or deleted.
struct Old {
    entry: Entry,
    expiry_ms: Option<u64>,
    chain: ChainPlace,
    home: Option<Home>,
}

impl Old {
    fn of(pages: &Pages, entry: Entry, row: &Row<'_>) -> Old {
        Old {
            entry,
            expiry_ms: row.expiry_ms,
            chain: chain_of(row),
            home: RowRef::new(pages, *row).home(),
        }
    }
}

/// The choice whether the collection of a header is removed together with the header.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Elements {
    Orphaned,
    Kept,
}

fn find<'a>(
    pages: &'a Pages,
    table: &Table,
    key: &[u8],
    hash: KeyHash,
) -> Option<(Entry, Row<'a>)> {
    pages.find(&table.hash, key, hash)
}

pub(crate) fn not_attached(table: TableId) -> Error {
    Error::Usage(format!("table {table} does not exist"))
}

impl Partition {
    /// Returns the row with this key, and notes the access.
    #[must_use]
    pub fn get(&self, table: TableId, key: &[u8], hash: KeyHash) -> Option<RowRef<'_>> {
        let table = self.tables.get(table)?;
        let found = self.pages.locate(&table.hash, key, hash)?;
        table.hash.note_access(found.place, self.now_second);
        Some(RowRef::new(&self.pages, found.row))
    }

    /// Returns the row with this key, without noting an access.
    #[must_use]
    pub fn peek(&self, table: TableId, key: &[u8], hash: KeyHash) -> Option<RowRef<'_>> {
        let table = self.tables.get(table)?;
        find(&self.pages, table, key, hash).map(|(_, row)| RowRef::new(&self.pages, row))
    }

    /// Stores a string under a key, whether or not the key exists.
    ///
    /// # Errors
    /// `Usage` if the table is not attached or a length is over its limit; `OutOfMemory`. After an error no row has
    /// changed. Pages may have changed, but a commit or a rollback is still correct.
    pub fn put(
        &mut self,
        undo: &mut Undo,
        at: TableKey<'_>,
        value: &[u8],
        expiry_ms: Option<u64>,
    ) -> Result<Displaced> {
        let new = NewRow::of(at, Kind::String, value, expiry_ms);
        self.put_row(undo, at.table, &new, Elements::Orphaned)
    }

    /// Like [`put`](Self::put), for a row of any kind.
    ///
    /// # Errors
    /// Like [`put`](Self::put).
    pub fn put_kind(
        &mut self,
        undo: &mut Undo,
        table: TableId,
        new: &NewRow<'_>,
    ) -> Result<Displaced> {
        self.put_row(undo, table, new, Elements::Orphaned)
    }

    /// Inserts a key with a string. The caller has checked that the key does not exist.
    ///
    /// # Errors
    /// Like [`put`](Self::put).
    pub fn insert(&mut self, undo: &mut Undo, at: TableKey<'_>, value: &[u8]) -> Result<()> {
        debug_assert!(
            self.peek(at.table, at.key, at.hash).is_none(),
            "a row is inserted once"
        );
        let new = NewRow::of(at, Kind::String, value, None);
        self.write_new(undo, at.table, &new, |part, undo, row| {
            let saves = undo.part_mut(part.id());
            part.write_row(saves, at, None, row)
        })
    }

    fn put_row(
        &mut self,
        undo: &mut Undo,
        id: TableId,
        new: &NewRow<'_>,
        elements: Elements,
    ) -> Result<Displaced> {
        self.write_new(undo, id, new, |part, undo, row| {
            let at = TableKey::new(id, new.key, new.hash);
            part.put_composed(undo, at, row, elements)
        })
    }

    /// Composes a row and passes it to `write`. If `write` fails, frees the row's chain.
    fn write_new<R>(
        &mut self,
        undo: &mut Undo,
        id: TableId,
        new: &NewRow<'_>,
        write: impl FnOnce(&mut Partition, &mut Undo, &Row<'_>) -> Result<R>,
    ) -> Result<R> {
        debug_assert_eq!(self.pages.geometry.partition_of(new.hash), self.id());
        debug_assert!(!new.kind.is_element());
        if new.key.len() > KEY_BYTES_MAX || new.value.len() > VALUE_BYTES_MAX {
            return Err(Error::Usage(format!(
                "a key may have {KEY_BYTES_MAX} bytes and a value {VALUE_BYTES_MAX}; \
                 these have {} and {}",
                new.key.len(),
                new.value.len()
            )));
        }
        let part = undo.part_mut(self.id());
        let saved = part.saves.len();
        let row = cells::compose(&mut self.pages, part, id, new)?;
        let placed = write(self, undo, &row);
        if placed.is_err() {
            let part = undo.part_mut(self.pages.id);
            free_chain(&mut self.pages, part, chain_of(&row));
        }
        if self.pages.is_keyed(id) {
            undo.part_mut(self.pages.id).note_keyed(saved);
        }
        placed
    }

    /// Writes a key's row over the key's old row. The chain of the new row already exists.
    pub(crate) fn put_composed(
        &mut self,
        undo: &mut Undo,
        at: TableKey<'_>,
        row: &Row<'_>,
        elements: Elements,
    ) -> Result<Displaced> {
        let id = at.table;
        let table = self.tables.get(id).ok_or_else(|| not_attached(id))?;
        let old = self.pages.locate(&table.hash, at.key, at.hash);
        let old = old.map(|found| {
            table.hash.note_access(found.place, self.now_second);
            Old::of(&self.pages, found.entry, &found.row)
        });
        let part = undo.part_mut(self.id());
        self.write_row(part, at, old.as_ref(), row)?;
        self.let_chain_go(undo, id, old.as_ref().and_then(|old| old.chain));
        Ok(self.orphan_displaced(undo, id, old.as_ref(), elements))
    }

    /// Makes a key the header of a new collection without elements. The caller must add elements.
    ///
    /// # Errors
    /// Like [`put`](Self::put).
    pub fn create(
        &mut self,
        undo: &mut Undo,
        at: TableKey<'_>,
        shape: Shape,
        expiry_ms: Option<u64>,
    ) -> Result<(CollectionId, Displaced)> {
        let id = self.make_collection(undo, at.table, shape)?;
        let home = Home {
            partition: self.id(),
            id,
        };
        let home = home.encode();
        let header = NewRow::of(at, Kind::Header(shape), &home, expiry_ms);
        let displaced = self.put_kind(undo, at.table, &header)?;
        Ok((id, displaced))
    }

    /// Sets or removes a key's expiry. Returns false if the key does not exist.
    ///
    /// # Errors
    /// Like [`put`](Self::put): a row with an expiry is eight bytes longer.
    pub fn set_expiry(
        &mut self,
        undo: &mut Undo,
        at: TableKey<'_>,
        expiry_ms: Option<u64>,
    ) -> Result<bool> {
        let TableKey { table, key, hash } = at;
        let Some(attached) = self.tables.get(table) else {
            return Ok(false);
        };
        let Some((_, row)) = find(&self.pages, attached, key, hash) else {
            return Ok(false);
        };
        if row.expiry_ms == expiry_ms {
            return Ok(true);
        }
        let mut new = NewRow::of(at, row.kind, &[], expiry_ms);
        match row.place {
            Place::Inline { value, .. } => {
                let value = value.to_vec();
                new.value = &value;
                self.put_row(undo, table, &new, Elements::Kept)?;
            }
            Place::Large { first, .. } => {
                let row =
                    Row::large(key, row.value_bytes, first, hash.0, expiry_ms).with_kind(row.kind);
                self.replace_head(undo, at, &row)?;
            }
        }
        Ok(true)
    }

    /// Rewrites the head of a row and keeps its chain.
    pub(crate) fn replace_head(
        &mut self,
        undo: &mut Undo,
        at: TableKey<'_>,
        row: &Row<'_>,
    ) -> Result<()> {
        let TableKey { table, key, hash } = at;
        let attached = self.tables.get(table).ok_or_else(|| not_attached(table))?;
        let old = find(&self.pages, attached, key, hash).map(|(entry, old)| Old {
            chain: None,
            ..Old::of(&self.pages, entry, &old)
        });
        let part = undo.part_mut(self.id());
        self.write_row(part, at, old.as_ref(), row)
    }

    /// Removes a key. Returns the parts that the caller must still remove, or `None` if the key does not exist.
    pub fn delete(
        &mut self,
        undo: &mut Undo,
        table: TableId,
        key: &[u8],
        hash: KeyHash,
    ) -> Option<Displaced> {
        let at = TableKey::new(table, key, hash);
        self.remove_row(undo, at, Elements::Orphaned)
    }

    /// Removes a key that is a header. The collection stays, because another header names the collection. Returns
    /// whether the key existed.
    pub fn unlink(&mut self, undo: &mut Undo, table: TableId, key: &[u8], hash: KeyHash) -> bool {
        let at = TableKey::new(table, key, hash);
        self.remove_row(undo, at, Elements::Kept).is_some()
    }

    fn remove_row(
        &mut self,
        undo: &mut Undo,
        at: TableKey<'_>,
        elements: Elements,
    ) -> Option<Displaced> {
        let TableKey { table, key, hash } = at;
        let part = undo.part_mut(self.id());
        let attached = self.tables.get_mut(table)?;
        let (entry, row) = find(&self.pages, attached, key, hash)?;
        let old = Old::of(&self.pages, entry, &row);
        if attached.form.derive.is_some() {
            let mut keys = std::mem::take(&mut attached.index_keys);
            secondary::derive(&mut keys[0], &attached.form, &self.pages, &row);
            secondary::settle(attached, part, table, Some((entry, &keys[0])), None);
            attached.index_keys = keys;
        }
        unindex(attached, part, table, key, entry);
        set_expiry(attached, part, table, Some((entry, old.expiry_ms)), None);
        attached.account(&self.pages.memory);
        let saved = part.saves.len();
        release_slot(&mut self.pages, attached, part, entry);
        self.let_chain_go(undo, table, old.chain);
        if self.pages.is_keyed(table) {
            undo.part_mut(self.pages.id).note_keyed(saved);
        }
        Some(self.orphan_displaced(undo, table, Some(&old), elements))
    }

    /// Orphans the collection of a header that is gone. If the collection is in a different partition, only returns the
    /// collection's home.
    fn orphan_displaced(
        &mut self,
        undo: &mut Undo,
        table: TableId,
        old: Option<&Old>,
        elements: Elements,
    ) -> Displaced {
        let home = old.and_then(|old| old.home);
        let home = home.filter(|_| elements == Elements::Orphaned);
        match home {
            Some(home) if home.partition == self.id() => {
                self.orphan(undo, table, home.id);
                Displaced::default()
            }
            foreign => Displaced { foreign },
        }
    }

    /// Writes a key's row over the old row or to a new slot, and updates the index entries. If the row moves, its old
    /// slot is freed, and the old bytes stay there as garbage.
    fn write_row(
        &mut self,
        part: &mut PartUndo,
        at: TableKey<'_>,
        old: Option<&Old>,
        row: &Row<'_>,
    ) -> Result<()> {
        let TableKey {
            table: id,
            key,
            hash,
        } = at;
        debug_assert_eq!(self.pages.geometry.partition_of(hash), self.pages.id);
        let table = self.tables.get_mut(id).ok_or_else(|| not_attached(id))?;
        let (pages, second) = (&mut self.pages, self.now_second);
        let old_entry = old.map(|old| old.entry);
        let derives = table.form.derive.is_some();
        let old_row = old_entry.filter(|_| derives);
        if let Some(row) = old_row.and_then(|entry| pages.row(entry)) {
            secondary::derive(&mut table.index_keys[0], &table.form, pages, &row);
        }
        let goal = Destination {
            table: id,
            hash,
            old: old_entry,
        };
        let entry = cells::place(pages, table, part, goal, row)?;
        if derives {
            let mut keys = std::mem::take(&mut table.index_keys);
            secondary::derive(&mut keys[1], &table.form, pages, row);
            let was = old_entry.map(|old| (old, &keys[0]));
            secondary::settle(table, part, id, was, Some((entry, &keys[1])));
            table.index_keys = keys;
        }
        if old_entry != Some(entry) {
            if let Some(old) = old_entry {
                unindex(table, part, id, key, old);
            }
            let copy = if table.ordered.is_some() {
                part.copy_key(key)
            } else {
                KeyCopy::default()
            };
            part.ops.push(Op::Inserted {
                table: id,
                entry,
                key: copy,
            });
            table.insert(entry, second, key);
            if let Some(old) = old_entry {
                release_slot(pages, table, part, old);
            }
        }
        let before = old.map(|old| (old.entry, old.expiry_ms));
        set_expiry(table, part, id, before, Some((entry, row.expiry_ms)));
        table.account(&pages.memory);
        Ok(())
    }
}

fn unindex(table: &mut Table, part: &mut PartUndo, id: TableId, key: &[u8], entry: Entry) {
    let copy = if table.ordered.is_some() {
        part.copy_key(key)
    } else {
        KeyCopy::default()
    };
    part.ops.push(Op::Removed {
        table: id,
        entry,
        key: copy,
    });
    table.remove(entry, key);
}

/// Replaces a row's old entry and expiry by the new ones in the set of expiries.
#[inline]
fn set_expiry(
    table: &mut Table,
    part: &mut PartUndo,
    id: TableId,
    before: Option<(Entry, Option<u64>)>,
    now: Option<(Entry, Option<u64>)>,
) {
    if before == now {
        return;
    }
    if let Some((entry, Some(expiry_ms))) = before {
        part.ops.push(Op::ExpiryRemoved {
            table: id,
            entry,
            expiry_ms,
        });
        let was_there = table.expiries.remove(&(expiry_ms, entry));
        debug_assert!(was_there, "a row's expiry is in the set");
    }
    if let Some((entry, Some(expiry_ms))) = now {
        part.ops.push(Op::ExpiryAdded {
            table: id,
            entry,
            expiry_ms,
        });
        let is_new = table.expiries.insert((expiry_ms, entry));
        debug_assert!(is_new, "a row has one expiry");
    }
}

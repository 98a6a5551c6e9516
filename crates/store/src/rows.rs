//! Rows: find, put, delete.
//!
//! A row is overwritten in place when its slot's class is exactly the one it needs, otherwise it
//! moves: the new slot is written first and the old one freed then, so that a refusal for lack of
//! memory comes before any change of an index. A delete flips one bit and leaves the content.

use perdura_base::limits::{KEY_BYTES_MAX, VALUE_BYTES_MAX};
use perdura_base::{Error, PageId, Result, TableId};
use perdura_page::layout::{self, HEADER_BYTES};
use perdura_page::row::{HEAD_KEY_BYTES_MAX, inline_class};
use perdura_page::{Kind, PageKind, Place, Row, SlotClass};

use crate::geometry::KeyHash;
use crate::index::{Entry, Table, spread};
use crate::pages::{Pages, flag};
use crate::partition::Partition;
use crate::patch::chain_of;
use crate::row_ref::RowRef;
use crate::undo::{KeyCopy, Op, PartUndo, Undo};

/// What a row leaves behind when it is overwritten or deleted.
struct Old {
    entry: Entry,
    expiry_ms: Option<u64>,
    chain: Option<(PageId, usize)>,
}

impl Old {
    fn of(entry: Entry, row: &Row<'_>) -> Old {
        Old {
            entry,
            expiry_ms: row.expiry_ms,
            chain: chain_of(row),
        }
    }
}

fn find<'a>(
    pages: &'a Pages,
    table: &Table,
    key: &[u8],
    hash: KeyHash,
) -> Option<(Entry, Row<'a>)> {
    let mut found = None;
    table.hash.find(spread(hash), |entry| {
        found = entry
            .hash_is(hash)
            .then(|| pages.row(entry))
            .flatten()
            .filter(|row| pages.key_is(row, key, hash))
            .map(|row| (entry, row));
        found.is_some()
    });
    found
}

fn not_attached(table: TableId) -> Error {
    Error::Usage(format!("table {table} does not exist"))
}

impl Partition {
    /// The row with this key.
    #[must_use]
    pub fn get(&self, table: TableId, key: &[u8], hash: KeyHash) -> Option<RowRef<'_>> {
        let table = self.tables.get(&table)?;
        find(&self.pages, table, key, hash).map(|(_, row)| RowRef::new(&self.pages, row))
    }

    /// Inserts or overwrites a row.
    ///
    /// # Errors
    /// `Usage` if the table is not attached or a length is over its limit, `OutOfMemory`. Then
    /// no row has changed; pages may have, which commit and rollback both settle.
    pub fn put(
        &mut self,
        undo: &mut Undo,
        table: TableId,
        key: &[u8],
        hash: KeyHash,
        value: &[u8],
        expiry_ms: Option<u64>,
    ) -> Result<()> {
        self.put_kind(undo, table, (key, hash), (Kind::String, value), expiry_ms)
    }

    /// As [`put`](Self::put), of a row of another kind than a string.
    ///
    /// # Errors
    /// As [`put`](Self::put).
    pub fn put_kind(
        &mut self,
        undo: &mut Undo,
        table: TableId,
        (key, hash): (&[u8], KeyHash),
        (kind, value): (Kind, &[u8]),
        expiry_ms: Option<u64>,
    ) -> Result<()> {
        debug_assert_eq!(self.pages.geometry.partition_of(hash), self.id());
        if key.len() > KEY_BYTES_MAX || value.len() > VALUE_BYTES_MAX {
            return Err(Error::Usage(format!(
                "a key may have {KEY_BYTES_MAX} bytes and a value {VALUE_BYTES_MAX}; \
                 these have {} and {}",
                key.len(),
                value.len()
            )));
        }
        let attached = self.tables.get(&table).ok_or_else(|| not_attached(table))?;
        let old = find(&self.pages, attached, key, hash).map(|(e, row)| Old::of(e, &row));
        let part = undo.part_mut(self.id());
        if inline_class(key.len(), value.len(), expiry_ms.is_some()).is_some() {
            return self.place(
                part,
                table,
                (key, hash),
                old,
                &Row::inline(key, value, expiry_ms).with_kind(kind),
            );
        }
        let chain_key = if key.len() > HEAD_KEY_BYTES_MAX {
            key
        } else {
            &[]
        };
        let first = self.pages.write_chain(part, table, [chain_key, value])?;
        let row = Row::large(key, value.len(), first, hash.0, expiry_ms).with_kind(kind);
        let placed = self.place(part, table, (key, hash), old, &row);
        if placed.is_err() {
            self.pages.free_chain(part, first, row.chain_bytes());
        }
        placed
    }

    /// Sets or removes a row's expiry; false if there is no such row.
    ///
    /// # Errors
    /// As [`put`](Self::put): a row with an expiry is eight bytes longer.
    pub fn set_expiry(
        &mut self,
        undo: &mut Undo,
        table: TableId,
        key: &[u8],
        hash: KeyHash,
        expiry_ms: Option<u64>,
    ) -> Result<bool> {
        let Some(attached) = self.tables.get(&table) else {
            return Ok(false);
        };
        let Some((_, row)) = find(&self.pages, attached, key, hash) else {
            return Ok(false);
        };
        if row.expiry_ms == expiry_ms {
            return Ok(true);
        }
        match row.place {
            Place::Inline { value, .. } => {
                let (kind, value) = (row.kind, value.to_vec());
                self.put_kind(undo, table, (key, hash), (kind, &value), expiry_ms)?;
            }
            Place::Large { first, .. } => {
                let row =
                    Row::large(key, row.value_bytes, first, hash.0, expiry_ms).with_kind(row.kind);
                self.replace_head(undo, table, (key, hash), &row)?;
            }
        }
        Ok(true)
    }

    /// Writes the head of a row anew that keeps its chain.
    pub(crate) fn replace_head(
        &mut self,
        undo: &mut Undo,
        table: TableId,
        (key, hash): (&[u8], KeyHash),
        row: &Row<'_>,
    ) -> Result<()> {
        let attached = self.tables.get(&table).ok_or_else(|| not_attached(table))?;
        let old = find(&self.pages, attached, key, hash).map(|(entry, old)| Old {
            chain: None,
            ..Old::of(entry, &old)
        });
        let part = undo.part_mut(self.id());
        self.place(part, table, (key, hash), old, row)
    }

    /// Removes a row; false if there is none.
    pub fn delete(&mut self, undo: &mut Undo, table: TableId, key: &[u8], hash: KeyHash) -> bool {
        let part = undo.part_mut(self.id());
        let Some(attached) = self.tables.get_mut(&table) else {
            return false;
        };
        let Some((entry, row)) = find(&self.pages, attached, key, hash) else {
            return false;
        };
        let old = Old::of(entry, &row);
        unindex(attached, part, table, key, entry);
        set_expiry(attached, part, table, Some((entry, old.expiry_ms)), None);
        attached.account(&self.pages.memory);
        release_slot(&mut self.pages, attached, part, entry);
        if let Some((first, bytes)) = old.chain {
            self.pages.free_chain(part, first, bytes);
        }
        true
    }

    /// Writes a row where it belongs and settles its index entries and what the old one held.
    fn place(
        &mut self,
        part: &mut PartUndo,
        id: TableId,
        (key, hash): (&[u8], KeyHash),
        old: Option<Old>,
        row: &Row<'_>,
    ) -> Result<()> {
        let table = self.tables.get_mut(&id).ok_or_else(|| not_attached(id))?;
        let pages = &mut self.pages;
        let class = SlotClass::for_bytes(row.bytes()).expect("a head or an inline row has a class");
        let in_place = old
            .as_ref()
            .map(|old| old.entry)
            .filter(|entry| pages.class(entry.local()) == class);
        let entry = match in_place {
            Some(entry) => {
                write_slot(pages, part, entry.local(), class, entry.slot(), row);
                entry
            }
            None => {
                let local = open_page(pages, table, part, id, class)?;
                let slot = layout::first_free(pages.page(local), class).expect("an open page");
                write_slot(pages, part, local, class, slot, row);
                save_bit(pages, part, local, slot);
                layout::set_taken(pages.page_mut(local), slot, true);
                pages.state(local).free_slots -= 1;
                let entry = Entry::new(hash, local, slot);
                if let Some(old) = &old {
                    unindex(table, part, id, key, old.entry);
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
                table.insert(entry, || key.into());
                if let Some(old) = &old {
                    release_slot(pages, table, part, old.entry);
                }
                entry
            }
        };
        let before = old.as_ref().map(|old| (old.entry, old.expiry_ms));
        set_expiry(table, part, id, before, Some((entry, row.expiry_ms)));
        table.account(&pages.memory);
        if let Some((first, bytes)) = old.and_then(|old| old.chain) {
            pages.free_chain(part, first, bytes);
        }
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

/// Moves a row's mark in the set of expiries.
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
        table.expiries.remove(&(expiry_ms, entry));
    }
    if let Some((entry, Some(expiry_ms))) = now {
        part.ops.push(Op::ExpiryAdded {
            table: id,
            entry,
            expiry_ms,
        });
        table.expiries.insert((expiry_ms, entry));
    }
}

fn write_slot(
    pages: &mut Pages,
    part: &mut PartUndo,
    local: u32,
    class: SlotClass,
    slot: usize,
    row: &Row<'_>,
) {
    let at = class.slot_offset(slot);
    part.save(pages.page(local), local, at, class.bytes());
    row.encode(&mut pages.page_mut(local)[at..at + class.bytes()]);
}

fn save_bit(pages: &Pages, part: &mut PartUndo, local: u32, slot: usize) {
    part.save(pages.page(local), local, HEADER_BYTES + slot / 64 * 8, 8);
}

/// A page of the table and class with a free slot.
fn open_page(
    pages: &mut Pages,
    table: &mut Table,
    part: &mut PartUndo,
    id: TableId,
    class: SlotClass,
) -> Result<u32> {
    let list = table.open_list(class);
    while let Some(local) = list.last().copied() {
        let page = pages.page(local);
        let open = layout::kind(page) == Some(PageKind::Slotted)
            && layout::table(page) == id
            && layout::class(page) == Some(class);
        if open && pages.state(local).free_slots > 0 {
            return Ok(local);
        }
        list.pop();
        pages.state(local).flags &= !flag::OPEN;
    }
    pages.check_room(id, 1)?;
    let local = pages.take(part)?;
    pages.format_slotted(part, local, id, class);
    pages.state(local).flags |= flag::OPEN;
    list.push(local);
    Ok(local)
}

/// Frees a slot, and its page with the last one.
fn release_slot(pages: &mut Pages, table: &mut Table, part: &mut PartUndo, entry: Entry) {
    let (local, slot) = (entry.local(), entry.slot());
    save_bit(pages, part, local, slot);
    layout::set_taken(pages.page_mut(local), slot, false);
    pages.state(local).free_slots += 1;
    let class = pages.class(local);
    if usize::from(pages.state(local).free_slots) == class.slots() {
        pages.free_page(part, local);
    } else {
        list_open(pages, table, local, class);
    }
}

/// Puts a page with free slots on its open list, unless it is on one.
pub(crate) fn list_open(pages: &mut Pages, table: &mut Table, local: u32, class: SlotClass) {
    let state = pages.state(local);
    if state.free_slots > 0 && state.flags & flag::OPEN == 0 {
        state.flags |= flag::OPEN;
        table.open_list(class).push(local);
    }
}

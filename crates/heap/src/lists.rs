//! Lists: items in the order that their pushes and inserts define.
//!
//! The order must survive a restart, although only rows are logged. So the key of an item's row is a label, and items
//! are in the order of their labels. The label of an item pushed at an end is [`STEP`] away from the label of the item
//! that was at this end before. An item put between two items gets the middle of the gap between the items' labels. If
//! the gap has no middle, the items around the gap get new labels, but no more items than necessary. In memory the list
//! is a ring buffer of entries. A ring buffer reaches both ends and any index directly. A label is read from the item's
//! row only when a caller needs the label.

use std::collections::VecDeque;

use perdura_base::flaw::{Flaw, armed};
use perdura_base::{Error, Result, TableId};
use perdura_page::row::short_key;
use perdura_page::{CollectionId, End, Kind, Place, Row, Shape, SlotClass, kind};
use smallvec::SmallVec;

use crate::address::TableCollection;
use crate::cells::{self, Destination, NewRow, chain_of, free_chain, release_slot};
use crate::collection::Index;
use crate::edit::Edit;
use crate::element_key::ElementKey;
use crate::entry::Entry;
use crate::geometry::KeyHash;
use crate::index::Table;
use crate::members::{edit, misused};
use crate::ops::Op;
use crate::pages::Pages;
use crate::partition::Partition;
use crate::row_ref::RowRef;
use crate::rows::not_attached;
use crate::runs::{self, Filler};
use crate::undo::{PartUndo, Undo};

/// The distance between the labels of two items pushed in sequence. 2^51 pushes fit in one direction.
const STEP: i64 = 1 << 12;
/// The minimum distance between newly assigned labels.
const GAP_MIN: i64 = 64;
/// The initial number of items that get new labels on each side of the gap. It is doubled until enough labels are free.
const STRETCH: usize = 8;
/// The hash in the entries of items. Items are never searched by hash.
const NO_HASH: KeyHash = KeyHash(0);

/// The message of a panic that cannot happen: the restart has checked the row of each item, and every later write has
/// encoded a row with a label.
const READABLE: &str = "an item of a list has a row with a label";

/// The destination of an item's row.
#[derive(Clone, Copy)]
pub(crate) struct ItemPlace {
    /// The list.
    pub(crate) list: TableCollection,
    /// The label of the item in the list.
    pub(crate) label: i64,
    /// The entry that the item has before the write; `None` for a new item.
    pub(crate) old: Option<Entry>,
}

impl ItemPlace {
    /// Returns the key of the item's row.
    pub(crate) fn key(self) -> ElementKey {
        ElementKey::labelled(self.list.id, self.label)
    }

    /// Returns the destination of the row for [`cells::place`].
    pub(crate) fn destination(self) -> Destination {
        Destination {
            table: self.list.table,
            hash: NO_HASH,
            old: self.old,
        }
    }
}

/// Returns the entry of an item whose row is in this slot.
pub(crate) fn item_entry(local: u32, slot: usize) -> Entry {
    Entry::new(NO_HASH, local, slot)
}

/// Returns the label of an item; reads it from the item's row.
pub(crate) fn label_of(pages: &Pages, entry: Entry) -> Option<i64> {
    if let Some(key) = short_key(pages.slot(entry)) {
        return kind::read_label(kind::split_element_key(key)?.1);
    }
    let row = RowRef::new(pages, pages.row(entry)?);
    kind::read_label(&row.field())
}

fn items(table: &Table, id: TableId, collection: CollectionId) -> Result<&VecDeque<Entry>> {
    let found = table.collections.get(collection).map(|c| &c.index);
    match found {
        Some(Index::Items(items)) => Ok(items),
        Some(_) => Err(misused(id, collection, "it is not a list")),
        None => Err(misused(id, collection, "it does not exist")),
    }
}

/// Returns the label for a new item before index `at`, or `None` if no label is free there.
fn label_for(pages: &Pages, items: &VecDeque<Entry>, at: usize) -> Option<i64> {
    let label = |at: usize| items.get(at).and_then(|entry| label_of(pages, *entry));
    let before = at.checked_sub(1).and_then(label);
    match (before, label(at)) {
        (None, None) => Some(0),
        (Some(before), None) => before.checked_add(STEP),
        (None, Some(after)) => after.checked_sub(STEP),
        (Some(before), Some(after)) => {
            let gap = after.checked_sub(before)?;
            (gap >= 2 || armed(Flaw::LabelTwice)).then(|| before + gap / 2)
        }
    }
}

/// Plans new labels for the items around index `at`. Returns the indexes of the first item and after the last item, the
/// first new label, and the step between labels.
fn stretch(pages: &Pages, items: &VecDeque<Entry>, at: usize) -> (usize, usize, i64, i64) {
    let label = |at: usize| items.get(at).and_then(|entry| label_of(pages, *entry));
    let mut reach = STRETCH;
    loop {
        let (from, to) = (at.saturating_sub(reach), items.len().min(at + reach));
        let count = i64::try_from(to - from).unwrap_or(i64::MAX);
        let before = from.checked_sub(1).and_then(label);
        let (first, step) = match (before, label(to)) {
            (None, None) => (Some(-(count / 2) * STEP), STEP),
            (Some(before), None) => (before.checked_add(STEP), STEP),
            (None, Some(after)) => (after.checked_sub(count * STEP), STEP),
            (Some(before), Some(after)) => {
                let step = after.saturating_sub(before) / (count + 1);
                let roomy = step >= GAP_MIN;
                (roomy.then(|| before.saturating_add(step)), step)
            }
        };
        let end = first.and_then(|first| first.checked_add(count.checked_mul(step)?));
        if let (Some(first), Some(_)) = (first, end) {
            return (from, to, first, step);
        }
        reach *= 2;
    }
}

impl Partition {
    /// Adds items at an end of a list, in the order of `values`. Returns the list's new length.
    ///
    /// # Errors
    /// `OutOfMemory` like [`put`](Self::put), possibly after the addition of the first items; `Usage` if the list does
    /// not exist.
    pub fn list_push(
        &mut self,
        undo: &mut Undo,
        of: TableCollection,
        end: End,
        values: &[&[u8]],
    ) -> Result<usize> {
        self.pay_for_orphans(undo, of.table, values.len());
        let mut left = values;
        loop {
            let before = left.len();
            let (len, pushed) = self.push_some(undo, of, end, left)?;
            left = &left[pushed..];
            if left.is_empty() {
                return Ok(len);
            }
            debug_assert!(left.len() < before, "each step adds an item");
        }
    }

    /// Adds items at an end of a list while labels are free on that side. Returns the list's new length, and the number
    /// of added items. Unless labels run out, all items are added.
    fn push_some(
        &mut self,
        undo: &mut Undo,
        of: TableCollection,
        end: End,
        values: &[&[u8]],
    ) -> Result<(usize, usize)> {
        let TableCollection {
            table: id,
            id: list,
        } = of;
        let table = self.tables.get(id).ok_or_else(|| not_attached(id))?;
        let ring = items(table, id, list)?;
        let len = ring.len();
        let at = match end {
            End::Front => 0,
            End::Back => len,
        };
        let first = match label_for(&self.pages, ring, at) {
            Some(label) => label,
            None => self.relabel_for(undo, of, at)?,
        };
        let part = undo.part_mut(self.pages.id);
        let pages = &mut self.pages;
        let table = self.tables.get_mut(id).ok_or_else(|| not_attached(id))?;
        let labels = std::iter::successors(Some(first), |label| match end {
            End::Front => label.checked_sub(STEP),
            End::Back => label.checked_add(STEP),
        });
        if let [value] = values {
            let to = ItemPlace {
                list: of,
                label: first,
                old: None,
            };
            let entry = add_one(pages, table, part, to, value)?;
            table.collections.push_items(list, end, &[entry]);
            part.ops.push(Op::Pushed {
                table: id,
                id: list,
                end,
                count: 1,
            });
            table.account(&pages.memory);
            return Ok((len + 1, 1));
        }
        let mut entries: SmallVec<[Entry; 64]> = SmallVec::new();
        let mut refused = None;
        let mut filler = Filler::new(pages, table, part, id, NO_HASH);
        for (value, label) in values.iter().zip(labels) {
            match add_item(&mut filler, list, label, value) {
                Ok(entry) => entries.push(entry),
                Err(error) => {
                    refused = Some(error);
                    break;
                }
            }
        }
        table.collections.push_items(list, end, &entries);
        part.ops.push(Op::Pushed {
            table: id,
            id: list,
            end,
            count: entries.len(),
        });
        table.account(&pages.memory);
        refused.map_or(Ok((len + entries.len(), entries.len())), Err)
    }

    /// Passes the item at an end of a list to `read`, and removes it unless it is the only item. Returns the result of
    /// `read`, and the number of items that are left; `None` if the list has no item.
    ///
    /// # Errors
    /// `Usage` if the list does not exist.
    pub fn list_take<R>(
        &mut self,
        undo: &mut Undo,
        of: TableCollection,
        end: End,
        read: impl FnOnce(RowRef<'_>) -> R,
    ) -> Result<Option<(R, usize)>> {
        let TableCollection {
            table: id,
            id: list,
        } = of;
        let pages = &mut self.pages;
        let table = self.tables.get_mut(id).ok_or_else(|| not_attached(id))?;
        let ring = items(table, id, list)?;
        let entry = match end {
            End::Front => ring.front(),
            End::Back => ring.back(),
        };
        let Some(entry) = entry.copied() else {
            return Ok(None);
        };
        let left = ring.len() - 1;
        let row = pages.row(entry).expect(READABLE);
        let chain = chain_of(&row);
        let result = read(RowRef::new(pages, row));
        if left > 0 {
            let part = undo.part_mut(pages.id);
            table.collections.pop_items(list, end, 1);
            part.popped(id, list, end, &[entry]);
            release_slot(pages, table, part, entry);
            free_chain(pages, part, chain);
            table.account(&pages.memory);
        }
        Ok(Some((result, left)))
    }

    /// Removes items from an end of a list.
    ///
    /// # Errors
    /// `Usage` if the list does not exist or has fewer items.
    pub fn list_pop(
        &mut self,
        undo: &mut Undo,
        of: TableCollection,
        end: End,
        count: usize,
    ) -> Result<()> {
        let TableCollection {
            table: id,
            id: list,
        } = of;
        let part = undo.part_mut(self.pages.id);
        let pages = &mut self.pages;
        let table = self.tables.get_mut(id).ok_or_else(|| not_attached(id))?;
        let ring = items(table, id, list)?;
        let len = ring.len();
        let kept = len.checked_sub(count);
        let kept = kept.ok_or_else(|| misused(id, list, "it has no such place"))?;
        let popped: Vec<Entry> = match end {
            End::Front => ring.range(..count).copied().collect(),
            End::Back => ring.range(kept..).rev().copied().collect(),
        };
        table.collections.pop_items(list, end, count);
        debug_assert_eq!(items(table, id, list)?.len(), kept);
        debug_assert_eq!(popped.len(), count);
        part.popped(id, list, end, &popped);
        runs::release(pages, table, part, &popped);
        table.account(&pages.memory);
        Ok(())
    }

    /// Returns the label for a new item before index `at`. If no label is free there, assigns new labels to the items
    /// around the index.
    fn make_label(&mut self, undo: &mut Undo, of: TableCollection, at: usize) -> Result<i64> {
        let TableCollection {
            table: id,
            id: list,
        } = of;
        let table = self.tables.get(id).ok_or_else(|| not_attached(id))?;
        if let Some(label) = label_for(&self.pages, items(table, id, list)?, at) {
            return Ok(label);
        }
        self.relabel_for(undo, of, at)
    }

    /// Assigns new labels to the items around index `at`, and returns a label for a new item there.
    #[cold]
    fn relabel_for(&mut self, undo: &mut Undo, of: TableCollection, at: usize) -> Result<i64> {
        let TableCollection {
            table: id,
            id: list,
        } = of;
        self.relabel(undo, of, at)?;
        let table = self.tables.get(id).ok_or_else(|| not_attached(id))?;
        let label = label_for(&self.pages, items(table, id, list)?, at);
        label.ok_or_else(|| no_label_left(id, list))
    }

    /// Puts an item before the item at index `at`, or at the end of the list if `at` is the list's length.
    ///
    /// # Errors
    /// Like [`list_push`](Self::list_push); `Usage` if `at` is beyond the list's length.
    pub fn list_insert(
        &mut self,
        undo: &mut Undo,
        of: TableCollection,
        at: usize,
        value: &[u8],
    ) -> Result<()> {
        let TableCollection {
            table: id,
            id: list,
        } = of;
        self.pay_for_orphans(undo, id, 1);
        let label = self.make_label(undo, of, at)?;
        let part = undo.part_mut(self.pages.id);
        let pages = &mut self.pages;
        let table = self.tables.get_mut(id).ok_or_else(|| not_attached(id))?;
        if at > items(table, id, list)?.len() {
            return Err(misused(id, list, "it has no such place"));
        }
        let to = ItemPlace {
            list: of,
            label,
            old: None,
        };
        let entry = write_item(pages, table, part, to, value)?;
        edit(table, part, id, list, Edit::ItemAdd(at, entry));
        table.account(&pages.memory);
        Ok(())
    }

    /// Overwrites the item at index `at`.
    ///
    /// # Errors
    /// Like [`list_insert`](Self::list_insert).
    pub fn list_set(
        &mut self,
        undo: &mut Undo,
        of: TableCollection,
        at: usize,
        value: &[u8],
    ) -> Result<()> {
        let TableCollection {
            table: id,
            id: list,
        } = of;
        let part = undo.part_mut(self.pages.id);
        let pages = &mut self.pages;
        let table = self.tables.get_mut(id).ok_or_else(|| not_attached(id))?;
        let found = items(table, id, list)?.get(at).copied();
        let old = found.ok_or_else(|| misused(id, list, "it has no such place"))?;
        let chain = chain_of(&pages.row(old).expect(READABLE));
        let label = label_of(pages, old).expect(READABLE);
        let to = ItemPlace {
            list: of,
            label,
            old: Some(old),
        };
        let entry = write_item(pages, table, part, to, value)?;
        if entry != old {
            edit(table, part, id, list, Edit::ItemMove(at, entry));
            release_slot(pages, table, part, old);
        }
        free_chain(pages, part, chain);
        table.account(&pages.memory);
        Ok(())
    }

    /// Removes the item at index `at`.
    ///
    /// # Errors
    /// `Usage` if the item does not exist.
    pub fn list_remove(&mut self, undo: &mut Undo, of: TableCollection, at: usize) -> Result<()> {
        let TableCollection {
            table: id,
            id: list,
        } = of;
        let part = undo.part_mut(self.pages.id);
        let pages = &mut self.pages;
        let table = self.tables.get_mut(id).ok_or_else(|| not_attached(id))?;
        let found = items(table, id, list)?.get(at).copied();
        let entry = found.ok_or_else(|| misused(id, list, "it has no such place"))?;
        let chain = pages.row(entry).as_ref().and_then(chain_of);
        edit(table, part, id, list, Edit::ItemRemove(at));
        release_slot(pages, table, part, entry);
        free_chain(pages, part, chain);
        table.account(&pages.memory);
        Ok(())
    }

    /// Assigns new labels, with room between them, to the items around index `at`.
    fn relabel(&mut self, undo: &mut Undo, of: TableCollection, at: usize) -> Result<()> {
        let TableCollection {
            table: id,
            id: list,
        } = of;
        let part = undo.part_mut(self.pages.id);
        let pages = &mut self.pages;
        let table = self.tables.get_mut(id).ok_or_else(|| not_attached(id))?;
        let (from, to, first, step) = stretch(pages, items(table, id, list)?, at);
        let mut label = first;
        for at in from..to {
            let old = items(table, id, list)?[at];
            let row = pages.row(old).expect(READABLE);
            let key = ElementKey::labelled(list, label);
            let mut copy = Vec::new();
            let (row, fresh) = match row.place {
                // The new label may be longer and make the row too long for a slot.
                Place::Inline { value, .. } => {
                    copy.extend_from_slice(value);
                    let new = NewRow {
                        kind: Kind::Element(Shape::List),
                        key: key.bytes(),
                        hash: pages.geometry.hash(key.bytes()),
                        value: &copy,
                        expiry_ms: None,
                    };
                    let row = cells::compose(pages, part, id, &new)?;
                    (row, chain_of(&row))
                }
                Place::Large { first, .. } => {
                    let hash = pages.geometry.hash(key.bytes());
                    let row = Row::large(key.bytes(), row.value_bytes, first, hash.0, None)
                        .with_kind(Kind::Element(Shape::List));
                    (row, None)
                }
            };
            let to = Destination {
                table: id,
                hash: NO_HASH,
                old: Some(old),
            };
            let placed = cells::place(pages, table, part, to, &row);
            if placed.is_err() {
                free_chain(pages, part, fresh);
            }
            let entry = placed?;
            if entry != old {
                edit(table, part, id, list, Edit::ItemMove(at, entry));
                release_slot(pages, table, part, old);
            }
            label = label
                .checked_add(step)
                .expect("a stretch leaves room for a label behind it");
        }
        table.account(&pages.memory);
        Ok(())
    }
}

/// Writes the row of a single new item. Takes fewer steps than a [`Filler`], which pays off for many items.
fn add_one(
    pages: &mut Pages,
    table: &mut Table,
    part: &mut PartUndo,
    to: ItemPlace,
    value: &[u8],
) -> Result<Entry> {
    let key = to.key();
    let row = item_row(key.bytes(), value);
    if row.bytes() <= SlotClass::bytes_max() {
        return cells::place(pages, table, part, to.destination(), &row);
    }
    write_item(pages, table, part, to, value)
}

/// Returns the inline row of an item.
fn item_row<'a>(key: &'a [u8], value: &'a [u8]) -> Row<'a> {
    Row {
        kind: Kind::Element(Shape::List),
        ..Row::inline(key, value, None)
    }
}

/// Writes the row of a new item.
fn add_item(
    filler: &mut Filler<'_>,
    list: CollectionId,
    label: i64,
    value: &[u8],
) -> Result<Entry> {
    let key = ElementKey::labelled(list, label);
    let row = item_row(key.bytes(), value);
    if row.bytes() <= SlotClass::bytes_max() {
        return filler.put(&row);
    }
    filler.close();
    let Filler {
        pages, table, part, ..
    } = filler;
    let to = ItemPlace {
        list: TableCollection::new(filler.id, list),
        label,
        old: None,
    };
    write_item(pages, table, part, to, value)
}

/// Writes the row of an item. Overwrites the item's old row if its slot has the right class; otherwise takes a new
/// slot.
fn write_item(
    pages: &mut Pages,
    table: &mut Table,
    part: &mut PartUndo,
    to: ItemPlace,
    value: &[u8],
) -> Result<Entry> {
    let key = to.key();
    let new = NewRow {
        kind: Kind::Element(Shape::List),
        key: key.bytes(),
        hash: pages.geometry.hash(key.bytes()),
        value,
        expiry_ms: None,
    };
    cells::write(pages, table, part, to.destination(), &new)
}

/// Returns the error for a list without a free label at one end. Such a list is damaged, because even 2^51 pushes in
/// one direction leave labels free.
fn no_label_left(table: TableId, list: CollectionId) -> Error {
    Error::corrupt(
        format!("list {} of table {table}", list.0),
        0,
        "labels with room at both ends",
        "a label next to the end of its range",
        "The items can be read, and none can be added at that end. Copy the list to another key.",
    )
}

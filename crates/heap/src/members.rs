//! Writing and removing elements of hashes, sets, sorted sets and streams.
//!
//! Each element is one row, so a small change logs a small record, however big the collection is. The row's key is the
//! collection's id followed by the element's name. The row lies in a page of the partition that is the collection's
//! home. A member's score is the value of its row. A new score logs eight bytes. The order of scores is derived and not
//! logged.

use perdura_base::flaw::{Flaw, armed};
use perdura_base::{Error, Result, TableId};
use perdura_page::{CollectionId, Kind, Row, Shape};

use crate::address::TableCollection;
use crate::cells::{self, Destination, NewRow, chain_of, free_chain, release_slot};
use crate::collection::{Collection, Index};
use crate::edit::{Edit, Owner};
use crate::element_key::ElementKey;
use crate::elements::{Part, part_of, rank_of};
use crate::entry::Entry;
use crate::geometry::KeyHash;
use crate::index::Table;
use crate::name_place::place_of;
use crate::ops::Op;
use crate::order::OrderIndex;
use crate::pages::Pages;
use crate::partition::Partition;
use crate::row_ref::RowRef;
use crate::rows::not_attached;
use crate::undo::{PartUndo, Undo};

/// Returns the error for an operation that does not fit the collection. Such an operation is a bug of the caller.
pub(crate) fn misused(table: TableId, id: CollectionId, what: &str) -> Error {
    Error::Usage(format!("collection {} of table {table}: {what}", id.0))
}

/// Changes a collection's index and notes the inverse for a rollback.
pub(crate) fn edit(
    table: &mut Table,
    part: &mut PartUndo,
    id: TableId,
    collection: CollectionId,
    edit: Edit,
) {
    if let Some(inverse) = table.collections.edit(collection, edit) {
        part.ops.push(Op::Edited {
            table: id,
            id: collection,
            inverse,
        });
    }
}

/// Returns the score in a member's row.
fn score_of(pages: &Pages, row: Row<'_>) -> f64 {
    RowRef::new(pages, row).score()
}

impl Partition {
    /// Makes a collection without elements. In the same transaction the caller writes the collection's header or makes
    /// it an orphan.
    pub(crate) fn make_collection(
        &mut self,
        undo: &mut Undo,
        table: TableId,
        shape: Shape,
    ) -> Result<CollectionId> {
        let id = self.add_collection(table, shape, Owner::Header)?;
        undo.part_mut(self.pages.id)
            .ops
            .push(Op::Made { table, id });
        Ok(id)
    }

    /// Adds a collection without elements under a new id.
    pub(crate) fn add_collection(
        &mut self,
        table: TableId,
        shape: Shape,
        owner: Owner,
    ) -> Result<CollectionId> {
        let attached = self.tables.get_mut(table);
        let attached = attached.ok_or_else(|| not_attached(table))?;
        let id = CollectionId(self.next_collection);
        self.next_collection += 1;
        attached.collections.make(id, shape, owner);
        attached.account(&self.pages.memory);
        Ok(id)
    }

    /// Writes an element. A field, or a part of a stream, has an arbitrary value. A set's member has an empty value,
    /// and a sorted set's member has its score in eight bytes. Returns whether the element is new.
    ///
    /// # Errors
    /// `OutOfMemory` like [`put`](Self::put). `Usage` if the collection does not exist, is a list, or has a shape that
    /// the value does not fit.
    pub fn element_put(
        &mut self,
        undo: &mut Undo,
        of: TableCollection,
        field: &[u8],
        value: &[u8],
    ) -> Result<bool> {
        let TableCollection {
            table: id,
            id: collection,
        } = of;
        let key = ElementKey::named(collection, field);
        let hash: KeyHash = self.pages.geometry.hash(key.bytes());
        self.pay_for_orphans(undo, id, 1);
        let part = undo.part_mut(self.pages.id);
        let pages = &mut self.pages;
        let table = self.tables.get_mut(id).ok_or_else(|| not_attached(id))?;
        let fault = |what: &str| misused(id, collection, what);
        let found = table.collections.get(collection);
        let found = found.ok_or_else(|| fault("it does not exist"))?;
        let score = check_value(found.shape, field, value).map_err(fault)?;
        let old = found.find(pages, key.bytes(), hash);
        let old_score = score.and(old).map(|(_, row)| score_of(pages, row));
        let old = old.map(|(entry, row)| (entry, chain_of(&row)));
        let new = NewRow {
            kind: Kind::Element(found.shape),
            key: key.bytes(),
            hash,
            value,
            expiry_ms: None,
        };
        let old_entry = old.map(|(entry, _)| entry);
        let to = Destination {
            table: id,
            hash,
            old: old_entry,
        };
        let entry = cells::write(pages, table, part, to, &new)?;
        if old_entry != Some(entry) {
            if let Some(old) = old_entry {
                edit(table, part, id, collection, Edit::Remove(old));
            }
            edit(table, part, id, collection, Edit::Add(entry));
        }
        if let Some(score) = score
            && (old_score != Some(score) && !armed(Flaw::ScoreNotMoved) || old_entry != Some(entry))
        {
            let was = old_score.and_then(|old| rank_in(pages, table, collection, old, field));
            if let Some(rank) = was {
                edit(table, part, id, collection, Edit::ScoreRemove(rank));
            }
            if let Some(rank) = rank_in(pages, table, collection, score, field) {
                let add = Edit::ScoreAdd(rank, score, entry);
                edit(table, part, id, collection, add);
            }
        }
        if let Some(old) = old_entry.filter(|old| *old != entry) {
            release_slot(pages, table, part, old);
        }
        free_chain(pages, part, old.and_then(|(_, chain)| chain));
        debug_assert!(ranks_each_name(table.collections.get(collection)));
        table.account(&pages.memory);
        Ok(old.is_none())
    }

    /// Removes a field or member. Returns whether it existed.
    ///
    /// # Errors
    /// `Usage` if the collection does not exist or is a list.
    pub fn element_delete(
        &mut self,
        undo: &mut Undo,
        of: TableCollection,
        field: &[u8],
    ) -> Result<bool> {
        let taken = self.element_take(undo, of, field, |_| ())?;
        Ok(taken.is_some())
    }

    /// Removes a field or member, after passing its row to `read`. Returns the result of `read`, or `None` if the
    /// element does not exist.
    ///
    /// # Errors
    /// Like [`element_delete`](Self::element_delete).
    pub fn element_take<R>(
        &mut self,
        undo: &mut Undo,
        of: TableCollection,
        field: &[u8],
        read: impl FnOnce(RowRef<'_>) -> R,
    ) -> Result<Option<R>> {
        let TableCollection {
            table: id,
            id: collection,
        } = of;
        let part = undo.part_mut(self.pages.id);
        let pages = &mut self.pages;
        let table = self.tables.get_mut(id).ok_or_else(|| not_attached(id))?;
        let found = table.collections.get(collection);
        let found = found.ok_or_else(|| misused(id, collection, "it does not exist"))?;
        if found.shape == Shape::List {
            return Err(misused(id, collection, "a list has no names"));
        }
        let Some(Found { entry, rank, row }) = find_ranked(pages, found, field) else {
            return Ok(None);
        };
        let (chain, taken) = (row.chain(), read(row));
        match rank {
            None => edit(table, part, id, collection, Edit::Remove(entry)),
            Some(rank) => {
                let edits = [Edit::ScoreRemove(rank), Edit::Remove(entry)];
                let inverses = table.collections.edit_both(collection, edits);
                part.ops
                    .extend(inverses.into_iter().flatten().map(|inverse| Op::Edited {
                        table: id,
                        id: collection,
                        inverse,
                    }));
            }
        }
        release_slot(pages, table, part, entry);
        free_chain(pages, part, chain);
        debug_assert!(ranks_each_name(table.collections.get(collection)));
        table.account(&pages.memory);
        Ok(Some(taken))
    }
}

/// An element that was found by its name.
struct Found<'a> {
    entry: Entry,
    /// The element's rank; `None` if the collection has no order.
    rank: Option<u64>,
    row: RowRef<'a>,
}

/// Finds an element and its rank. In a stream, a single search in the order index finds both, because a score is
/// computed from the name.
fn find_ranked<'a>(pages: &'a Pages, collection: &Collection, field: &[u8]) -> Option<Found<'a>> {
    let order = order_of(Some(collection));
    if let (Shape::Stream, Some(order)) = (collection.shape, order) {
        let Part { rank, entry, row } = part_of(pages, order, field)?;
        let rank = Some(rank);
        return Some(Found { entry, rank, row });
    }
    let key = ElementKey::named(collection.id, field);
    let hash = pages.geometry.hash(key.bytes());
    let (entry, row) = collection.find(pages, key.bytes(), hash)?;
    let row = RowRef::new(pages, row);
    let rank = order.map(|order| rank_of(pages, order, row.score(), field));
    Some(Found { entry, rank, row })
}

fn order_of(collection: Option<&Collection>) -> Option<&OrderIndex> {
    match &collection?.index {
        Index::Scores(_, order) => Some(order),
        Index::Names(_) | Index::Items(_) => None,
    }
}

/// Returns whether a collection with scores has as many scores as names. Returns true for any other collection.
fn ranks_each_name(collection: Option<&Collection>) -> bool {
    match collection.map(|collection| &collection.index) {
        Some(Index::Scores(names, order)) => u64::try_from(names.len()) == Ok(order.len()),
        Some(Index::Names(_) | Index::Items(_)) | None => true,
    }
}

/// Returns the rank that a name with this score has or would have; `None` if the collection has no order.
fn rank_in(
    pages: &Pages,
    table: &Table,
    collection: CollectionId,
    score: f64,
    field: &[u8],
) -> Option<u64> {
    let order = order_of(table.collections.get(collection))?;
    Some(rank_of(pages, order, score, field))
}

/// Checks the value of an element. Returns the element's score, or `None` for shapes without scores. The error text
/// says what is wrong with the value.
pub(crate) fn check_value(
    shape: Shape,
    field: &[u8],
    value: &[u8],
) -> Result<Option<f64>, &'static str> {
    match shape {
        Shape::Hash => Ok(None),
        Shape::Set if value.is_empty() => Ok(None),
        Shape::Set => Err("a member of a set has no value"),
        Shape::Zset => match <[u8; 8]>::try_from(value).map(f64::from_le_bytes) {
            Ok(score) if !score.is_nan() => Ok(Some(score)),
            _ => Err("a score is a number of eight bytes"),
        },
        Shape::Stream => Ok(Some(place_of(field))),
        Shape::List => Err("a list has no names"),
    }
}

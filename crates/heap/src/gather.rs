//! Building collections from their rows at a restart.
//!
//! A restart enters elements in collections while it reads pages, in the order of the pages. After the last page, items
//! are sorted by label, and members by score and name. A collection and its header may lie in two partitions. So
//! headers are noted, and compared with the collections when every partition has been built. A collection that no
//! header names is an orphan.
//!
//! Invariants: an element is in its collection once; labels are distinct; scores are numbers. The collection that a
//! header names has elements and the header's shape. Two headers never name the same collection.

use std::cmp::Ordering;

use perdura_base::flaw::{Flaw, armed};
use perdura_base::num::to_u64;
use perdura_base::{PartitionId, Result};
use perdura_page::{Kind, Row, Shape, kind};

use crate::collection::{Collection, Index};
use crate::damage::{damage_in, damaged};
use crate::edit::Owner;
use crate::entry::Entry;
use crate::geometry::KeyHash;
use crate::header::FoundHeader;
use crate::index::Table;
use crate::latches::Heap;
use crate::lists::{item_entry, label_of};
use crate::order::OrderIndex;
use crate::pages::Pages;
use crate::partition::Partition;
use crate::row_ref::RowRef;

impl Partition {
    /// Sorts the items and scores of all collections. Returns the number of elements of all collections. Every
    /// collection is an orphan until its header is found.
    pub(crate) fn order_collections(&mut self) -> Result<u64> {
        let mut rows = 0;
        let by_count = armed(Flaw::CollectionIdReused);
        for table in self.tables.values_mut() {
            for collection in table.collections.iter_mut() {
                rows += u64::try_from(collection.len()).unwrap_or(u64::MAX);
                let next = if by_count {
                    self.next_collection + 1
                } else {
                    collection.id.0.saturating_add(1)
                };
                self.next_collection = self.next_collection.max(next);
                order_collection(&self.pages, collection)?;
            }
            table.collections.recount();
        }
        Ok(rows)
    }
}

/// Checks the row of an element and enters it in its collection.
pub(crate) fn index_element(
    pages: &Pages,
    table: &mut Table,
    (local, slot): (u32, usize),
    (shape, key, hash): (Shape, &[u8], KeyHash),
    row: &Row<'_>,
) -> Result<()> {
    let damage = |expected: &str, found: &str| damaged(pages, local, Some(slot), expected, found);
    let (id, name) = kind::split_element_key(key)
        .filter(|(id, _)| id.0 < u64::MAX)
        .ok_or_else(|| damage("the key of an element", "another"))?;
    let collection = table.collections.find_or_make(id, shape);
    if collection.shape != shape {
        let expected = format!("an element of a {}", Kind::Header(collection.shape).name());
        return Err(damage(&expected, row.kind.name()));
    }
    let value = match shape {
        Shape::Hash | Shape::Stream => Ok(()),
        Shape::List => kind::read_label(name).map(drop).ok_or("a label"),
        Shape::Set if row.value_bytes == 0 => Ok(()),
        Shape::Set => Err("no value"),
        Shape::Zset => match RowRef::new(pages, *row).score() {
            score if row.value_bytes == 8 && !score.is_nan() => Ok(()),
            _ => Err("a score"),
        },
    };
    value.map_err(|expected| damage(expected, "another value"))?;
    let entry = Entry::new(hash, local, slot);
    let names = match &mut collection.index {
        Index::Items(items) => {
            items.push_back(item_entry(local, slot));
            return Ok(());
        }
        Index::Names(names) | Index::Scores(names, _) => names,
    };
    if let Some((twin, _)) = pages.find(names, key, hash) {
        let (page, slot) = (pages.page_id(twin.local()), twin.slot());
        let found = format!("one also in page {page} slot {slot}");
        return Err(damage("an element that appears once", &found));
    }
    names.insert(entry);
    Ok(())
}

/// Sorts the items of a list by their labels, and the members of a sorted set by score and name.
fn order_collection(pages: &Pages, collection: &mut Collection) -> Result<()> {
    match &mut collection.index {
        Index::Names(_) => {}
        Index::Items(items) => {
            let mut labelled: Vec<(Option<i64>, Entry)> = items
                .iter()
                .map(|entry| (label_of(pages, *entry), *entry))
                .collect();
            if armed(Flaw::ListBySlot) {
                labelled.sort_unstable_by_key(|(_, entry)| *entry);
            } else {
                labelled.sort_unstable();
            }
            if let Some(twins) = labelled.windows(2).find(|pair| pair[0].0 == pair[1].0) {
                let (local, slot) = (twins[1].1.local(), twins[1].1.slot());
                let found = "one that another item has";
                return Err(damaged(
                    pages,
                    local,
                    Some(slot),
                    "a label that no other item has",
                    found,
                ));
            }
            *items = labelled.into_iter().map(|(_, entry)| entry).collect();
        }
        Index::Scores(names, order) => {
            let row = |entry| pages.row(entry).map(|row| RowRef::new(pages, row));
            let score = |entry| row(entry).map_or(0.0, |row| row.score());
            let mut members: Vec<(f64, Entry)> = names.iter().map(|e| (score(e), e)).collect();
            members.sort_unstable_by(|a, b| {
                let by_score = a.0.partial_cmp(&b.0).unwrap_or(Ordering::Equal);
                by_score.then_with(|| {
                    let name = |entry| row(entry).map(|row| row.field());
                    name(a.1).cmp(&name(b.1))
                })
            });
            *order = OrderIndex::from_sorted(members);
        }
    }
    Ok(())
}

impl Heap {
    /// Compares the headers found by a restart with the collections that the headers name. All partitions must have
    /// been built. Puts the collections that no header names on the lists of orphans. Returns the number of orphans.
    ///
    /// # Errors
    /// Fails with `Corrupt` if a header's collection has no rows, has a second header, or has a wrong shape. The error
    /// names the header's page and slot.
    pub fn settle_collections(&self) -> Result<u64> {
        let ids = || (0..self.geometry().partitions).map(PartitionId);
        let mut headers: Vec<FoundHeader> = Vec::new();
        for id in ids() {
            headers.append(&mut self.lock(id).take_headers());
        }
        headers.sort_unstable_by_key(|header| header.home);
        let (mut left, mut orphans) = (headers.as_slice(), 0);
        for id in ids() {
            let mut part = self.lock(id);
            let mine = left.partition_point(|header| header.partition() == id);
            for header in &left[..mine] {
                part.claim(header)?;
            }
            left = &left[mine..];
            orphans += part.list_orphans();
        }
        Ok(orphans)
    }
}

impl Partition {
    /// Returns the headers that a build has found, and forgets them.
    pub fn take_headers(&mut self) -> Vec<FoundHeader> {
        std::mem::take(&mut self.headers)
    }

    /// Puts the collections that no header has [claimed](Self::claim) on the lists of orphans. Returns their number.
    /// The headers of all partitions must have claimed their collections.
    pub fn list_orphans(&mut self) -> u64 {
        let mut orphans = 0;
        for table in self.tables.values_mut() {
            table.collections.list_orphans();
            orphans += to_u64(table.collections.orphans.len());
            table.account(&self.pages.memory);
        }
        orphans
    }

    /// Gives the collection that a header names to the header. The collection is in this partition.
    ///
    /// # Errors
    /// Fails with `Corrupt` if the collection has no rows, has a second header, or has a wrong shape.
    pub fn claim(&mut self, header: &FoundHeader) -> Result<()> {
        let foreign = self.pages.geometry.partition_of_page(header.page) != self.id();
        if foreign && armed(Flaw::ForeignHeaderUnclaimed) {
            return Ok(());
        }
        let table = self.tables.get_mut(header.table);
        let found = table.and_then(|table| table.collections.get_mut(header.home.id));
        let fault = match found {
            None => "one without elements",
            Some(found) if found.shape != header.shape => "one of another shape",
            Some(found) if found.owner != Owner::Orphan => "one that another key heads",
            Some(found) => {
                found.owner = Owner::Header;
                return Ok(());
            }
        };
        let expected = "the only header of its collection";
        Err(damage_in(header.page, Some(header.slot), expected, fault))
    }
}

//! The indexes of collections. All indexes are derived from pages.
//!
//! Each collection has an index of its elements. So its length is known, a scan meets no names of other collections,
//! and a small collection costs little. Hashes, sets, sorted sets and streams have a hash index of names. Sorted sets
//! and streams also have an index in the order of scores. A list has its items in order, and no hash index. Every
//! change is an [`Edit`], and every edit returns its inverse. A rollback needs only the inverses. It applies the latest
//! inverse first, so each inverse finds the positions and ranks as they were just after its edit.
//!
//! Invariants: a collection's index has each of the collection's rows once. `index_bytes` is the size of the indexes of
//! all collections. `orphan_rows` counts the rows of the collections on the list of orphans.

use std::collections::VecDeque;

use hashbrown::HashTable;
use perdura_base::checksum::mix64;
use perdura_base::flaw::{Flaw, armed};
use perdura_base::num::to_u64;
use perdura_page::{CollectionId, End, Row, Shape};

use crate::edit::{Edit, Owner};
use crate::entry::Entry;
use crate::geometry::{KeyHash, Salts};
use crate::hash_index::{HashIndex, Place};
use crate::order::OrderIndex;
use crate::pages::Pages;

/// The index that finds the elements of one collection.
pub(crate) enum Index {
    /// The index of a hash or a set.
    Names(HashIndex),
    /// The index of a list.
    Items(VecDeque<Entry>),
    /// The indexes of a sorted set, or of a stream. The score of a stream's part (a row of the stream) is computed
    /// from the part's name (`place_of`).
    Scores(HashIndex, OrderIndex),
}

/// One collection of a table.
pub(crate) struct Collection {
    pub(crate) id: CollectionId,
    pub(crate) shape: Shape,
    pub(crate) index: Index,
    pub(crate) owner: Owner,
    /// The place from which the purge of an orphan continues.
    pub(crate) purged: Place,
}

impl Collection {
    fn new(id: CollectionId, shape: Shape, owner: Owner, salts: Salts) -> Collection {
        let names = || HashIndex::new(salts.of_collection(id));
        let index = match shape {
            Shape::Hash | Shape::Set => Index::Names(names()),
            Shape::List => Index::Items(VecDeque::new()),
            Shape::Zset | Shape::Stream => Index::Scores(names(), OrderIndex::new()),
        };
        Collection {
            id,
            shape,
            index,
            owner,
            purged: Place::FIRST,
        }
    }

    pub(crate) fn len(&self) -> usize {
        match &self.index {
            Index::Names(names) | Index::Scores(names, _) => names.len(),
            Index::Items(items) => items.len(),
        }
    }

    fn bytes(&self) -> usize {
        match &self.index {
            Index::Names(names) => names.bytes(),
            Index::Items(items) => items.capacity() * size_of::<Entry>(),
            Index::Scores(names, order) => names.bytes() + order.bytes(),
        }
    }

    /// Returns the hash index; `None` for lists.
    pub(crate) fn names(&self) -> Option<&HashIndex> {
        match &self.index {
            Index::Names(names) | Index::Scores(names, _) => Some(names),
            Index::Items(_) => None,
        }
    }

    /// Returns the entry and the row of the element with this key, or `None` if the element does not exist.
    pub(crate) fn find<'a>(
        &self,
        pages: &'a Pages,
        key: &[u8],
        hash: KeyHash,
    ) -> Option<(Entry, Row<'a>)> {
        pages.find(self.names()?, key, hash)
    }

    fn edit(&mut self, edit: Edit) -> Edit {
        match (edit, &mut self.index) {
            (Edit::Add(entry), Index::Names(names) | Index::Scores(names, _)) => {
                names.insert(entry);
                Edit::Remove(entry)
            }
            (Edit::Remove(entry), Index::Names(names) | Index::Scores(names, _)) => {
                assert!(names.remove(entry), "an indexed element");
                if self.owner != Owner::Orphan {
                    names.shrink(entry);
                }
                Edit::Add(entry)
            }
            (Edit::ItemAdd(at, entry), Index::Items(items)) => {
                items.insert(at, entry);
                Edit::ItemRemove(at)
            }
            (Edit::ItemRemove(at), Index::Items(items)) => {
                let entry = items.remove(at).expect("an indexed item");
                shrink(items);
                Edit::ItemAdd(at, entry)
            }
            (Edit::ItemMove(at, entry), Index::Items(items)) => {
                let before = std::mem::replace(&mut items[at], entry);
                Edit::ItemMove(at, before)
            }
            (Edit::ScoreAdd(rank, score, entry), Index::Scores(_, order)) => {
                order.insert_at(rank, score, entry);
                Edit::ScoreRemove(rank)
            }
            (Edit::ScoreRemove(rank), Index::Scores(_, order)) => {
                let (score, entry) = order.remove_at(rank);
                Edit::ScoreAdd(rank, score, entry)
            }
            (edit, _) => unreachable!("{edit:?} of a collection of another shape"),
        }
    }
}

/// Frees spare capacity of a list that has become much shorter.
fn shrink(items: &mut VecDeque<Entry>) {
    if items.capacity() > 64 && items.len() * 4 < items.capacity() {
        items.shrink_to(items.len() * 2);
    }
}

/// All collections of one table in one partition.
pub(crate) struct Collections {
    salts: Salts,
    map: HashTable<Collection>,
    index_bytes: usize,
    /// The ids of collections without an owner. The purge begins with the last id.
    pub(crate) orphans: Vec<CollectionId>,
    orphan_rows: usize,
}

impl Collections {
    pub(crate) fn new(salts: Salts) -> Collections {
        Collections {
            salts,
            map: HashTable::new(),
            index_bytes: 0,
            orphans: Vec::new(),
            orphan_rows: 0,
        }
    }

    /// Forgets every collection.
    pub(crate) fn forget(&mut self) {
        *self = Collections::new(self.salts);
    }

    pub(crate) fn get(&self, id: CollectionId) -> Option<&Collection> {
        self.map.find(mix64(id.0), |c| c.id == id)
    }

    pub(crate) fn get_mut(&mut self, id: CollectionId) -> Option<&mut Collection> {
        self.map.find_mut(mix64(id.0), |c| c.id == id)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Collection> {
        self.map.iter()
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Collection> {
        self.map.iter_mut()
    }

    /// Returns the number of rows in orphaned collections.
    pub(crate) fn orphan_rows(&self) -> usize {
        self.orphan_rows
    }

    /// Returns the bytes that the memory account counts for the collections.
    pub(crate) fn bytes(&self) -> u64 {
        let orphans = self.orphans.capacity() * size_of::<CollectionId>();
        to_u64(self.map.allocation_size() + self.index_bytes + orphans)
    }

    /// Adds an empty collection.
    pub(crate) fn make(&mut self, id: CollectionId, shape: Shape, owner: Owner) {
        let hash = |c: &Collection| mix64(c.id.0);
        let made = Collection::new(id, shape, owner, self.salts);
        debug_assert!(self.get(id).is_none());
        self.map.insert_unique(mix64(id.0), made, hash);
        if owner == Owner::Orphan {
            self.orphans.push(id);
        }
    }

    /// Removes a collection, which must be empty.
    pub(crate) fn unmake(&mut self, id: CollectionId) {
        if let Ok(found) = self.map.find_entry(mix64(id.0), |c| c.id == id) {
            let (gone, _) = found.remove();
            assert_eq!(gone.len(), 0, "a collection that goes away is empty");
            self.index_bytes -= gone.bytes();
            if gone.owner == Owner::Orphan {
                self.unlist(id);
            }
        }
    }

    /// Puts a collection on the list of orphans.
    pub(crate) fn orphan(&mut self, id: CollectionId) {
        if let Some(collection) = self.get_mut(id) {
            debug_assert_ne!(collection.owner, Owner::Orphan, "an orphan is listed once");
            collection.owner = Owner::Orphan;
            collection.purged = Place::FIRST;
            self.orphan_rows += self.get(id).map_or(0, Collection::len);
            self.orphans.push(id);
        }
    }

    /// Takes a collection off the list of orphans.
    pub(crate) fn adopt(&mut self, id: CollectionId) {
        if let Some(collection) = self.get_mut(id) {
            debug_assert_eq!(
                collection.owner,
                Owner::Orphan,
                "what is adopted was listed"
            );
            collection.owner = Owner::Header;
            self.orphan_rows -= self.get(id).map_or(0, Collection::len);
            self.unlist(id);
        }
    }

    /// Undoes the claim of a header: the collection is a draft again.
    pub(crate) fn disclaim(&mut self, id: CollectionId) {
        if let Some(collection) = self.get_mut(id) {
            collection.owner = Owner::Draft;
        }
    }

    fn unlist(&mut self, id: CollectionId) {
        if let Some(at) = self.orphans.iter().rposition(|orphan| *orphan == id) {
            self.orphans.remove(at);
        }
    }

    /// Changes the index of a collection. Returns the inverse of the change, or `None` if the collection does not
    /// exist.
    pub(crate) fn edit(&mut self, id: CollectionId, edit: Edit) -> Option<Edit> {
        self.change(id, |collection| collection.edit(edit))
    }

    /// Makes two changes like [`edit`](Self::edit). Returns their inverses in the order of the changes.
    pub(crate) fn edit_both(&mut self, id: CollectionId, edits: [Edit; 2]) -> Option<[Edit; 2]> {
        self.change(id, |collection| edits.map(|edit| collection.edit(edit)))
    }

    /// Puts items at an end of a list, in the order of `entries`.
    pub(crate) fn push_items(&mut self, id: CollectionId, end: End, entries: &[Entry]) {
        self.change(id, |collection| {
            if let Index::Items(items) = &mut collection.index {
                match end {
                    End::Front => entries.iter().for_each(|entry| items.push_front(*entry)),
                    End::Back => items.extend(entries),
                }
            }
        });
    }

    /// Removes items from an end of a list.
    pub(crate) fn pop_items(&mut self, id: CollectionId, end: End, count: usize) {
        self.change(id, |collection| {
            if let Index::Items(items) = &mut collection.index {
                assert!(
                    count <= items.len(),
                    "{count} items are taken off {}",
                    items.len()
                );
                match end {
                    End::Front => drop(items.drain(..count)),
                    End::Back => items.truncate(items.len() - count),
                }
                shrink(items);
            }
        });
    }

    /// Changes a collection and updates the sums of bytes and rows. Returns `None` if the collection does not exist.
    fn change<R>(
        &mut self,
        id: CollectionId,
        change: impl FnOnce(&mut Collection) -> R,
    ) -> Option<R> {
        let collection = self.map.find_mut(mix64(id.0), |c| c.id == id)?;
        let (bytes, len) = (collection.bytes(), collection.len());
        let result = change(collection);
        self.index_bytes = self.index_bytes - bytes + collection.bytes();
        if collection.owner == Owner::Orphan {
            self.orphan_rows = self.orphan_rows - len + collection.len();
        }
        Some(result)
    }

    /// Returns the collection with this id, during a restart. Makes an orphan with this id if the collection does not
    /// exist.
    pub(crate) fn find_or_make(&mut self, id: CollectionId, shape: Shape) -> &mut Collection {
        let hash = |c: &Collection| mix64(c.id.0);
        let entry = self.map.entry(mix64(id.0), |c| c.id == id, hash);
        let salts = self.salts;
        let entry = entry.or_insert_with(|| Collection::new(id, shape, Owner::Orphan, salts));
        entry.into_mut()
    }

    /// Fills the list of orphans during a restart: lists each collection that no header has claimed.
    pub(crate) fn list_orphans(&mut self) {
        if armed(Flaw::OrphansForgotten) {
            return self.recount();
        }
        let orphans = self
            .map
            .iter()
            .filter(|c| c.owner == Owner::Orphan)
            .map(|c| c.id);
        self.orphans = orphans.collect();
        self.orphans.sort_unstable();
        self.recount();
    }

    /// Recomputes the sums of bytes and rows after a restart has filled the collections.
    pub(crate) fn recount(&mut self) {
        self.index_bytes = self.map.iter().map(Collection::bytes).sum();
        let orphans = self.orphans.iter();
        self.orphan_rows = orphans
            .filter_map(|id| self.get(*id))
            .map(Collection::len)
            .sum();
    }
}

#[cfg(test)]
mod tests {
    use perdura_base::PartitionId;

    use super::*;
    use crate::geometry::Geometry;

    type Contents = Vec<(CollectionId, Owner, Vec<(u64, Entry)>)>;

    /// Returns the contents of all collections: items and scores in their order, names sorted.
    fn contents(collections: &Collections) -> Contents {
        let mut all: Contents = collections
            .iter()
            .map(|c| {
                let mut rows: Vec<(u64, Entry)> = match &c.index {
                    Index::Items(items) => items.iter().map(|e| (0, *e)).collect(),
                    Index::Scores(_, order) => {
                        order.iter().map(|(s, e)| (s.to_bits(), e)).collect()
                    }
                    Index::Names(_) => Vec::new(),
                };
                let mut names: Vec<_> = c.names().into_iter().flat_map(HashIndex::iter).collect();
                names.sort_unstable();
                rows.extend(names.into_iter().map(|e| (1, e)));
                (c.id, c.owner, rows)
            })
            .collect();
        all.sort_unstable_by_key(|(id, ..)| *id);
        all
    }

    fn check_sums(collections: &mut Collections) {
        let (bytes, rows) = (collections.index_bytes, collections.orphan_rows);
        collections.recount();
        assert_eq!(
            (collections.index_bytes, collections.orphan_rows),
            (bytes, rows)
        );
    }

    fn random_edits(rng: &mut fastrand::Rng, c: &Collection) -> Vec<Edit> {
        let entry = Entry::new(KeyHash(rng.u64(..)), rng.u32(..1 << 20), rng.usize(..1000));
        match &c.index {
            Index::Items(items) => vec![match rng.u8(0..5) {
                0 if !items.is_empty() => Edit::ItemRemove(rng.usize(..items.len())),
                1 if !items.is_empty() => Edit::ItemMove(rng.usize(..items.len()), entry),
                _ => Edit::ItemAdd(rng.usize(..=items.len()), entry),
            }],
            Index::Names(names) => match names.random(rng.u64(..)) {
                Some(there) if rng.bool() => vec![Edit::Remove(there)],
                _ => vec![Edit::Add(entry)],
            },
            Index::Scores(_, order) if rng.bool() && order.len() > 0 => {
                let rank = rng.u64(..order.len());
                let (_, there) = order.at(rank).expect("a rank");
                vec![Edit::ScoreRemove(rank), Edit::Remove(there)]
            }
            Index::Scores(_, order) => {
                let score = f64::from(rng.u8(0..9));
                let rank = order.partition_point(|s, _| s <= score);
                vec![Edit::Add(entry), Edit::ScoreAdd(rank, score, entry)]
            }
        }
    }

    #[test]
    fn edits_taken_back_latest_first_leave_everything_as_it_was_and_the_sums_exact() {
        for seed in 0..200 {
            let mut rng = fastrand::Rng::with_seed(seed);
            let salts = Geometry {
                partitions: 1,
                chunk_pages: 1,
                hash_seed: seed,
            }
            .salts(PartitionId(0));
            let mut all = Collections::new(salts);
            for (id, shape) in (0..).map(CollectionId).zip(Shape::ALL) {
                all.make(id, shape, Owner::Header);
            }
            for _ in 0..20 {
                let before = contents(&all);
                let mut inverses = Vec::new();
                let orphan = CollectionId(rng.u64(0..4));
                let orphaned = rng.bool();
                if orphaned {
                    all.orphan(orphan);
                }
                for _ in 0..rng.usize(0..60) {
                    let id = CollectionId(rng.u64(0..4));
                    let edits = random_edits(&mut rng, all.get(id).expect("made"));
                    inverses.extend(edits.into_iter().map(|e| (id, all.edit(id, e))));
                    check_sums(&mut all);
                }
                if rng.bool() {
                    for (id, inverse) in inverses.into_iter().rev() {
                        all.edit(id, inverse.expect("an inverse"));
                        check_sums(&mut all);
                    }
                    if orphaned {
                        all.adopt(orphan);
                    }
                    assert_eq!(contents(&all), before, "seed {seed}");
                } else if orphaned {
                    all.adopt(orphan);
                }
                check_sums(&mut all);
            }
        }
    }
}

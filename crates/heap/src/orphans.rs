//! Collections that no key names any more.
//!
//! DEL and overwrites remove the header of a collection. The transaction also removes the rows of a small collection. A
//! big collection becomes an *orphan*, which no command can read. Its rows are removed in steps, each a separate logged
//! transaction. The list of orphans is kept only in memory: a restart lists every collection that no header names.
//!
//! A client that makes and deletes big collections in a loop could outrun the purge in the background. So while more
//! than [`OrphanLimits::debt_rows`] rows wait, each write of an element first removes two of these rows.

use perdura_base::TableId;
use perdura_base::flaw::{Flaw, armed};
use perdura_page::CollectionId;
use perdura_page::layout::CHAIN_BYTES;

use crate::address::TableCollection;
use crate::cells::{chain_of, free_chain, release_slot};
use crate::collection::{Collection, Index};
use crate::edit::Edit;
use crate::elements::Elements;
use crate::entry::Entry;
use crate::hash_index::Place;
use crate::index::Table;
use crate::limits::OrphanLimits;
use crate::members::edit;
use crate::ops::Op;
use crate::pages::Pages;
use crate::partition::Partition;
use crate::trim::trim;
use crate::undo::{PartUndo, Undo};

impl Partition {
    /// Sets the limits on the rows and pages that are removed at once or in one step.
    pub fn set_orphan_limits(&mut self, limits: OrphanLimits) {
        self.orphan_limits = limits;
    }

    /// Removes a collection without a header. If the collection is big, makes it an orphan instead.
    pub fn orphan(&mut self, undo: &mut Undo, id: TableId, collection: CollectionId) {
        let part = undo.part_mut(self.pages.id);
        let Some(table) = self.tables.get_mut(id) else {
            return;
        };
        let Some(found) = table.collections.get(collection) else {
            return;
        };
        let OrphanLimits {
            at_once,
            chain_pages,
            ..
        } = self.orphan_limits;
        if found.len() <= at_once && chain_pages_of(&self.pages, found) <= chain_pages {
            let whole = Bounds {
                rows: at_once,
                chain_pages: usize::MAX,
            };
            let of = TableCollection::new(id, collection);
            remove_rows(&mut self.pages, table, part, of, whole);
        } else {
            table.collections.orphan(collection);
            part.ops.push(Op::Orphaned {
                table: id,
                id: collection,
            });
        }
        table.account(&self.pages.memory);
    }

    /// Removes at most `max` rows of orphans. Returns the number of rows removed, which is 0 if there is no orphan.
    pub fn purge_orphans(&mut self, undo: &mut Undo, max: usize) -> usize {
        let part = undo.part_mut(self.pages.id);
        let chain_pages = self.orphan_limits.chain_pages;
        let mut removed = 0;
        for (id, table) in self.tables.iter_mut() {
            while removed < max
                && let Some(orphan) = table.collections.orphans.last().copied()
            {
                let left = Bounds {
                    rows: max - removed,
                    chain_pages,
                };
                let of = TableCollection::new(id, orphan);
                removed += remove_rows(&mut self.pages, table, part, of, left);
            }
            table.account(&self.pages.memory);
        }
        assert!(removed <= max, "{removed} rows of at most {max}");
        removed
    }

    /// Returns the number of rows of orphans that wait to be removed.
    #[must_use]
    pub fn orphan_rows(&self) -> u64 {
        let rows = self.tables.values().map(|t| t.collections.orphan_rows());
        u64::try_from(rows.sum::<usize>()).unwrap_or(u64::MAX)
    }

    /// Frees pages of an orphan's long chain: two for each page that is about to be written. So overwriting long
    /// strings cannot outrun the purge.
    pub(crate) fn pay_for_chains(&mut self, undo: &mut Undo, id: TableId, pages: usize) {
        let part = undo.part_mut(self.pages.id);
        if let Some(table) = self.tables.get_mut(id)
            && let Some(orphan) = table.collections.orphans.last().copied()
        {
            let due = Bounds {
                rows: 1,
                chain_pages: pages.saturating_mul(2),
            };
            let of = TableCollection::new(id, orphan);
            remove_rows(&mut self.pages, table, part, of, due);
        }
    }

    /// Removes rows of orphans while too many wait: at most two for each element that is about to be written.
    pub(crate) fn pay_for_orphans(&mut self, undo: &mut Undo, id: TableId, elements: usize) {
        let Some(table) = self.tables.get_mut(id) else {
            return;
        };
        let mut due = elements.saturating_mul(2);
        while due > 0
            && table.collections.orphan_rows() > self.orphan_limits.debt_rows
            && let Some(orphan) = table.collections.orphans.last().copied()
        {
            let part = undo.part_mut(self.pages.id);
            let left = Bounds {
                rows: due,
                chain_pages: self.orphan_limits.chain_pages,
            };
            let of = TableCollection::new(id, orphan);
            let removed = remove_rows(&mut self.pages, table, part, of, left);
            due = due.saturating_sub(removed.max(1));
        }
    }
}

/// Returns the number of pages in the chains of a small collection's elements.
fn chain_pages_of(pages: &Pages, collection: &Collection) -> usize {
    let elements = Elements::new(pages, collection);
    let pages = elements
        .iter()
        .map(|row| row.chain_bytes().div_ceil(CHAIN_BYTES));
    pages.sum()
}

/// The limits of one call of [`remove_rows`].
#[derive(Clone, Copy)]
struct Bounds {
    /// The maximum number of rows.
    rows: usize,
    /// The maximum number of pages in the chains of the removed rows, taken together. The chain of a single row may
    /// exceed it.
    chain_pages: usize,
}

/// Removes rows of a collection until a limit in `bounds` is met or no row is left. If no row is left, removes the
/// collection too, and returns the number of rows removed. Otherwise returns `bounds.rows`, even if the limit on pages
/// was met first. If the chain of a list's last item exceeds that limit, frees only a part of the chain.
fn remove_rows(
    pages: &mut Pages,
    table: &mut Table,
    part: &mut PartUndo,
    of: TableCollection,
    bounds: Bounds,
) -> usize {
    let Bounds {
        rows: max,
        chain_pages: most,
    } = bounds;
    let TableCollection {
        table: id,
        id: collection,
    } = of;
    let (mut removed, mut freed) = (0, 0);
    let before = table.collections.get(collection).map_or(0, Collection::len);
    while removed < max
        && freed < most
        && !trim(pages, table, part, of, most)
        && let Some(entry) = remove_any(table, part, id, collection)
    {
        let chain = pages.row(entry).as_ref().and_then(chain_of);
        freed += chain.map_or(0, |chain| chain.bytes.div_ceil(CHAIN_BYTES));
        release_slot(pages, table, part, entry);
        if !armed(Flaw::ChainLeaked) {
            free_chain(pages, part, chain);
        }
        removed += 1;
    }
    debug_assert_eq!(
        table.collections.get(collection).map_or(0, Collection::len) + removed,
        before,
        "each row that was removed was an element"
    );
    if let Some(left) = table.collections.get(collection)
        && left.len() == 0
    {
        part.ops.push(Op::Unmade {
            table: id,
            id: collection,
            shape: left.shape,
            owner: left.owner,
        });
        table.collections.unmake(collection);
        return removed;
    }
    max
}

/// Removes one row from a collection's indexes: the row that is cheapest to remove. Returns its entry.
fn remove_any(
    table: &mut Table,
    part: &mut PartUndo,
    id: TableId,
    collection: CollectionId,
) -> Option<Entry> {
    let found = table.collections.get_mut(collection)?;
    match &mut found.index {
        Index::Items(items) => {
            let at = items.len().checked_sub(1)?;
            let entry = items[at];
            edit(table, part, id, collection, Edit::ItemRemove(at));
            Some(entry)
        }
        Index::Names(names) => {
            // A removal moves only later entries, into the gap. So only a rollback or the shrinking of an array can put
            // an entry before the place that the purge has reached.
            let from = found.purged;
            let place = names
                .next_taken(from)
                .or_else(|| names.next_taken(Place::FIRST))?;
            found.purged = place;
            let entry = names.place(place)?;
            edit(table, part, id, collection, Edit::Remove(entry));
            Some(entry)
        }
        Index::Scores(_, order) => {
            let rank = order.len().checked_sub(1)?;
            let (_, entry) = order.at(rank)?;
            edit(table, part, id, collection, Edit::ScoreRemove(rank));
            edit(table, part, id, collection, Edit::Remove(entry));
            Some(entry)
        }
    }
}

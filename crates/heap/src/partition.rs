//! A partition: the pages and tables under one latch, and the functions that read them.

use std::ops::Bound;
use std::sync::Arc;

use perdura_base::{Epoch, PartitionId, TableId};
use perdura_page::layout;
use perdura_page::{CollectionId, PageKind};

use crate::accesses::NEVER;
use crate::attached::AttachedTables;
use crate::cuts::{CutState, Cuts};
use crate::edit::Owner;
use crate::elements::Elements;
use crate::entry::Entry;
use crate::form::{TableForm, Which};
use crate::header::FoundHeader;
use crate::index::Table;
use crate::limits::OrphanLimits;
use crate::marks::Marks;
use crate::pages::{Pages, index};
use crate::row_ref::RowRef;
use crate::touch::Touch;
use crate::undo::Undo;

/// One part of a heap's pages and rows. The hash of a key decides the key's partition. All methods run under the
/// partition's latch.
pub struct Partition {
    id: PartitionId,
    last_write_epoch: Epoch,
    pseq: u64,
    pub(crate) pages: Pages,
    pub(crate) tables: AttachedTables,
    /// The id that the next collection gets.
    pub(crate) next_collection: u64,
    /// The headers of collections that were found during a restart.
    pub(crate) headers: Vec<FoundHeader>,
    pub(crate) orphan_limits: OrphanLimits,
    /// The local page at which the next call of [`reclaim`](Partition::reclaim) begins.
    reclaim_next: u32,
    /// For each local page, the update numbers that a restart has replayed.
    pub(crate) touched: Vec<Touch>,
    /// The bytes that records changed during a restart.
    pub(crate) marks: Marks,
    /// The time of the transaction that holds the latch, in seconds. An access to a key is noted with this time.
    pub(crate) now_second: u32,
    /// True if tables note the times of accesses to keys.
    pub(crate) notes_accesses: bool,
    pub(crate) cuts: Cuts,
}

/// The indexes of a detached table. Dropping them takes a while, so the caller should release the latch first.
pub struct DetachedTable {
    _table: Table,
}

impl Partition {
    pub(crate) fn new(pages: Pages, cuts: Arc<CutState>) -> Self {
        Partition {
            id: pages.id,
            last_write_epoch: Epoch(0),
            pseq: 0,
            cuts: Cuts::new(cuts, Arc::clone(&pages.memory)),
            pages,
            tables: AttachedTables::default(),
            next_collection: 1,
            headers: Vec::new(),
            orphan_limits: OrphanLimits::default(),
            reclaim_next: 0,
            touched: Vec::new(),
            marks: Marks::default(),
            now_second: NEVER,
            notes_accesses: false,
        }
    }

    /// Returns the partition's id.
    #[must_use]
    pub fn id(&self) -> PartitionId {
        self.id
    }

    /// Returns the number of keys of a table in this partition.
    #[must_use]
    pub fn len(&self, table: TableId) -> u64 {
        self.tables
            .get(table)
            .map_or(0, |t| u64::try_from(t.hash.len()).unwrap_or(u64::MAX))
    }

    /// Returns whether some key of a table in this partition may be unexpired at `now_ms`: a key has no expiry, or the
    /// latest expiry is after `now_ms`.
    #[must_use]
    pub fn may_live(&self, table: TableId, now_ms: u64) -> bool {
        self.tables.get(table).is_some_and(|table| {
            let latest = table.expiries.last();
            let lives = latest.is_some_and(|(at_ms, _)| *at_ms > now_ms);
            table.hash.len() > table.expiries.len() || lives
        })
    }

    /// Returns whether a table has no key in this partition.
    #[must_use]
    pub fn is_empty(&self, table: TableId) -> bool {
        self.len(table) == 0
    }

    /// Returns the number of rows of a table that have an expiry.
    #[must_use]
    pub fn expiring(&self, table: TableId) -> u64 {
        self.tables
            .get(table)
            .map_or(0, |t| u64::try_from(t.expiries.len()).unwrap_or(u64::MAX))
    }

    /// Returns whether the purge has nothing to do at `now_ms`: no table has an expired key, and no orphaned collection
    /// has a row. This is cheaper than checking table by table.
    #[must_use]
    pub fn is_purged(&self, now_ms: u64) -> bool {
        let mut tables = self.tables.values();
        tables.all(|table| {
            let due = table.expiries.first();
            due.is_none_or(|(at_ms, _)| *at_ms > now_ms) && table.collections.orphan_rows() == 0
        })
    }

    /// Returns at most `max` keys that have expired at `now_ms`. The key with the earliest expiry comes first.
    #[must_use]
    pub fn expired(&self, table: TableId, now_ms: u64, max: usize) -> Vec<Vec<u8>> {
        let Some(table) = self.tables.get(table) else {
            return Vec::new();
        };
        let due = table.expiries.range(..=(now_ms, Entry(u64::MAX))).take(max);
        due.filter_map(|(_, entry)| self.row(*entry))
            .map(|row| row.key().into_owned())
            .collect()
    }

    /// Returns the elements of a collection; `None` if it does not exist or is an orphan.
    #[must_use]
    pub fn elements(&self, table: TableId, id: CollectionId) -> Option<Elements<'_>> {
        let found = self.tables.get(table)?.collections.get(id)?;
        (found.owner != Owner::Orphan).then(|| Elements::new(&self.pages, found))
    }

    /// Returns how many slots hold a row of a table: a row of a key, a collection or an orphan. The slots are counted
    /// in the pages, so rows that no index has are included.
    #[must_use]
    pub fn slots_taken(&self, table: TableId) -> u64 {
        let rows = |local: u32| {
            let page = self.pages.page(local);
            let slotted = layout::kind(page) == Some(PageKind::Slotted);
            let mine = slotted && layout::table(page) == table;
            let class = layout::class(page).filter(|_| mine);
            class.map_or(0, |class| layout::taken_count(page, class))
        };
        let rows = self.pages.used().map(rows).sum::<usize>();
        u64::try_from(rows).unwrap_or(u64::MAX)
    }

    /// Returns the number of pages that a table uses; 0 once its last row was removed.
    #[must_use]
    pub fn pages_held(&self, table: TableId) -> u64 {
        let held = |local: &u32| {
            let page = self.pages.page(*local);
            layout::kind(page) != Some(PageKind::Free) && layout::table(page) == table
        };
        u64::try_from(self.pages.used().filter(held).count()).unwrap_or(u64::MAX)
    }

    /// Returns the ids of the attached tables, in ascending order.
    pub fn table_ids(&self) -> impl Iterator<Item = TableId> + '_ {
        self.tables.ids()
    }

    /// Passes the row of every key of a table to `f`, in no particular order.
    pub fn for_each(&self, table: TableId, mut f: impl FnMut(RowRef<'_>)) {
        let Some(table) = self.tables.get(table) else {
            return;
        };
        table
            .hash
            .iter()
            .filter_map(|entry| self.row(entry))
            .for_each(&mut f);
    }

    /// Returns at most `limit` keys with their values, in the order of the keys. Returns nothing if the table is not
    /// ordered or the range is empty.
    #[must_use]
    pub fn scan(
        &self,
        table: TableId,
        low: Bound<&[u8]>,
        high: Bound<&[u8]>,
        limit: usize,
    ) -> Vec<(Vec<u8>, Vec<u8>)> {
        let rows = self.rows(table, Which::Primary, low, high).take(limit);
        rows.map(|row| (row.key().into_owned(), row.value().into_owned()))
            .collect()
    }

    /// Returns the rows of a table in the order of an index. The iterator can be read from the front and from the back.
    /// The bounds of a secondary index are derived keys followed by the primary key. If the range is empty or the index
    /// does not exist, the iterator has no rows.
    pub fn rows<'a>(
        &'a self,
        table: TableId,
        which: Which,
        low: Bound<&[u8]>,
        high: Bound<&[u8]>,
    ) -> impl DoubleEndedIterator<Item = RowRef<'a>> + use<'a> {
        let keys = self.tables.get(table).and_then(|table| match which {
            Which::Primary => table.ordered.as_ref(),
            Which::Secondary(index) => table.secondary.get(index),
        });
        let entries = keys.map(|keys| keys.range(low, high)).into_iter().flatten();
        entries.filter_map(|(_, entry)| self.row(entry))
    }

    /// Returns the row of a key that the random number `r` chooses. All keys are nearly equally likely.
    #[must_use]
    pub fn random_row(&self, table: TableId, r: u64) -> Option<RowRef<'_>> {
        self.row(self.tables.get(table)?.hash.random(r)?)
    }

    pub(crate) fn row(&self, entry: Entry) -> Option<RowRef<'_>> {
        self.pages
            .row(entry)
            .map(|row| RowRef::new(&self.pages, row))
    }

    /// Attaches an empty table, unless it is already attached.
    pub fn attach_table(&mut self, table: TableId, form: impl Into<TableForm>) {
        let salts = self.pages.salts();
        let since = self.notes_accesses.then_some(self.now_second);
        if !self.tables.contains(table) {
            let form = form.into();
            self.pages.note_keyed(table, form.keyed);
            self.cuts.note_keyed(form.keyed);
            let mut attached = Table::new(form, salts);
            attached.hash.note_accesses(since);
            self.tables.insert(table, attached);
        }
    }

    /// Detaches a table. [`reclaim`](Self::reclaim) frees its pages later.
    pub fn detach_table(&mut self, id: TableId) -> Option<DetachedTable> {
        let mut table = self.tables.remove(id)?;
        table.unaccount(&self.pages.memory);
        self.pages.note_keyed(id, false);
        for local in table.open.iter().flatten() {
            self.pages.state(*local).flags &= !crate::pages::flag::OPEN;
        }
        Some(DetachedTable { _table: table })
    }

    /// Frees at most `max_pages` pages of tables that are not attached, and logs this like any change. Returns how many
    /// pages it freed; 0 if a full pass found none.
    pub fn reclaim(&mut self, undo: &mut Undo, max_pages: usize) -> usize {
        let part = undo.part_mut(self.id);
        let mut freed = 0;
        for _ in 0..self.pages.count() {
            if freed == max_pages {
                break;
            }
            if self.reclaim_next >= self.pages.count() {
                self.reclaim_next = 0;
            }
            let local = self.reclaim_next;
            self.reclaim_next += 1;
            if !self.pages.is_used(local) {
                continue;
            }
            let page = self.pages.page(local);
            let orphan = layout::kind(page) != Some(PageKind::Free)
                && !self.tables.contains(layout::table(page));
            if orphan {
                self.pages.free_page(part, local);
                freed += 1;
            }
        }
        freed
    }

    /// Returns the commit epoch of the last write to this partition.
    #[must_use]
    pub fn last_write_epoch(&self) -> Epoch {
        self.last_write_epoch
    }

    /// Notes the commit epoch of a write.
    pub fn set_last_write_epoch(&mut self, epoch: Epoch) {
        debug_assert!(
            epoch >= self.last_write_epoch,
            "I2: a dependent write has no smaller epoch"
        );
        self.last_write_epoch = epoch;
    }

    /// Returns the sequence number of the last transaction of this partition that wrote typed tables or was logged as a
    /// command. Returns 0 before the partition's first typed write or logged command.
    #[must_use]
    pub fn pseq(&self) -> u64 {
        self.pseq
    }

    /// Notes the sequence number of a transaction.
    pub fn set_pseq(&mut self, pseq: u64) {
        debug_assert!(pseq >= self.pseq, "numbers of transactions go on");
        self.pseq = pseq;
    }

    /// Returns the number of local pages in all chunks of the partition, used or not.
    #[must_use]
    pub fn pages(&self) -> u32 {
        self.pages.count()
    }

    /// Returns the bytes of a page; `None` beyond [`pages`](Self::pages).
    #[must_use]
    pub fn page_bytes(&self, local: u32) -> Option<&[u8]> {
        (index(local) < self.pages.states.len()).then(|| self.pages.page(local))
    }
}

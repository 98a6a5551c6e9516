//! Building the data derived from pages: indexes, free lists, counts.
//!
//! The build begins after the last record has been played. The bitmaps of pages say which slots have rows. The build
//! checks each row that it reads, because later reads trust a slot's bytes. Hashing and comparing every key is the
//! expensive part. So an image may carry a *sidecar* of index entries. The build enters these entries first, for the
//! rows that no record touched. A sidecar is never necessary: if it does not fit the pages, all rows are read. A
//! sidecar does not list elements of collections: their rows are always read. So in a page that no record touched, a
//! row without an entry must be an element; otherwise the sidecar does not fit.
//!
//! All rows of key-addressed tables are read. The log does not have the contents of their pages, so no sidecar lists
//! these rows.
//!
//! Invariants: a collection has an element once; a table has a key once. A second occurrence is damage, which the error
//! reports with page and slot.

use std::collections::BTreeMap;

use perdura_base::{PageId, Result, TableId};
use perdura_page::layout::{self};
use perdura_page::{Kind, PageHeader, PageKind, Place, Row, SlotClass, row};

use crate::cells::list_open;
use crate::damage::{damage_in, damaged};
use crate::entry::Entry;
use crate::form::TableForm;
use crate::gather::index_element;
use crate::geometry::KeyHash;
use crate::header::{FoundHeader, found_header};
use crate::index::Table;
use crate::marks::Marks;
use crate::pages::{Pages, flag};
use crate::partition::Partition;
use crate::row_ref::RowRef;
use crate::sidecar::{Entered, Sidecar};

/// A function from a table to the table's form, or to `None` if the table does not exist.
type Forms<'a> = &'a dyn Fn(TableId) -> Option<TableForm>;

/// The result of building the indexes of a partition.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct IndexStats {
    /// The rows in all tables.
    pub rows: u64,
    /// The number of index entries taken from the sidecar.
    pub from_sidecar: u64,
    /// The number of index entries built by reading rows.
    pub from_rows: u64,
    /// The pages in use.
    pub pages: u64,
    /// The number of pages to reclaim, because their tables are not in the catalog.
    pub orphan_pages: u64,
    /// True if a sidecar was given and could not be used.
    pub sidecar_refused: bool,
}

impl IndexStats {
    /// Adds a second partition's figures.
    pub fn add(&mut self, other: &IndexStats) {
        self.rows += other.rows;
        self.from_sidecar += other.from_sidecar;
        self.from_rows += other.from_rows;
        self.pages += other.pages;
        self.orphan_pages += other.orphan_pages;
        self.sidecar_refused |= other.sidecar_refused;
    }
}

impl Partition {
    /// Builds the index of table 0 alone, so that the caller can read the catalog. The catalog has the forms of the
    /// remaining tables. [`build_indexes`](Self::build_indexes) needs these forms.
    ///
    /// # Errors
    /// Fails with `Corrupt`, like [`build_indexes`](Self::build_indexes).
    pub fn build_catalog_index(&mut self) -> Result<()> {
        let only_catalog = |table: TableId| (table == TableId::CATALOG).then(TableForm::default);
        self.attach_table(TableId::CATALOG, false);
        self.derive(&only_catalog, None).map(drop)
    }

    /// Builds all data derived from pages. `forms` returns the form of a table; `None` means that the table is not in
    /// the catalog, and its pages wait for [`reclaim`](Self::reclaim). Before or after this call, the caller must
    /// attach each table of the catalog that has no page here. If `sidecar` is sound, the build takes from it the
    /// entries of rows that no record touched. The build makes all other entries from rows.
    ///
    /// # Errors
    /// Fails with `Corrupt`, which names the page and slot of a malformed row or a duplicate key.
    pub fn build_indexes(
        &mut self,
        forms: Forms<'_>,
        sidecar: Option<Sidecar>,
    ) -> Result<IndexStats> {
        let stats = self.derive(forms, sidecar)?;
        for state in &mut self.pages.states {
            state.flags &= !(flag::CHANGED | flag::SPECIAL);
        }
        self.marks = Marks::default();
        Ok(stats)
    }

    fn derive(&mut self, forms: Forms<'_>, sidecar: Option<Sidecar>) -> Result<IndexStats> {
        let mut stats = IndexStats::default();
        self.forget_derived(forms);
        let mut rows = BTreeMap::new();
        for local in self.pages.used().rev() {
            self.survey_page(local, forms, &mut rows, &mut stats)?;
        }
        let entered = sidecar.map(|sidecar| self.enter_sidecar(sidecar));
        self.make_room(&rows, matches!(entered, Some(Some(_))));
        let fits = match &entered {
            Some(Some(entered)) => {
                stats.from_sidecar = entered.count;
                self.index_pages(Some(entered), &mut stats)?
            }
            Some(None) => false,
            None => self.index_pages(None, &mut stats)?,
        };
        if !fits {
            stats.sidecar_refused = true;
            (stats.from_sidecar, stats.from_rows) = (0, 0);
            self.headers.clear();
            self.tables.values_mut().for_each(Table::forget_rows);
            self.index_pages(None, &mut stats)?;
        }
        stats.rows += self.order_collections()?;
        for table in self.tables.values_mut() {
            // `make_room` counted all rows, but elements are in the indexes of their collections.
            table.hash.shrink_all();
            let ordered = table.ordered.as_ref();
            assert!(ordered.is_none_or(|keys| keys.len() == table.hash.len()));
            stats.rows += u64::try_from(table.hash.len()).unwrap_or(u64::MAX);
            table.account(&self.pages.memory);
        }
        Ok(stats)
    }

    /// Makes room in the indexes for the rows that will be read.
    fn make_room(&mut self, rows: &BTreeMap<TableId, usize>, has_sidecar: bool) {
        for (id, rows) in rows {
            let table = self.tables.get_mut(*id);
            if let Some(table) = table.filter(|table| table.form.keyed || !has_sidecar) {
                table.hash.reserve(*rows);
            }
        }
    }

    fn forget_derived(&mut self, forms: Forms<'_>) {
        let attached = self.tables.take();
        for (id, mut table) in attached {
            table.unaccount(&self.pages.memory);
            match forms(id) {
                Some(form) => self.attach_table(id, form),
                None => self.pages.note_keyed(id, false),
            }
        }
        self.headers.clear();
        for pool in &mut self.pages.pools {
            pool.free.clear();
        }
        for state in &mut self.pages.states {
            state.flags &= !(flag::OPEN | flag::FREE);
        }
    }

    /// Checks a page's header and bitmap. Counts the page, attaches its table, and lists a page with free slots as
    /// open.
    fn survey_page(
        &mut self,
        local: u32,
        forms: Forms<'_>,
        rows: &mut BTreeMap<TableId, usize>,
        stats: &mut IndexStats,
    ) -> Result<()> {
        let id = self.pages.page_id(local);
        let header = check_page(id, self.pages.page(local))?;
        self.pages.resync(local);
        if header.kind == PageKind::Free {
            return Ok(());
        }
        stats.pages += 1;
        if !self.tables.contains(header.table) {
            match forms(header.table) {
                Some(form) => self.attach_table(header.table, form),
                None => stats.orphan_pages += 1,
            }
        }
        let table = self.tables.get(header.table);
        // The form of a dropped table is unknown, so the pool of the page decides whether the page counts as
        // key-addressed. In either case the restart plays no more records.
        let gone = self.pages.pool_of(local) == self.pages.pool_for(true);
        let keyed = table.map_or(gone, |table| table.form.keyed);
        self.pages.mark_keyed(local, keyed);
        if header.kind == PageKind::Slotted {
            let page = self.pages.page(local);
            *rows.entry(header.table).or_default() += layout::taken_count(page, header.class);
            if let Some(table) = self.tables.get_mut(header.table) {
                list_open(&mut self.pages, table, local, header.class);
            }
        }
        Ok(())
    }

    /// Enters the rows of all pages. If `entered` is given, enters only the rows without an entry there. Returns
    /// false if `entered` does not fit: a page that no record touched has a key without an entry, or an element has an
    /// entry.
    fn index_pages(&mut self, entered: Option<&Entered>, stats: &mut IndexStats) -> Result<bool> {
        for local in self.pages.used() {
            if !self.index_page(local, entered, stats)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn index_page(
        &mut self,
        local: u32,
        entered: Option<&Entered>,
        stats: &mut IndexStats,
    ) -> Result<bool> {
        let page = self.pages.page(local);
        let slotted = layout::kind(page) == Some(PageKind::Slotted);
        let (Some(class), Some(table)) = (
            layout::class(page).filter(|_| slotted),
            self.tables.get_mut(layout::table(page)),
        ) else {
            return Ok(true);
        };
        let every = entered.is_some_and(|entered| entered.is_special(local));
        let every_row = table.form.reads_every_row();
        let every = every || every_row;
        let complete = entered.is_some_and(|entered| entered.is_unmarked(local));
        let complete = complete && !table.form.keyed;
        for word in 0..class.bitmap_words() {
            let taken = layout::bitmap_word(page, word);
            let due = entered.map_or(taken, |entered| entered.due(local, word));
            debug_assert_eq!(due & !taken, 0, "a slot that is due is taken");
            for slot in slots_of(word, if every { taken } else { due }) {
                let bytes = layout::slot(page, class, slot);
                let has_entry = due >> (slot % 64) & 1 == 0;
                if has_entry || complete {
                    if has_entry == row::is_element(bytes) {
                        return Ok(false);
                    }
                    if has_entry && !every_row && !row::is_special(bytes) {
                        continue;
                    }
                }
                let headers = &mut self.headers;
                index_row(&self.pages, table, (local, class, slot), has_entry, headers)?;
                stats.from_rows += u64::from(!has_entry);
            }
        }
        Ok(true)
    }
}

/// Returns the slots of the set bits in one word of a bitmap.
fn slots_of(word: usize, mut bits: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let bit = usize::try_from(bits.trailing_zeros()).ok()?;
        (bits != 0).then(|| {
            bits &= bits - 1;
            64 * word + bit
        })
    })
}

/// Checks the header and the bitmap of a page. The result does not depend on any other page.
///
/// # Errors
/// Fails with `Corrupt`, which names the page, and the slot if there is one.
pub fn check_page(id: PageId, page: &[u8]) -> Result<PageHeader> {
    let damage = |slot, expected: &str, found: &str| Err(damage_in(id, slot, expected, found));
    let Some(header) = PageHeader::decode(page) else {
        return damage(None, "a page header", "another");
    };
    if header.kind != PageKind::Free && header.page_id != id {
        let found = format!("page id {}", header.page_id);
        return damage(None, "its own page id", &found);
    }
    if header.kind == PageKind::Slotted
        && let Some(slot) = layout::taken(page, header.class).last()
        && slot >= header.class.slots()
    {
        return damage(Some(slot), "a zero bit", "a bit beyond the last slot");
    }
    Ok(header)
}

/// Checks one row. Enters the row in the index, unless `has_entry` says that the sidecar had the row's entry.
fn index_row(
    pages: &Pages,
    table: &mut Table,
    (local, class, slot): (u32, SlotClass, usize),
    has_entry: bool,
    headers: &mut Vec<FoundHeader>,
) -> Result<()> {
    let damage = |expected: &str, found: &str| damaged(pages, local, Some(slot), expected, found);
    let bytes = layout::slot(pages.page(local), class, slot);
    let row = Row::decode(bytes).ok_or_else(|| damage("a row", "other bytes"))?;
    let mut chain_key = Vec::new();
    let (hash, key) = match row.place {
        Place::Inline { key, .. } if table.form.placed && !row.kind.is_element() => {
            (pages.geometry.hash_in(pages.id, key), key)
        }
        Place::Inline { key, .. } => (pages.geometry.hash(key), key),
        Place::Large { first, hash, key } => {
            let whole: usize = pages
                .chain(first, row.chain_bytes())
                .map(|(_, content)| content.len())
                .sum();
            if whole != row.chain_bytes() {
                let expected = format!("a chain of {} bytes", row.chain_bytes());
                return Err(damage(&expected, &format!("{whole} bytes")));
            }
            if key.is_none() {
                pages.read_chain(&row, 0, row.key_bytes, &mut chain_key);
            }
            (KeyHash(hash), key.unwrap_or(&chain_key))
        }
    };
    if let Kind::Element(shape) = row.kind {
        return index_element(pages, table, (local, slot), (shape, key, hash), &row);
    }
    if let Kind::Header(shape) = row.kind {
        headers.push(found_header(pages, local, slot, shape, &row)?);
    }
    if pages.geometry.partition_of(hash) != pages.id {
        return Err(damage("a key of this partition", "a key of another"));
    }
    let entry = Entry::new(hash, local, slot);
    if !has_entry {
        if let Some((twin, _)) = pages.find(&table.hash, key, hash) {
            let found = format!(
                "one also in page {} slot {}",
                pages.page_id(twin.local()),
                twin.slot()
            );
            return Err(damage("a unique key", &found));
        }
        table.hash.insert(entry);
    }
    if !table.insert_ordered(key, entry) {
        return Err(damage("a unique key", "a key that another row has"));
    }
    if table.form.derive.is_some() {
        let keys = &mut table.index_keys[0];
        keys.derive(&table.form, key, &RowRef::new(pages, row).value());
        for (index, secondary) in table.secondary.iter_mut().enumerate() {
            if !secondary.insert(keys.get(index), entry) {
                return Err(damage("a unique key", "a key that another row has"));
            }
        }
    }
    if let Some(expiry_ms) = row.expiry_ms {
        table.expiries.insert((expiry_ms, entry));
    }
    Ok(())
}

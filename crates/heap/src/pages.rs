//! The pages of one partition: chunks of zeroed memory, and the lists of free pages.
//!
//! A page at or above the `fresh` of its [pool](crate::pools) was never used. An unused page below `fresh` is on the
//! pool's free list, and keeps its old bytes as garbage. Its next use is logged like any change. A rollback does not
//! correct the free list. Instead, a page is checked when it is popped from the list.
//!
//! A page is *born* when it is used for the first time. It then gets the current checkpoint epoch, read under the
//! latch. If a page is born during a sweep, that sweep's image does not have the page. The tags (checkpoint epochs) of
//! the page's records show this.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use perdura_base::flaw::{Flaw, armed};
use perdura_base::{CkptEpoch, Error, PageId, PartitionId, Result, TableId};
use perdura_page::layout::{self, HEADER_BYTES, META_BYTES, PAGE_BYTES};
use perdura_page::{PageKind, Row, SlotClass};

use crate::entry::{Entry, LOCAL_PAGES_MAX, spread};
use crate::geometry::{Geometry, KeyHash, Salts};
use crate::hash_index::{HashIndex, Place};
use crate::memory::{MemoryAccount, MemoryUse};
use crate::undo::PartUndo;

/// The bytes that the memory account counts for a page.
pub(crate) const PAGE_MEMORY: u64 = 16 * 1024;

/// The number of pages at the beginning of a partition whose memory is not mapped as a whole. Only the written parts of
/// such a page take memory, before and after a restart. In a small database the last page of each partition is almost
/// empty. Mapping these pages would take a large part of the memory.
pub(crate) const SPARSE_PAGES: u32 = 24;

/// The size of a page of the kernel's memory, bytes.
const KERNEL_PAGE_BYTES: usize = 4096;

/// The data kept in memory about a page.
#[derive(Clone, Copy, Default)]
pub(crate) struct PageState {
    /// The number of free slots of a slotted page.
    pub(crate) free_slots: u16,
    /// A copy of a slotted page's class. A search for a row uses the copy, and so need not wait for the cache line of
    /// the page's header.
    pub(crate) class: SlotClass,
    /// One bit for each image slot. A set bit says that the slot does not hold the page's present contents.
    pub(crate) dirty: u8,
    /// The bits of [`flag`].
    pub(crate) flags: u8,
    /// During a restart: the length of the longest [identity](perdura_page::row::identity_bytes) that the page has in
    /// the image. It is [`IDENTITY_UNKNOWN`] if that length is unknown.
    pub(crate) identity: u8,
}

/// The value of [`PageState::identity`] if the length is unknown or does not fit the field.
pub(crate) const IDENTITY_UNKNOWN: u8 = u8::MAX;

/// Bits of [`PageState::flags`].
pub(crate) mod flag {
    /// The page is on its table's list of pages that may have a free slot.
    pub(crate) const OPEN: u8 = 1;
    /// The page is on the free list.
    pub(crate) const FREE: u8 = 2;
    /// The page is in use, and the memory account counts it.
    pub(crate) const IN_USE: u8 = 4;
    /// During a restart: the page was loaded from the image.
    pub(crate) const IN_IMAGE: u8 = 8;
    /// During a restart: a record has changed the page.
    pub(crate) const CHANGED: u8 = 16;
    /// During a restart: nothing has been written to the page yet, but a later page is in use.
    pub(crate) const UNTOUCHED: u8 = 32;
    /// During a restart: the image has a [special](perdura_page::row::is_special) row in this page.
    pub(crate) const SPECIAL: u8 = 64;
    /// The page has rows of a key-addressed table, or had rows of one before it was freed. Its changes are not logged.
    pub(crate) const KEYED: u8 = 128;
}

/// The bits of the image slots A and B.
pub(crate) const DIRTY_BOTH: u8 = 3;

/// A [pool](crate::pools): the bound below which its pages were used, and the list of its free pages.
#[derive(Default)]
pub(crate) struct Pool {
    /// A local index. Every page of the pool below this index was used, and no page of the pool at or above it was. The
    /// page at this index may belong to the other pool.
    pub(crate) fresh: u32,
    /// Pages that are not in use. A page is checked when it is popped, because it may be in use again.
    pub(crate) free: Vec<u32>,
}

pub(crate) struct Pages {
    pub(crate) id: PartitionId,
    pub(crate) geometry: Geometry,
    pub(crate) memory: Arc<MemoryAccount>,
    ckpt_epoch: Arc<AtomicU64>,
    chunks: Vec<Vec<u8>>,
    pub(crate) states: Vec<PageState>,
    /// The two pools. Pages of key-addressed tables belong to the second one.
    pub(crate) pools: [Pool; 2],
    /// The key-addressed tables that are attached, in ascending order.
    keyed: Vec<TableId>,
}

pub(crate) fn index(local: u32) -> usize {
    usize::try_from(local).expect("a local page index")
}

/// A row that was found through an index.
pub(crate) struct Located<'a> {
    /// The place of the row's entry in the index.
    pub(crate) place: Place,
    pub(crate) entry: Entry,
    pub(crate) row: Row<'a>,
}

impl Pages {
    pub(crate) fn new(
        id: PartitionId,
        geometry: Geometry,
        memory: Arc<MemoryAccount>,
        ckpt_epoch: Arc<AtomicU64>,
    ) -> Pages {
        let (chunks, states, keyed) = (Vec::new(), Vec::new(), Vec::new());
        Pages {
            id,
            geometry,
            memory,
            ckpt_epoch,
            chunks,
            states,
            pools: Default::default(),
            keyed,
        }
    }

    /// Notes that a table is attached as a key-addressed table. If `keyed` is false, removes this note.
    pub(crate) fn note_keyed(&mut self, table: TableId, keyed: bool) {
        match self.keyed.binary_search(&table) {
            Err(at) if keyed => self.keyed.insert(at, table),
            Ok(at) if !keyed => drop(self.keyed.remove(at)),
            Ok(_) | Err(_) => {}
        }
    }

    /// Returns whether a table is attached as a key-addressed one.
    #[inline]
    pub(crate) fn is_keyed(&self, table: TableId) -> bool {
        !self.keyed.is_empty() && self.keyed.binary_search(&table).is_ok()
    }

    /// Returns the salts of the partition's indexes.
    pub(crate) fn salts(&self) -> Salts {
        let mut geometry = self.geometry;
        if armed(Flaw::SaltFromClock) {
            geometry.hash_seed ^= self.ckpt_epoch().0;
        }
        geometry.salts(self.id)
    }

    /// Returns the current checkpoint epoch.
    pub(crate) fn ckpt_epoch(&self) -> CkptEpoch {
        CkptEpoch(self.ckpt_epoch.load(Ordering::SeqCst))
    }

    /// Returns how many local pages the chunks have, used or not.
    pub(crate) fn count(&self) -> u32 {
        u32::try_from(self.states.len()).expect("at most 2^24 local pages")
    }

    fn position(&self, local: u32) -> (usize, usize) {
        let chunk_pages = usize::from(self.geometry.chunk_pages);
        let local = index(local);
        (local / chunk_pages, local % chunk_pages * PAGE_BYTES)
    }

    pub(crate) fn page(&self, local: u32) -> &[u8] {
        let (chunk, at) = self.position(local);
        &self.chunks[chunk][at..at + PAGE_BYTES]
    }

    pub(crate) fn page_mut(&mut self, local: u32) -> &mut [u8] {
        let (chunk, at) = self.position(local);
        &mut self.chunks[chunk][at..at + PAGE_BYTES]
    }

    pub(crate) fn state(&mut self, local: u32) -> &mut PageState {
        &mut self.states[index(local)]
    }

    pub(crate) fn has_flag(&self, local: u32, flag: u8) -> bool {
        self.states[index(local)].flags & flag != 0
    }

    /// Returns the id of a page that exists.
    pub(crate) fn page_id(&self, local: u32) -> PageId {
        self.geometry
            .page_id(self.id, local)
            .expect("an existing page has an id")
    }

    /// Returns the local index of a page, or `None` if the page was never used or is outside this partition.
    pub(crate) fn local(&self, page: PageId) -> Option<u32> {
        let mine = self.geometry.partition_of_page(page) == self.id;
        let local = self.geometry.local_index(page);
        (mine && self.is_used(local)).then_some(local)
    }

    /// Grows the chunks so that the page exists. Zeroed memory takes no physical memory until it is used.
    pub(crate) fn grow_to(&mut self, local: u32) {
        let chunk_pages = usize::from(self.geometry.chunk_pages);
        while self.states.len() <= index(local) {
            self.chunks.push(vec![0; chunk_pages * PAGE_BYTES]);
            self.states
                .resize(self.states.len() + chunk_pages, PageState::default());
        }
        debug_assert_eq!(self.states.len(), self.chunks.len() * chunk_pages);
    }

    /// Marks a page as used, during a restart. Returns whether nothing has been written to the page's memory yet.
    pub(crate) fn touch(&mut self, local: u32) -> bool {
        self.grow_to(local);
        let pool = self.pool_of(local);
        let first = self.pools[pool].fresh;
        for skipped in first..local {
            if self.pool_of(skipped) == pool {
                self.state(skipped).flags |= flag::UNTOUCHED;
            }
        }
        self.pools[pool].fresh = first.max(local + 1);
        let state = self.state(local);
        let untouched = state.flags & flag::UNTOUCHED != 0;
        assert!(
            !untouched || (local < first && state.flags & (flag::IN_IMAGE | flag::CHANGED) == 0),
            "page {local} was skipped and is in use"
        );
        state.flags &= !flag::UNTOUCHED;
        untouched || local >= first
    }

    /// Fails with `OutOfMemory` if `pages` more pages would exceed the memory limit. Never fails for the catalog.
    pub(crate) fn check_room(&self, table: TableId, pages: usize) -> Result<()> {
        let bytes = u64::try_from(pages)
            .unwrap_or(u64::MAX)
            .saturating_mul(PAGE_MEMORY);
        if table.0 == 0 || self.memory.has_room(bytes) {
            return Ok(());
        }
        Err(self.out_of_memory())
    }

    fn out_of_memory(&self) -> Error {
        Error::OutOfMemory {
            used: self.memory.used(),
            limit: self.memory.limit(),
        }
    }

    /// Takes an unused page for a table. The caller formats it or gives it back.
    pub(crate) fn take(&mut self, undo: &mut PartUndo, table: TableId) -> Result<u32> {
        let pool = self.pool_for(self.is_keyed(table));
        if let Some(local) = self.take_free(undo, pool) {
            debug_assert_eq!(self.pool_of(local), pool, "a list has its pool's pages");
            return Ok(local);
        }
        let local = self.take_fresh(pool)?;
        undo.born(local);
        Ok(local)
    }

    /// Takes a page from a pool's free list. Returns `None` if no page of the list can be taken.
    fn take_free(&mut self, undo: &PartUndo, pool: usize) -> Option<u32> {
        let mut kept = Vec::new();
        let mut taken = None;
        while let Some(local) = self.pop_free(pool) {
            // If this transaction has freed the page from a page-addressed table, the log needs the page's record. So
            // this page is not taken.
            let is_due = pool == 1 && !self.has_flag(local, flag::KEYED) && undo.changes(local);
            if !is_due {
                taken = Some(local);
                break;
            }
            kept.push(local);
        }
        kept.into_iter().for_each(|local| self.give_back(local));
        taken
    }

    /// Takes a page from a pool's free list, even if a running transaction has changed the page.
    pub(crate) fn pop_free(&mut self, pool: usize) -> Option<u32> {
        while let Some(local) = self.pools[pool].free.pop() {
            debug_assert!(self.is_used(local), "a page on the free list was used");
            self.state(local).flags &= !flag::FREE;
            if layout::kind(self.page(local)) == Some(PageKind::Free) {
                return Some(local);
            }
        }
        None
    }

    /// Takes the first never used page of a pool.
    pub(crate) fn take_fresh(&mut self, pool: usize) -> Result<u32> {
        let local = self.first_fresh(pool);
        let Some(id) = self
            .geometry
            .page_id(self.id, local)
            .filter(|_| local < LOCAL_PAGES_MAX)
        else {
            return Err(self.out_of_memory());
        };
        self.grow_to(local);
        debug_assert_eq!(layout::kind(self.page(local)), Some(PageKind::Free));
        debug_assert_eq!(
            self.geometry.partition_of_page(id),
            self.id,
            "a new page is its partition's"
        );
        self.pools[pool].fresh = local + 1;
        let epoch = self.ckpt_epoch();
        let page = self.page_mut(local);
        if local >= SPARSE_PAGES {
            // A read of new memory maps the kernel's page of zeros. The first write would then copy that page, and
            // interrupt the other cores.
            for byte in page.iter_mut().step_by(KERNEL_PAGE_BYTES) {
                debug_assert_eq!(*byte, 0, "a page that was never used holds nothing");
                *byte = 0;
            }
        }
        layout::set_epoch(page, epoch);
        layout::set_page_id(page, id);
        self.state(local).dirty = DIRTY_BOTH;
        Ok(local)
    }

    /// Puts a page that is not in use on the free list, unless it is already there.
    pub(crate) fn give_back(&mut self, local: u32) {
        let state = self.state(local);
        if state.flags & flag::FREE == 0 {
            state.flags |= flag::FREE;
            let pool = self.pool_of(local);
            self.pools[pool].free.push(local);
        }
    }

    /// Saves the header and each word of the bitmap of `class`, each as a separate range. A change of one slot uses the
    /// same ranges. So two of these ranges are either equal or do not overlap.
    fn save_head(&self, undo: &mut PartUndo, local: u32, class: Option<SlotClass>) {
        let page = self.page(local);
        undo.save(page, local, META_BYTES, HEADER_BYTES - META_BYTES);
        for word in 0..class.map_or(0, SlotClass::bitmap_words) {
            undo.save(page, local, HEADER_BYTES + 8 * word, 8);
        }
    }

    /// Formats a free page as an empty slotted page.
    pub(crate) fn format_slotted(
        &mut self,
        undo: &mut PartUndo,
        local: u32,
        table: TableId,
        class: SlotClass,
    ) {
        debug_assert_eq!(
            layout::kind(self.page(local)),
            Some(PageKind::Free),
            "a page that is formatted holds nothing"
        );
        self.save_head(undo, local, Some(class));
        let page = self.page_mut(local);
        layout::format(page, table, class, PageKind::Slotted);
        page[HEADER_BYTES..HEADER_BYTES + 8 * class.bitmap_words()].fill(0);
        self.mark_keyed(local, self.is_keyed(table));
        self.resync(local);
    }

    /// Sets or clears the mark that a page in use belongs to a key-addressed table. Changes of a marked page are not
    /// logged.
    pub(crate) fn mark_keyed(&mut self, local: u32, keyed: bool) {
        let state = self.state(local);
        state.flags &= !flag::KEYED;
        state.flags |= if keyed { flag::KEYED } else { 0 };
    }

    /// Saves the part of a free page that a piece of a large value will overwrite: the header and `bytes` bytes after
    /// it.
    pub(crate) fn save_large(&self, undo: &mut PartUndo, local: u32, bytes: usize) {
        debug_assert!(bytes <= PAGE_BYTES - HEADER_BYTES, "a piece fits its page");
        self.save_head(undo, local, None);
        undo.save(self.page(local), local, HEADER_BYTES, bytes);
    }

    /// Formats a free page as a piece of a large value. The caller has [saved](Self::save_large) it.
    pub(crate) fn format_large(
        &mut self,
        local: u32,
        table: TableId,
        next: Option<PageId>,
        content: &[&[u8]],
    ) {
        let used: usize = content.iter().map(|c| c.len()).sum();
        debug_assert!(used <= PAGE_BYTES - HEADER_BYTES, "a piece fits its page");
        debug_assert_eq!(
            layout::kind(self.page(local)),
            Some(PageKind::Free),
            "a page that becomes a piece of a value holds nothing"
        );
        let page = self.page_mut(local);
        let next = next.map_or(layout::NO_PAGE, |id| id.0);
        let used = u32::try_from(used).expect("content of one page");
        layout::format_large(page, table, next, used);
        let mut at = HEADER_BYTES;
        for piece in content {
            page[at..at + piece.len()].copy_from_slice(piece);
            at += piece.len();
        }
        self.mark_keyed(local, self.is_keyed(table));
        self.resync(local);
    }

    /// Frees a page of any kind. Its slots and content stay as garbage.
    pub(crate) fn free_page(&mut self, undo: &mut PartUndo, local: u32) {
        let page = self.page(local);
        let class = match layout::kind(page) {
            Some(PageKind::Slotted) => layout::class(page),
            _ => None,
        };
        self.save_head(undo, local, class);
        let words = class.map_or(0, SlotClass::bitmap_words);
        let page = self.page_mut(local);
        layout::format(page, TableId(0), SlotClass::default(), PageKind::Free);
        page[HEADER_BYTES..HEADER_BYTES + 8 * words].fill(0);
        self.resync(local);
    }

    /// Updates the page's [`PageState`] from its bytes.
    pub(crate) fn resync(&mut self, local: u32) {
        let page = self.page(local);
        let kind = layout::kind(page);
        let slotted = (kind == Some(PageKind::Slotted))
            .then(|| layout::class(page))
            .flatten();
        let free_slots = slotted.map_or(0, |class| {
            class
                .slots()
                .saturating_sub(layout::taken_count(page, class))
        });
        let in_use = kind != Some(PageKind::Free);
        let state = self.state(local);
        state.free_slots = u16::try_from(free_slots).unwrap_or(0);
        state.class = slotted.unwrap_or_default();
        let was = state.flags & flag::IN_USE != 0;
        if in_use && !was {
            state.flags |= flag::IN_USE;
            self.memory.add(MemoryUse::Pages, PAGE_MEMORY);
        } else if was && !in_use {
            state.flags &= !flag::IN_USE;
            self.memory.sub(MemoryUse::Pages, PAGE_MEMORY);
        }
        if !in_use {
            self.give_back(local);
        }
    }

    /// Returns the row an entry names; `None` if its bytes are malformed.
    pub(crate) fn row(&self, entry: Entry) -> Option<Row<'_>> {
        Row::decode(self.slot(entry))
    }

    /// Returns the bytes of the slot that an entry names.
    pub(crate) fn slot(&self, entry: Entry) -> &[u8] {
        let class = self.class(entry.local());
        debug_assert!(
            self.is_used(entry.local()) && entry.slot() < class.slots(),
            "an index names slots of pages that are used"
        );
        layout::slot(self.page(entry.local()), class, entry.slot())
    }

    /// Returns the row with this key, found through an index.
    #[inline]
    pub(crate) fn find(
        &self,
        index: &HashIndex,
        key: &[u8],
        hash: KeyHash,
    ) -> Option<(Entry, Row<'_>)> {
        let found = self.locate(index, key, hash)?;
        Some((found.entry, found.row))
    }

    /// Returns the row with this key and its place in the index.
    #[inline]
    pub(crate) fn locate(
        &self,
        index: &HashIndex,
        key: &[u8],
        hash: KeyHash,
    ) -> Option<Located<'_>> {
        let mut found = None;
        let spread = spread(hash, index.salt());
        let place = index.search(spread, |entry| {
            found = entry
                .hash_is(hash)
                .then(|| self.row(entry))
                .flatten()
                .filter(|row| self.key_is(row, key, hash))
                .map(|row| (entry, row));
            found.is_some()
        })?;
        let (entry, row) = found?;
        Some(Located { place, entry, row })
    }

    /// Returns whether the count of free slots in a slotted page's [`PageState`] agrees with the page's bitmap.
    pub(crate) fn counts_free_slots(&self, local: u32) -> bool {
        let state = &self.states[index(local)];
        let taken = layout::taken_count(self.page(local), state.class);
        usize::from(state.free_slots) + taken == state.class.slots()
    }

    /// Returns the class of a slotted page.
    pub(crate) fn class(&self, local: u32) -> SlotClass {
        self.states[index(local)].class
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A restart applies records to zeroed pages. So a page that begins with other bytes would differ from its replay.
    #[test]
    fn a_page_that_was_never_used_has_only_zeros_behind_its_header() {
        let geometry = Geometry {
            partitions: 1,
            chunk_pages: 4,
            hash_seed: 5,
        };
        let memory = Arc::new(MemoryAccount::new(u64::MAX));
        let mut pages = Pages::new(PartitionId(0), geometry, memory, Arc::default());
        for _ in 0..2 * SPARSE_PAGES {
            let local = pages.take_fresh(0).expect("room");
            let body = &pages.page(local)[HEADER_BYTES..];
            assert!(body.iter().all(|byte| *byte == 0), "page {local}");
        }
    }
}

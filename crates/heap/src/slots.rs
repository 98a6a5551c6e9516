//! Slots as bytes: the interface for transactions that interleave.
//!
//! For interleaving transactions a row is the raw bytes of one slot. A page and a slot address the row. The row has no
//! key and no index entry. The caller makes a change and logs it before it releases the partition's latch. The caller
//! has its own locks and free lists. The pages are ordinary slotted pages, so checkpoints, images and restarts treat
//! them like all other slotted pages.

use perdura_base::{CkptEpoch, Error, Result, TableId};
use perdura_page::layout::{self, PAGE_BYTES};
use perdura_page::{PageHeader, PageKind, SlotClass};

use crate::pages::{DIRTY_BOTH, Pages};
use crate::partition::Partition;

/// The present state of a slot.
#[derive(Debug, Clone, Copy)]
pub struct Slot<'a> {
    /// The slot's bytes; garbage if the slot is free.
    pub bytes: &'a [u8],
    /// True if the slot is taken.
    pub taken: bool,
    /// The slot's offset in the page, bytes.
    pub offset: usize,
    /// The page's checkpoint epoch. A change made now gets this epoch as its tag.
    pub tag: CkptEpoch,
}

impl Partition {
    /// Returns the class of a page's slots, or `None` if the page does not exist or is not slotted.
    #[must_use]
    pub fn slotted(&self, local: u32) -> Option<SlotClass> {
        let page = self.page_bytes(local)?;
        (layout::kind(page) == Some(PageKind::Slotted)).then(|| self.pages.class(local))
    }

    /// Returns a slot of a slotted page, or `None` if the page or the slot does not exist.
    #[must_use]
    pub fn slot(&self, local: u32, slot: u16) -> Option<Slot<'_>> {
        let class = self.slotted(local)?;
        let slot = usize::from(slot);
        if slot >= class.slots() {
            return None;
        }
        let page = self.pages.page(local);
        let offset = class.slot_offset(slot);
        Some(Slot {
            bytes: &page[offset..offset + class.bytes()],
            taken: layout::is_taken(page, slot),
            offset,
            tag: layout::epoch(page),
        })
    }

    /// Overwrites a slot, and sets or clears its bit in the page's bitmap. The caller has already logged the change.
    ///
    /// # Panics
    /// Panics if the slot does not exist or `bytes` does not have the slot's length.
    pub fn put_slot(&mut self, local: u32, slot: u16, bytes: &[u8], taken: bool) {
        let class = self.pages.class(local);
        let slot = usize::from(slot);
        assert!(
            slot < class.slots() && bytes.len() == class.bytes(),
            "a slot of the page is overwritten whole"
        );
        let offset = class.slot_offset(slot);
        let page = self.pages.page_mut(local);
        let was = layout::is_taken(page, slot);
        page[offset..offset + class.bytes()].copy_from_slice(bytes);
        layout::set_taken(page, slot, taken);
        let state = self.pages.state(local);
        state.dirty = DIRTY_BOTH;
        match (was, taken) {
            (false, true) => state.free_slots = state.free_slots.saturating_sub(1),
            (true, false) => state.free_slots = state.free_slots.saturating_add(1),
            (false, false) | (true, true) => {}
        }
    }

    /// Returns an unused page for [`format_slots`](Self::format_slots). The page was freed before, or was never used. A
    /// page that was never used is *born* now, with the current checkpoint epoch.
    ///
    /// # Errors
    /// Fails with `OutOfMemory` at the memory limit, or if the partition has no more pages.
    pub fn unused_page(&mut self) -> Result<u32> {
        let full = |pages: &Pages| Error::OutOfMemory {
            used: pages.memory.used(),
            limit: pages.memory.limit(),
        };
        let bytes = u64::try_from(PAGE_BYTES).unwrap_or(u64::MAX);
        if !self.pages.memory.has_room(bytes) {
            return Err(full(&self.pages));
        }
        let pool = self.pages.pool_for(false);
        match self.pages.pop_free(pool) {
            Some(local) => Ok(local),
            None => self.pages.take_fresh(pool),
        }
    }

    /// Formats an unused page as a slotted page with free slots only.
    pub fn format_slots(&mut self, local: u32, table: TableId, class: SlotClass) {
        let page = self.pages.page_mut(local);
        debug_assert_eq!(
            layout::kind(page),
            Some(PageKind::Free),
            "a page that is formatted holds nothing"
        );
        layout::format(page, table, class, PageKind::Slotted);
        let bitmap = layout::HEADER_BYTES;
        page[bitmap..bitmap + 8 * class.bitmap_words()].fill(0);
        self.pages.resync(local);
        self.pages.state(local).dirty = DIRTY_BOTH;
    }

    /// Checks a page's header and bitmap after a restart, and updates the state kept in memory about the page. Returns
    /// the class if the page is slotted.
    ///
    /// # Errors
    /// Fails with `Corrupt`, which names the page.
    pub fn check_slots(&mut self, local: u32) -> Result<Option<SlotClass>> {
        let Some(page) = self.page_bytes(local) else {
            return Ok(None);
        };
        let sound = PageHeader::decode(page).filter(|header| match header.kind {
            PageKind::Free => true,
            PageKind::Slotted => layout::taken(page, header.class)
                .last()
                .is_none_or(|last| last < header.class.slots()),
            PageKind::Large => false,
        });
        let Some(header) = sound else {
            let page = self.pages.page_id(local);
            let page_bytes = u64::try_from(PAGE_BYTES).unwrap_or(u64::MAX);
            return Err(Error::corrupt(
                format!("heap page {page}"),
                u64::from(page.0) * page_bytes,
                "the header and bitmap of a page of slots",
                "another",
                "The page cannot be used. Restart from the older image or a backup.",
            ));
        };
        if !self.pages.is_used(local) {
            return Ok(None);
        }
        self.pages.resync(local);
        Ok((header.kind == PageKind::Slotted).then_some(header.class))
    }
}

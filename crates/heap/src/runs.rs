//! Writing many rows, or freeing many slots, page by page.
//!
//! A list may add or remove a million items at once. Item by item, each item would need a search for a page, a class
//! and a free slot, and one more save of a bitmap's word. Here these steps are done once for each page or word. The
//! resulting pages equal the pages after row-by-row writes, byte for byte.

use perdura_base::{Result, TableId};
use perdura_page::layout;
use perdura_page::row::is_large;
use perdura_page::{Row, SlotClass};
use smallvec::SmallVec;

use crate::cells::{self, chain_of, free_chain};
use crate::entry::Entry;
use crate::geometry::KeyHash;
use crate::index::Table;
use crate::pages::Pages;
use crate::undo::PartUndo;

/// The maximum number of open pages, one for each slot class. If rows of these classes alternate,
/// a change of class needs no search for a page.
const OPEN_MAX: usize = 8;

/// A writer that puts each row of one table into a new slot.
pub(crate) struct Filler<'a> {
    pub(crate) pages: &'a mut Pages,
    pub(crate) table: &'a mut Table,
    pub(crate) part: &'a mut PartUndo,
    pub(crate) id: TableId,
    /// The hash for the entries of all rows.
    pub(crate) hash: KeyHash,
    /// The pages that are being filled, at most one for each class. The most recently written page comes first.
    open: SmallVec<[Open; OPEN_MAX]>,
}

/// A page that is being filled.
#[derive(Clone, Copy)]
struct Open {
    local: u32,
    /// The minimum and the maximum number of bytes in a row of this page's class.
    least: usize,
    bytes: usize,
    /// The offset of slot 0.
    base: usize,
    /// True if the page was never used before, so that none of its bytes need to be saved.
    is_born: bool,
    /// The index of the current word of the page's bitmap, and a mask of the word's free slots.
    word: usize,
    free: u64,
    slots: usize,
}

impl<'a> Filler<'a> {
    pub(crate) fn new(
        pages: &'a mut Pages,
        table: &'a mut Table,
        part: &'a mut PartUndo,
        id: TableId,
        hash: KeyHash,
    ) -> Self {
        Filler {
            pages,
            table,
            part,
            id,
            hash,
            open: SmallVec::new(),
        }
    }

    /// Writes a row. The row's content must fit in a slot. Returns the row's entry.
    pub(crate) fn put(&mut self, row: &Row<'_>) -> Result<Entry> {
        let bytes = row.bytes();
        let fits = |open: &Open| open.least <= bytes && bytes <= open.bytes;
        let mut open = match self.open.iter().position(fits) {
            Some(at) => self.open.remove(at),
            None => {
                self.open.truncate(OPEN_MAX - 1);
                self.open_for(bytes)?
            }
        };
        while open.free == 0 {
            open = match self.next_word(open) {
                Some(open) => open,
                None => self.open_for(bytes)?,
            };
        }
        let bit = usize::try_from(open.free.trailing_zeros()).unwrap_or(0);
        open.free &= open.free - 1;
        let slot = 64 * open.word + bit;
        let at = open.base + slot * open.bytes;
        if !open.is_born {
            let page = self.pages.page(open.local);
            self.part.save(page, open.local, at, open.bytes);
        }
        debug_assert!(
            bytes <= open.bytes && slot < open.slots,
            "the row fits a slot of the page"
        );
        let page = self.pages.page_mut(open.local);
        debug_assert!(!layout::is_taken(page, slot), "a free slot is filled");
        row.encode(&mut page[at..at + open.bytes]);
        layout::set_taken(page, slot, true);
        self.pages.state(open.local).free_slots -= 1;
        self.open.insert(0, open);
        Ok(Entry::new(self.hash, open.local, slot))
    }

    /// Closes the pages that are being filled. After that the caller may write to them.
    pub(crate) fn close(&mut self) {
        self.open.clear();
    }

    fn open_for(&mut self, bytes: usize) -> Result<Open> {
        let class = SlotClass::for_bytes(bytes).expect("an inline row has a class");
        let local = cells::open_page(self.pages, self.table, self.part, self.id, class)?;
        let smaller = class.code().checked_sub(1).and_then(SlotClass::new);
        let open = Open {
            local,
            least: smaller.map_or(0, |smaller| smaller.bytes() + 1),
            bytes: class.bytes(),
            base: class.slot_offset(0),
            is_born: self.part.is_born(local),
            word: 0,
            free: 0,
            slots: class.slots(),
        };
        debug_assert!(
            open.least <= bytes && bytes <= open.bytes,
            "the class is the smallest that holds the row"
        );
        let mut open = self.look_at(open);
        while open.free == 0 {
            open = self.next_word(open).expect("an open page");
        }
        Ok(open)
    }

    /// Returns the page with the next word of its bitmap; `None` after the last word.
    fn next_word(&mut self, open: Open) -> Option<Open> {
        let word = open.word + 1;
        (64 * word < open.slots).then(|| self.look_at(Open { word, ..open }))
    }

    /// Finds the free slots of the current word. Saves the word, because its bits are about to change.
    fn look_at(&mut self, open: Open) -> Open {
        let page = self.pages.page(open.local);
        let slots = open.slots - 64 * open.word;
        let all = if slots < 64 {
            (1 << slots) - 1
        } else {
            u64::MAX
        };
        let free = !layout::bitmap_word(page, open.word) & all;
        if free != 0 && !open.is_born {
            cells::save_bit(self.pages, self.part, open.local, 64 * open.word);
        }
        Open { free, ..open }
    }
}

/// Frees slots and the chains of their rows. Frees a page when its last taken slot is freed.
pub(crate) fn release(
    pages: &mut Pages,
    table: &mut Table,
    part: &mut PartUndo,
    entries: &[Entry],
) {
    for run in entries.chunk_by(|a, b| a.local() == b.local()) {
        let local = run[0].local();
        let class = pages.class(local);
        let mut chains = Vec::new();
        for slot in run.iter().map(|entry| entry.slot()) {
            debug_assert!(
                layout::is_taken(pages.page(local), slot),
                "a slot that is freed is taken"
            );
            let bytes = layout::slot(pages.page(local), class, slot);
            if is_large(bytes) {
                chains.push(Row::decode(bytes).as_ref().and_then(chain_of));
            }
            cells::save_bit(pages, part, local, slot);
            layout::set_taken(pages.page_mut(local), slot, false);
        }
        let freed = u16::try_from(run.len()).expect("at most the slots of a page");
        debug_assert!(
            usize::from(pages.state(local).free_slots) + run.len() <= class.slots(),
            "free slots and those that are freed are slots of the page"
        );
        pages.state(local).free_slots += freed;
        if usize::from(pages.state(local).free_slots) == class.slots() {
            pages.free_page(part, local);
        } else {
            cells::list_open(pages, table, local, class);
        }
        for chain in chains {
            free_chain(pages, part, chain);
        }
    }
}

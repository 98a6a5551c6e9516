//! Row mode, the paper's way to keep a page as of a checkpoint's cut: three bits for each slot, and copies of rows.
//!
//! A slot that was free at the cut and has a row now is *added*: the image omits the row, so nothing is kept. A slot
//! with a removed row is *deleted*: the slot still has the row's bytes, and in the image the slot is taken. A slot with
//! an overwritten row is *modified*: a copy holds the slot as of the cut. In an image made in this way the bytes of
//! free slots are garbage. So row mode is used only for pages of key-addressed tables, because no page record describes
//! these pages. Some pages change outside their slots and bitmap: pages that are freed, formatted, or hold a piece of a
//! long value. Each of these pages is kept as a whole copy.
//!
//! # Source
//! *Rethinking Main Memory OLTP Recovery* (001), section II-C.
//! # Deviations
//! The bits are set when a transaction commits, from its before-images, and not by each operation. So an abort has no
//! bits to clear, except with a seeded bug. The slot of a deleted row is free at once, and may get a new row before the
//! checkpoint visits the page. The slot then counts as modified. The visit itself frees no slots.

use std::ops::Range;

use perdura_page::SlotClass;
use perdura_page::layout::{self, HEADER_BYTES, META_BYTES, PAGE_BYTES, PageKind};

use crate::marks::{SLOT_WORDS, Slots};
use crate::undo::{PartUndo, Save};

/// A page as of a checkpoint's cut.
pub(crate) enum Shadow {
    Rows(Box<Rows>),
    Page(Box<[u8]>),
}

/// The changes of the slots of a page.
pub(crate) struct Rows {
    class: SlotClass,
    added: Slots,
    deleted: Slots,
    modified: Slots,
    /// Copies of the modified slots. Each copy has the slot's number and the bytes that the slot had at the cut.
    copies: Vec<(usize, Box<[u8]>)>,
    /// The total length of the copies, in bytes.
    bytes: usize,
}

/// Overwrites `bytes`, which are the page's bytes from `from` on, with the before-images of `saves`. The saves are
/// ordered from the earliest to the latest.
fn undo_range(bytes: &mut [u8], from: usize, part: &PartUndo, saves: &[&Save]) {
    let to = from + bytes.len();
    debug_assert!(to <= PAGE_BYTES, "a range of a page");
    for save in saves.iter().rev() {
        let range = save.range();
        let (first, last) = (range.start.max(from), range.end.min(to));
        if first < last {
            let before = &part.before(save)[first - range.start..last - range.start];
            bytes[first - from..last - from].copy_from_slice(before);
        }
    }
}

fn bit(slots: &Slots, slot: usize) -> bool {
    slots[slot / 64] >> (slot % 64) & 1 == 1
}

impl Shadow {
    /// Returns a shadow of a page that has not changed since the cut.
    pub(crate) fn of(page: &[u8]) -> Shadow {
        let class = layout::class(page).unwrap_or_default();
        Shadow::Rows(Box::new(Rows {
            class,
            added: [0; SLOT_WORDS],
            deleted: [0; SLOT_WORDS],
            modified: [0; SLOT_WORDS],
            copies: Vec::new(),
            bytes: 0,
        }))
    }

    /// Keeps what a commit has overwritten: the page's bytes as they were before the commit.
    pub(crate) fn keep(&mut self, page: &[u8], part: &PartUndo, saves: &[&Save]) {
        let Shadow::Rows(rows) = self else { return };
        if rows.keep(page, part, saves) {
            return;
        }
        let mut copy = Box::<[u8]>::from(page);
        undo_range(&mut copy, 0, part, saves);
        rows.undo(&mut copy);
        debug_assert_eq!(copy.len(), PAGE_BYTES, "a copy is of a whole page");
        *self = Shadow::Page(copy);
    }

    /// Marks slots as modified without copying the slots.
    #[cfg(feature = "flaws")]
    pub(crate) fn leave_bits(&mut self, range: &Range<usize>) {
        let Shadow::Rows(rows) = self else { return };
        for slot in rows.slots(range) {
            rows.modified[slot / 64] |= 1 << (slot % 64);
        }
    }

    /// Turns the live page into the page as of the cut, except for the bytes in free slots.
    pub(crate) fn undo(&self, page: &mut [u8]) {
        match self {
            Shadow::Rows(rows) => rows.undo(page),
            Shadow::Page(copy) => page.copy_from_slice(copy),
        }
    }

    /// Returns how many bytes the memory account counts for the shadow.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Shadow::Rows(rows) => {
                let index = rows.copies.capacity() * size_of::<(usize, Box<[u8]>)>();
                size_of::<Rows>() + index + rows.bytes
            }
            Shadow::Page(copy) => copy.len(),
        }
    }
}

impl Rows {
    /// Keeps the rows that a commit has overwritten. If the commit has changed more than rows, returns `false` and
    /// notes nothing.
    fn keep(&mut self, page: &[u8], part: &PartUndo, saves: &[&Save]) -> bool {
        let mut header = [0; HEADER_BYTES];
        header.copy_from_slice(&page[..HEADER_BYTES]);
        undo_range(&mut header, 0, part, saves);
        let is_same = header[META_BYTES..] == page[META_BYTES..HEADER_BYTES];
        if !is_same || layout::kind(page) != Some(PageKind::Slotted) {
            return false;
        }
        let class = self.class;
        assert_eq!(layout::class(page), Some(class), "the header is as it was");
        let bitmap = HEADER_BYTES..HEADER_BYTES + 8 * class.bitmap_words();
        let mut before = page[bitmap.clone()].to_vec();
        undo_range(&mut before, bitmap.start, part, saves);
        let word = |bytes: &[u8], at: usize| {
            let bytes = bytes[8 * at..].first_chunk();
            u64::from_le_bytes(bytes.copied().unwrap_or_default())
        };
        for range in saves.iter().map(|save| save.range()) {
            for slot in self.slots(&range) {
                let was_taken = word(&before, slot / 64) >> (slot % 64) & 1 == 1;
                let at_cut = bit(&self.deleted, slot) || was_taken && !bit(&self.added, slot);
                if at_cut && !bit(&self.modified, slot) {
                    self.copy(slot, page, part, saves);
                }
            }
        }
        for at in 0..class.bitmap_words() {
            let (before, now) = (word(&before, at), word(&page[bitmap.clone()], at));
            let (gone, new) = (before & !now, now & !before);
            let (added, deleted) = (self.added[at], self.deleted[at]);
            self.added[at] = added & !gone | new & !deleted;
            self.deleted[at] = deleted & !new | gone & !added;
            assert_eq!(
                self.added[at] & self.deleted[at],
                0,
                "a slot was free at the cut or it was not"
            );
        }
        true
    }

    /// Returns the slots that a range of the page touches.
    fn slots(&self, range: &Range<usize>) -> Range<usize> {
        let (class, first) = (self.class, self.class.slot_offset(0));
        let (from, to) = (range.start.max(first) - first, range.end.max(first) - first);
        from / class.bytes()..to.div_ceil(class.bytes()).min(class.slots())
    }

    /// Keeps a slot as it was before a commit, if the commit has changed the slot.
    fn copy(&mut self, slot: usize, page: &[u8], part: &PartUndo, saves: &[&Save]) {
        let range = self.class.slot_range(slot);
        assert!(range.end <= PAGE_BYTES, "a slot lies in its page");
        let mut copy = Box::<[u8]>::from(&page[range.clone()]);
        undo_range(&mut copy, range.start, part, saves);
        if copy[..] != page[range] {
            self.modified[slot / 64] |= 1 << (slot % 64);
            assert!(
                self.copies.len() < self.class.slots(),
                "a slot is copied once"
            );
            self.bytes += copy.len();
            self.copies.push((slot, copy));
        }
    }

    fn undo(&self, page: &mut [u8]) {
        for (slot, copy) in &self.copies {
            page[self.class.slot_range(*slot)].copy_from_slice(copy);
        }
        for at in 0..self.class.bitmap_words() {
            let at_cut = layout::bitmap_word(page, at) & !self.added[at] | self.deleted[at];
            let place = HEADER_BYTES + 8 * at;
            page[place..place + 8].copy_from_slice(&at_cut.to_le_bytes());
        }
    }
}

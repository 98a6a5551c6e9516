//! The table of slot sizes.
//!
//! A page has slots of one size. From 16 bytes to 2 KiB, the step to the next size is an eighth of a power of two. So a
//! row wastes less than an eighth of its slot. Above 2 KiB, the sizes are a page's payload divided by 7, by 6, and so
//! on down to 1. So the biggest slot is nearly a page. The table is part of the format: a page names its class by
//! index.

use std::ops::Range;

use perdura_base::limits::PAGE_BYTES;

/// The length of a page's header in bytes. The bitmap and the slots follow the header.
pub const HEADER_BYTES: usize = 64;
/// The number of classes.
pub(crate) const CLASS_COUNT: usize = 64;
const STEPPED: usize = 57;
const SMALLEST: usize = 16;

/// The number of bytes for slots in a page whose bitmap is one word.
const PAYLOAD: usize = PAGE_BYTES - HEADER_BYTES - 8;

const SIZES: [usize; CLASS_COUNT] = sizes();
const SLOTS: [usize; CLASS_COUNT] = slots();
/// For each class, the offset of the first slot in the page, in bytes. The slots follow the bitmap.
const FIRST: [usize; CLASS_COUNT] = first();

const fn sizes() -> [usize; CLASS_COUNT] {
    let mut out = [0; CLASS_COUNT];
    let mut i = 0;
    let mut size = SMALLEST;
    let mut power = SMALLEST;
    while i < STEPPED {
        out[i] = size;
        size += power / 8;
        if size == 2 * power {
            power = size;
        }
        i += 1;
    }
    let mut n = 7;
    while n > 0 {
        out[i] = PAYLOAD / n;
        i += 1;
        n -= 1;
    }
    out
}

const fn slots() -> [usize; CLASS_COUNT] {
    let mut out = [0; CLASS_COUNT];
    let mut i = 0;
    while i < CLASS_COUNT {
        let mut n = (PAGE_BYTES - HEADER_BYTES) / SIZES[i];
        while HEADER_BYTES + 8 * n.div_ceil(64) + n * SIZES[i] > PAGE_BYTES {
            n -= 1;
        }
        out[i] = n;
        i += 1;
    }
    out
}

const fn first() -> [usize; CLASS_COUNT] {
    let mut out = [0; CLASS_COUNT];
    let mut i = 0;
    while i < CLASS_COUNT {
        out[i] = HEADER_BYTES + 8 * SLOTS[i].div_ceil(64);
        i += 1;
    }
    out
}

const _: () = assert!(SIZES[STEPPED - 1] == 2048, "eighths end at 2 KiB");
const _: () = assert!(
    SIZES[CLASS_COUNT - 1] == PAYLOAD,
    "the biggest slot fills a page"
);
const _: () = assert!(SLOTS[0] <= 1024, "ten bits name a slot");
const _: () = assert!(SLOTS[CLASS_COUNT - 1] == 1, "the biggest slot is alone");

/// A slot class: an index into the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct SlotClass(u16);

impl SlotClass {
    /// Returns the class with this index, if it exists.
    #[must_use]
    pub fn new(code: u16) -> Option<SlotClass> {
        (usize::from(code) < CLASS_COUNT).then_some(SlotClass(code))
    }

    /// Returns the smallest class with slots of at least `bytes` bytes; `None` if `bytes` is too large.
    #[must_use]
    pub fn for_bytes(bytes: usize) -> Option<SlotClass> {
        let index = SIZES.partition_point(|size| *size < bytes);
        u16::try_from(index).ok().and_then(SlotClass::new)
    }

    /// Returns the size of the largest slot, bytes.
    #[must_use]
    pub fn bytes_max() -> usize {
        SIZES[CLASS_COUNT - 1]
    }

    /// Returns every class, smallest first.
    pub fn all() -> impl Iterator<Item = SlotClass> {
        (0..u16::MAX).map_while(SlotClass::new)
    }

    /// Returns the index as it is written in a page.
    #[must_use]
    pub fn code(self) -> u16 {
        self.0
    }

    /// Returns the index.
    #[must_use]
    pub fn index(self) -> usize {
        usize::from(self.0)
    }

    /// Returns the size of a slot, bytes.
    #[must_use]
    pub fn bytes(self) -> usize {
        SIZES[self.index()]
    }

    /// Returns the number of slots in a page.
    #[must_use]
    pub fn slots(self) -> usize {
        SLOTS[self.index()]
    }

    /// Returns the number of words of 64 bits in the bitmap.
    #[must_use]
    pub fn bitmap_words(self) -> usize {
        self.slots().div_ceil(64)
    }

    /// Returns the offset of slot `slot` in the page, in bytes.
    #[must_use]
    pub fn slot_offset(self, slot: usize) -> usize {
        assert!(
            slot < self.slots(),
            "slot {slot} of class {} does not exist",
            self.0
        );
        FIRST[self.index()] + slot * self.bytes()
    }

    /// Returns the range of the page's bytes that slot `slot` occupies.
    #[must_use]
    pub fn slot_range(self, slot: usize) -> Range<usize> {
        let at = self.slot_offset(slot);
        at..at + self.bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_are_at_most_an_eighth_apart_up_to_two_kib() {
        for (small, big) in SIZES.iter().zip(&SIZES[1..]) {
            assert!(small < big);
            if *big <= 2048 {
                assert!((big - small) * 8 <= *small, "{small} {big}");
            }
        }
        assert_eq!((SIZES[0], SIZES[STEPPED - 1]), (16, 2048));
    }

    #[test]
    fn every_row_size_finds_the_smallest_class_that_holds_it() {
        for bytes in 1..=SlotClass::bytes_max() {
            let class = SlotClass::for_bytes(bytes).expect("a class");
            assert!(class.bytes() >= bytes);
            assert!(class.index() == 0 || SIZES[class.index() - 1] < bytes);
        }
        assert_eq!(SlotClass::for_bytes(SlotClass::bytes_max() + 1), None);
    }

    #[test]
    fn slots_fill_the_page_and_fit_an_index_entry() {
        for class in SlotClass::all() {
            let end = class.slot_offset(class.slots() - 1) + class.bytes();
            assert!(end <= PAGE_BYTES);
            assert!(PAGE_BYTES - end < class.bytes() + 8);
            assert!(class.slots() <= 1024);
        }
        assert_eq!(SlotClass::all().count(), CLASS_COUNT);
    }
}

//! The saved cells of slots that a transaction has not saved whole. A cell is one of at most 64 pieces of a slot.
//!
//! A small change saves only the cells that it changes. The slot then has one word here, with a bit for each cell, set
//! if the cell is saved. So neither a later small change nor a later write of the whole slot saves these cells again.

use hashbrown::HashTable;
use perdura_base::checksum::mix64;

/// The maximum number of cells of a slot.
const CELLS: usize = u64::BITS as usize;

/// A set of cells of a slot, one bit for each cell.
pub(crate) type Cells = u64;

/// Returns the size of a cell, in bytes. The slot has `slot_bytes` bytes.
pub(crate) fn cell_bytes(slot_bytes: usize) -> usize {
    slot_bytes.div_ceil(CELLS).next_multiple_of(8)
}

/// Returns the byte ranges of a slot that the cells cover. Neighbouring cells are one range.
pub(crate) fn ranges(
    mut cells: Cells,
    slot_bytes: usize,
) -> impl Iterator<Item = std::ops::Range<usize>> {
    let bytes = cell_bytes(slot_bytes);
    let index = |bits: u32| usize::try_from(bits).unwrap_or(CELLS);
    std::iter::from_fn(move || {
        if cells == 0 {
            return None;
        }
        let from = cells.trailing_zeros();
        let count = (cells >> from).trailing_ones();
        let run = u64::MAX.checked_shr(64 - count).unwrap_or(0) << from;
        cells &= !run;
        let end = index(from + count) * bytes;
        Some(index(from) * bytes..end.min(slot_bytes))
    })
}

/// The maximum number of slots for a linear search.
const LINEAR_MAX: usize = 16;

/// A slot and its saved cells. `key` consists of the slot's page and its offset in the page.
struct Slot {
    key: u64,
    bytes: usize,
    saved: Cells,
}

/// The slots of which single cells were saved.
#[derive(Default)]
pub(crate) struct Narrow {
    slots: Vec<Slot>,
    /// The indexes into `slots`, found by key. Used only if there are more than `LINEAR_MAX` slots.
    seen: HashTable<usize>,
}

/// Returns all cells of a slot.
pub(crate) fn all_cells(slot_bytes: usize) -> Cells {
    let count = slot_bytes.div_ceil(cell_bytes(slot_bytes));
    debug_assert!(count <= CELLS, "a word has a bit for each cell");
    let spare = u32::try_from(count).map_or(0, |count| Cells::BITS.saturating_sub(count));
    Cells::MAX >> spare
}

impl Narrow {
    pub(crate) fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    pub(crate) fn clear(&mut self) {
        self.slots.clear();
        self.seen.clear();
    }

    /// Returns the size in memory, bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.slots.capacity() * size_of::<Slot>() + self.seen.allocation_size()
    }

    fn find(&mut self, key: u64) -> Option<&mut Slot> {
        if self.slots.len() <= LINEAR_MAX {
            return self.slots.iter_mut().rev().find(|slot| slot.key == key);
        }
        let slots = &self.slots;
        let found = *self.seen.find(mix64(key), |i| slots[*i].key == key)?;
        self.slots.get_mut(found)
    }

    /// Notes cells of a slot as saved. Returns the cells that were not saved before. Returns `None` if a slot with this
    /// offset but a different length was noted before. The page's class has changed since.
    pub(crate) fn add(&mut self, key: u64, bytes: usize, cells: Cells) -> Option<Cells> {
        debug_assert_eq!(cells & !all_cells(bytes), 0, "cells of the slot");
        if let Some(slot) = self.find(key) {
            let new = cells & !slot.saved;
            let same = slot.bytes == bytes;
            slot.saved |= if same { cells } else { 0 };
            return same.then_some(new);
        }
        let saved = cells;
        self.slots.push(Slot { key, bytes, saved });
        let count = self.slots.len();
        if count > LINEAR_MAX {
            let known = if count == LINEAR_MAX + 1 {
                0
            } else {
                count - 1
            };
            for i in known..count {
                let hash = mix64(self.slots[i].key);
                let slots = &self.slots;
                self.seen.insert_unique(hash, i, |j| mix64(slots[*j].key));
            }
        }
        Some(cells)
    }

    /// Notes all cells of a slot as saved. Returns the cells that were not saved before. Returns `None`, and notes
    /// nothing, if no cell of the slot was noted before.
    pub(crate) fn complete(&mut self, key: u64, bytes: usize) -> Option<Cells> {
        let slot = self.find(key).filter(|slot| slot.bytes == bytes)?;
        let all = all_cells(bytes);
        Some(all & !std::mem::replace(&mut slot.saved, all))
    }
}

#[cfg(test)]
mod tests {
    use perdura_page::SlotClass;

    use super::*;

    #[test]
    fn cells_cover_a_slot_and_ranges_cover_their_cells() {
        for class in SlotClass::all() {
            let bytes = class.bytes();
            assert!(bytes <= CELLS * cell_bytes(bytes));
            let all: Vec<_> = ranges(all_cells(bytes), bytes).collect();
            assert!(all[0] == (0..bytes), "{bytes}: {all:?}");
        }
        let few: Vec<_> = ranges(0b1011, 100).collect();
        assert_eq!(few, [0..16, 24..32]);
        assert_eq!(ranges(0, 100).count(), 0);
    }

    #[test]
    fn each_cell_is_new_once_however_many_slots_there_are() {
        let mut narrow = Narrow::default();
        for key in 0..100 {
            assert_eq!(narrow.add(key, 96, 0b101), Some(0b101));
            assert_eq!(narrow.complete(key + 1000, 96), None);
        }
        for key in 0..100 {
            assert_eq!(narrow.add(key, 96, 0b111), Some(0b010));
            assert_eq!(narrow.add(key, 104, 0b111), None, "another class");
            assert_eq!(narrow.complete(key, 96), Some(all_cells(96) & !0b111));
            assert_eq!(narrow.complete(key, 96), Some(0));
        }
        narrow.clear();
        assert!(narrow.is_empty() && narrow.complete(5, 96).is_none());
        assert_eq!(
            (all_cells(8), all_cells(512), all_cells(513)),
            (1, u64::MAX, (1 << 33) - 1)
        );
    }
}

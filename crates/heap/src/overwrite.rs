//! Overwriting a row in place when little of it changes.
//!
//! A row of numbers is often changed a few bytes at a time. Then an overwrite saves and writes only the *cells* that
//! differ. A slot has at most 64 cells of at least eight bytes each, so one word can list the saved cells. If the new
//! value has a different length, or the old value lies in a chain of pages, the whole row is written.

use perdura_base::Result;
use perdura_page::{Kind, Place};

use crate::address::TableKey;
use crate::entry::Entry;
use crate::narrow::{Cells, cell_bytes, ranges};
use crate::pages::Pages;
use crate::partition::Partition;
use crate::secondary;
use crate::spot::Spot;
use crate::undo::{PartUndo, Undo};

/// The number of bytes of a value that one comparison covers.
const BLOCK: usize = 32;

/// Returns the cells of a slot that would change if `value` were written at `at`.
fn differing(slot: &[u8], at: usize, value: &[u8]) -> Cells {
    let bytes = cell_bytes(slot.len());
    let (old, old_rest) = slot[at..at + value.len()].as_chunks::<BLOCK>();
    let (new, new_rest) = value.as_chunks::<BLOCK>();
    let (mut cells, mut from) = (0, at);
    for (old, new) in old.iter().zip(new) {
        if old != new {
            cells |= differing_of(old, new, from, bytes);
        }
        from += BLOCK;
    }
    cells | differing_of(old_rest, new_rest, from, bytes)
}

/// Returns the cells in which `old` and `new` differ. A cell has `bytes` bytes. `old` and `new` begin at `from` in the
/// slot.
fn differing_of(old: &[u8], new: &[u8], from: usize, bytes: usize) -> Cells {
    let mut cells = 0;
    let mut mark = |at: usize| cells |= 1 << ((from + at) / bytes);
    let (old_words, old_rest) = old.as_chunks();
    let (new_words, new_rest) = new.as_chunks();
    let byte = |bits: u32| usize::try_from(bits / 8).unwrap_or(0);
    for (i, (old, new)) in old_words.iter().zip(new_words).enumerate() {
        let word = u64::from_le_bytes(*old) ^ u64::from_le_bytes(*new);
        if word != 0 {
            // It is enough to mark the first and the last byte that differ, because eight bytes lie in two cells at
            // most.
            mark(8 * i + byte(word.trailing_zeros()));
            mark(8 * i + 7 - byte(word.leading_zeros()));
        }
    }
    let rest = old_rest.iter().zip(new_rest);
    for (i, _) in rest.enumerate().filter(|(_, (old, new))| old != new) {
        mark(8 * old_words.len() + i);
    }
    cells
}

impl Partition {
    /// Overwrites the value of a key's row, and keeps the row's expiry. The row must be a string. Returns false if the
    /// key has no row.
    ///
    /// # Errors
    /// Like [`put`](Self::put). If the old value lies in its slot and has the length of `value`, the call never fails.
    pub fn overwrite(&mut self, undo: &mut Undo, to: TableKey<'_>, value: &[u8]) -> Result<bool> {
        self.overwrite_at(undo, to, None, value)
    }

    /// Like [`overwrite`](Self::overwrite), but looks for the row at `spot` first.
    ///
    /// # Errors
    /// Like [`overwrite`](Self::overwrite).
    pub fn overwrite_at(
        &mut self,
        undo: &mut Undo,
        to: TableKey<'_>,
        spot: Option<Spot>,
        value: &[u8],
    ) -> Result<bool> {
        let TableKey { table, key, hash } = to;
        let Some(attached) = self.tables.get_mut(table) else {
            return Ok(false);
        };
        let found = self.pages.locate_at(&attached.hash, spot, key, hash);
        let Some(found) = found else {
            return Ok(false);
        };
        let (entry, row) = (found.entry, found.row);
        let is_inline = matches!(row.place, Place::Inline { .. });
        if !is_inline || row.value_bytes != value.len() || row.kind != Kind::String {
            let expiry_ms = row.expiry_ms;
            self.put(undo, to, value, expiry_ms)?;
            return Ok(true);
        }
        debug_assert_eq!(
            self.pages.geometry.partition_of(hash),
            self.pages.id,
            "a key of this partition"
        );
        let at = row.bytes() - value.len();
        attached.hash.note_access(found.place, self.now_second);
        let part = undo.part_mut(self.pages.id);
        if attached.form.derive.is_some() {
            let mut keys = std::mem::take(&mut attached.index_keys);
            secondary::derive(&mut keys[0], &attached.form, &self.pages, &row);
            keys[1].derive(&attached.form, key, value);
            let (was, is) = ((entry, &keys[0]), (entry, &keys[1]));
            secondary::settle(attached, part, table, Some(was), Some(is));
            attached.index_keys = keys;
            attached.account(&self.pages.memory);
        }
        let saved = part.saves.len();
        patch(&mut self.pages, part, entry, at, value);
        if attached.form.keyed {
            part.note_keyed(saved);
        }
        Ok(true)
    }
}

/// Writes a value over the value that begins at `at` in a slot. Only cells that differ are written.
fn patch(pages: &mut Pages, part: &mut PartUndo, entry: Entry, at: usize, value: &[u8]) {
    let local = entry.local();
    let class = pages.class(local);
    let (begin, bytes) = (class.slot_offset(entry.slot()), class.bytes());
    let page = pages.page(local);
    let cells = differing(&page[begin..begin + bytes], at, value);
    if cells == 0 {
        return;
    }
    // A single unchanged cell between two changed cells is included, because that costs less than another save.
    let cells = cells | (cells << 1 & cells >> 1);
    part.save_cells(page, local, begin..begin + bytes, cells);
    let slot = &mut pages.page_mut(local)[begin..begin + bytes];
    for range in ranges(cells, bytes) {
        let (from, to) = (range.start.max(at), range.end.min(at + value.len()));
        slot[from..to].copy_from_slice(&value[from - at..to - at]);
    }
    debug_assert_eq!(
        slot[at..at + value.len()],
        *value,
        "what differs is in the cells"
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cells_that_differ_are_found_wherever_the_value_begins() {
        let mut rng = fastrand::Rng::with_seed(1);
        for _ in 0..2000 {
            let len = rng.usize(16..3000);
            let slot: Vec<u8> = (0..len).map(|_| rng.u8(..)).collect();
            let at = rng.usize(0..len);
            let mut now = slot.clone();
            for _ in 0..rng.usize(0..5) {
                now[rng.usize(at..len)] ^= rng.u8(..);
            }
            let cells = differing(&slot, at, &now[at..]);
            let bytes = cell_bytes(len);
            for (cell, (a, b)) in slot.chunks(bytes).zip(now.chunks(bytes)).enumerate() {
                assert_eq!(cells >> cell & 1 == 1, a != b);
            }
        }
    }
}

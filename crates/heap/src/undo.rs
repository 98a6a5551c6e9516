//! Before-images, which serve the rollback and the difference at commit.
//!
//! The first write to a range in a transaction saves the range's bytes. A rollback and the XOR difference use the saved
//! bytes. Ranges are whole slots, cells of slots (`narrow`), words of a bitmap, headers and parts of chain pages. A
//! saved range is not saved again before the next savepoint. Apart from these repeated saves, ranges overlap only if a
//! page is reformatted within one transaction. Because the latest save is undone first, the result is still right. The
//! before-image of a page that was never used is all zeros. One save without stored bytes represents it.
//!
//! Indexes are derived from rows. They have operations (`ops`) instead of before-images.
//!
//! # Source
//! Differential logging, algorithm 1, step 1: the before-image serves the undo and is one operand of the XOR.

use hashbrown::HashTable;
use perdura_base::checksum::mix64;
use perdura_base::flaw::{Flaw, armed};
use perdura_base::{PartitionId, PartitionSet, TableId, limits::PARTITIONS_MAX};
use perdura_page::layout::{META_BYTES, PAGE_BYTES, ZERO_PAGE};
use perdura_page::{CollectionId, End};

use crate::entry::Entry;
use crate::narrow::{Cells, Narrow, ranges};
use crate::ops::{KeyCopy, Op, PoppedItems};

/// The maximum number of saves for a linear search.
const LINEAR_MAX: usize = 16;
/// The maximum capacity, in bytes, that a cleared buffer keeps. The memory of a huge value is freed.
const KEPT_BYTES: usize = 1 << 20;
/// The maximum number of bytes that the log needs for a saved range in addition to the range's bytes.
const RECORD_HEAD_BYTES: usize = 24;
const NOWHERE: u16 = u16::MAX;

/// The undo of one transaction in all partitions that it changed.
pub struct Undo {
    parts: Vec<PartUndo>,
    active: usize,
    part_of: Box<[u16]>,
}

impl Default for Undo {
    fn default() -> Self {
        let part_of = vec![NOWHERE; usize::from(PARTITIONS_MAX)].into_boxed_slice();
        Undo {
            parts: Vec::new(),
            active: 0,
            part_of,
        }
    }
}

impl Undo {
    /// Returns an empty undo.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Discards everything. Keeps the buffers, but at most a mebibyte of each.
    pub fn clear(&mut self) {
        for part in &mut self.parts[..self.active] {
            let index = &mut self.part_of[usize::from(part.partition.0)];
            debug_assert_ne!(
                *index, NOWHERE,
                "what was changed is found by its partition"
            );
            *index = NOWHERE;
            part.clear();
        }
        self.active = 0;
    }

    /// Returns whether no range was saved.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.parts[..self.active].iter().all(|p| p.saves.is_empty())
    }

    /// Returns the bytes of memory that this undo takes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        let bytes: usize = self.parts.iter().map(PartUndo::bytes).sum();
        u64::try_from(bytes).unwrap_or(u64::MAX)
    }

    /// Returns about how many bytes the changes of a partition need in the log. The contents of pages that were never
    /// used before are not counted.
    #[must_use]
    pub fn log_bytes(&self, partition: PartitionId) -> usize {
        let part = self.part(partition);
        part.map_or(0, |p| p.arena.len() + p.saves.len() * RECORD_HEAD_BYTES)
    }

    /// Returns the partitions with saved ranges.
    #[must_use]
    pub fn partitions(&self) -> PartitionSet {
        let parts = self.parts[..self.active].iter();
        parts
            .filter(|p| !p.saves.is_empty())
            .map(|p| p.partition)
            .collect()
    }

    /// Returns whether a page of a page-addressed table was changed. The records of a page-addressed table name pages.
    #[must_use]
    pub fn wrote_page_addressed(&self) -> bool {
        let parts = &self.parts[..self.active];
        parts.iter().any(|part| part.keyed < part.saves.len())
    }

    /// Returns whether a row of a key-addressed table was changed.
    #[must_use]
    pub fn wrote_keyed(&self) -> bool {
        self.parts[..self.active].iter().any(|part| part.keyed > 0)
    }

    pub(crate) fn active_parts_mut(&mut self) -> impl Iterator<Item = &mut PartUndo> {
        self.parts[..self.active].iter_mut()
    }

    pub(crate) fn part(&self, partition: PartitionId) -> Option<&PartUndo> {
        match self.part_of[usize::from(partition.0)] {
            NOWHERE => None,
            index => {
                let part = &self.parts[usize::from(index)];
                debug_assert_eq!(
                    part.partition, partition,
                    "a part is found by its partition"
                );
                Some(part)
            }
        }
    }

    pub(crate) fn part_mut(&mut self, partition: PartitionId) -> &mut PartUndo {
        let index = &mut self.part_of[usize::from(partition.0)];
        if *index == NOWHERE {
            *index = u16::try_from(self.active).unwrap_or(NOWHERE);
            if self.active == self.parts.len() {
                self.parts.push(PartUndo::default());
            }
            self.parts[self.active].partition = partition;
            self.active += 1;
        }
        let part = &mut self.parts[usize::from(*index)];
        debug_assert_eq!(part.partition, partition);
        part
    }
}

/// A saved range.
#[derive(Clone, Copy)]
pub(crate) struct Save {
    pub(crate) local: u32,
    pub(crate) offset: u16,
    bytes: u16,
    /// The offset of the bytes in the arena; [`ZEROS`] if the page was never used before.
    at: usize,
}

const ZEROS: usize = usize::MAX;

impl Save {
    pub(crate) fn range(&self) -> std::ops::Range<usize> {
        usize::from(self.offset)..usize::from(self.offset) + usize::from(self.bytes)
    }

    fn key(&self) -> u64 {
        key(self.local, if self.at == ZEROS { 0 } else { self.offset })
    }
}

/// Returns the search key of a range. Offset 0, which no range has, means the whole page.
fn key(local: u32, offset: u16) -> u64 {
    u64::from(local) << 16 | u64::from(offset)
}

/// An earlier state of a partition's undo. It holds the length that each buffer had at that time.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Mark {
    saves: usize,
    keyed: usize,
    arena: usize,
    ops: usize,
    popped: usize,
}

/// The undo of one partition.
#[derive(Default)]
pub(crate) struct PartUndo {
    partition: PartitionId,
    arena: Vec<u8>,
    pub(crate) saves: Vec<Save>,
    /// The index of the first save since the newest savepoint.
    floor: usize,
    /// The positions in `saves` of the saves since the newest savepoint. The search key of a save finds its position.
    /// The table is empty while the number of saves is at most `LINEAR_MAX`.
    seen: HashTable<usize>,
    /// The slots of which single cells were saved since the newest savepoint.
    narrow: Narrow,
    /// The number of saves whose pages belong to key-addressed tables.
    keyed: usize,
    any_born: bool,
    /// The page of the last call of [`born`](Self::born). Most rows in fresh pages are written to this page.
    born_last: Option<u32>,
    /// The search key and length of the last requested save. Neighbouring slots share a word of the bitmap, so
    /// successive requests are often for the same save.
    saved_last: Option<(u64, usize)>,
    pub(crate) ops: Vec<Op>,
    /// The items of [`Op::Popped`].
    popped: Vec<Entry>,
}

impl PartUndo {
    fn clear(&mut self) {
        self.arena.clear();
        self.arena.shrink_to(KEPT_BYTES);
        self.saves.clear();
        self.saves.shrink_to(KEPT_BYTES / size_of::<Save>());
        self.keyed = 0;
        self.forget_seen();
        self.ops.clear();
        self.ops.shrink_to(KEPT_BYTES / size_of::<Op>());
        self.popped.clear();
        self.popped.shrink_to(KEPT_BYTES / size_of::<Entry>());
    }

    /// Hides all present saves from later searches, so that every range is saved anew.
    #[inline]
    fn forget_seen(&mut self) {
        self.floor = self.saves.len();
        self.seen.clear();
        if !self.narrow.is_empty() {
            self.narrow.clear();
        }
        self.any_born = false;
        self.born_last = None;
        self.saved_last = None;
    }

    /// Returns a mark of the present state. From now on every range is saved anew.
    pub(crate) fn mark(&mut self) -> Mark {
        self.forget_seen();
        Mark {
            saves: self.saves.len(),
            keyed: self.keyed,
            arena: self.arena.len(),
            ops: self.ops.len(),
            popped: self.popped.len(),
        }
    }

    /// Returns the saves and operations since a mark.
    pub(crate) fn since(&self, mark: &Mark) -> (&[Save], &[Op]) {
        assert!(
            mark.saves <= self.saves.len() && mark.ops <= self.ops.len(),
            "a rollback ends the savepoints that were set later"
        );
        (&self.saves[mark.saves..], &self.ops[mark.ops..])
    }

    /// Discards the saves and operations since a mark. The caller has undone them.
    pub(crate) fn truncate(&mut self, mark: &Mark) {
        self.saves.truncate(mark.saves);
        self.arena.truncate(mark.arena);
        self.ops.truncate(mark.ops);
        self.popped.truncate(mark.popped);
        self.keyed = mark.keyed;
        self.forget_seen();
        debug_assert_eq!(self.saves.len(), mark.saves, "what is forgotten came later");
    }

    /// Returns the partition.
    pub(crate) fn partition(&self) -> PartitionId {
        self.partition
    }

    /// Notes that a key-addressed table owns the pages of all saves from index `saved` on.
    pub(crate) fn note_keyed(&mut self, saved: usize) {
        debug_assert!(saved <= self.saves.len(), "saves are added");
        self.keyed += self.saves.len() - saved;
        debug_assert!(self.keyed <= self.saves.len(), "a save is of one page");
    }

    /// Returns whether all saves are of pages of key-addressed tables.
    pub(crate) fn is_keyed(&self) -> bool {
        self.keyed == self.saves.len()
    }

    fn bytes(&self) -> usize {
        self.arena.capacity()
            + self.saves.capacity() * size_of::<Save>()
            + self.seen.allocation_size()
            + self.narrow.bytes()
            + self.ops.capacity() * size_of::<Op>()
            + self.popped.capacity() * size_of::<Entry>()
    }

    /// Notes that a page was never used before.
    pub(crate) fn born(&mut self, local: u32) {
        debug_assert!(!self.is_born(local), "a page is born once");
        self.any_born = true;
        self.born_last = Some(local);
        self.push(local, META_BYTES, PAGE_BYTES - META_BYTES, ZEROS);
        self.note_last();
    }

    /// Returns whether [`born`](Self::born) has noted a page since the newest savepoint. The ranges of such a page need
    /// no saves.
    pub(crate) fn is_born(&self, local: u32) -> bool {
        self.born_last == Some(local) || self.any_born && self.find(key(local, 0)).is_some()
    }

    /// Returns whether any range of a page was saved.
    pub(crate) fn changes(&self, local: u32) -> bool {
        self.saves.iter().any(|save| save.local == local)
    }

    /// Notes the items removed from an end of a list, in the order of removal.
    pub(crate) fn popped(&mut self, table: TableId, id: CollectionId, end: End, items: &[Entry]) {
        let from = self.popped.len();
        self.popped.extend_from_slice(items);
        self.ops.push(Op::Popped {
            table,
            id,
            end,
            items: PoppedItems {
                from,
                count: items.len(),
            },
        });
    }

    /// Returns the items of a removal, in the reverse order of their removal.
    pub(crate) fn popped_items(&self, items: PoppedItems) -> Vec<Entry> {
        let PoppedItems { from, count } = items;
        self.popped[from..from + count]
            .iter()
            .rev()
            .copied()
            .collect()
    }

    /// Saves a range of a page, unless it is already saved.
    pub(crate) fn save(&mut self, page: &[u8], local: u32, offset: usize, bytes: usize) {
        debug_assert!(offset >= META_BYTES && offset + bytes <= page.len());
        if self.born_last == Some(local) {
            return;
        }
        let at_offset = key(local, u16::try_from(offset).unwrap_or(0));
        if self.saved_last == Some((at_offset, bytes)) {
            return;
        }
        self.saved_last = Some((at_offset, bytes));
        let saved = self.holds(at_offset, bytes) || self.is_born(local);
        if saved {
            return;
        }
        let rest = if self.narrow.is_empty() {
            None
        } else {
            self.narrow.complete(at_offset, bytes)
        };
        match rest {
            None => self.add(page, local, offset..offset + bytes),
            Some(rest) => self.add_cells(page, local, offset..offset + bytes, rest),
        }
    }

    /// Saves cells of a slot, unless they are already saved.
    pub(crate) fn save_cells(
        &mut self,
        page: &[u8],
        local: u32,
        slot: std::ops::Range<usize>,
        cells: Cells,
    ) {
        let at_offset = key(local, u16::try_from(slot.start).unwrap_or(0));
        let bytes = slot.len();
        let saved = self.holds(at_offset, bytes) && !armed(Flaw::RangeInsideSave);
        if saved || self.is_born(local) {
            return;
        }
        match self.narrow.add(at_offset, bytes, cells) {
            Some(new) => self.add_cells(page, local, slot, new),
            None => self.add(page, local, slot),
        }
    }

    fn add_cells(&mut self, page: &[u8], local: u32, slot: std::ops::Range<usize>, cells: Cells) {
        for range in ranges(cells, slot.len()) {
            self.copy(
                page,
                local,
                slot.start + range.start..slot.start + range.end,
            );
        }
    }

    fn add(&mut self, page: &[u8], local: u32, range: std::ops::Range<usize>) {
        self.copy(page, local, range);
        self.note_last();
    }

    #[inline]
    fn copy(&mut self, page: &[u8], local: u32, range: std::ops::Range<usize>) {
        let at = self.arena.len();
        self.arena.extend_from_slice(&page[range.clone()]);
        self.push(local, range.start, range.len(), at);
    }

    /// Returns whether a save at the range's offset covers the range.
    fn holds(&self, key: u64, bytes: usize) -> bool {
        let found = self.find(key);
        found.is_some_and(|save| usize::from(save.bytes) >= bytes)
    }

    fn find(&self, key: u64) -> Option<&Save> {
        let saves = &self.saves[self.floor..];
        if saves.len() <= LINEAR_MAX {
            return saves.iter().rev().find(|s| s.key() == key);
        }
        let found = self
            .seen
            .find(mix64(key), |i| self.saves[*i].key() == key)?;
        self.saves.get(*found)
    }

    #[inline]
    fn push(&mut self, local: u32, offset: usize, bytes: usize, at: usize) {
        let offset = u16::try_from(offset).expect("an offset in a page");
        let bytes = u16::try_from(bytes).expect("a length in a page");
        self.saves.push(Save {
            local,
            offset,
            bytes,
            at,
        });
        if self.saves.len() - self.floor == LINEAR_MAX + 1 {
            for i in self.floor..self.saves.len() {
                self.note_seen(i);
            }
        }
    }

    /// Makes the newest save visible to searches by key. Saves of single cells are found through `narrow` instead.
    fn note_last(&mut self) {
        let count = self.saves.len();
        if count - self.floor > LINEAR_MAX + 1 {
            self.note_seen(count - 1);
        }
    }

    /// Makes save `i` visible to searches by key. Save `i` replaces a shorter save with the same key.
    fn note_seen(&mut self, i: usize) {
        let saves = &self.saves;
        let key = saves[i].key();
        match self.seen.find_mut(mix64(key), |j| saves[*j].key() == key) {
            Some(found) => *found = i,
            None => {
                self.seen
                    .insert_unique(mix64(key), i, |j| mix64(saves[*j].key()));
            }
        }
    }

    /// Returns the bytes that a saved range had before the change.
    pub(crate) fn before(&self, save: &Save) -> &[u8] {
        if save.at == ZEROS {
            &ZERO_PAGE[save.range()]
        } else {
            &self.arena[save.at..save.at + usize::from(save.bytes)]
        }
    }

    /// Keeps a copy of a key.
    pub(crate) fn copy_key(&mut self, key: &[u8]) -> KeyCopy {
        let at = self.arena.len();
        self.arena.extend_from_slice(key);
        KeyCopy {
            at,
            bytes: key.len(),
        }
    }

    /// Returns the copy of a key.
    pub(crate) fn key(&self, copy: KeyCopy) -> &[u8] {
        &self.arena[copy.at..copy.at + copy.bytes]
    }
}

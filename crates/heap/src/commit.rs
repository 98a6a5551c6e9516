//! The end of a transaction: records are encoded, or changes are rolled back.
//!
//! The record of a page is the XOR of the saved bytes and the bytes that the page now has in their place. Each record
//! raises the page's update number by one, so that a restart detects a lost or doubled record. A page with an empty
//! difference has no record. The transaction holds the latch from the first save until the group is in the log. So a
//! checkpoint visits a page before or after the whole transaction.
//!
//! # Source
//! Differential logging, algorithm 1. Here it runs at commit, under the partition's latch.

use std::cmp::Reverse;

use perdura_base::flaw::{Flaw, armed};
use perdura_page::layout::{self, META_BYTES, PageKind};
use perdura_page::record::RecordHead;

use crate::cells::list_open;
use crate::group::GroupBuilder;
use crate::ops::Op;
use crate::pages::{DIRTY_BOTH, flag};
use crate::partition::Partition;
use crate::undo::{Mark, PartUndo, Save, Undo};

/// Returns whether any saved ranges overlap. `saves` are indexes into `part.saves`, in the order of the ranges'
/// offsets.
fn meet(part: &PartUndo, saves: &[usize]) -> bool {
    let range = |i: usize| part.saves[i].range();
    saves
        .windows(2)
        .any(|pair| range(pair[0]).end > range(pair[1]).start)
}

/// Returns the saved ranges of a page, in the order of their offsets. Omits a range that lies in an older range. The
/// omitted ranges are moved to the end of the slice.
fn oldest<'a>(part: &PartUndo, saves: &'a mut [usize]) -> &'a mut [usize] {
    let mut kept = 0;
    for i in 0..saves.len() {
        let is_held = kept > 0 && {
            let (older, save) = (&part.saves[saves[kept - 1]], &part.saves[saves[i]]);
            saves[kept - 1] < saves[i] && save.range().end <= older.range().end
        };
        if !is_held || armed(Flaw::RangeInsideSave) {
            saves.swap(kept, i);
            kept += 1;
        }
    }
    &mut saves[..kept]
}

/// Appends to the group the difference between a page's saved bytes and its present bytes. `saves` are in the order of
/// the saved ranges' offsets. Returns the number of fragments.
fn difference(part: &PartUndo, saves: &mut [usize], page: &[u8], group: &mut GroupBuilder) -> u32 {
    let mut overlap = meet(part, saves);
    let mut saves = saves;
    if overlap {
        saves = oldest(part, saves);
        overlap = meet(part, saves);
    }
    if overlap {
        let mut before = std::mem::take(&mut group.before);
        before.clear();
        before.extend_from_slice(page);
        if armed(Flaw::RangeInsideSave) {
            saves.sort_unstable();
        } else {
            saves.sort_unstable_by_key(|i| Reverse(*i));
        }
        for save in saves.iter().map(|i| &part.saves[*i]) {
            before[save.range()].copy_from_slice(part.before(save));
        }
        let mut fragments = group.fragments();
        fragments.range(META_BYTES, &before[META_BYTES..], &page[META_BYTES..]);
        let count = fragments.count();
        group.before = before;
        count
    } else {
        let mut fragments = group.fragments();
        for save in saves.iter().map(|i| &part.saves[*i]) {
            fragments.range(
                usize::from(save.offset),
                part.before(save),
                &page[save.range()],
            );
        }
        fragments.count()
    }
}

impl Partition {
    /// Appends this partition's records of a transaction that commits. Computes the differences, raises the update
    /// numbers, and marks the pages dirty for each image slot. The caller makes this call once, after the transaction's
    /// last change.
    pub fn encode(&mut self, undo: &Undo, group: &mut GroupBuilder) {
        let Some(part) = undo.part(self.id()) else {
            return;
        };
        let mut order = std::mem::take(&mut group.order);
        order.clear();
        order.extend(0..part.saves.len());
        if part.is_keyed() {
            // Pages of key-addressed tables have no records. But if an open cut needs a page, the page's overwritten
            // bytes are kept.
            order.retain(|i| self.is_kept_for_cuts(part.saves[*i].local));
            order.sort_unstable_by_key(|i| (part.saves[*i].local, *i));
            for of_page in order.chunk_by(|a, b| part.saves[*a].local == part.saves[*b].local) {
                self.keep(part, of_page);
            }
            self.mark_changed(part);
        } else {
            let place = |i: &usize| (part.saves[*i].local, part.saves[*i].offset, *i);
            if !order.is_sorted_by_key(place) {
                order.sort_unstable_by_key(place);
            }
            for of_page in order.chunk_by_mut(|a, b| part.saves[*a].local == part.saves[*b].local) {
                self.encode_page(part, of_page, group);
            }
        }
        group.order = order;
    }

    /// Marks as dirty the pages that a transaction changed. They belong to key-addressed tables and have no records.
    fn mark_changed(&mut self, part: &PartUndo) {
        for save in &part.saves {
            debug_assert!(
                self.pages.has_flag(save.local, flag::KEYED),
                "a page of a key-addressed table"
            );
            self.pages.state(save.local).dirty = DIRTY_BOTH;
        }
    }

    fn encode_page(&mut self, part: &PartUndo, saves: &mut [usize], group: &mut GroupBuilder) {
        let local = part.saves[saves[0]].local;
        debug_assert!(
            saves.iter().all(|i| part.saves[*i].local == local),
            "a record changes one page"
        );
        if self.pages.has_flag(local, flag::KEYED) {
            self.keep(part, saves);
            self.pages.state(local).dirty = DIRTY_BOTH;
            return;
        }
        let fragments = difference(part, saves, self.pages.page(local), group);
        if fragments == 0 {
            return;
        }
        self.keep(part, saves);
        let page = self.pages.page(local);
        let tag = if armed(Flaw::TagFromClock) {
            self.pages.ckpt_epoch()
        } else {
            layout::epoch(page)
        };
        debug_assert_eq!(
            layout::page_id(page),
            self.pages.page_id(local),
            "I1: the page that gets tag and number is under this partition's latch"
        );
        let useq = layout::useq(page).next();
        layout::set_useq(self.pages.page_mut(local), useq);
        self.pages.state(local).dirty = DIRTY_BOTH;
        let page = self.pages.page_id(local);
        group.push(
            self.id(),
            RecordHead {
                page,
                useq,
                tag,
                fragments,
            },
        );
    }

    /// Undoes this partition's changes of a transaction, the latest first. Afterwards the pages are byte for byte as
    /// before the transaction. Nothing is logged.
    pub fn rollback(&mut self, undo: &Undo) {
        if let Some(part) = undo.part(self.id()) {
            self.take_back_to(part, &Mark::default());
        }
    }

    /// Undoes the changes since a mark.
    pub(crate) fn take_back_to(&mut self, part: &PartUndo, mark: &Mark) {
        let (saves, ops) = part.since(mark);
        #[cfg(feature = "flaws")]
        if armed(Flaw::AbortKeepsDirtyBit) {
            self.cuts.leave_bits(saves);
        }
        let mut restore = |save: &Save| {
            let page = self.pages.page_mut(save.local);
            page[save.range()].copy_from_slice(part.before(save));
        };
        if armed(Flaw::RangeInsideSave) {
            saves.iter().for_each(&mut restore);
        } else {
            saves.iter().rev().for_each(&mut restore);
        }
        for op in ops.iter().rev() {
            self.take_back(part, op);
        }
        for save in saves {
            self.pages.resync(save.local);
            let page = self.pages.page(save.local);
            if let (Some(PageKind::Slotted), Some(class)) =
                (layout::kind(page), layout::class(page))
                && let Some(table) = self.tables.get_mut(layout::table(page))
            {
                list_open(&mut self.pages, table, save.local, class);
            }
        }
        for table in self.tables.values_mut() {
            table.account(&self.pages.memory);
        }
    }

    fn take_back(&mut self, part: &PartUndo, op: &Op) {
        let second = self.now_second;
        let Some(table) = self.tables.get_mut(op.table()) else {
            return;
        };
        match *op {
            Op::Inserted { entry, key, .. } => table.remove(entry, part.key(key)),
            Op::Removed { entry, key, .. } => {
                table.insert(entry, second, part.key(key));
            }
            Op::IndexAdded { .. } if armed(Flaw::IndexEntryKeptAfterAbort) => {}
            Op::IndexAdded { index, key, .. } => {
                let was_there = table.secondary[usize::from(index)].remove(part.key(key));
                debug_assert!(was_there, "the entry that the transaction added");
            }
            Op::IndexRemoved {
                index, entry, key, ..
            } => {
                let is_new = table.secondary[usize::from(index)].insert(part.key(key), entry);
                debug_assert!(is_new, "the entry that the transaction removed");
            }
            Op::ExpiryAdded {
                entry, expiry_ms, ..
            } => {
                let was_there = table.expiries.remove(&(expiry_ms, entry));
                debug_assert!(was_there, "the expiry that the transaction added");
            }
            Op::ExpiryRemoved {
                entry, expiry_ms, ..
            } => {
                let is_new = table.expiries.insert((expiry_ms, entry));
                debug_assert!(is_new, "the expiry that the transaction removed");
            }
            Op::Edited { id, inverse, .. } => {
                table.collections.edit(id, inverse);
            }
            Op::Pushed { id, end, count, .. } => {
                table.collections.pop_items(id, end, count);
            }
            Op::Popped { id, end, items, .. } => {
                let items = part.popped_items(items);
                table.collections.push_items(id, end, &items);
            }
            Op::Made { id, .. } => {
                table.collections.unmake(id);
            }
            Op::Unmade {
                id, shape, owner, ..
            } => table.collections.make(id, shape, owner),
            Op::Orphaned { .. } if armed(Flaw::OrphanNotAdopted) => {}
            Op::Orphaned { id, .. } => table.collections.adopt(id),
            Op::Claimed { .. } if armed(Flaw::DraftStaysClaimed) => {}
            Op::Claimed { id, .. } => table.collections.disclaim(id),
        }
    }
}

//! The end of a transaction: its records, or its undoing.
//!
//! A page's record is the XOR of its saved ranges with what they hold now. The update number
//! moves by one per record, so that a lost or doubled record shows at restart; a page whose
//! difference is empty has no record. The latch is held from the first save to the encoding and
//! until the group is in the log, so that a checkpoint's visit falls before or after all of it.
//!
//! # Source
//! Differential logging, algorithm 1; executed at commit, under the partition's latch.

use std::cmp::Reverse;

use perdura_base::flaw::{Flaw, armed};
use perdura_page::layout::{self, META_BYTES, PageKind};
use perdura_page::record::RecordHead;

use crate::cells::list_open;
use crate::group::GroupBuilder;
use crate::pages::DIRTY_BOTH;
use crate::partition::Partition;
use crate::undo::{Op, PartUndo, Undo};

impl Partition {
    /// Appends this partition's records of a transaction that commits: computes the differences,
    /// moves update numbers, marks pages dirty for both images. To be called once, after the
    /// transaction's last change.
    pub fn encode(&mut self, undo: &Undo, group: &mut GroupBuilder) {
        let Some(part) = undo.part(self.id()) else {
            return;
        };
        let mut order = std::mem::take(&mut group.order);
        order.clear();
        order.extend(0..part.saves.len());
        order.sort_unstable_by_key(|i| (part.saves[*i].local, part.saves[*i].offset, *i));
        for of_page in order.chunk_by_mut(|a, b| part.saves[*a].local == part.saves[*b].local) {
            self.encode_page(part, of_page, group);
        }
        group.order = order;
    }

    fn encode_page(&mut self, part: &PartUndo, saves: &mut [usize], group: &mut GroupBuilder) {
        let local = part.saves[saves[0]].local;
        debug_assert!(
            saves.iter().all(|i| part.saves[*i].local == local),
            "a record changes one page"
        );
        let page = self.pages.page(local);
        let overlap = saves
            .windows(2)
            .any(|w| part.saves[w[0]].range().end > part.saves[w[1]].range().start);
        let fragments = if overlap {
            let mut before = std::mem::take(&mut group.before);
            before.clear();
            before.extend_from_slice(page);
            saves.sort_unstable_by_key(|i| Reverse(*i));
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
        };
        if fragments == 0 {
            return;
        }
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

    /// Takes back this partition's changes of a transaction, latest first. The pages are byte for
    /// byte as before; nothing is logged.
    pub fn rollback(&mut self, undo: &Undo) {
        let Some(part) = undo.part(self.id()) else {
            return;
        };
        for save in part.saves.iter().rev() {
            let page = self.pages.page_mut(save.local);
            page[save.range()].copy_from_slice(part.before(save));
        }
        for op in part.ops.iter().rev() {
            self.take_back(part, op);
        }
        for save in &part.saves {
            self.pages.resync(save.local);
            let page = self.pages.page(save.local);
            if let (Some(PageKind::Slotted), Some(class)) =
                (layout::kind(page), layout::class(page))
                && let Some(table) = self.tables.get_mut(&layout::table(page))
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
        let Some(table) = self.tables.get_mut(&op.table()) else {
            return;
        };
        match *op {
            Op::Inserted { entry, key, .. } => table.remove(entry, part.key(key)),
            Op::Removed { entry, key, .. } => {
                table.insert(entry, second, || part.key(key).into());
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

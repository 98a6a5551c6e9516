//! Freeing the chains of removed long values, a piece at a time.
//!
//! A string may have hundreds of megabytes, in tens of thousands of pages. If the key's removal freed these pages, the
//! removal would log every page. Instead the removal makes the chain the only item of a new list, which is an orphan.
//! The purge frees the chain from its front. After each step the item's row names the rest of the chain.

use perdura_base::flaw::{Flaw, armed};
use perdura_base::limits::VALUE_BYTES_MAX;
use perdura_base::{Result, TableId};
use perdura_page::layout::CHAIN_BYTES;
use perdura_page::{Kind, Row, Shape};

use crate::address::TableCollection;
use crate::cells::{self, ChainPlace, Span, chain_of, free_chain, release_slot};
use crate::collection::Index;
use crate::edit::{Edit, Owner};
use crate::entry::Entry;
use crate::index::Table;
use crate::lists::{ItemPlace, label_of};
use crate::members::edit;
use crate::ops::Op;
use crate::pages::Pages;
use crate::partition::Partition;
use crate::rows::not_attached;
use crate::undo::{PartUndo, Undo};

impl Partition {
    /// Frees the chain of a removed row. If the chain is long, leaves it to the purge.
    pub(crate) fn let_chain_go(&mut self, undo: &mut Undo, id: TableId, chain: ChainPlace) {
        let Some(Span { bytes, .. }) = chain else {
            return;
        };
        let is_long = bytes.div_ceil(CHAIN_BYTES) > self.orphan_limits.chain_pages;
        // If there is no memory for the row of the item, the pages are freed at once, which makes memory available.
        if is_long && bytes <= VALUE_BYTES_MAX && self.orphan_chain(undo, id, chain).is_ok() {
            return;
        }
        let part = undo.part_mut(self.pages.id);
        free_chain(&mut self.pages, part, chain);
    }

    /// Makes an orphaned list that has a chain as its only item.
    fn orphan_chain(&mut self, undo: &mut Undo, id: TableId, chain: ChainPlace) -> Result<()> {
        let list = self.make_collection(undo, id, Shape::List)?;
        let part = undo.part_mut(self.pages.id);
        let pages = &mut self.pages;
        let table = self.tables.get_mut(id).ok_or_else(|| not_attached(id))?;
        let to = ItemPlace {
            list: TableCollection::new(id, list),
            label: 0,
            old: None,
        };
        let placed = write_item(pages, table, part, to, chain);
        match placed {
            Ok(entry) => {
                edit(table, part, id, list, Edit::ItemAdd(0, entry));
                table.collections.orphan(list);
                part.ops.push(Op::Orphaned {
                    table: id,
                    id: list,
                });
            }
            Err(_) => {
                part.ops.push(Op::Unmade {
                    table: id,
                    id: list,
                    shape: Shape::List,
                    owner: Owner::Header,
                });
                table.collections.unmake(list);
            }
        }
        table.account(&pages.memory);
        placed.map(drop)
    }
}

/// Writes the row of an item that has a chain. The row replaces the old row or goes to a new slot.
pub(crate) fn write_item(
    pages: &mut Pages,
    table: &mut Table,
    part: &mut PartUndo,
    to: ItemPlace,
    chain: ChainPlace,
) -> Result<Entry> {
    let Span { first, bytes } = chain.unwrap_or_default();
    let key = to.key();
    let hash = pages.geometry.hash(key.bytes());
    let row = Row::large(key.bytes(), bytes, first, hash.0, None);
    let row = row.with_kind(Kind::Element(Shape::List));
    cells::place(pages, table, part, to.destination(), &row)
}

/// Frees the first `most` pages of a chain. The chain belongs to the last item of an orphaned list. If the chain has at
/// most `most` pages, or is damaged, frees nothing and returns false.
pub(crate) fn trim(
    pages: &mut Pages,
    table: &mut Table,
    part: &mut PartUndo,
    of: TableCollection,
    most: usize,
) -> bool {
    let TableCollection {
        table: id,
        id: list,
    } = of;
    let found = table.collections.get(list);
    let Some(Index::Items(items)) = found.map(|found| &found.index) else {
        return false;
    };
    let Some((at, entry)) = items.len().checked_sub(1).map(|at| (at, items[at])) else {
        return false;
    };
    let chain = pages.row(entry).as_ref().and_then(chain_of);
    let (Some(Span { first, bytes }), Some(label)) = (chain, label_of(pages, entry)) else {
        return false;
    };
    if bytes.div_ceil(CHAIN_BYTES) <= most || most == 0 {
        return false;
    }
    let mut rest = pages.chain(first, bytes);
    let gone: Vec<u32> = rest.by_ref().take(most).map(|(local, _)| local).collect();
    // If the chain is damaged, it has no rest. The caller then frees all pages that can be found.
    let Some(next) = rest.rest().filter(|_| gone.len() == most) else {
        return false;
    };
    assert!(
        next.bytes < bytes,
        "a chain that is trimmed becomes shorter"
    );
    if !armed(Flaw::TrimNotNoted) {
        let to = ItemPlace {
            list: of,
            label,
            old: Some(entry),
        };
        let Ok(moved) = write_item(pages, table, part, to, Some(next)) else {
            return false;
        };
        if moved != entry {
            edit(table, part, id, list, Edit::ItemMove(at, moved));
            release_slot(pages, table, part, entry);
        }
    }
    for local in gone {
        pages.free_page(part, local);
    }
    true
}

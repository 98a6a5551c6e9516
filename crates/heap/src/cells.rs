//! Rows in slots: composing, placing and freeing. This code is independent of the index that finds rows.
//!
//! A row is overwritten in place if the new row needs exactly the class of the slot. Otherwise the new row is written
//! to a new slot first, and the caller frees the old slot afterwards. So if memory is refused, no index has been
//! changed yet. Freeing a slot flips one bit and leaves the slot's content. Keys and elements of a table share its
//! pages.

use perdura_base::{PageId, Result, TableId};
use perdura_page::layout::{self, HEADER_BYTES};
use perdura_page::row::{HEAD_KEY_BYTES_MAX, inline_class};
use perdura_page::{Kind, PageKind, Place, Row, SlotClass};

use crate::address::TableKey;
use crate::entry::Entry;
use crate::geometry::KeyHash;
use crate::index::Table;
use crate::pages::{Pages, flag};
use crate::undo::PartUndo;

/// A chain of pages, or the rest of one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Span {
    /// The first page of the chain.
    pub(crate) first: PageId,
    /// The bytes of the chain's content.
    pub(crate) bytes: usize,
}

/// The chain of a row, if it has one.
pub(crate) type ChainPlace = Option<Span>;

pub(crate) fn chain_of(row: &Row<'_>) -> ChainPlace {
    match row.place {
        Place::Inline { .. } => None,
        Place::Large { first, .. } => Some(Span {
            first,
            bytes: row.chain_bytes(),
        }),
    }
}

/// A key or element to be written.
#[derive(Debug, Clone, Copy)]
pub struct NewRow<'a> {
    /// The kind of the row.
    pub kind: Kind,
    /// The key of the row.
    pub key: &'a [u8],
    /// The hash of the key.
    pub hash: KeyHash,
    /// The bytes of the value.
    pub value: &'a [u8],
    /// The expiry time of the row, if the row expires.
    pub expiry_ms: Option<u64>,
}

impl<'a> NewRow<'a> {
    /// Returns the row of a key.
    #[must_use]
    pub fn of(at: TableKey<'a>, kind: Kind, value: &'a [u8], expiry_ms: Option<u64>) -> NewRow<'a> {
        let TableKey { key, hash, .. } = at;
        NewRow {
            kind,
            key,
            hash,
            value,
            expiry_ms,
        }
    }
}

/// The destination of a row that is to be written.
#[derive(Clone, Copy)]
pub(crate) struct Destination {
    /// The table of the row.
    pub(crate) table: TableId,
    /// The hash that the row's entry carries.
    pub(crate) hash: KeyHash,
    /// The entry that the row has before the write; `None` for a new row.
    pub(crate) old: Option<Entry>,
}

/// Composes a row. Content that does not fit a slot goes to a chain of fresh pages.
pub(crate) fn compose<'a>(
    pages: &mut Pages,
    part: &mut PartUndo,
    table: TableId,
    new: &NewRow<'a>,
) -> Result<Row<'a>> {
    let NewRow { key, value, .. } = *new;
    if inline_class(key.len(), value.len(), new.expiry_ms.is_some()).is_some() {
        return Ok(Row::inline(key, value, new.expiry_ms).with_kind(new.kind));
    }
    let chain_key = if key.len() > HEAD_KEY_BYTES_MAX {
        key
    } else {
        &[]
    };
    let first = pages.write_chain(part, table, [chain_key, value])?;
    Ok(Row::large(key, value.len(), first, new.hash.0, new.expiry_ms).with_kind(new.kind))
}

/// Writes a row. Overwrites the old row if its slot has the right class; otherwise takes a new slot. The old row's
/// slot and chain are not freed.
pub(crate) fn place(
    pages: &mut Pages,
    table: &mut Table,
    part: &mut PartUndo,
    to: Destination,
    row: &Row<'_>,
) -> Result<Entry> {
    let Destination {
        table: id,
        hash,
        old,
    } = to;
    let class = SlotClass::for_bytes(row.bytes()).expect("a head or an inline row has a class");
    if let Some(entry) = old.filter(|entry| pages.class(entry.local()) == class) {
        write_slot(pages, part, class, entry, row);
        return Ok(entry);
    }
    let local = match (open_page(pages, table, part, id, class), old) {
        (Ok(local), _) => local,
        // A row that becomes shorter is never refused: deleting must work when memory is full.
        (Err(_), Some(entry)) if pages.class(entry.local()).bytes() >= row.bytes() => {
            let wide = pages.class(entry.local());
            write_slot(pages, part, wide, entry, row);
            return Ok(entry);
        }
        (Err(error), _) => return Err(error),
    };
    let slot = layout::first_free(pages.page(local), class).expect("an open page");
    let entry = Entry::new(hash, local, slot);
    // The bitmap lies before the slots, so the saves are in the order of their offsets, as the commit needs them.
    save_bit(pages, part, local, slot);
    write_slot(pages, part, class, entry, row);
    layout::set_taken(pages.page_mut(local), slot, true);
    pages.state(local).free_slots -= 1;
    debug_assert!(
        pages.counts_free_slots(local),
        "the bitmap has as many zeros"
    );
    Ok(entry)
}

/// Composes a row and writes it like [`place`]. The old row's slot and chain are not freed.
pub(crate) fn write(
    pages: &mut Pages,
    table: &mut Table,
    part: &mut PartUndo,
    to: Destination,
    new: &NewRow<'_>,
) -> Result<Entry> {
    let row = compose(pages, part, to.table, new)?;
    let placed = place(pages, table, part, to, &row);
    if placed.is_err() {
        free_chain(pages, part, chain_of(&row));
    }
    placed
}

pub(crate) fn free_chain(pages: &mut Pages, part: &mut PartUndo, chain: ChainPlace) {
    if let Some(Span { first, bytes }) = chain {
        pages.free_chain(part, first, bytes);
    }
}

fn write_slot(
    pages: &mut Pages,
    part: &mut PartUndo,
    class: SlotClass,
    entry: Entry,
    row: &Row<'_>,
) {
    let local = entry.local();
    let at = class.slot_offset(entry.slot());
    debug_assert!(row.bytes() <= class.bytes(), "a row fits its slot");
    part.save(pages.page(local), local, at, class.bytes());
    row.encode(&mut pages.page_mut(local)[at..at + class.bytes()]);
}

pub(crate) fn save_bit(pages: &Pages, part: &mut PartUndo, local: u32, slot: usize) {
    part.save(pages.page(local), local, HEADER_BYTES + slot / 64 * 8, 8);
}

/// Returns a page of this table and slot class that has a free slot. Takes a fresh page if no page has a free slot.
pub(crate) fn open_page(
    pages: &mut Pages,
    table: &mut Table,
    part: &mut PartUndo,
    id: TableId,
    class: SlotClass,
) -> Result<u32> {
    let list = table.open_list(class);
    while let Some(local) = list.last().copied() {
        let page = pages.page(local);
        let open = layout::kind(page) == Some(PageKind::Slotted)
            && layout::table(page) == id
            && layout::class(page) == Some(class);
        if open && pages.state(local).free_slots > 0 {
            return Ok(local);
        }
        list.pop();
        pages.state(local).flags &= !flag::OPEN;
    }
    pages.check_room(id, 1)?;
    let local = pages.take(part, id)?;
    pages.format_slotted(part, local, id, class);
    debug_assert_eq!(layout::taken_count(pages.page(local), class), 0);
    pages.state(local).flags |= flag::OPEN;
    list.push(local);
    Ok(local)
}

/// Frees a slot. If no other slot of its page is taken, frees the page too.
pub(crate) fn release_slot(
    pages: &mut Pages,
    table: &mut Table,
    part: &mut PartUndo,
    entry: Entry,
) {
    let (local, slot) = (entry.local(), entry.slot());
    debug_assert!(
        layout::is_taken(pages.page(local), slot),
        "an index names it"
    );
    save_bit(pages, part, local, slot);
    layout::set_taken(pages.page_mut(local), slot, false);
    pages.state(local).free_slots += 1;
    debug_assert!(
        pages.counts_free_slots(local),
        "the bitmap has as many zeros"
    );
    let class = pages.class(local);
    if usize::from(pages.state(local).free_slots) == class.slots() {
        pages.free_page(part, local);
    } else {
        list_open(pages, table, local, class);
    }
}

/// Puts a page with free slots on its open list, unless the list has the page already.
pub(crate) fn list_open(pages: &mut Pages, table: &mut Table, local: u32, class: SlotClass) {
    let state = pages.state(local);
    if state.free_slots > 0 && state.flags & flag::OPEN == 0 {
        state.flags |= flag::OPEN;
        table.open_list(class).push(local);
    }
}

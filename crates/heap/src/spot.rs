//! The place where one function has found a row, kept for the next function that needs the row.
//!
//! A function that changes a row usually runs after a function that has read the row. The reading function returns the
//! row's place, so the changing function need not search the index. The place is only a hint. It is checked, and if the
//! row is no longer there, the row is searched for as usual.

use crate::entry::Entry;
use crate::geometry::KeyHash;
use crate::hash_index::{HashIndex, Place};
use crate::pages::{Located, Pages};
use crate::partition::Partition;
use crate::row_ref::RowRef;
use perdura_base::TableId;

/// The place of a row's entry in the table's index, as a search has found it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Spot {
    place: Place,
    entry: Entry,
}

impl Partition {
    /// Like [`peek`](Self::peek), but also returns where the row was found.
    #[must_use]
    pub fn peek_spot(
        &self,
        table: TableId,
        key: &[u8],
        hash: KeyHash,
    ) -> Option<(Spot, RowRef<'_>)> {
        let table = self.tables.get(table)?;
        let found = self.pages.locate(&table.hash, key, hash)?;
        let (place, entry) = (found.place, found.entry);
        Some((Spot { place, entry }, RowRef::new(&self.pages, found.row)))
    }
}

impl Pages {
    /// Finds a row. Looks at `spot` first, if a spot is given.
    pub(crate) fn locate_at(
        &self,
        index: &HashIndex,
        spot: Option<Spot>,
        key: &[u8],
        hash: KeyHash,
    ) -> Option<Located<'_>> {
        if let Some(Spot { place, entry }) = spot
            && index.place(place) == Some(entry)
            && let Some(row) = self.row(entry)
            && self.key_is(&row, key, hash)
        {
            return Some(Located { place, entry, row });
        }
        self.locate(index, key, hash)
    }
}

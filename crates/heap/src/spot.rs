//! The place where a verb has found a row, for the next verb on the same key.
//!
//! A verb that changes a row reads it first. It is spared the second look into the index if it has the place where the
//! first one found the row. That is a hint: the place is checked, and a row that is no longer there is looked for as
//! usual.

use crate::entry::Entry;
use crate::geometry::KeyHash;
use crate::hash_index::{HashIndex, Place};
use crate::pages::{Located, Pages};
use crate::partition::Partition;
use crate::row_ref::RowRef;
use perdura_base::TableId;

/// The place where a row was found in the index of its table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Spot {
    place: Place,
    entry: Entry,
}

impl Partition {
    /// Like [`peek`](Self::peek), with the row's place.
    #[must_use]
    pub fn peek_spot(
        &self,
        table: TableId,
        key: &[u8],
        hash: KeyHash,
    ) -> Option<(Spot, RowRef<'_>)> {
        let table = self.tables.get(&table)?;
        let found = self.pages.locate(&table.hash, key, hash)?;
        let (place, entry) = (found.place, found.entry);
        Some((Spot { place, entry }, RowRef::new(&self.pages, found.row)))
    }
}

impl Pages {
    /// Finds a row, first at a spot.
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

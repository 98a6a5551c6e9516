//! Remembers where a verb found a row, for the next verb on the same key.
//!
//! A verb that changes a row usually follows a verb that has read it. With the place where the first verb found the
//! row, the second one skips the search in the index. The place is only a hint: it is checked, and a row that is no
//! longer there is searched for as usual.

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
    /// Like [`peek`](Self::peek), but also returns where the row was found.
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
    /// Finds a row; looks at `spot` first, if there is one.
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

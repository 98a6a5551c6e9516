//! Verbs of typed tables that save lookups. A first verb finds a row and returns its place, and a second verb uses the
//! place. Another verb prefetches rows before they are looked up.

use perdura_base::{PartitionId, Result};
use perdura_heap::{KeyHash, RowRef, Spot, TableKey, ahead};

use crate::tx::Tx;
use crate::typed::TypedTable;

/// The result of looking up a key: the place of the key's row, or the fact that no row exists. Valid only for the
/// transaction, table and key of the lookup.
#[derive(Debug, Clone, Copy)]
pub struct TypedSpot {
    home: PartitionId,
    /// The index of the partition's guard in the transaction.
    at: usize,
    hash: KeyHash,
    spot: Option<Spot>,
}

impl Tx<'_> {
    /// Returns a spot for a key without looking up the key's row.
    pub(crate) fn unseen(
        &self,
        table: TypedTable,
        home: PartitionId,
        key: &[u8],
    ) -> Result<TypedSpot> {
        let (at, hash) = self.home(table, home, key)?;
        Ok(TypedSpot {
            home,
            at,
            hash,
            spot: None,
        })
    }

    /// Like [`typed_get`](Self::typed_get), but also returns the row's place, for use by
    /// [`typed_overwrite_at`](Self::typed_overwrite_at) and [`typed_insert_at`](Self::typed_insert_at).
    ///
    /// # Errors
    /// As [`typed_get`](Self::typed_get).
    pub fn typed_find(
        &self,
        table: TypedTable,
        home: PartitionId,
        key: &[u8],
    ) -> Result<(TypedSpot, Option<RowRef<'_>>)> {
        let _verb = self.verb();
        let (at, hash) = self.home(table, home, key)?;
        let (spot, row) = self.guards[at].1.peek_spot(table.id, key, hash).unzip();
        let spot = TypedSpot {
            home,
            at,
            hash,
            spot,
        };
        Ok((spot, row))
    }

    /// Inserts a row with a key that a lookup did not find. `spot` is the result of that lookup.
    ///
    /// # Errors
    /// As [`put`](Self::put).
    pub fn typed_insert_at(
        &mut self,
        table: TypedTable,
        spot: TypedSpot,
        key: &[u8],
        value: &[u8],
    ) -> Result<()> {
        let _verb = self.verb();
        debug_assert_eq!(spot.spot, None, "the key was not found");
        self.check_write(key, value.len())?;
        self.note_home(table, spot.home);
        let admitted = key.len() + value.len() + Self::ROW_BYTES;
        self.change(spot.at, admitted, |part, undo| {
            part.insert(undo, TableKey::new(table.id, key, spot.hash), value)
        })
    }

    /// Overwrites a row, like [`typed_overwrite`](Self::typed_overwrite). `spot` is the result of an earlier lookup of
    /// the row, and saves a second lookup.
    ///
    /// # Errors
    /// As [`put`](Self::put).
    pub fn typed_overwrite_at(
        &mut self,
        table: TypedTable,
        spot: TypedSpot,
        key: &[u8],
        value: &[u8],
    ) -> Result<bool> {
        let _verb = self.verb();
        self.check_write(key, value.len())?;
        self.note_home(table, spot.home);
        let admitted = key.len() + value.len() + Self::ROW_BYTES;
        self.change(spot.at, admitted, |part, undo| {
            let to = TableKey::new(table.id, key, spot.hash);
            part.overwrite_at(undo, to, spot.spot, value)
        })
    }

    /// Prefetches the memory of rows that this transaction will use, a few at a time; see [`perdura_heap::ahead`]. This
    /// is only a hint. It skips partitions that are not latched.
    pub fn typed_look_ahead(
        &self,
        keys: impl Iterator<Item = (TypedTable, PartitionId, impl AsRef<[u8]>)>,
    ) {
        let keys = keys.filter_map(|(table, home, key)| {
            let at = self
                .guards
                .binary_search_by_key(&home, |(id, _)| *id)
                .ok()?;
            let hash = self.geometry.hash_in(home, key.as_ref());
            Some((&*self.guards[at].1, table.id, hash))
        });
        ahead::touch(keys.take(ahead::AHEAD_KEYS));
    }
}

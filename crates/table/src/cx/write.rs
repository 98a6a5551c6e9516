//! Verbs that write whole rows, and the code shared by all writing verbs. The shared code changes all copies of a row,
//! checks unique indexes and notes effects.

use std::ops::Bound;

use perdura_base::cursor::Reader;
use perdura_base::{Error, PartitionId, Result};
use perdura_formats::ordered::Op;
use perdura_heap::Which;
use perdura_txn::{RowHome, TypedSpot, ValueForm};

use super::{Cx, Placed};
use crate::column::{KeyType, RowId};
use crate::key::{KeyBytes, successor};
use crate::prefix::WholeKey;
use crate::registry::Entry;
use crate::table::Table;

/// A change of a row: its value before and after.
#[derive(Clone, Copy)]
pub(super) struct Rewrite<'a> {
    /// The value before the change; `None` if no index and no log record needs it.
    pub(super) before: Option<&'a [u8]>,
    /// The value after the change.
    pub(super) after: &'a [u8],
}

impl Cx<'_, '_> {
    /// Inserts a row.
    ///
    /// # Errors
    /// [`Error::Usage`] if another row has the same key, or the same values in all columns of a unique index.
    /// [`Error::Usage`] if the database does not have the table. [`Error::Undeclared`], which the closure must return;
    /// [`Error::OutOfMemory`], [`Error::LogFull`].
    pub fn insert<T: Table>(&mut self, row: &T) -> Result<()> {
        if T::KEYLESS {
            return self.append_row(row).map(|_| ());
        }
        let entry = self.entry::<T>()?;
        let placed = self.place_row(row);
        let home = self.read_at(placed.home);
        let key = placed.key.as_slice();
        let (spot, found) = self.tx.typed_find(entry.table, home, key)?;
        if found.is_some() {
            return Err(duplicate(entry, key));
        }
        self.insert_encoded(entry, &placed, Some(spot), row)
    }

    /// Inserts a row into a table without key columns and returns the row's id. The row is stored in the first
    /// partition that the transaction has latched.
    ///
    /// # Errors
    /// As [`insert`](Self::insert).
    pub fn append<T: Table>(&mut self, row: &T) -> Result<RowId> {
        const { assert!(T::KEYLESS, "only rows without key columns have ids") };
        self.append_row(row)
    }

    fn append_row<T: Table>(&mut self, row: &T) -> Result<RowId> {
        let entry = self.entry::<T>()?;
        let home = self.first_latched();
        if !entry.table.keyed && !self.tx.has_row_counter(home)? {
            self.begin_row_ids(home)?;
        }
        let number = self.tx.next_row_id(entry.table, home)?;
        let id = RowId::new(number, home)
            .ok_or_else(|| Error::Usage(format!("table {:?} has no row ids left", T::NAME)))?;
        let mut key = KeyBytes::new();
        RowId::put_key(id, &mut key);
        let home = RowHome::One(home);
        self.insert_encoded(entry, &Placed { key, home }, None, row)?;
        Ok(id)
    }

    /// Sets the counter of a home that has none above the ids of all its rows. Either no row took an id from a counter, or
    /// a repair has lost the counter.
    #[cold]
    fn begin_row_ids(&mut self, home: PartitionId) -> Result<()> {
        let mut highest = 0;
        for table in self.registry.keyless_pages() {
            self.tx.typed_each(table, home, |row| {
                let id = RowId::take_key(&mut Reader::new(&row.key()));
                highest = highest.max(id.map_or(0, |id| id.0 >> 8));
            })?;
        }
        self.tx.skip_row_ids(home, highest)
    }

    fn insert_encoded<T: Table>(
        &mut self,
        entry: &Entry,
        placed: &Placed,
        spot: Option<TypedSpot>,
        row: &T,
    ) -> Result<()> {
        let mut after = std::mem::take(&mut self.after);
        after.clear();
        row.encode_row(&mut after);
        let done = self.insert_bytes(entry, placed, spot, &after);
        self.after = after;
        done
    }

    /// Inserts a row after a lookup of its key found no row. If the table is not replicated, `spot` may be the result
    /// of the lookup.
    fn insert_bytes(
        &mut self,
        entry: &Entry,
        placed: &Placed,
        spot: Option<TypedSpot>,
        row: &[u8],
    ) -> Result<()> {
        let key = placed.key.as_slice();
        let rewrite = Rewrite {
            before: None,
            after: row,
        };
        self.check_unique(entry, placed, rewrite)?;
        match (placed.home, spot) {
            (RowHome::One(_), Some(spot)) => {
                self.tx.typed_insert_at(entry.table, spot, key, row)?;
            }
            (RowHome::One(home), None) => self.tx.typed_insert(entry.table, home, key, row)?,
            (RowHome::All, _) => {
                for home in self.all_latched()? {
                    self.tx.typed_insert(entry.table, home, key, row)?;
                }
            }
        }
        self.note(entry, placed, &Op::Put { row });
        Ok(())
    }

    /// Overwrites the row with this row's key.
    ///
    /// # Errors
    /// [`Error::Usage`] if the row does not exist. Otherwise as [`insert`](Self::insert).
    pub fn update<T: Table>(&mut self, row: &T) -> Result<()> {
        const {
            assert!(
                !T::KEYLESS,
                "a row without key columns is changed by its id: `modify` or `edit`"
            )
        };
        let entry = self.entry::<T>()?;
        let placed = self.place_row(row);
        let mut after = std::mem::take(&mut self.after);
        after.clear();
        row.encode_row(&mut after);
        let done = self.overwrite(entry, &placed, &after);
        self.after = after;
        done
    }

    fn overwrite(&mut self, entry: &Entry, placed: &Placed, after: &[u8]) -> Result<()> {
        if !self.needs_before(entry) {
            return self.replace(
                entry,
                placed,
                None,
                Rewrite {
                    before: None,
                    after,
                },
            );
        }
        let buffer = std::mem::take(&mut self.before);
        let (before, spot) = self.copy_row(entry, placed, buffer)?;
        let rewrite = Rewrite {
            before: Some(&before),
            after,
        };
        let done = self.replace(entry, placed, Some(spot), rewrite);
        self.before = before;
        done
    }

    /// Removes the row with a key. Returns whether it existed.
    ///
    /// # Errors
    /// [`Error::Undeclared`], which the closure must return; [`Error::LogFull`].
    pub fn remove<T: Table>(&mut self, key: impl WholeKey<T::Key>) -> Result<bool> {
        let entry = self.entry::<T>()?;
        let placed = self.place::<T>(&key);
        let key = placed.key.as_slice();
        let removed = match placed.home {
            RowHome::One(home) => self.tx.typed_delete(entry.table, home, key)?,
            RowHome::All => {
                let mut removed = false;
                for home in self.all_latched()? {
                    removed = self.tx.typed_delete(entry.table, home, key)?;
                }
                removed
            }
        };
        if removed {
            self.note(entry, &placed, &Op::Delete);
        }
        Ok(removed)
    }

    fn place_row<T: Table>(&self, row: &T) -> Placed {
        let mut key = KeyBytes::new();
        row.encode_key(&mut key);
        let home = match row.home(self.registry.geometry()) {
            Some(home) if !T::DECLARATION.replicated => RowHome::One(home),
            _ => RowHome::All,
        };
        Placed { key, home }
    }

    /// Returns whether an index or the log needs a row's value from before a change.
    pub(super) fn needs_before(&self, entry: &Entry) -> bool {
        let unique = !entry.unique.is_empty();
        unique || self.notes(entry) && self.tx.value_form() != ValueForm::Rows
    }

    /// Copies a row's value into the buffer `copy`. Returns the buffer and the row's place.
    pub(super) fn copy_row(
        &self,
        entry: &Entry,
        placed: &Placed,
        mut copy: Vec<u8>,
    ) -> Result<(Vec<u8>, TypedSpot)> {
        copy.clear();
        let home = self.read_at(placed.home);
        let (spot, row) = self
            .tx
            .typed_find(entry.table, home, placed.key.as_slice())?;
        match row {
            Some(row) => {
                row.copy_value(&mut copy);
                Ok((copy, spot))
            }
            None => Err(missing(entry, placed.key.as_slice())),
        }
    }

    /// Overwrites a row. `spot` is the row's place if the caller has looked it up. `rewrite.before`
    /// is required if [`needs_before`](Self::needs_before) returns true.
    pub(super) fn replace(
        &mut self,
        entry: &Entry,
        placed: &Placed,
        spot: Option<TypedSpot>,
        rewrite: Rewrite<'_>,
    ) -> Result<()> {
        let key = placed.key.as_slice();
        let Rewrite { before, after } = rewrite;
        self.check_unique(entry, placed, rewrite)?;
        let found = match (placed.home, spot) {
            (RowHome::One(_), Some(spot)) => {
                self.tx.typed_overwrite_at(entry.table, spot, key, after)?
            }
            (RowHome::One(home), None) => self.tx.typed_overwrite(entry.table, home, key, after)?,
            (RowHome::All, _) => {
                let mut found = true;
                for home in self.all_latched()? {
                    found &= self.tx.typed_overwrite(entry.table, home, key, after)?;
                }
                found
            }
        };
        if !found {
            return Err(missing(entry, key));
        }
        if !self.notes(entry) {
            return Ok(());
        }
        match (self.tx.value_form(), before) {
            (ValueForm::Columns, Some(before)) => {
                let patch = |out: &mut Vec<u8>| entry.schema.patch(before, after, out);
                self.tx
                    .note_columns(placed.home, entry.table.id, key, patch)?;
            }
            (ValueForm::Before, Some(before)) => {
                self.note(entry, placed, &Op::Replace { before, after });
            }
            (ValueForm::Rows, _) => self.note(entry, placed, &Op::Put { row: after }),
            (ValueForm::Columns | ValueForm::Before, None) => {
                unreachable!("the caller has asked whether the row before is needed")
            }
        }
        Ok(())
    }

    fn notes(&self, entry: &Entry) -> bool {
        entry.table.keyed && self.tx.wants_effects()
    }

    fn note(&mut self, entry: &Entry, placed: &Placed, op: &Op<'_>) {
        if self.notes(entry) {
            let key = placed.key.as_slice();
            self.tx.note_effect(placed.home, entry.table.id, key, op);
        }
    }

    /// Returns all partitions. A change of a replicated row needs the latches of all partitions. If latches are
    /// missing, adds all of them to the transaction's list of missing latches, and fails.
    fn all_latched(&self) -> Result<impl Iterator<Item = PartitionId> + use<>> {
        let all = (0..self.registry.geometry().partitions).map(PartitionId);
        let mut missing = Ok(());
        for home in all.clone() {
            if let Err(error) = self.tx.sequence(home) {
                missing = Err(error);
            }
        }
        missing.map(|()| all)
    }

    /// Fails if another row of the partition has the same values in all columns of a unique index.
    fn check_unique(
        &self,
        entry: &Entry,
        placed: &Placed,
        Rewrite { before, after }: Rewrite<'_>,
    ) -> Result<()> {
        let Some(derive) = entry.derive.as_ref().filter(|_| !entry.unique.is_empty()) else {
            return Ok(());
        };
        let key = placed.key.as_slice();
        let home = self.read_at(placed.home);
        for index in &entry.unique {
            let derived = |row: &[u8]| {
                let mut out = Vec::new();
                derive.index_key(*index, key, row, &mut out);
                out
            };
            let wanted = derived(after);
            if before.is_some_and(|before| derived(before) == wanted) {
                continue;
            }
            let behind = successor(&wanted);
            let end = match &behind {
                Some(end) => Bound::Excluded(end.as_slice()),
                None => Bound::Unbounded,
            };
            let range = (Bound::Included(wanted.as_slice()), end);
            let which = Which::Secondary(*index);
            let mut rows = self.tx.typed_rows(entry.table, home, which, range)?;
            if let Some(other) = rows.find(|row| *row.key() != *key) {
                let schema = &entry.schema;
                return Err(Error::Usage(format!(
                    "table {:?}: the row with the key {} has the columns of the unique index {} that \
                     the row with the key {} has already",
                    schema.name(),
                    schema.key_text(key),
                    schema.indexes()[*index].name,
                    schema.key_text(&other.key()),
                )));
            }
        }
        Ok(())
    }
}

#[cold]
fn duplicate(entry: &Entry, key: &[u8]) -> Error {
    Error::Usage(format!(
        "table {:?} has a row with the key {} already",
        entry.schema.name(),
        entry.schema.key_text(key)
    ))
}

#[cold]
pub(super) fn missing(entry: &Entry, key: &[u8]) -> Error {
    Error::Usage(format!(
        "table {:?} has no row with the key {}",
        entry.schema.name(),
        entry.schema.key_text(key)
    ))
}

//! The typed tables of an open database.

use std::any::TypeId;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use perdura_base::{Error, Result, TableId};
use perdura_heap::{Derive, Geometry};
use perdura_txn::TypedTable;

use crate::schema::Schema;
use crate::table::Table;

/// A typed table of a database.
#[derive(Debug)]
pub struct Entry {
    pub(crate) table: TypedTable,
    pub(crate) schema: Schema,
    pub(crate) derive: Option<Arc<dyn Derive>>,
    /// The positions of its unique indexes in the schema.
    pub(crate) unique: Vec<usize>,
    /// The Rust type of the first successful lookup: its declaration matches this table. Unset before this lookup.
    program: OnceLock<TypeId>,
    /// True if the table was dropped. The flag is set while all latches are held, and read while at least
    /// one latch is held.
    dropped: AtomicBool,
}

impl Entry {
    fn is_dropped(&self) -> bool {
        self.dropped.load(Ordering::Relaxed)
    }
}

/// The typed tables of a database, by name.
///
/// A dropped table keeps its entry, because a snapshot may still show the table's rows. During a replay several tables
/// may share a name. The replay drops all these tables but the last. At any time the name belongs to the first table
/// that is not dropped yet.
#[derive(Debug)]
pub struct Registry {
    geometry: Geometry,
    seed: u64,
    entries: Vec<Entry>,
}

impl Registry {
    /// Returns a registry without tables. `seed` is the database's seed. The random numbers of procedures are derived
    /// from it.
    #[must_use]
    pub fn new(geometry: Geometry, seed: u64) -> Registry {
        let entries = Vec::new();
        Registry {
            geometry,
            seed,
            entries,
        }
    }

    /// Returns the geometry of the heap, which assigns rows to partitions.
    #[must_use]
    pub fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    pub(crate) fn seed(&self) -> u64 {
        self.seed
    }

    /// Adds a table of the catalog. The table's id must be greater than the ids of all earlier tables with this name.
    pub fn add(&mut self, id: TableId, schema: Schema) {
        let mut same = self.entries.iter();
        assert!(
            same.all(|entry| entry.schema.name() != schema.name() || entry.table.id < id),
            "of tables of one name the youngest is the last"
        );
        assert!(self.schema(id).is_none(), "the catalog has a table once");
        let unique = schema.indexes().iter().enumerate();
        self.entries.push(Entry {
            table: TypedTable {
                id,
                keyed: schema.is_keyed(),
            },
            derive: schema.derive(),
            unique: unique
                .filter(|(_, index)| index.unique)
                .map(|(at, _)| at)
                .collect(),
            schema,
            program: OnceLock::new(),
            dropped: AtomicBool::new(false),
        });
    }

    /// Marks a table as dropped: verbs no longer find it. The caller must hold all latches.
    pub fn mark_dropped(&self, id: TableId) {
        let mut entries = self.entries.iter();
        if let Some(entry) = entries.find(|entry| entry.table.id == id) {
            let before = entry.dropped.swap(true, Ordering::Relaxed);
            assert!(!before, "table {id} is dropped once");
        }
    }

    /// Returns all tables that are not dropped.
    pub fn tables(&self) -> impl Iterator<Item = (TableId, &Schema)> + '_ {
        self.entries
            .iter()
            .filter(|entry| !entry.is_dropped())
            .map(|entry| (entry.table.id, &entry.schema))
    }

    /// Returns the page-addressed tables whose rows have no key columns.
    pub(crate) fn keyless_pages(&self) -> impl Iterator<Item = TypedTable> + '_ {
        let live = self.entries.iter().filter(|entry| !entry.is_dropped());
        let keyless = live.filter(|entry| entry.schema.is_keyless());
        keyless
            .map(|entry| entry.table)
            .filter(|table| !table.keyed)
    }

    /// Returns whether the database has any key-addressed table.
    #[must_use]
    pub fn has_keyed(&self) -> bool {
        let mut live = self.entries.iter().filter(|entry| !entry.is_dropped());
        live.any(|entry| entry.table.keyed)
    }

    /// Returns the schema of a table; `None` for an unknown or dropped table.
    #[must_use]
    pub fn schema(&self, id: TableId) -> Option<&Schema> {
        self.tables()
            .find_map(|(found, schema)| (found == id).then_some(schema))
    }

    /// Returns the table that has this name; `None` if no table has it.
    #[must_use]
    pub fn find(&self, name: &str) -> Option<(TableId, &Schema)> {
        self.tables().find(|(_, schema)| schema.name() == name)
    }

    /// Returns the table that a type declares, in the form for the verbs of a transaction.
    ///
    /// # Errors
    /// [`Error::Usage`] if the table is missing in the database, has another schema, or was dropped.
    pub fn table<T: Table>(&self) -> Result<TypedTable> {
        self.entry::<T>().map(|entry| entry.table)
    }

    /// Returns the ids of the tables that are not dropped.
    #[must_use]
    pub fn live(&self) -> Vec<TableId> {
        self.tables().map(|(id, _)| id).collect()
    }

    /// Returns the table that a type declares. `live` is an earlier result of [`live`](Self::live). A table in `live`
    /// is found even if it was dropped later. If `live` does not have the table, returns the result of
    /// [`table`](Self::table).
    ///
    /// # Errors
    /// As [`table`](Self::table), except that a table in `live` may be dropped.
    pub fn table_among<T: Table>(&self, live: &[TableId]) -> Result<TypedTable> {
        let mut entries = self.entries.iter();
        let named = |entry: &&Entry| entry.schema.name() == T::NAME;
        match entries.find(|entry| named(entry) && live.contains(&entry.table.id)) {
            Some(entry) => check::<T>(entry).map(|()| entry.table),
            None => self.table::<T>(),
        }
    }

    /// Returns the entry of the table that a type declares. The type's `hint` has the entry's position, so a lookup
    /// usually checks only one entry.
    #[inline]
    pub(crate) fn entry<T: Table>(&self) -> Result<&Entry> {
        let hint = T::hint();
        let at = hint.load(Ordering::Relaxed);
        match self.entries.get(at) {
            Some(entry)
                if entry.program.get() == Some(&TypeId::of::<T>()) && !entry.is_dropped() =>
            {
                Ok(entry)
            }
            _ => self.search::<T>(hint),
        }
    }

    #[cold]
    fn search<T: Table>(&self, hint: &AtomicUsize) -> Result<&Entry> {
        let entries = self.entries.iter().enumerate();
        let mut named = entries.filter(|(_, entry)| entry.schema.name() == T::NAME);
        let mut dropped = false;
        let found = named.find(|(_, entry)| {
            dropped |= entry.is_dropped();
            !entry.is_dropped()
        });
        let Some((at, entry)) = found else {
            let why = if dropped {
                "it was dropped; open the database again to make a new one"
            } else {
                "declare it when the database is opened"
            };
            return Err(Error::Usage(format!(
                "the database has no table {:?}: {why}",
                T::NAME
            )));
        };
        check::<T>(entry)?;
        let first = entry.program.get_or_init(TypeId::of::<T>);
        if *first == TypeId::of::<T>() {
            hint.store(at, Ordering::Relaxed);
        }
        Ok(entry)
    }
}

/// Fails if the schema that a type declares differs from the schema of the table in the database.
fn check<T: Table>(entry: &Entry) -> Result<()> {
    // The addressing may differ, because a program can choose it when it opens the database.
    let addressing = entry.schema.addressing();
    let declared = T::schema().clone().with_addressing(addressing);
    match entry.schema.differs(&declared) {
        Some(difference) => Err(Error::Usage(format!("table {:?}: {difference}", T::NAME))),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests;

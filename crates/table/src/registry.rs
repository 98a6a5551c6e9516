//! The typed tables of an open database.

use std::any::TypeId;
use std::sync::atomic::{AtomicUsize, Ordering};
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
    /// The unique ones among its indexes.
    pub(crate) unique: Vec<usize>,
    /// The first type of the program that was found to be this table.
    program: OnceLock<TypeId>,
}

/// The typed tables of a database, by name.
#[derive(Debug)]
pub struct Registry {
    geometry: Geometry,
    seed: u64,
    entries: Vec<Entry>,
}

impl Registry {
    /// No table yet. `seed` is the database's, for the random numbers of procedures.
    #[must_use]
    pub fn new(geometry: Geometry, seed: u64) -> Registry {
        let entries = Vec::new();
        Registry {
            geometry,
            seed,
            entries,
        }
    }

    /// Which partition rows belong to.
    #[must_use]
    pub fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    pub(crate) fn seed(&self) -> u64 {
        self.seed
    }

    /// Adds a table of the catalog.
    pub fn add(&mut self, id: TableId, schema: Schema) {
        assert!(
            self.find(schema.name()).is_none() && self.schema(id).is_none(),
            "the catalog has a table once"
        );
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
        });
    }

    /// Forgets a table that was dropped.
    pub fn remove(&mut self, id: TableId) {
        self.entries.retain(|entry| entry.table.id != id);
    }

    /// All tables.
    pub fn tables(&self) -> impl Iterator<Item = (TableId, &Schema)> + '_ {
        self.entries
            .iter()
            .map(|entry| (entry.table.id, &entry.schema))
    }

    /// Whether there is a table.
    #[must_use]
    pub fn has_tables(&self) -> bool {
        !self.entries.is_empty()
    }

    /// Whether there is a key-addressed table.
    #[must_use]
    pub fn has_keyed(&self) -> bool {
        self.entries.iter().any(|entry| entry.table.keyed)
    }

    /// The schema of a table.
    #[must_use]
    pub fn schema(&self, id: TableId) -> Option<&Schema> {
        let found = self.entries.iter().find(|entry| entry.table.id == id);
        found.map(|entry| &entry.schema)
    }

    /// The table with a name.
    #[must_use]
    pub fn find(&self, name: &str) -> Option<(TableId, &Schema)> {
        self.tables().find(|(_, schema)| schema.name() == name)
    }

    /// The id and the addressing of the table of a type, as the verbs of a transaction name it.
    ///
    /// # Errors
    /// [`Error::Usage`] if the database does not have it, or has it with another schema.
    pub fn table<T: Table>(&self) -> Result<TypedTable> {
        self.entry::<T>().map(|entry| entry.table)
    }

    /// The table of a type. The type remembers where it was found: a verb compares one number.
    #[inline]
    pub(crate) fn entry<T: Table>(&self) -> Result<&Entry> {
        let hint = T::hint();
        let at = hint.load(Ordering::Relaxed);
        match self.entries.get(at) {
            Some(entry) if entry.program.get() == Some(&TypeId::of::<T>()) => Ok(entry),
            _ => self.search::<T>(hint),
        }
    }

    #[cold]
    fn search<T: Table>(&self, hint: &AtomicUsize) -> Result<&Entry> {
        let mut entries = self.entries.iter().enumerate();
        let found = entries.find(|(_, entry)| entry.schema.name() == T::NAME);
        let Some((at, entry)) = found else {
            return Err(Error::Usage(format!(
                "the database has no table {:?}: declare it when the database is opened",
                T::NAME
            )));
        };
        // A program may choose the addressing when it opens the database.
        let addressing = entry.schema.addressing();
        let declared = T::schema().clone().with_addressing(addressing);
        if let Some(difference) = entry.schema.differs(&declared) {
            return Err(Error::Usage(format!("table {:?}: {difference}", T::NAME)));
        }
        let first = entry.program.get_or_init(TypeId::of::<T>);
        if *first == TypeId::of::<T>() {
            hint.store(at, Ordering::Relaxed);
        }
        Ok(entry)
    }
}

#[cfg(test)]
mod tests;

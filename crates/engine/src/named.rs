//! The tables that a database is opened with, by name, and the current table of each name.
//!
//! A name has a *place*: its index in the list of names that the database was opened with. The place gives the name's
//! table with one load, inside a transaction. Emptying a table gives its name a new, empty table. Swapping two names
//! exchanges their tables. Both change rows of the catalog, which are logged with their transaction. As its last step
//! before the commit, the transaction publishes the change here.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU32, Ordering};

use perdura_base::{Result, TableId};
use perdura_heap::{DetachedTable, Heap};
use perdura_recovery::{KeyOrder, TableKind};
use perdura_txn::Tx;

use crate::catalog::{CATALOG, Entry, damaged, put_next_id, put_table, read_next_id, tables_of};

/// The tables of a database, by name and by the name's place.
pub struct NamedTables {
    names: &'static [&'static str],
    ids: Box<[AtomicU32]>,
}

impl NamedTables {
    /// Returns the names, to which no tables are assigned yet.
    #[must_use]
    pub fn new(names: &'static [&'static str]) -> NamedTables {
        NamedTables {
            names,
            ids: names.iter().map(|_| AtomicU32::new(CATALOG.0)).collect(),
        }
    }

    /// Returns the places of all names, in order.
    pub fn places(&self) -> impl Iterator<Item = u8> + use<> {
        let count = u8::try_from(self.ids.len()).unwrap_or(u8::MAX);
        0..count
    }

    /// Returns the table of the name at a place. Call this inside a transaction: a renewal, which changes the table,
    /// holds every latch.
    ///
    /// # Panics
    /// If the place does not exist.
    #[inline]
    #[must_use]
    pub fn at(&self, place: u8) -> TableId {
        TableId(self.ids[usize::from(place)].load(Ordering::Relaxed))
    }

    /// Returns the table of a name; `None` if the database was not opened with it.
    #[must_use]
    pub fn table(&self, name: &str) -> Option<TableId> {
        let mut places = self.places().zip(self.names);
        places.find_map(|(place, named)| (*named == name).then(|| self.at(place)))
    }

    fn set(&self, place: u8, table: TableId) {
        self.ids[usize::from(place)].store(table.0, Ordering::Relaxed);
    }

    /// Reads the tables of the names from the catalog of a restarted heap. Returns the places whose names the catalog
    /// does not have yet.
    ///
    /// # Errors
    /// If the catalog is damaged.
    pub fn load(&self, heap: &Heap) -> Result<Vec<u8>> {
        let tables = tables_of(heap)?;
        let (mut missing, mut taken) = (Vec::new(), BTreeSet::from([CATALOG]));
        for (place, name) in self.places().zip(self.names) {
            match tables.get(*name) {
                Some(entry) if taken.insert(entry.id) => self.set(place, entry.id),
                Some(_) => return Err(damaged("a table that no other name has")),
                None => missing.push(place),
            }
        }
        Ok(missing)
    }

    /// Gives names new, empty tables, which only the running transaction sees until [`install`](Self::install). The
    /// transaction must hold every latch. An abort leaves at most empty tables, which the next attempt uses again.
    ///
    /// # Errors
    /// If a latch is missing or the catalog is damaged. The caller must return the error.
    pub fn renew(
        &self,
        tx: &mut Tx<'_>,
        places: impl Iterator<Item = u8>,
        renewal: &mut Renewal,
    ) -> Result<()> {
        let mut next = read_next_id(tx)?;
        for place in places {
            let table = TableId(next);
            if self.places().any(|place| self.at(place) == table) {
                return Err(damaged("a next table id that no name has"));
            }
            self.put(tx, place, table)?;
            next += 1;
            tx.attach_table(table, false)?;
            let before = renewal.tables.insert(place, table);
            renewal.superseded.extend(before);
        }
        put_next_id(tx, next)
    }

    /// Exchanges the tables of two names, for the running transaction, which holds every latch.
    ///
    /// # Errors
    /// If a latch is missing or the catalog is damaged. The caller must return the error.
    pub fn swap(&self, tx: &mut Tx<'_>, [a, b]: [u8; 2], renewal: &mut Renewal) -> Result<()> {
        let table_of = |place| renewal.table(place).unwrap_or(self.at(place));
        let (of_a, of_b) = (table_of(a), table_of(b));
        for (place, table) in [(a, of_b), (b, of_a)] {
            self.put(tx, place, table)?;
            renewal.tables.insert(place, table);
        }
        Ok(())
    }

    /// Publishes a renewal. This must be the last step of a transaction before it commits. Returns the indexes of the
    /// replaced tables, which the caller drops after the latches are released.
    ///
    /// # Errors
    /// If a latch is missing; nothing has changed then. The caller must return the error.
    pub fn install(&self, tx: &mut Tx<'_>, renewal: &Renewal) -> Result<Vec<DetachedTable>> {
        tx.check_all_latched()?;
        let mut gone: BTreeSet<TableId> = renewal.superseded.iter().copied().collect();
        for (place, table) in &renewal.tables {
            gone.insert(self.at(*place));
            self.set(*place, *table);
        }
        // A table that a swap has only given another name stays.
        for place in self.places() {
            gone.remove(&self.at(place));
        }
        gone.remove(&CATALOG);
        let ids: BTreeSet<TableId> = self.places().map(|place| self.at(place)).collect();
        assert_eq!(
            ids.len(),
            self.places().count(),
            "each name has a table that no other name has"
        );
        let most = gone.len() * tx.partitions();
        let detached = tx.detach_tables(gone)?;
        assert!(
            detached.len() <= most,
            "a table has one part in a partition"
        );
        Ok(detached)
    }

    fn put(&self, tx: &mut Tx<'_>, place: u8, table: TableId) -> Result<()> {
        let entry = Entry {
            id: table,
            kind: TableKind::heap(KeyOrder::Hashed),
            schema: Vec::new(),
        };
        put_table(tx, self.names[usize::from(place)], &entry)
    }
}

/// New tables of names that are being emptied or swapped, before other transactions see them.
#[derive(Debug, Default)]
pub struct Renewal {
    /// The new table of each renewed name, by the name's place.
    tables: BTreeMap<u8, TableId>,
    /// New tables that the same transaction has replaced again.
    superseded: Vec<TableId>,
}

impl Renewal {
    /// Returns the new table of the name at a place, if it is being emptied or swapped.
    #[must_use]
    pub fn table(&self, place: u8) -> Option<TableId> {
        self.tables.get(&place).copied()
    }
}

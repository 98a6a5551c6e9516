//! The tables that a database is opened with, by name, and the current table of each name.
//!
//! A name has a *place*: the index in the options' list of names. Inside a transaction, the table of a name is found
//! from its place with one load. Emptying a table gives its name a new, empty table. Swapping two names exchanges their
//! tables. Both change rows of the catalog within a transaction, which logs these rows. As its last step before the
//! commit, the transaction publishes the change in [`NamedTables`].

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
    /// Returns the names. No table is assigned to a name yet.
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

    /// Returns the table whose name is at `place` in the list of names. Call this inside a transaction: a renewal
    /// changes the table while it holds every latch.
    ///
    /// # Panics
    /// If the list has no such place.
    #[inline]
    #[must_use]
    pub fn at(&self, place: u8) -> TableId {
        TableId(self.ids[usize::from(place)].load(Ordering::Relaxed))
    }

    /// Returns the table of a name. `None` if the database was not opened with that name.
    #[must_use]
    pub fn table(&self, name: &str) -> Option<TableId> {
        let mut places = self.places().zip(self.names);
        places.find_map(|(place, named)| (*named == name).then(|| self.at(place)))
    }

    fn set(&self, place: u8, table: TableId) {
        self.ids[usize::from(place)].store(table.0, Ordering::Relaxed);
    }

    /// Finds the table of each name in the catalog of a restarted heap. Returns the places of the names that the
    /// catalog does not contain yet.
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
    /// transaction must hold every latch. If it aborts, empty tables may remain. The next attempt uses them again.
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

    /// Exchanges the tables of two names. Until [`install`](Self::install), only the running transaction sees the
    /// exchange. The transaction must hold every latch.
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
    /// replaced tables. The caller drops these indexes after the latches are released.
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
        // A table that a swap has only given to another name is still in use.
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

/// The new tables of the names that a transaction empties or swaps. Other transactions do not see these tables yet.
#[derive(Debug, Default)]
pub struct Renewal {
    /// The new table of each renewed name, by the name's place.
    tables: BTreeMap<u8, TableId>,
    /// The new tables that the same transaction has already replaced by newer ones.
    superseded: Vec<TableId>,
}

impl Renewal {
    /// Returns the new table of the name at a place. `None`: the transaction has not emptied or swapped the name.
    #[must_use]
    pub fn table(&self, place: u8) -> Option<TableId> {
        self.tables.get(&place).copied()
    }
}

//! Redis's sixteen databases: the tables `db0` to `db15`, by number.
//!
//! This is a thin layer over the tables that [`Core`] knows by name. It belongs to the engine, not to the server, for
//! two reasons. FLUSHALL and SWAPDB have to assign new tables to the names within a transaction. And a program that
//! embeds the engine may open a server's directory and must find the server's databases.

use perdura_base::{Result, TableId};
use perdura_recovery::Catalog;
use perdura_txn::{Ticket, Tx};

use crate::catalog::CATALOG;
use crate::core::Core;
use crate::db::Db;
use crate::named::Renewal;
use crate::options::DATABASE_NAMES;

/// The number of databases.
const DATABASES: u8 = 16;

/// Returns the place of a database's name; see [`NamedTables`](crate::named::NamedTables).
fn place(index: u8) -> u8 {
    index % DATABASES
}

/// Returns the place of one database's name. If `index` is `None`, returns the places of all names. See [`place`].
fn places(index: Option<u8>) -> std::ops::Range<u8> {
    match index.map(place) {
        Some(place) => place..place + 1,
        None => 0..DATABASES,
    }
}

/// Returns whether a catalog lists the tables of all sixteen databases. The first open adds them.
#[must_use]
pub fn names_databases(catalog: &Catalog) -> bool {
    catalog.len() > DATABASE_NAMES.len()
}

impl Core {
    /// Returns the table of a Redis database. Call this inside a transaction, because emptying a database gives it a
    /// new table.
    ///
    /// # Panics
    /// If the database was opened without this table; see [`CoreOptions::tables`].
    ///
    /// [`CoreOptions::tables`]: crate::CoreOptions::tables
    #[inline]
    #[must_use]
    pub fn database(&self, index: u8) -> TableId {
        let table = self.tables().at(place(index));
        debug_assert_ne!(table, CATALOG, "a database is a table of its name");
        table
    }

    /// Empties one database, or all.
    ///
    /// # Errors
    /// The log is full or the database has stopped.
    pub fn flush_database(&self, index: Option<u8>) -> Result<Ticket> {
        self.admit(4096)?;
        self.renew(places(index))
    }

    /// Empties one database, or all, within a transaction; see [`Core::begin_renewal`].
    ///
    /// # Errors
    /// The caller must return any error, so that the transaction is undone.
    pub fn begin_flush(
        &self,
        tx: &mut Tx<'_>,
        database: Option<u8>,
        flush: &mut Renewal,
    ) -> Result<()> {
        self.begin_renewal(tx, places(database), flush)
    }

    /// Exchanges the contents of two databases within a transaction; see [`Core::swap_tables`].
    ///
    /// # Errors
    /// The caller must return any error, so that the transaction is undone.
    pub fn swap_databases(
        &self,
        tx: &mut Tx<'_>,
        databases: [u8; 2],
        swap: &mut Renewal,
    ) -> Result<()> {
        self.swap_tables(tx, databases.map(place), swap)
    }
}

impl Db {
    /// Returns the table of a Redis database, 0 to 15. Call this inside the transaction, because emptying a database
    /// gives it a new table.
    #[inline]
    #[must_use]
    pub fn database(&self, index: u8) -> TableId {
        self.shared.core().database(index)
    }

    /// Empties one database, or all.
    ///
    /// # Errors
    /// As [`Db::write_later`].
    pub fn flush_database(&self, index: Option<u8>) -> Result<Ticket> {
        self.shared.core().flush_database(index)
    }

    /// Empties databases within a transaction; see [`Core::begin_renewal`].
    ///
    /// # Errors
    /// The caller must return any error, so that the transaction is undone.
    pub fn begin_flush(
        &self,
        tx: &mut Tx<'_>,
        database: Option<u8>,
        flush: &mut Renewal,
    ) -> Result<()> {
        self.shared.core().begin_flush(tx, database, flush)
    }

    /// Swaps databases within a transaction; see [`Core::swap_tables`].
    ///
    /// # Errors
    /// The caller must return any error, so that the transaction is undone.
    pub fn swap_databases(
        &self,
        tx: &mut Tx<'_>,
        databases: [u8; 2],
        swap: &mut Renewal,
    ) -> Result<()> {
        self.shared.core().swap_databases(tx, databases, swap)
    }

    /// Returns the number of rows of a Redis database, and the number of rows with an expiry.
    ///
    /// # Errors
    /// As [`Db::write_later`].
    pub fn rows(&self, index: u8) -> Result<(u64, u64)> {
        self.transact(&self.all_partitions(), |tx| {
            let table = self.database(index);
            Ok((tx.len(table)?, tx.expiring(table)?))
        })
        .map(|(rows, _)| rows)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_database_is_the_table_of_its_number() {
        let numbered = (0..DATABASES).map(|index| format!("db{index}"));
        assert!(numbered.eq(DATABASE_NAMES.iter().copied()));
    }
}

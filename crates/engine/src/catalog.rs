//! Table 0: which tables there are.
#![doc = include_str!("../../../docs/formats/catalog.md")]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU32, Ordering};

use perdura_base::cursor::{Reader, Writer};
use perdura_base::{Error, PartitionId, Result, TableId};
use perdura_heap::{DetachedTable, Heap, Partition};
use perdura_recovery::tables::UnknownKind;
use perdura_recovery::{Catalog, KeyOrder, TableKind};
use perdura_txn::Tx;

/// The catalog's own table.
pub const CATALOG: TableId = TableId(0);
/// Redis databases.
pub const DATABASES: u8 = 16;

const NEXT_ID: &[u8] = b"n";

fn name_of(database: u8) -> String {
    format!("db{database}")
}

fn row_key(name: &str) -> Vec<u8> {
    let mut key = b"t".to_vec();
    key.put(name.as_bytes());
    key
}

/// The catalog as transactions use it: the ids of the databases.
#[derive(Default)]
pub struct Databases {
    ids: [AtomicU32; DATABASES as usize],
}

impl Databases {
    /// The table of a database. It changes by a flush, which holds every latch: read it inside a
    /// transaction.
    #[must_use]
    pub fn table(&self, database: u8) -> TableId {
        TableId(self.ids[usize::from(database % DATABASES)].load(Ordering::Relaxed))
    }

    fn set(&self, database: u8, table: TableId) {
        self.ids[usize::from(database)].store(table.0, Ordering::Relaxed);
    }

    /// Takes over what the catalog of a restarted heap says; `false` if it has no databases yet.
    pub fn load(&self, heap: &Heap) -> Result<bool> {
        let tables = tables_of(heap)?;
        for database in 0..DATABASES {
            let Some((id, _)) = tables.get(&name_of(database)) else {
                return Ok(false);
            };
            self.set(database, *id);
        }
        Ok(true)
    }

    /// Gives databases new, empty tables that only the running transaction knows yet; it holds
    /// every latch. An abort leaves at most empty tables that the next attempt takes again.
    ///
    /// # Errors
    /// An error, to be handed on, if a latch is missing or the catalog is damaged.
    pub fn begin_renewal(
        &self,
        heap: &Heap,
        tx: &mut Tx<'_>,
        databases: impl Iterator<Item = u8>,
        renewal: &mut Renewal,
    ) -> Result<()> {
        let mut next = read_next_id(heap, tx)?;
        for database in databases {
            let table = TableId(next);
            put_table(heap, tx, database, table)?;
            next += 1;
            for id in (0..heap.geometry().partitions).map(PartitionId) {
                tx.partition(id)?.0.attach_table(table, false);
            }
            let before = renewal.tables[usize::from(database % DATABASES)].replace(table);
            renewal.superseded.extend(before);
        }
        let mut value = Vec::new();
        value.put_varint(u64::from(next));
        put(heap, tx, NEXT_ID, &value)
    }

    /// Lets two databases change their tables, for the running transaction, which holds every
    /// latch.
    ///
    /// # Errors
    /// An error, to be handed on, if a latch is missing or the catalog is damaged.
    pub fn swap(
        &self,
        heap: &Heap,
        tx: &mut Tx<'_>,
        databases: [u8; 2],
        renewal: &mut Renewal,
    ) -> Result<()> {
        let [a, b] = databases;
        let table_of = |database| renewal.table(database).unwrap_or(self.table(database));
        let (of_a, of_b) = (table_of(a), table_of(b));
        for (database, table) in [(a, of_b), (b, of_a)] {
            put_table(heap, tx, database, table)?;
            renewal.tables[usize::from(database % DATABASES)] = Some(table);
        }
        Ok(())
    }

    /// Publishes a renewal: the last thing a transaction does before it commits. Returns the old
    /// tables' indexes, to be dropped after the latches are released.
    ///
    /// # Errors
    /// An error, to be handed on, if a latch is missing, before anything has changed.
    pub fn install(
        &self,
        heap: &Heap,
        tx: &mut Tx<'_>,
        renewal: &Renewal,
    ) -> Result<Vec<DetachedTable>> {
        for id in (0..heap.geometry().partitions).map(PartitionId) {
            tx.partition(id)?;
        }
        let mut gone: BTreeSet<TableId> = renewal.superseded.iter().copied().collect();
        for (database, table) in (0..DATABASES).zip(renewal.tables) {
            let Some(table) = table else { continue };
            gone.insert(self.table(database));
            self.set(database, table);
        }
        // A table that has only changed its database stays.
        gone.retain(|table| !(0..DATABASES).any(|database| self.table(database) == *table));
        let mut detached = Vec::new();
        for table in gone.into_iter().filter(|table| *table != CATALOG) {
            for id in (0..heap.geometry().partitions).map(PartitionId) {
                detached.extend(tx.partition(id)?.0.detach_table(table));
            }
        }
        Ok(detached)
    }
}

/// The tables of databases that are being flushed or swapped, before anyone else sees them.
#[derive(Debug, Default)]
pub struct Renewal {
    tables: [Option<TableId>; DATABASES as usize],
    /// Renewed once more within the same transaction.
    superseded: Vec<TableId>,
}

impl Renewal {
    /// The new table of a database, if it is being flushed.
    #[must_use]
    pub fn table(&self, database: u8) -> Option<TableId> {
        self.tables[usize::from(database % DATABASES)]
    }
}

/// Writes the row of a database's table.
fn put_table(heap: &Heap, tx: &mut Tx<'_>, database: u8, table: TableId) -> Result<()> {
    let mut value = Vec::new();
    value.put_varint(u64::from(table.0));
    value.put(&TableKind::heap(KeyOrder::Hashed).encode());
    put(heap, tx, &row_key(&name_of(database)), &value)
}

/// Writes a catalog row past the memory limit: the catalog is small, and a flush frees memory.
fn put(heap: &Heap, tx: &mut Tx<'_>, key: &[u8], value: &[u8]) -> Result<()> {
    let hash = heap.geometry().hash(key);
    let (part, undo) = tx.partition(heap.geometry().partition_of(hash))?;
    // The catalog's rows head nothing.
    let _no_collection = part.put(undo, CATALOG, key, hash, value, None)?;
    Ok(())
}

fn read_next_id(heap: &Heap, tx: &mut Tx<'_>) -> Result<u32> {
    let hash = heap.geometry().hash(NEXT_ID);
    let (part, _) = tx.partition(heap.geometry().partition_of(hash))?;
    let Some(row) = part.get(CATALOG, NEXT_ID, hash) else {
        return Ok(1);
    };
    let mut value = Vec::new();
    row.copy_value(&mut value);
    let id = Reader::new(&value)
        .varint()
        .and_then(|id| u32::try_from(id).ok());
    id.ok_or_else(|| damaged("the next table id"))
}

fn damaged(what: &str) -> Error {
    Error::corrupt(
        "catalog (table 0)",
        0,
        what,
        "a row that does not parse",
        "Its pages' checksums hold, so this is a bug in the writer. Keep a copy and report it.",
    )
}

/// A table that another build made, of a kind that this one cannot serve.
fn unknown_kind(table: &str, UnknownKind { part, code }: UnknownKind) -> Error {
    Error::corrupt(
        format!("catalog (table 0), table {table}"),
        0,
        "a kind of table that this build knows",
        format!("{part} {code}"),
        "A newer version of Perdura made the table: open the database with that version. \
         Nothing was changed.",
    )
}

pub(crate) type Tables = BTreeMap<String, (TableId, TableKind)>;

fn tables_of(heap: &Heap) -> Result<Tables> {
    let mut tables = Tables::new();
    for id in (0..heap.geometry().partitions).map(PartitionId) {
        read_tables(&heap.lock(id), &mut tables)?;
    }
    Ok(tables)
}

/// Adds the tables whose rows one partition holds.
pub(crate) fn read_tables(part: &Partition, tables: &mut Tables) -> Result<()> {
    let mut fault = None;
    part.for_each(CATALOG, |row| {
        let key = row.key();
        let Some(name) = key.strip_prefix(b"t") else {
            return;
        };
        let mut value = Vec::new();
        row.copy_value(&mut value);
        let mut r = Reader::new(&value);
        let parsed = (|| {
            let table = TableId(u32::try_from(r.varint()?).ok()?);
            let kind = [r.u8()?, r.u8()?];
            let name = String::from_utf8(name.to_vec()).ok()?;
            (r.remaining() == 0).then_some((name, table, kind))
        })();
        let read = parsed.ok_or_else(|| damaged("a table's row"));
        let read = read.and_then(|(name, table, kind)| match TableKind::decode(kind) {
            Ok(kind) => Ok((name, (table, kind))),
            Err(unknown) => Err(unknown_kind(&name, unknown)),
        });
        match read {
            Ok((name, table)) => drop(tables.insert(name, table)),
            Err(error) => fault = Some(error),
        }
    });
    fault.map_or(Ok(()), Err)
}

/// The tables of a heap whose table 0 is indexed, for the restart.
pub fn read_catalog(heap: &Heap) -> Result<Catalog> {
    let mut catalog: Catalog = tables_of(heap)?.into_values().collect();
    catalog.insert(CATALOG, TableKind::heap(KeyOrder::Hashed));
    Ok(catalog)
}

/// Whether a catalog names all databases, as that of every database does that was opened once.
#[must_use]
pub fn names_databases(catalog: &Catalog) -> bool {
    catalog.len() > usize::from(DATABASES)
}

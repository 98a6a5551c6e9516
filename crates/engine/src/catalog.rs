//! Table 0: the list of the tables.
#![doc = include_str!("../../../docs/formats/catalog.md")]

use std::collections::BTreeMap;

use perdura_base::cursor::{Reader, Writer};
use perdura_base::num::to_u64;
use perdura_base::{Error, PartitionId, Result, TableId};
use perdura_heap::{Heap, Partition};
use perdura_recovery::tables::UnknownKind;
use perdura_recovery::{Catalog, KeyOrder, TableKind};
use perdura_txn::Tx;

mod dropped;
mod rows;

pub(crate) use dropped::{Dropped, dropped_key, dropped_of};
pub use rows::CatalogRows;
pub(crate) use rows::{dropped_behind, kind_of, schema_of};

/// The catalog's own table.
pub const CATALOG: TableId = TableId::CATALOG;

const NEXT_ID: &[u8] = b"n";
const NEXT_PROCEDURE: &[u8] = b"m";

fn row_key(name: &str) -> Vec<u8> {
    let mut key = b"t".to_vec();
    key.put(name.as_bytes());
    key
}

fn procedure_key(id: u32) -> Vec<u8> {
    let mut key = b"p".to_vec();
    key.put(&id.to_be_bytes());
    key
}

/// Writes a table's row into the catalog, under the table's name.
pub(crate) fn put_table(tx: &mut Tx<'_>, name: &str, entry: &Entry) -> Result<()> {
    let mut value = Vec::new();
    value.put_varint(u64::from(entry.id.0));
    let kind = entry.kind.encode();
    assert_eq!(
        TableKind::decode(kind),
        Ok(entry.kind),
        "a restart reads it"
    );
    value.put(&kind);
    value.put(&entry.schema);
    tx.put_catalog(CATALOG, &row_key(name), &value)
}

/// Returns the catalog's entry for a table name, within a transaction that holds every latch. `None`: the table does
/// not exist.
pub(crate) fn find_table(tx: &Tx<'_>, name: &str) -> Result<Option<Entry>> {
    let key = row_key(name);
    let Some(row) = tx.peek(CATALOG, &key)? else {
        return Ok(None);
    };
    let mut tables = Tables::new();
    read_row(&key, &row.value(), &mut tables)?;
    assert_eq!(tables.len(), 1, "a row names a table");
    Ok(tables.remove(name))
}

/// Removes a table's row from the catalog.
pub(crate) fn remove_table(tx: &mut Tx<'_>, name: &str) -> Result<()> {
    let was_there = tx.delete(CATALOG, &row_key(name))?;
    assert!(was_there, "table {name} is in the catalog");
    Ok(())
}

/// Writes the row of a new version of a procedure. Gives the version an id that was never used, and
/// returns the row.
pub(crate) fn put_procedure(
    tx: &mut Tx<'_>,
    name: &str,
    hash: u64,
    types: &str,
) -> Result<ProcedureRow> {
    let id = read_number(tx, NEXT_PROCEDURE)?;
    let mut value = Vec::new();
    value.put_u64(hash);
    for text in [name, types] {
        value.put_varint(to_u64(text.len()));
        value.put(text.as_bytes());
    }
    tx.put_catalog(CATALOG, &procedure_key(id), &value)?;
    put_number(tx, NEXT_PROCEDURE, id + 1)?;
    Ok(ProcedureRow {
        id,
        name: name.into(),
        hash,
        types: types.into(),
    })
}

/// Writes the id that the next new table will get.
pub(crate) fn put_next_id(tx: &mut Tx<'_>, next: u32) -> Result<()> {
    put_number(tx, NEXT_ID, next)?;
    assert_eq!(read_next_id(tx)?, next, "the next transaction reads it");
    Ok(())
}

/// Returns the id that the next new table will get. No table ever had this id.
pub(crate) fn read_next_id(tx: &Tx<'_>) -> Result<u32> {
    read_number(tx, NEXT_ID)
}

fn put_number(tx: &mut Tx<'_>, key: &[u8], number: u32) -> Result<()> {
    let mut value = Vec::new();
    value.put_varint(u64::from(number));
    tx.put_catalog(CATALOG, key, &value)
}

/// Returns the number under a key of the catalog, or 1 if the key was never written.
fn read_number(tx: &Tx<'_>, key: &[u8]) -> Result<u32> {
    let Some(row) = tx.peek(CATALOG, key)? else {
        return Ok(1);
    };
    let id = Reader::new(&row.value())
        .varint()
        .and_then(|id| u32::try_from(id).ok());
    id.ok_or_else(|| damaged("the next id of a table or procedure"))
}

pub(crate) fn damaged(what: &str) -> Error {
    Error::corrupt(
        "catalog (table 0)",
        0,
        what,
        "a row that does not parse",
        "The checksums of its pages match, so this is a bug in Perdura. Copy the files and \
         report the bug.",
    )
}

/// Returns the error for a table of an unknown kind, made by a newer build.
fn unknown_kind(table: &str, UnknownKind { part, code }: UnknownKind) -> Error {
    Error::corrupt(
        format!("catalog (table 0), table {table}"),
        0,
        "a kind of table that this build knows",
        format!("{part} {code}"),
        "A newer version of Perdura made the table. Nothing was changed. Open the database with \
         that version.",
    )
}

/// The catalog's entry of a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Entry {
    pub id: TableId,
    pub kind: TableKind,
    /// The encoded schema of a typed table; empty if the table is not typed.
    pub schema: Vec<u8>,
}

/// A version of a procedure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ProcedureRow {
    pub id: u32,
    pub name: String,
    /// The hash of the procedure's text.
    pub hash: u64,
    /// The procedure's argument types.
    pub types: String,
}

pub(crate) type Tables = BTreeMap<String, Entry>;

/// Returns the tables that a heap's catalog lists. The catalog, table 0, must be indexed.
pub(crate) fn tables_of(heap: &Heap) -> Result<Tables> {
    let mut tables = Tables::new();
    for id in (0..heap.geometry().partitions).map(PartitionId) {
        read_tables(&heap.lock(id), &mut tables)?;
    }
    Ok(tables)
}

/// Adds to `tables` each table whose catalog row is in this partition.
fn read_tables(part: &Partition, tables: &mut Tables) -> Result<()> {
    let mut read = Ok(());
    part.for_each(CATALOG, |row| {
        if let Err(error) = read_row(&row.key(), &row.value(), tables) {
            read = Err(error);
        }
    });
    read
}

/// Adds the table that a row of the catalog describes, if the row describes a table.
pub(crate) fn read_row(key: &[u8], value: &[u8], tables: &mut Tables) -> Result<()> {
    let Some(name) = key.strip_prefix(b"t") else {
        return Ok(());
    };
    let mut r = Reader::new(value);
    let parsed = (|| {
        let table = TableId(u32::try_from(r.varint()?).ok()?);
        let kind = [r.u8()?, r.u8()?];
        let name = String::from_utf8(name.to_vec()).ok()?;
        let schema = r.bytes(r.remaining())?.to_vec();
        Some((name, table, kind, schema))
    })();
    let (name, id, kind, schema) = parsed.ok_or_else(|| damaged("a table's row"))?;
    let kind = TableKind::decode(kind).map_err(|unknown| unknown_kind(&name, unknown))?;
    tables.insert(name, Entry { id, kind, schema });
    Ok(())
}

/// Returns the procedures that a heap's catalog lists, by id. The catalog, table 0, must be
/// indexed.
pub(crate) fn procedures_of(heap: &Heap) -> Result<BTreeMap<u32, ProcedureRow>> {
    let mut procedures = BTreeMap::new();
    for id in (0..heap.geometry().partitions).map(PartitionId) {
        let mut read = Ok(());
        heap.lock(id).for_each(CATALOG, |row| {
            match read_procedure(&row.key(), &row.value()) {
                Ok(Some(row)) => drop(procedures.insert(row.id, row)),
                Ok(None) => {}
                Err(error) => read = Err(error),
            }
        });
        read?;
    }
    Ok(procedures)
}

fn read_procedure(key: &[u8], value: &[u8]) -> Result<Option<ProcedureRow>> {
    let Some(id) = key.strip_prefix(b"p") else {
        return Ok(None);
    };
    let mut r = Reader::new(value);
    let parsed = (|| {
        let id = u32::from_be_bytes(id.try_into().ok()?);
        let hash = r.u64()?;
        let mut text = || {
            let len = r.varint_usize()?;
            String::from_utf8(r.bytes(len)?.to_vec()).ok()
        };
        let (name, types) = (text()?, text()?);
        (r.remaining() == 0).then_some(ProcedureRow {
            id,
            name,
            hash,
            types,
        })
    })();
    parsed.map(Some).ok_or_else(|| damaged("a procedure's row"))
}

/// Returns the kind of each table of a heap, including the catalog itself, for the restart. The catalog must be
/// indexed.
fn read_catalog(heap: &Heap) -> Result<Catalog> {
    let tables = tables_of(heap)?.into_values();
    let mut catalog: Catalog = tables.map(|entry| (entry.id, entry.kind)).collect();
    catalog.insert(CATALOG, TableKind::heap(KeyOrder::Hashed));
    Ok(catalog)
}

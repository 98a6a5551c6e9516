//! Table 0: which tables there are.
#![doc = include_str!("../../../docs/formats/catalog.md")]

use std::collections::BTreeMap;

use perdura_base::cursor::{Reader, Writer};
use perdura_base::{Error, PartitionId, Result, TableId};
use perdura_heap::{Heap, Partition};
use perdura_recovery::indexing::ReadCatalog;
use perdura_recovery::tables::UnknownKind;
use perdura_recovery::{Catalog, KeyOrder, TableKind};
use perdura_txn::Tx;

/// The catalog's own table.
pub const CATALOG: TableId = TableId(0);

const NEXT_ID: &[u8] = b"n";

fn row_key(name: &str) -> Vec<u8> {
    let mut key = b"t".to_vec();
    key.put(name.as_bytes());
    key
}

/// Writes the row of a table's name.
pub(crate) fn put_table(
    tx: &mut Tx<'_>,
    name: &str,
    table: TableId,
    kind: TableKind,
) -> Result<()> {
    let mut value = Vec::new();
    value.put_varint(u64::from(table.0));
    assert_eq!(
        TableKind::decode(kind.encode()),
        Ok(kind),
        "a restart reads it"
    );
    value.put(&kind.encode());
    tx.put_catalog(CATALOG, &row_key(name), &value)
}

/// Notes which id the next table gets.
pub(crate) fn put_next_id(tx: &mut Tx<'_>, next: u32) -> Result<()> {
    let mut value = Vec::new();
    value.put_varint(u64::from(next));
    tx.put_catalog(CATALOG, NEXT_ID, &value)?;
    assert_eq!(read_next_id(tx)?, next, "the next transaction reads it");
    Ok(())
}

/// The id of the next table: one that was never used.
pub(crate) fn read_next_id(tx: &Tx<'_>) -> Result<u32> {
    let Some(row) = tx.peek(CATALOG, NEXT_ID)? else {
        return Ok(1);
    };
    let id = Reader::new(&row.value())
        .varint()
        .and_then(|id| u32::try_from(id).ok());
    id.ok_or_else(|| damaged("the next table id"))
}

pub(crate) fn damaged(what: &str) -> Error {
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

/// The tables of a heap whose table 0 is indexed.
pub(crate) fn tables_of(heap: &Heap) -> Result<Tables> {
    let mut tables = Tables::new();
    for id in (0..heap.geometry().partitions).map(PartitionId) {
        read_tables(&heap.lock(id), &mut tables)?;
    }
    Ok(tables)
}

/// Adds the tables whose rows one partition holds.
fn read_tables(part: &Partition, tables: &mut Tables) -> Result<()> {
    let mut read = Ok(());
    part.for_each(CATALOG, |row| {
        if let Err(error) = read_row(&row.key(), &row.value(), tables) {
            read = Err(error);
        }
    });
    read
}

/// Adds the table that a row of the catalog names, if it names one.
pub(crate) fn read_row(key: &[u8], value: &[u8], tables: &mut Tables) -> Result<()> {
    let Some(name) = key.strip_prefix(b"t") else {
        return Ok(());
    };
    let mut r = Reader::new(value);
    let parsed = (|| {
        let table = TableId(u32::try_from(r.varint()?).ok()?);
        let kind = [r.u8()?, r.u8()?];
        let name = String::from_utf8(name.to_vec()).ok()?;
        (r.remaining() == 0).then_some((name, table, kind))
    })();
    let (name, table, kind) = parsed.ok_or_else(|| damaged("a table's row"))?;
    let kind = TableKind::decode(kind).map_err(|unknown| unknown_kind(&name, unknown))?;
    tables.insert(name, (table, kind));
    Ok(())
}

/// The catalog in the rows of table 0, as a restart reads it.
#[derive(Debug, Clone, Copy)]
pub struct CatalogRows;

impl ReadCatalog for CatalogRows {
    fn read_catalog(&self, heap: &Heap) -> Result<Catalog> {
        read_catalog(heap)
    }
}

/// The tables of a heap whose table 0 is indexed, for the restart.
fn read_catalog(heap: &Heap) -> Result<Catalog> {
    let mut catalog: Catalog = tables_of(heap)?.into_values().collect();
    catalog.insert(CATALOG, TableKind::heap(KeyOrder::Hashed));
    Ok(catalog)
}

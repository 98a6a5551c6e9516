//! Dropped tables. A drop is one transaction over all partitions. The catalog remembers a key-addressed table until no
//! image and no part of the log needs it.
//!
//! A restart first brings the catalog to its state at the log's end. Then it replays the commands since the image.
//! Commands before the drop use the table. So the restart needs the schema of the dropped table, and the rows and
//! indexes that the table has in the image. For that reason the drop replaces the table's row in the catalog with a
//! *dropped* row. The tag of that row is the current checkpoint epoch. An image reflects the drop exactly if the
//! image's epoch is greater than the tag. The same rule applies to tags of page records. When every complete image
//! reflects the drop, the *dropped* row is removed (docs/formats/catalog.md).
//!
//! A page-addressed table needs none of this, because the log has the changes of its pages up to
//! the drop.

use std::collections::BTreeMap;

use perdura_base::cursor::{Reader, Writer};
use perdura_base::num::to_u64;
use perdura_base::{CkptEpoch, PartitionId, Result, TableId};
use perdura_heap::Heap;
use perdura_recovery::TableKind;
use perdura_txn::Tx;

use super::{CATALOG, Entry, damaged};

/// A table that was dropped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Dropped {
    /// The checkpoint epoch of the drop.
    pub tag: CkptEpoch,
    /// The name of the table before the drop.
    pub name: String,
    /// The table's entry in the catalog before the drop.
    pub entry: Entry,
}

impl Dropped {
    /// Returns whether an image of checkpoint epoch `k` does not reflect the drop yet.
    pub fn is_behind(&self, k: CkptEpoch) -> bool {
        self.tag >= k
    }

    /// Returns the key and value of the table's *dropped* row in the catalog.
    fn encode(&self) -> (Vec<u8>, Vec<u8>) {
        let mut value = Vec::new();
        value.put_varint(self.tag.0);
        value.put_varint(to_u64(self.name.len()));
        value.put(self.name.as_bytes());
        value.put(&self.entry.kind.encode());
        value.put(&self.entry.schema);
        (dropped_key(self.entry.id), value)
    }

    /// Writes the table's *dropped* row.
    pub fn write(&self, tx: &mut Tx<'_>) -> Result<()> {
        let (key, value) = self.encode();
        let read = read_dropped(&key, &value)?;
        assert_eq!(read.as_ref(), Some(self), "a restart reads it");
        tx.put_catalog(CATALOG, &key, &value)
    }
}

/// Returns the key of the row of a dropped table.
pub(crate) fn dropped_key(id: TableId) -> Vec<u8> {
    let mut key = b"d".to_vec();
    key.put(&id.0.to_be_bytes());
    key
}

/// Returns the dropped tables that a heap's catalog lists. The catalog, table 0, must be indexed.
pub(crate) fn dropped_of(heap: &Heap) -> Result<BTreeMap<TableId, Dropped>> {
    let mut tables = BTreeMap::new();
    for id in (0..heap.geometry().partitions).map(PartitionId) {
        let mut read = Ok(());
        heap.lock(id).for_each(CATALOG, |row| {
            match read_dropped(&row.key(), &row.value()) {
                Ok(Some(table)) => drop(tables.insert(table.entry.id, table)),
                Ok(None) => {}
                Err(error) => read = Err(error),
            }
        });
        read?;
    }
    Ok(tables)
}

fn read_dropped(key: &[u8], value: &[u8]) -> Result<Option<Dropped>> {
    let Some(id) = key.strip_prefix(b"d") else {
        return Ok(None);
    };
    let mut r = Reader::new(value);
    let parsed = (|| {
        let id = TableId(u32::from_be_bytes(id.try_into().ok()?));
        let tag = CkptEpoch(r.varint()?);
        let len = r.varint_usize()?;
        let name = String::from_utf8(r.bytes(len)?.to_vec()).ok()?;
        let kind = TableKind::decode([r.u8()?, r.u8()?]).ok()?;
        let schema = r.bytes(r.remaining())?.to_vec();
        let entry = Entry { id, kind, schema };
        Some(Dropped { tag, name, entry })
    })();
    parsed
        .map(Some)
        .ok_or_else(|| damaged("the row of a dropped table"))
}

#[cfg(test)]
mod tests {
    use perdura_recovery::{Addressing, ComponentKind, KeyOrder};

    use super::*;

    #[test]
    fn the_example_of_the_catalog_page_is_the_row_of_a_dropped_table() {
        crate::table! { struct Line in "log", addressing = key { key(id: u64), at: u64 } }
        let page = include_str!("../../../../docs/formats/catalog.md");
        let text = page.split("```").nth(5).expect("the third block");
        let digits = text.trim_start_matches("text").split_whitespace();
        let bytes: Vec<u8> = digits
            .map(|byte| u8::from_str_radix(byte, 16).expect("hex"))
            .collect();
        let (key, value) = bytes.split_at(5);
        let mut schema = Vec::new();
        <Line as crate::Table>::schema().encode(&mut schema);
        let expected = Dropped {
            tag: CkptEpoch(5),
            name: "log".into(),
            entry: Entry {
                id: TableId(9),
                kind: TableKind {
                    order: KeyOrder::Hashed,
                    addressing: Addressing::Key,
                    component: ComponentKind::Heap,
                },
                schema,
            },
        };
        assert_eq!(read_dropped(key, value).unwrap().as_ref(), Some(&expected));
        assert_eq!(expected.encode(), (key.to_vec(), value.to_vec()));
        assert!(expected.is_behind(CkptEpoch(5)) && !expected.is_behind(CkptEpoch(6)));
        for len in 0..value.len() - expected.entry.schema.len() {
            let refused = read_dropped(key, &value[..len]).unwrap_err().to_string();
            assert!(refused.contains("dropped table"), "{refused}");
        }
        assert_eq!(read_dropped(b"tlog", value).unwrap(), None);
    }
}

//! Dropped tables: a drop is one transaction over all partitions, and the catalog remembers a key-addressed table
//! until no image and no part of the log needs it.
//!
//! A restart brings the catalog to the log's end first, and plays commands from the image on. Those before the drop
//! use the table: the restart must know its schema, find its rows in the image and have its indexes. So the drop turns
//! the table's row in the catalog into one that says *dropped*, with the checkpoint epoch that was current. An image
//! reflects the drop exactly if its own epoch is greater, as it is for a page record with such a tag. When every
//! complete image is one of those, the row goes (docs/formats/catalog.md).
//!
//! A page-addressed table needs none of this: the log has its pages' changes to the end.

use std::collections::BTreeMap;

use perdura_base::cursor::{Reader, Writer};
use perdura_base::num::to_u64;
use perdura_base::{CkptEpoch, Error, PartitionId, Result, TableId};
use perdura_heap::{DetachedTable, Heap};
use perdura_page::ordered::Op;
use perdura_recovery::{Addressing, TableKind};
use perdura_txn::{Ticket, Tx};

use crate::catalog::{CATALOG, Entry, damaged, find_table, remove_table};
use crate::core::{Core, Flushed};
use crate::db::Db;
use crate::map;
use crate::transact::{Attempt, Watch};

/// A table that was dropped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Dropped {
    /// The checkpoint epoch in which it was.
    pub tag: CkptEpoch,
    /// The name that it had.
    pub name: String,
    /// What the catalog said of it.
    pub entry: Entry,
}

impl Dropped {
    /// Whether an image of checkpoint epoch `k` does not have the drop.
    pub fn is_behind(&self, k: CkptEpoch) -> bool {
        self.tag >= k
    }

    /// Its row of the catalog: key and value.
    fn encode(&self) -> (Vec<u8>, Vec<u8>) {
        let mut value = Vec::new();
        value.put_varint(self.tag.0);
        value.put_varint(to_u64(self.name.len()));
        value.put(self.name.as_bytes());
        value.put(&self.entry.kind.encode());
        value.put(&self.entry.schema);
        (dropped_key(self.entry.id), value)
    }

    fn write(&self, tx: &mut Tx<'_>) -> Result<()> {
        let (key, value) = self.encode();
        let read = read_dropped(&key, &value)?;
        assert_eq!(read.as_ref(), Some(self), "a restart reads it");
        tx.put_catalog(CATALOG, &key, &value)
    }
}

fn dropped_key(id: TableId) -> Vec<u8> {
    let mut key = b"d".to_vec();
    key.put(&id.0.to_be_bytes());
    key
}

/// The dropped tables of a heap whose table 0 is indexed.
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

impl Core {
    /// Drops a typed table or a map, with all its rows: `None` if there is no such table. The caller hands the result to
    /// [`reclaim_flushed`](Core::reclaim_flushed).
    ///
    /// # Errors
    /// [`Error::Usage`] if the name is one of those that the database was opened with; those of a write.
    pub fn drop_table(&self, name: &str) -> Result<Option<(Flushed, Ticket)>> {
        let (flushed, ticket) = self.drop_watched(name, &mut |_| {})?;
        Ok(flushed.map(|flushed| (flushed, ticket)))
    }

    /// As [`drop_table`](Core::drop_table). `watch` hears how many bytes of the log the transaction awaits.
    fn drop_watched(&self, name: &str, watch: Watch<'_>) -> Result<(Option<Flushed>, Ticket)> {
        if self.tables().table(name).is_some() {
            return Err(Error::Usage(format!(
                "table {name:?} belongs to the program that opened the database: empty it instead"
            )));
        }
        let mut maps = self.maps().lock();
        let (done, ticket) = self.transact(&self.all_partitions(), |tx| {
            let done = self.drop_in(tx, name);
            watch(tx.awaits_log());
            done
        })?;
        let Some((detached, kept)) = done else {
            return Ok((None, ticket));
        };
        maps.remove(name);
        self.typed().dropped.lock().extend(kept);
        Ok((Some(Flushed::of(detached)), ticket))
    }

    /// Drops a table within a transaction that holds every partition.
    fn drop_in(
        &self,
        tx: &mut Tx<'_>,
        name: &str,
    ) -> Result<Option<(Vec<DetachedTable>, Option<Dropped>)>> {
        tx.admit(4096)?;
        tx.check_all_latched()?;
        let Some(entry) = find_table(tx, name)? else {
            return Ok(None);
        };
        let id = entry.id;
        remove_table(tx, name)?;
        let kept = match entry.kind.addressing {
            Addressing::Page => None,
            Addressing::Key => {
                let tag = self.heap().ckpt_epoch();
                let name = name.to_owned();
                let dropped = Dropped { tag, name, entry };
                dropped.write(tx)?;
                tx.note_table(id, &Op::DropTable);
                Some(dropped)
            }
        };
        // Nothing may fail behind this.
        tx.check_not_refused()?;
        let detached = tx.detach_tables([id])?;
        self.typed().registry.mark_dropped(id);
        Ok(Some((detached, kept)))
    }

    /// Removes from the catalog the dropped tables that no image lacks the drop of, if there are any. Returns how many.
    ///
    /// # Errors
    /// A full log or a stopped database; nothing is lost by trying later.
    pub(crate) fn forget_dropped(&self) -> Result<usize> {
        let due = {
            let waiting = self.typed().dropped.lock();
            if waiting.is_empty() {
                return Ok(0);
            }
            let Some(oldest) = self.oldest_image() else {
                return Ok(0);
            };
            let due = waiting.iter().filter(|table| !table.is_behind(oldest));
            due.map(|table| table.entry.id).collect::<Vec<_>>()
        };
        if due.is_empty() {
            return Ok(0);
        }
        let ((), _durable_some_time) = self.transact(&self.all_partitions(), |tx| {
            tx.admit(4096)?;
            for id in &due {
                let was_there = tx.delete(CATALOG, &dropped_key(*id))?;
                assert!(was_there, "the row of dropped table {id} is removed once");
            }
            Ok::<_, Error>(())
        })?;
        let mut waiting = self.typed().dropped.lock();
        waiting.retain(|table| !due.contains(&table.entry.id));
        Ok(due.len())
    }

    /// The checkpoint epoch of the oldest image that a restart may begin with; `None` if it may have to begin without.
    fn oldest_image(&self) -> Option<CkptEpoch> {
        let record = self.anchor().get();
        let complete = record.images.iter().filter(|image| image.is_complete());
        complete.map(|image| image.k).min()
    }
}

impl Db {
    /// Drops a typed table with all its rows; false if there is none of that name. It is durable when this returns.
    /// Verbs on the table fail from then on; a program that declares it gets a new, empty one when it opens the
    /// database again.
    ///
    /// ```
    /// # perdura::table! { pub struct Visit in "visits" { key(id: u64), page: String } }
    /// # use perdura::Table;
    /// # let dir = tempfile::tempdir()?;
    /// let db = perdura::Db::builder(dir.path()).table::<Visit>().open()?;
    /// db.write(|tx| tx.insert(&Visit { id: 1, page: "/".into() }))?;
    /// assert!(db.drop_table(Visit::NAME)?);
    /// assert!(db.read(|tx| tx.get::<Visit>(1)).is_err());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// Those of a write.
    pub fn drop_table(&self, name: &str) -> Result<bool> {
        let core = &self.shared.core;
        let (flushed, ticket) = loop {
            match self.attempt(|watch| core.drop_watched(name, watch))? {
                Attempt::Committed(flushed, ticket) => break (flushed, ticket),
                Attempt::Behind { .. } => self.hold_back(),
            }
        };
        let Some(flushed) = flushed else {
            return Ok(false);
        };
        core.reclaim_flushed(flushed);
        self.wait(ticket)?;
        Ok(true)
    }

    /// Drops a map with all its entries; false if there is none of that name. Handles of it find nothing from then
    /// on, and their writes fail.
    ///
    /// # Errors
    /// Those of a write.
    pub fn drop_map(&self, name: &str) -> Result<bool> {
        self.drop_table(&map::table_name(name))
    }
}

#[cfg(test)]
mod tests {
    use perdura_recovery::{ComponentKind, KeyOrder};

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

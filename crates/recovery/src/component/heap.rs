//! The heap as a data component.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

use perdura_base::{CkptEpoch, Error, ImageSlot, PageId, PartitionId, Result, TableId};
use perdura_heap::build::check_page;
use perdura_heap::{
    Geometry, Heap, IndexStats, Kind, MemoryAccount, Partition, PartitionGuard, RowRef, Shape,
    Sidecar, Visit,
};

use super::{Contract, Element, Elements, Forms, KeyContent, Value};

impl Contract for Heap {
    fn geometry(&self) -> &Geometry {
        Heap::geometry(self)
    }

    fn memory(&self) -> &Arc<MemoryAccount> {
        Heap::memory(self)
    }

    fn ckpt_epoch(&self) -> CkptEpoch {
        Heap::ckpt_epoch(self)
    }

    fn set_ckpt_epoch(&self, k: CkptEpoch) {
        Heap::set_ckpt_epoch(self, k);
    }

    fn load_pages(&self, partition: PartitionId, pages: &[(u32, &[u8])]) {
        let mut part = self.lock(partition);
        for (local, bytes) in pages {
            part.load_page(*local, bytes);
        }
    }

    fn check_replayed(&self) -> Result<()> {
        for id in (0..Heap::geometry(self).partitions).map(PartitionId) {
            if let Some(gap) = self.lock(id).useq_gaps().into_iter().next() {
                return Err(Error::corrupt(
                    format!("page {}", gap.page),
                    0,
                    format!("every update after number {} once", gap.image_useq.0),
                    format!("{gap:?}"),
                    "The log lost or repeated a record of this page. Restore a backup.",
                ));
            }
        }
        Ok(())
    }

    fn end_replay(&self, partition: PartitionId, k: CkptEpoch, slot: Option<ImageSlot>) {
        self.lock(partition).finish_restart(k, slot);
    }

    fn index_catalog(&self, partition: PartitionId) -> Result<()> {
        self.lock(partition).build_catalog_index()
    }

    fn read_sidecar(&self, partition: PartitionId, bytes: &[u8]) -> Sidecar {
        Heap::read_sidecar(self, partition, bytes)
    }

    fn index(
        &self,
        partition: PartitionId,
        forms: &Forms<'_>,
        sidecar: Option<Sidecar>,
    ) -> Result<IndexStats> {
        self.lock(partition).build_indexes(forms, sidecar)
    }

    fn settle(&self) -> Result<()> {
        self.settle_collections().map(drop)
    }

    fn visit(
        &self,
        partition: PartitionId,
        pages: Range<u32>,
        (slot, k): (ImageSlot, CkptEpoch),
        sidecar: &mut Vec<u8>,
        mut take: impl FnMut(u32, PageId, Visit<'_>),
    ) -> Option<u32> {
        let mut part = self.lock(partition);
        let end = part.pages().min(pages.end);
        for local in pages.start..end {
            let id = Heap::geometry(self).page_id(partition, local);
            let id = id.expect("a page there is has an id");
            take(local, id, part.visit(local, slot, k));
        }
        if end < part.pages() {
            return Some(end);
        }
        part.sidecar(sidecar);
        part.close_checkpoint_cut();
        None
    }

    fn mark_dirty(&self, partition: PartitionId, local: u32, slot: ImageSlot) {
        self.lock(partition).mark_dirty(local, slot);
    }

    fn copy_page(&self, partition: PartitionId, local: u32, out: &mut [u8]) -> bool {
        let part = self.lock(partition);
        let page = part.page_bytes(local);
        if let Some(page) = page {
            out.copy_from_slice(page);
        }
        page.is_some()
    }

    fn contents(&self, mut take: impl FnMut(TableId, KeyContent<'_>) -> Result<()>) -> Result<()> {
        let ids = (0..Heap::geometry(self).partitions).map(PartitionId);
        let parts: Vec<PartitionGuard<'_>> = ids.map(|id| self.lock(id)).collect();
        let tables: BTreeSet<TableId> = parts.iter().flat_map(|part| part.table_ids()).collect();
        for table in tables {
            for part in &parts {
                list_table(&parts, part, table, &mut take)?;
            }
        }
        Ok(())
    }

    fn check_page(&self, id: PageId, bytes: &[u8]) -> Result<()> {
        check_page(id, bytes).map(drop)
    }
}

/// Passes one partition's keys of a table to `take`.
fn list_table(
    parts: &[PartitionGuard<'_>],
    part: &Partition,
    table: TableId,
    take: &mut impl FnMut(TableId, KeyContent<'_>) -> Result<()>,
) -> Result<()> {
    let (mut rows, mut refused) = (0u64, Ok(()));
    part.for_each(table, |row| {
        rows += 1;
        let content = KeyContent {
            key: row.key(),
            expiry_ms: row.expiry_ms(),
            value: value_of(parts, table, &row),
        };
        if refused.is_ok() {
            refused = take(table, content);
        }
    });
    refused?;
    if rows != part.len(table) {
        return Err(Error::corrupt(
            format!("partition {}, table {table}", part.id()),
            0,
            format!("the {} rows that its index names", part.len(table)),
            format!("{rows} rows"),
            "The data cannot be read as a whole. Keep a copy and report it.",
        ));
    }
    Ok(())
}

/// What a client reads of a row; `None` if the row is an element, or heads a collection that does not exist.
fn value_of<'a>(
    parts: &'a [PartitionGuard<'_>],
    table: TableId,
    row: &RowRef<'a>,
) -> Option<Value<'a>> {
    match row.kind() {
        Kind::String => Some(Value::String(row.value())),
        Kind::Small(shape) => Some(Value::Packed(shape, row.value())),
        Kind::Header(shape) => {
            let home = row.home()?;
            let part = parts.get(usize::from(home.partition.0))?;
            assert_eq!(part.id(), home.partition, "partitions are in their order");
            let elements = part.elements(table, home.id)?;
            let (count, rows) = (elements.len(), elements.iter());
            let each = Box::new(rows.map(move |row| element(shape, &row)));
            Some(Value::Elements(Elements { shape, count, each }))
        }
        Kind::Element(_) => None,
    }
}

/// An element without what its collection adds to its row. The field of a list's item is a label, which is an
/// order number and no data.
fn element<'a>(shape: Shape, row: &RowRef<'a>) -> Element<'a> {
    let none = Cow::Borrowed(&[][..]);
    let (name, value, score) = match shape {
        Shape::Hash | Shape::Stream => (row.field(), row.value(), 0.0),
        Shape::List => (row.value(), none, 0.0),
        Shape::Set => (row.field(), none, 0.0),
        Shape::Zset => (row.field(), none, row.score()),
    };
    Element { name, value, score }
}

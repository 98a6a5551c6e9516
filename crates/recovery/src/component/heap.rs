//! The pages in memory.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::ops::Range;

use perdura_base::{CkptEpoch, Error, ImageSlot, PageId, PartitionId, Result, TableId};
use perdura_heap::{Heap, Kind, Partition, PartitionGuard, RowRef, Shape, Visit};

use super::{Component, Data, Element, Elements, KeyContent, Take, Value};
use crate::anchor::Anchor;
use crate::checkpoint::{CheckpointParts, Checkpointer, Phase, Sweep, Taken};
use crate::options::RestartOptions;
use crate::verify::{Findings, check_image};

/// The component.
pub(super) struct HeapPages;

impl Component for HeapPages {
    fn step(&self, machine: &mut Checkpointer, sweep: &mut Sweep, phase: Phase) -> Result<Taken> {
        machine.sweep_heap(sweep, phase)
    }

    fn cancel(&self, machine: &mut Checkpointer, sweep: &Sweep) {
        machine.cancel_sweep(sweep);
    }

    fn name_in(&self, anchor: &mut Anchor, parts: &CheckpointParts, sweep: &Sweep) {
        sweep.name_image(anchor, parts.clock.wall_us());
    }

    fn check_disk(&self, options: &RestartOptions, anchor: &Anchor, found: &mut Findings) {
        for slot in ImageSlot::ALL {
            check_image(options, anchor, slot, found);
        }
    }

    fn contents(&self, data: &Data<'_>, take: &mut Take<'_>) -> Result<()> {
        contents(data.heap, take)
    }
}

/// Puts pages of the image in place, before or after records of them were played.
pub fn load_pages(heap: &Heap, partition: PartitionId, pages: &[(u32, &[u8])]) {
    let mut part = heap.lock(partition);
    for (local, bytes) in pages {
        part.load_page(*local, bytes);
    }
}

/// Checks that every page has seen each of its updates once, after the image and all records.
///
/// # Errors
/// [`Error::Corrupt`] names a page whose updates have a gap or a duplicate.
pub fn check_replayed(heap: &Heap) -> Result<()> {
    for id in (0..heap.geometry().partitions).map(PartitionId) {
        if let Some(gap) = heap.lock(id).useq_gaps().into_iter().next() {
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

/// Visits some pages of a partition for checkpoint `k` into `slot`, under one latch, which is
/// held while `take` copies. Returns the first page not visited. Behind the last page it
/// returns `None` and has appended the sidecar and closed the checkpoint's cut in the partition, still
/// under that latch.
pub fn visit(
    heap: &Heap,
    (partition, pages): (PartitionId, Range<u32>),
    sweep: (ImageSlot, CkptEpoch),
    sidecar: &mut Vec<u8>,
    mut take: impl FnMut(u32, PageId, Visit<'_>),
) -> Option<u32> {
    let mut part = heap.lock(partition);
    let end = part.pages().min(pages.end);
    for local in pages.start..end {
        let id = heap.geometry().page_id(partition, local);
        let id = id.expect("a page there is has an id");
        take(local, id, part.visit(local, sweep.0, sweep.1));
    }
    if end < part.pages() {
        return Some(end);
    }
    part.sidecar(sidecar);
    part.close_checkpoint_cut();
    None
}

/// Passes every key of every table to `take`, with what a client reads of it, at one moment: every latch
/// is held. Tables come in ascending order.
///
/// # Errors
/// The first error of `take`; [`Error::Corrupt`] if a row that an index names cannot be read.
pub fn contents(heap: &Heap, take: &mut Take<'_>) -> Result<()> {
    let ids = (0..heap.geometry().partitions).map(PartitionId);
    let parts: Vec<PartitionGuard<'_>> = ids.map(|id| heap.lock(id)).collect();
    let tables: BTreeSet<TableId> = parts.iter().flat_map(|part| part.table_ids()).collect();
    for table in tables {
        for part in &parts {
            list_table(&parts, part, table, take)?;
        }
    }
    Ok(())
}

/// Passes one partition's keys of a table to `take`.
fn list_table(
    parts: &[PartitionGuard<'_>],
    part: &Partition,
    table: TableId,
    take: &mut Take<'_>,
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

#[cfg(test)]
mod conformance;

//! The pages in memory.

mod image;

use perdura_base::{Error, ImageSlot, PartitionId, Result, TableId};
use perdura_heap::{Heap, Kind, Partition, PartitionGuard, RowRef, Shape};
use std::borrow::Cow;
use std::collections::BTreeSet;

use self::image::check_image;
use super::{Component, Data, Element, Elements, KeyContent, Take, Value};
use crate::anchor::Anchor;
use crate::checkpoint::{CheckpointParts, Checkpointer, Phase, Share, Sweep, Taken};
use crate::findings::Findings;
use crate::options::RestartOptions;

/// The component of the pages in memory.
pub(super) struct HeapPages;

impl Share for HeapPages {
    fn step(&self, machine: &mut Checkpointer, sweep: &mut Sweep, phase: Phase) -> Result<Taken> {
        machine.sweep_heap(sweep, phase)
    }

    fn cancel(&self, machine: &mut Checkpointer, sweep: &mut Sweep) {
        machine.cancel_sweep(sweep);
    }

    fn name_in(&self, anchor: &mut Anchor, parts: &CheckpointParts, sweep: &Sweep) {
        sweep.name_image(anchor, parts.clock.wall_us());
    }
}

impl Component for HeapPages {
    fn check_disk(&self, options: &RestartOptions, anchor: &Anchor, found: &mut Findings) {
        for slot in ImageSlot::ALL {
            check_image(options, anchor, slot, found);
        }
    }

    fn contents(&self, data: &Data<'_>, take: &mut Take<'_>) -> Result<()> {
        contents(data.heap, take)
    }
}

/// Passes every key of every table to `take`, with the value that a client reads. Tables come in ascending order. Every
/// latch is held until the end, so all values are from one moment.
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
            "Not all data can be read. Copy the files and report the bug.",
        ));
    }
    Ok(())
}

/// Returns the value that a client reads from a row. `None`: the row is an element of a collection, or the head of a
/// collection that does not exist.
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

/// Returns an element without the bytes that the collection adds to the element's row. The field of a list's row is
/// left out, because it only orders the items.
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

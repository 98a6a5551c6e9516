//! The steps of snapshots. Every read of a snapshot must return the pages and rows of the snapshot's instant.

use std::collections::BTreeMap;

use perdura_base::{PartitionId, TableId};
use perdura_heap::{Heap, Kind, Snapshot};

use crate::report::Check;
use crate::world::World;

/// The maximum number of open snapshots.
const SNAPSHOTS_MAX: usize = 3;
/// The length of the checkpoint epoch at a page's start, in bytes. This epoch is not part of a snapshot.
const EPOCH_BYTES: usize = 8;

type Pages = BTreeMap<(PartitionId, u32), Vec<u8>>;
type Rows = BTreeMap<Vec<u8>, Vec<u8>>;

/// A snapshot, with copies of all pages and rows that it must return.
pub(crate) struct Reading {
    snapshot: Snapshot,
    pages: Pages,
    rows: BTreeMap<TableId, Rows>,
}

fn partitions(heap: &Heap) -> impl Iterator<Item = PartitionId> {
    (0..heap.geometry().partitions).map(PartitionId)
}

/// Returns whether a page has any content besides its checkpoint epoch. Returns false for a page that an undone
/// transaction created.
fn is_page(bytes: &[u8]) -> bool {
    bytes.iter().skip(EPOCH_BYTES).any(|byte| *byte != 0)
}

impl Reading {
    fn begin(core: &perdura::Core) -> Reading {
        let heap = core.heap();
        let mut pages = Pages::new();
        let mut rows: BTreeMap<TableId, Rows> = BTreeMap::new();
        for id in partitions(heap) {
            let part = heap.lock(id);
            for local in 0..part.pages() {
                let bytes = part.page_bytes(local).unwrap_or_default();
                if is_page(bytes) {
                    pages.insert((id, local), bytes[EPOCH_BYTES..].to_vec());
                }
            }
            for table in part.table_ids() {
                let of_table = rows.entry(table).or_default();
                part.for_each(table, |row| {
                    if row.kind() == Kind::String {
                        of_table.insert(row.key().into_owned(), row.value().into_owned());
                    }
                });
            }
        }
        let snapshot = heap.snapshot();
        Reading {
            snapshot,
            pages,
            rows,
        }
    }

    fn check(&self, heap: &Heap) -> Check {
        let mut found = Pages::new();
        let fail = |error: &perdura::Error| format!("a snapshot cannot be read: {error}");
        for id in partitions(heap) {
            let take = |local, bytes: &[u8]| {
                if is_page(bytes) {
                    found.insert((id, local), bytes[EPOCH_BYTES..].to_vec());
                }
            };
            let left = self.snapshot.for_each_page(id, 0, u32::MAX, take);
            if left.map_err(|error| fail(&error))?.is_some() {
                return Err(format!("a snapshot ends within partition {id}"));
            }
        }
        if found != self.pages {
            return Err("a snapshot has other pages than at its instant".into());
        }
        for (table, rows) in &self.rows {
            let mut found = Rows::new();
            let each = |key: &[u8], value: &[u8]| {
                found.insert(key.to_vec(), value.to_vec());
                Ok(())
            };
            let read = self.snapshot.each_row(*table, each);
            read.map_err(|error| fail(&error))?;
            if found != *rows {
                return Err(format!(
                    "a snapshot has other rows of table {table} than at its instant"
                ));
            }
        }
        Ok(())
    }
}

impl World {
    /// Takes a snapshot, or reads an open snapshot and sometimes ends it.
    pub(crate) fn snapshot_step(&mut self) -> Check {
        if !self.core().is_loaded() {
            return Ok(());
        }
        let open = self.snapshots.len();
        if open == 0 || open < SNAPSHOTS_MAX && self.rng.u8(0..3) == 0 {
            let reading = Reading::begin(self.core());
            self.snapshots.push(reading);
            *self.tally.reached.entry("snapshot").or_default() += 1;
            return Ok(());
        }
        let at = self.rng.usize(..open);
        self.snapshots[at].check(self.core().heap())?;
        if self.rng.bool() {
            self.snapshots.swap_remove(at);
        }
        Ok(())
    }
}

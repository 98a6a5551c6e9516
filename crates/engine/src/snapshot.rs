//! Snapshots: all rows as of one instant, while writers continue.
//!
//! If a writer changes a row, the old version is kept in memory for the snapshot. All old versions together may take a
//! quarter of the memory in use, and always 16 MiB. If they exceed this limit, the oldest snapshot ends, and reading it
//! fails with [`Error::SnapshotEnded`]. Drop a snapshot soon after reading it.

use perdura_base::{Error, PartitionId, Result, TableId};
use perdura_table::{RowView, Table};
use perdura_txn::TypedTable;

use crate::core::Core;
use crate::db::Db;

/// All typed rows as of one instant; see [`Db::snapshot`].
pub struct Snapshot {
    db: Db,
    pages: perdura_heap::Snapshot,
    /// The typed tables that existed when the snapshot was taken.
    tables: Vec<TableId>,
}

impl Db {
    /// Takes a snapshot of the current moment. It contains all visible transactions, each as a whole. These
    /// transactions are durable when this returns.
    ///
    /// # Errors
    /// [`Error::Stopped`] if the database stops before the snapshot's contents are durable.
    pub fn snapshot(&self) -> Result<Snapshot> {
        let core = self.shared.core();
        core.load_all()?;
        let (tables, pages) = loop {
            let before = core.registry().live();
            let pages = core.heap().snapshot();
            // If a table was dropped between these two calls, the snapshot would have the table's pages without its
            // index.
            if core.registry().live() == before {
                break (before, pages);
            }
        };
        assert_eq!(
            pages.pseq().len(),
            usize::from(core.heap().geometry().partitions),
            "a snapshot has every partition"
        );
        let ((), ticket) = core.transact(&core.all_partitions(), |_| Ok::<_, Error>(()))?;
        self.wait(ticket)?;
        Ok(Snapshot {
            db: self.clone(),
            pages,
            tables,
        })
    }
}

impl Snapshot {
    /// Passes every row of a table to `take`, in no order.
    ///
    /// # Errors
    /// [`Error::SnapshotEnded`] if too many old versions had to be kept for the snapshot. [`Error::Usage`] if the
    /// database was not opened with the table. [`Error::Corrupt`] if a row cannot be read.
    pub fn each<T: Table>(&self, mut take: impl FnMut(T)) -> Result<()> {
        self.views::<T>(|row| {
            take(row.decode()?);
            Ok(())
        })
    }

    /// Like [`each`](Self::each), without decoding the rows.
    ///
    /// # Errors
    /// As [`each`](Self::each), and the errors of `take`.
    pub fn views<T: Table>(&self, take: impl FnMut(&RowView<'_, T>) -> Result<()>) -> Result<()> {
        let core = self.db.shared.core();
        let table = core.registry().table_among::<T>(&self.tables)?;
        debug_assert!(
            self.tables.contains(&table.id),
            "a snapshot shows the tables of its instant"
        );
        core.views_of_table(table, &self.pages, take)
    }
}

impl Core {
    /// Passes every row of a table in a heap snapshot to `take`.
    ///
    /// # Errors
    /// As [`Snapshot::each`].
    pub fn views_of<T: Table>(
        &self,
        pages: &perdura_heap::Snapshot,
        take: impl FnMut(&RowView<'_, T>) -> Result<()>,
    ) -> Result<()> {
        let table = self.typed().registry.table::<T>()?;
        self.views_of_table(table, pages, take)
    }

    fn views_of_table<T: Table>(
        &self,
        table: TypedTable,
        pages: &perdura_heap::Snapshot,
        mut take: impl FnMut(&RowView<'_, T>) -> Result<()>,
    ) -> Result<()> {
        // Every partition has a copy of each replicated row, so reading one partition is enough.
        let copies = T::DECLARATION.replicated;
        let partitions = if copies {
            1
        } else {
            self.heap().geometry().partitions
        };
        for partition in (0..partitions).map(PartitionId) {
            pages.each_row_of(partition, table.id, |key, value| {
                take(&RowView::new(key.into(), value.into()))
            })?;
        }
        Ok(())
    }
}

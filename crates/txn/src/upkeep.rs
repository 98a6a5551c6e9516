//! The engine's own verbs within a transaction: they attach and detach tables, write the catalog and
//! reclaim pages.
//!
//! No verb gives the caller mutable access to a partition. Rows are written only by the verbs of [`Tx`], which request
//! room in the log and enforce the limits.

use perdura_base::{PartitionId, Result, TableId};
use perdura_heap::{DetachedTable, Partition, TableForm, TableKey};

use crate::tx::Tx;

impl Tx<'_> {
    /// Reads a latched partition. A panic in `f` stops the database, like a panic in the engine.
    ///
    /// # Errors
    /// [`Error::Undeclared`](perdura_base::Error::Undeclared), which the closure must return.
    pub fn view<R>(&self, id: PartitionId, f: impl FnOnce(&Partition) -> R) -> Result<R> {
        let _verb = self.verb();
        let at = self.guard_of(id)?;
        Ok(f(&self.guards[at].1))
    }

    /// Returns the number of partitions of the database.
    #[must_use]
    pub fn partitions(&self) -> usize {
        usize::from(self.geometry.partitions)
    }

    /// Attaches an empty table in every partition. This is not logged, and an abort does not undo
    /// it. Every partition must be latched.
    ///
    /// # Errors
    /// [`Error::Undeclared`](perdura_base::Error::Undeclared), which the closure must return.
    pub fn attach_table(&mut self, table: TableId, form: impl Into<TableForm>) -> Result<()> {
        let _verb = self.verb();
        self.check_all_latched()?;
        let form = form.into();
        for (_, part) in &mut self.guards {
            part.attach_table(table, form.clone());
        }
        Ok(())
    }

    /// Detaches tables in every partition. An abort does not undo this, so it must be the last verb of a transaction.
    /// Every partition must be latched. The caller must drop the result only after the latches are released.
    ///
    /// # Errors
    /// [`Error::Undeclared`](perdura_base::Error::Undeclared), before anything has changed.
    pub fn detach_tables(
        &mut self,
        tables: impl IntoIterator<Item = TableId>,
    ) -> Result<Vec<DetachedTable>> {
        let _verb = self.verb();
        self.check_all_latched()?;
        let mut detached = Vec::new();
        for table in tables {
            for (_, part) in &mut self.guards {
                detached.extend(part.detach_table(table));
                debug_assert!(part.is_empty(table), "no key of it is found any more");
            }
        }
        Ok(detached)
    }

    /// Fails unless every partition is latched.
    ///
    /// # Errors
    /// [`Error::Undeclared`](perdura_base::Error::Undeclared), which the closure must return.
    pub fn check_all_latched(&self) -> Result<()> {
        for id in (0..self.geometry.partitions).map(PartitionId) {
            self.guard_of(id)?;
        }
        assert_eq!(
            self.guards.len(),
            usize::from(self.geometry.partitions),
            "a latch for each partition"
        );
        Ok(())
    }

    /// Writes a row of the catalog, even at the memory limit. The catalog is small, and a flush, which frees memory,
    /// must write it.
    ///
    /// # Errors
    /// As [`put`](Tx::put), except [`Error::OutOfMemory`](perdura_base::Error::OutOfMemory).
    pub fn put_catalog(&mut self, table: TableId, key: &[u8], value: &[u8]) -> Result<()> {
        let _verb = self.verb();
        let (at, hash) = self.place(key)?;
        let part = &mut self.guards[at].1;
        // The catalog has no collections.
        let _no_collection = part.put(self.undo, TableKey::new(table, key, hash), value, None)?;
        Ok(())
    }

    /// Frees, in one partition, at most `max_pages` pages of tables that no longer exist. Returns the number of freed
    /// pages; 0 if the partition has no page of a dropped table.
    ///
    /// # Errors
    /// [`Error::Undeclared`](perdura_base::Error::Undeclared), which the closure must return.
    pub fn reclaim(&mut self, id: PartitionId, max_pages: usize) -> Result<usize> {
        let _verb = self.verb();
        let at = self.guard_of(id)?;
        let freed = self.guards[at].1.reclaim(self.undo, max_pages);
        assert!(freed <= max_pages, "{freed} pages freed of {max_pages}");
        Ok(freed)
    }
}

//! What the engine does within a transaction beside the verbs for keys: tables come and go, the
//! catalog is written, pages are reclaimed.
//!
//! No verb hands out a partition that can be changed: rows are written by the verbs of [`Tx`] alone,
//! which ask the log for room and hold the limits.

use perdura_base::{PartitionId, Result, TableId};
use perdura_heap::{DetachedTable, Partition};

use crate::tx::Tx;

impl Tx<'_> {
    /// Looks at a latched partition. A panic in `f` stops the database, like one in the engine.
    ///
    /// # Errors
    /// [`Error::Undeclared`](perdura_base::Error::Undeclared), to be handed on.
    pub fn view<R>(&self, id: PartitionId, f: impl FnOnce(&Partition) -> R) -> Result<R> {
        let _verb = self.verb();
        let at = self.guard_of(id)?;
        Ok(f(&self.guards[at].1))
    }

    /// Partitions of the database.
    #[must_use]
    pub fn partitions(&self) -> usize {
        usize::from(self.geometry.partitions)
    }

    /// Makes an empty table known in every partition; nothing of that is logged, and an abort leaves
    /// it. Needs every partition.
    ///
    /// # Errors
    /// [`Error::Undeclared`](perdura_base::Error::Undeclared), to be handed on.
    pub fn attach_table(&mut self, table: TableId, ordered: bool) -> Result<()> {
        let _verb = self.verb();
        self.check_all_latched()?;
        for (_, part) in &mut self.guards {
            part.attach_table(table, ordered);
        }
        Ok(())
    }

    /// Forgets tables in every partition, which an abort does not undo: the last that a transaction
    /// does. Needs every partition. Drop the result when the latches are released.
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
    /// [`Error::Undeclared`](perdura_base::Error::Undeclared), to be handed on.
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

    /// Writes a row of the catalog, past the memory limit: the catalog is small, and a flush frees
    /// memory.
    ///
    /// # Errors
    /// As [`put`](Tx::put), but for the memory limit.
    pub fn put_catalog(&mut self, table: TableId, key: &[u8], value: &[u8]) -> Result<()> {
        let _verb = self.verb();
        let (at, hash) = self.place(key)?;
        let part = &mut self.guards[at].1;
        // The catalog's rows head nothing.
        let _no_collection = part.put(self.undo, table, key, hash, value, None)?;
        Ok(())
    }

    /// Frees pages of a partition whose table is gone; returns how many. 0: a full pass found none.
    ///
    /// # Errors
    /// [`Error::Undeclared`](perdura_base::Error::Undeclared), to be handed on.
    pub fn reclaim(&mut self, id: PartitionId, max_pages: usize) -> Result<usize> {
        let _verb = self.verb();
        let at = self.guard_of(id)?;
        let freed = self.guards[at].1.reclaim(self.undo, max_pages);
        assert!(freed <= max_pages, "{freed} pages freed of {max_pages}");
        Ok(freed)
    }
}

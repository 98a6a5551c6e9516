//! Dropping a table, and removing it from the catalog when no image needs it; see
//! [`catalog`](crate::catalog).

use perdura_base::{CkptEpoch, Error, Result};
use perdura_formats::ordered::Op;
use perdura_heap::DetachedTable;
use perdura_recovery::Addressing;
use perdura_txn::{Ticket, Tx};

use super::{Core, Flushed, Watch};
use crate::catalog::{CATALOG, Dropped, dropped_key, find_table, remove_table};

impl Core {
    /// Drops a typed table or a map, with all its rows. `None`: the table does not exist. The caller hands the result
    /// to [`reclaim_flushed`](Core::reclaim_flushed).
    ///
    /// # Errors
    /// [`Error::Usage`] if the options of the open list this name, for example `db0`. Also the errors of a write.
    pub fn drop_table(&self, name: &str) -> Result<Option<(Flushed, Ticket)>> {
        let (flushed, ticket) = self.drop_watched(name, &mut |_| {})?;
        Ok(flushed.map(|flushed| (flushed, ticket)))
    }

    /// Like [`drop_table`](Core::drop_table). `watch` gets the bytes of log room that the transaction awaits, if any.
    pub(crate) fn drop_watched(
        &self,
        name: &str,
        watch: Watch<'_>,
    ) -> Result<(Option<Flushed>, Ticket)> {
        if self.tables().table(name).is_some() {
            return Err(Error::Usage(format!(
                "table {name:?} cannot be dropped: it belongs to the program that opened the \
                 database. Empty it instead"
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
        // Check first: after the tables are detached, nothing may fail.
        tx.check_not_refused()?;
        let detached = tx.detach_tables([id])?;
        self.typed().registry.mark_dropped(id);
        Ok(Some((detached, kept)))
    }

    /// Removes dropped tables from the catalog if every image reflects their drop, and so does the archive's oldest
    /// backup. Returns the number of removed tables.
    ///
    /// # Errors
    /// The log is full or the database has stopped. Trying again later loses nothing.
    pub(crate) fn forget_dropped(&self) -> Result<usize> {
        let due = {
            let waiting = self.typed().dropped.lock();
            if waiting.is_empty() {
                return Ok(0);
            }
            let Some(oldest) = self.oldest_image() else {
                return Ok(0);
            };
            // A restore replays frames from a backup on. They may use a table that was dropped later.
            let oldest = self.oldest_backup().map_or(oldest, |k| k.min(oldest));
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

    /// Returns the checkpoint epoch of the key-addressed rows in the oldest complete image. A restart may have to begin
    /// with this image. `None`: there is no image, so a restart begins without one.
    fn oldest_image(&self) -> Option<CkptEpoch> {
        let record = self.anchor().get();
        let complete = record.images.iter().filter(|image| image.is_complete());
        complete.map(|image| record.rows_as_of(image.k)).min()
    }
}

//! The steps of the purge. Each step is a transaction; see [`purge`](crate::purge).

use perdura_base::{Error, Result};

use super::{Core, ExpiredListener};

/// A purge step removes at most this many expired rows of one table.
const PURGE_ROWS: usize = 32;
/// A purge step frees at most this many pages.
const RECLAIM_PAGES: usize = 8;

impl Core {
    /// Takes one step of the purge, for the next partition in turn. The step is one logged transaction. It removes
    /// expired keys and the elements of deleted collections, and frees pages of dropped tables. It also removes a
    /// dropped table from the catalog when every image reflects the drop. Returns the number of rows, pages and tables
    /// that it removed.
    ///
    /// # Errors
    /// The log is full or the database has stopped. Trying again later loses nothing.
    pub fn purge_step(&self) -> Result<usize> {
        // The headers of collections are known when the last partition is loaded. Before that, a collection without a
        // header may be in use.
        if self.purge.is_held() || !self.is_loaded() {
            return Ok(0);
        }
        self.heap().settle_drafts();
        let dropped = self.purge.drop_flushed() + self.forget_dropped()?;
        let partitions = u32::from(self.heap().geometry().partitions);
        let id = self.purge.next_partition(partitions);
        let now_ms = self.clock().wall_us() / 1000;
        let due = |part: &perdura_heap::Partition, place: u8| {
            part.expired(self.tables().at(place), now_ms, PURGE_ROWS)
        };
        let reclaim = self.purge.is_reclaiming();
        let (none_due, orphans) = {
            let part = self.heap().lock(id);
            if part.is_purged(now_ms) && !reclaim {
                return Ok(dropped);
            }
            let mut places = self.tables().places();
            let none_due = places.all(|place| due(&part, place).is_empty());
            (none_due, part.orphan_rows() > 0)
        };
        if none_due && !reclaim && !orphans {
            return Ok(dropped);
        }
        self.admit(PURGE_ROWS * 64)?;
        let parts = [id].into_iter().collect();
        let most = PURGE_ROWS * self.tables().places().count();
        let ((expired, removed, freed), ticket) = self.transact(&parts, |tx| {
            let mut expired = Vec::new();
            for place in self.tables().places() {
                let keys = tx.view(id, |part| due(part, place))?;
                for key in keys {
                    tx.delete(self.tables().at(place), &key)?;
                    expired.push((place, key));
                }
            }
            let mut removed = expired.len();
            if orphans {
                removed += tx.purge_orphans(id, self.options().orphans.step_rows)?;
            }
            let freed = if reclaim {
                tx.reclaim(id, RECLAIM_PAGES)?
            } else {
                0
            };
            Ok::<_, Error>((expired, removed, freed))
        })?;
        assert!(expired.len() <= most, "a step is short");
        assert!(
            removed - expired.len() <= self.options().orphans.step_rows,
            "a step removes no more elements than it was given"
        );
        self.purge.tell_expired(&expired, ticket.epoch);
        if freed > 0 {
            self.purge.start_reclaim(partitions);
        } else if reclaim {
            self.purge.note_pass(partitions);
        }
        Ok(removed + freed + dropped)
    }

    /// Stops the purge or lets it continue. A stopped purge appends nothing to the log. A step that is running when
    /// this is called may still append.
    pub fn hold_purge(&self, held: bool) {
        self.purge.hold(held);
    }

    /// Sets the listener for keys that the purge removes. Later calls have no effect.
    pub fn on_expired(&self, listener: ExpiredListener) {
        self.purge.on_expired(listener);
    }

    /// Returns whether a listener for removed keys is set. The listener waits until the removals are durable, so the
    /// caller should wake the flusher.
    pub(crate) fn tells_of_expired(&self) -> bool {
        self.purge.tells_of_expired()
    }
}

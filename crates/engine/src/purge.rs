//! The purge removes data that is no longer visible, in background steps that are transactions.
//!
//! A key past its expiry is hidden from readers at once and removed here later, as are the elements
//! of a collection without a key, and the pages and indexes of flushed tables. A step that fails or
//! is never taken loses nothing: a restart finds the same work.

use std::sync::atomic::Ordering;

use perdura_base::{Error, PartitionId, Result};

use crate::core::{Core, ExpiredListener};
use crate::db::Db;

/// Rows removed, or pages freed, by one purge step at most.
const PURGE_ROWS: usize = 32;
const RECLAIM_PAGES: usize = 8;
/// Flushed tables, each of one partition, whose indexes one purge step drops at most.
const DROPPED_TABLES: usize = 16;

impl Core {
    /// One step of the purge, for the next partition in turn: removes keys past their expiry
    /// and elements of collections without a key, and frees pages of tables that are gone, each as
    /// a logged transaction. Returns how much it did.
    ///
    /// # Errors
    /// A full log or a stopped database; nothing is lost by trying later.
    pub fn purge_step(&self) -> Result<usize> {
        if self.purge_held.load(Ordering::SeqCst) {
            return Ok(0);
        }
        self.heap().settle_drafts();
        let dropped = self.drop_flushed() + self.forget_dropped()?;
        let partitions = u32::from(self.heap().geometry().partitions);
        let turn = self.purge_next.fetch_add(1, Ordering::Relaxed) % partitions;
        let id = PartitionId(u16::try_from(turn).expect("at most 256 partitions"));
        let now_ms = self.clock().wall_us() / 1000;
        let due = |part: &perdura_heap::Partition, place: u8| {
            part.expired(self.tables().at(place), now_ms, PURGE_ROWS)
        };
        let reclaim = self.reclaim_left.load(Ordering::Relaxed) > 0;
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
        if let Some(listener) = self.expired.get().filter(|_| !expired.is_empty()) {
            listener(&expired, ticket.epoch);
        }
        if freed > 0 {
            self.start_reclaim();
        } else if reclaim {
            let pass = |left: u32| left.checked_sub(1);
            let left = (self.reclaim_left).fetch_update(Ordering::Relaxed, Ordering::Relaxed, pass);
            assert!(
                left.unwrap_or(0) <= partitions,
                "a pass visits each partition once"
            );
        }
        Ok(removed + freed + dropped)
    }

    /// Stops the purge or lets it continue. A stopped purge appends nothing to the log, once the step that runs has ended.
    pub fn hold_purge(&self, held: bool) {
        self.purge_held.store(held, Ordering::SeqCst);
    }

    /// Drops the indexes of some tables that were flushed, because a thread that flushes millions of
    /// entries may serve other clients, too. Returns how many tables.
    fn drop_flushed(&self) -> usize {
        let gone = {
            let mut flushed = self.flushed.lock();
            let kept = flushed.len().saturating_sub(DROPPED_TABLES);
            flushed.split_off(kept)
        };
        assert!(gone.len() <= DROPPED_TABLES, "a step is short");
        gone.len()
    }

    /// Sets the listener for keys that the purge removes. The first one set stays.
    pub fn on_expired(&self, listener: ExpiredListener) {
        let _the_first_stays = self.expired.set(listener);
    }

    /// Whether a listener is set, which waits for the purge's removals to be durable.
    pub(crate) fn tells_of_expired(&self) -> bool {
        self.expired.get().is_some()
    }
}

impl Db {
    /// Stops the purge or lets it continue; see [`Core::hold_purge`]. Expired keys stay hidden.
    pub fn hold_purge(&self, held: bool) {
        self.shared.core.hold_purge(held);
    }
}

//! The comparison after a restart: compares everything observable with the model.

use perdura::Core;
use perdura::types::Source;
use perdura_base::PartitionId;
use perdura_base::checksum::mix64;
use perdura_base::error::Family;

use crate::ledger;
use crate::model::State;
use crate::ops::{is_row, key_bytes, key_number};
use crate::over_core::OverCore;
use crate::report::Check;
use crate::world::World;

impl World {
    /// Returns a number that depends only on the run and on how many restarts it has had.
    pub(crate) fn draw_of_restart(&self) -> u64 {
        mix64(self.seed ^ self.tally.restarts << 32)
    }

    /// Compares an open engine with the expected rows. Walks over the partitions, reads every key and every
    /// collection's elements, and checks the counts of rows and of occupied slots.
    pub(crate) fn compare(&self, core: &Core, expected: &State) -> Check {
        match core.load_all() {
            // A fault of the disk makes the partitions unreadable for now.
            Err(error) if error.family() == Family::Environment => return Ok(()),
            loaded => loaded.map_err(|error| format!("loading: {error}"))?,
        }
        let (mut unexplained, mut orphans) = (0, 0);
        for database in 0..self.swarm.databases {
            unexplained += self
                .compare_database(core, database, expected)
                .map_err(|what| format!("database {database}: {what}"))?;
        }
        for partition in (0..core.heap().geometry().partitions).map(PartitionId) {
            orphans += core.heap().lock(partition).orphan_rows();
        }
        // Only the run's own engine has drafts. An engine that was opened on copies of the disks has none.
        let own = self
            .engine
            .as_ref()
            .is_some_and(|own| std::ptr::eq(own, core));
        let drafted = if own { self.compare_drafts(core)? } else { 0 };
        if self.ledger.is_some() {
            ledger::compare(core, expected)?;
        }
        if unexplained != orphans + drafted {
            return Err(format!(
                "{unexplained} rows belong to no key, {drafted} to drafts, and {orphans} wait to be \
                 removed"
            ));
        }
        Ok(())
    }

    /// Compares a database with `expected`. Returns how many rows belong to none of its keys.
    fn compare_database(&self, core: &Core, database: u8, expected: &State) -> Check<u64> {
        let table = core.database(database);
        let mut scratch = Vec::new();
        let (mut rows, mut slots) = (0, 0);
        let (mut headers, mut wrong) = (Vec::new(), None);
        for partition in (0..core.heap().geometry().partitions).map(PartitionId) {
            let part = core.heap().lock(partition);
            slots += part.slots_taken(table);
            part.for_each(table, |row| {
                rows += 1;
                let key = row.key();
                let place = key_number(&key).map(|key| (database, key));
                let row_is = place.and_then(|place| expected.get(&place));
                let same = row_is.is_some_and(|row_is| {
                    headers.extend(row.home().map(|home| (home, row_is)));
                    is_row(row, row_is, &mut scratch)
                });
                if !same || core.partition_of(&key) != partition {
                    wrong = Some(String::from_utf8_lossy(&key).into_owned());
                }
            });
        }
        if let Some(key) = wrong {
            return Err(format!("the row of {key} is not the model's"));
        }
        let of_database = expected.range((database, 0)..=(database, u8::MAX));
        let (count, expiring) = of_database.clone().fold((0u64, 0u64), |(rows, due), row| {
            (rows + 1, due + u64::from(row.1.expiry_ms.is_some()))
        });
        if rows != count {
            return Err(format!("{rows} rows, the model has {count}"));
        }
        let ((len, due, found, elements, different), _) = core
            .transact(&core.all_partitions(), |tx| {
                let mut found = 0;
                for (place, row) in of_database.clone() {
                    let got = tx.get(table, &key_bytes(place.1))?;
                    found += u64::from(got.is_some() == row.is_visible(tx.now_ms()));
                }
                let (mut elements, mut different) = (0, None);
                for (home, row) in &headers {
                    let source = Source::Rows(tx.elements(table, *home)?);
                    elements += source.len();
                    if !row.value.is_in(&source) {
                        different = Some((*home, row.value.shape()));
                    }
                }
                let (len, due) = (tx.len(table)?, tx.expiring(table)?);
                Ok((len, due, found, elements, different))
            })
            .map_err(|error: perdura::Error| format!("a read failed: {error}"))?;
        if let Some(different) = different {
            return Err(format!("the elements of {different:?} are not the model's"));
        }
        if (len, due, found) != (count, expiring, count) {
            return Err(format!(
                "{len} rows of which {due} expire by count and {found} by key; the model has \
                 {count}, {expiring}"
            ));
        }
        let explained = rows + elements;
        let unexplained = slots.checked_sub(explained);
        unexplained.ok_or_else(|| format!("{slots} slots are taken by {explained} rows"))
    }

    /// Compares the state after a restart with the model. The model then forgets everything that was not
    /// durable.
    pub(crate) fn check_state(&mut self) -> Check {
        // If partitions are absent, half of the runs take their steps before anything is compared. The next comparison loads
        // the partitions.
        let goes_on = !self.core().is_loaded() && self.draw_of_restart().is_multiple_of(2);
        if !goes_on {
            self.verify(self.core())?;
        }
        let durable = self.core().report().durable_epoch;
        self.model.restart(durable);
        if let Some(scan) = &mut self.scan {
            scan.restart(self.model.live());
        }
        self.closed_cleanly = Some(false);
        self.count_restart(durable);
        Ok(())
    }
}

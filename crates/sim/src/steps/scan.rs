//! The steps of a scan. A key that exists during the whole scan must be returned by one of its calls.

use perdura::PartitionSet;
use perdura_device::Clock;

use crate::ops::key_number;
use crate::report::Check;
use crate::scanning::Scanning;
use crate::world::World;

impl World {
    /// Begins a scan, or makes the next call of the running scan.
    pub(crate) fn scan_step(&mut self) -> Check {
        let count = self.rng.usize(1..=4);
        let mut scan = match self.scan.take() {
            Some(scan) => scan,
            None => {
                let database = self.machine.rng.u8(0..self.swarm.databases);
                let rows = self.model.live().range((database, 0)..=(database, u8::MAX));
                let stays = rows.filter(|(_, row)| row.expiry_ms.is_none());
                Scanning {
                    database,
                    cursor: 0,
                    due: stays.map(|(place, _)| place.1).collect(),
                }
            }
        };
        let core = self.core();
        let parts: PartitionSet = core.partition_of_cursor(scan.cursor).into_iter().collect();
        let result = core.transact(&parts, |tx| {
            let table = core.database(scan.database);
            let (rows, next) = tx.scan_keys(table, scan.cursor, count)?;
            let keys: Vec<_> = rows.iter().map(|row| key_number(&row.key())).collect();
            Ok((keys, next))
        });
        let (keys, next) = match result {
            Ok((found, _)) => found,
            Err(error) => return self.tolerate("scan_keys", &error),
        };
        let now_ms = self.clock.wall_us() / 1000;
        for key in keys {
            let row = key.and_then(|key| self.model.live().get(&(scan.database, key)));
            if !row.is_some_and(|row| row.is_visible(now_ms)) {
                return Err(format!("a scan returned key {key:?}, which is not there"));
            }
            scan.due.retain(|due| Some(*due) != key);
        }
        let live = self.model.live();
        debug_assert!(
            scan.due
                .iter()
                .all(|key| live.contains_key(&(scan.database, *key))),
            "a scan owes keys that are gone: {:?}",
            scan.due
        );
        if next != 0 {
            scan.cursor = next;
            self.scan = Some(scan);
        } else if !scan.due.is_empty() {
            let due = scan.due;
            return Err(format!(
                "a scan did not return keys that were there: {due:?}"
            ));
        }
        Ok(())
    }
}

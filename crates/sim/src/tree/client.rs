//! The steps of transactions; each reply is compared with the oracle.

use perdura_steal::Write;

use crate::report::Check;

use super::swarm::TABLES;
use super::world::{Spot, World};

impl World {
    /// A spot with a row or a lock, or any.
    fn draw_spot(&mut self) -> Spot {
        let spots = self.clients.oracle.spots();
        if !spots.is_empty() && self.rng.bool() {
            return spots[self.rng.usize(0..spots.len())].clone();
        }
        let table = TABLES[self.rng.usize(..TABLES.len())];
        let longest = self.swarm.options.page_bytes / 16;
        let len = self.rng.usize(..=longest.min(12));
        let letters = self.swarm.letters;
        let key = (0..len).map(|at| match at {
            0 | 1 => b'a' + self.rng.u8(..letters),
            _ => b'x',
        });
        (table, key.collect())
    }

    /// A put, or a removal.
    pub fn write(&mut self, removes: bool) -> Check {
        let Some(at) = self.clients.pick(&mut self.machine.rng, false) else {
            return Ok(());
        };
        let spot = self.draw_spot();
        let is_full = self.clients.oracle.committed().len() >= self.swarm.rows_max;
        let len = self.machine.rng.usize(..=self.swarm.value_max);
        let value = (!removes && !is_full).then(|| vec![self.machine.rng.u8(..); len]);
        let free = self.clients.may_lock(at, &spot);
        let before = self.clients.expected(&spot);
        let keyed = self.machine.engine();
        let txn = &mut self.clients.at(at).txn;
        let written = match keyed.txns().write(txn, spot.0, &spot.1, value.as_deref()) {
            Ok(written) => written,
            Err(error) => return self.tolerate("write", &error),
        };
        match (written, free) {
            (Write::Taken, false) => Ok(()),
            (Write::Done(found), true) if Some(&found) == before.as_ref() => {
                self.clients.wrote(at, spot, value);
                Ok(())
            }
            (written, _) => Err(format!(
                "a write to {spot:?}, which is free: {free} and held {before:?}, came to {written:?}"
            )),
        }
    }

    /// What is read is what the holder wrote, or what was committed.
    pub fn read(&mut self) -> Check {
        let spot = self.draw_spot();
        let Some(expected) = self.clients.expected(&spot) else {
            return Ok(());
        };
        let found = match self.keyed().txns().read(spot.0, &spot.1) {
            Ok(found) => found,
            Err(error) => return self.tolerate("read", &error),
        };
        match found == expected {
            true => Ok(()),
            false => Err(format!("{spot:?} holds {found:?}, the model {expected:?}")),
        }
    }

    /// Begins a rollback, or takes one more step of one.
    pub fn abort(&mut self) -> Check {
        let Some(at) = self.clients.pick(&mut self.machine.rng, true) else {
            return Ok(());
        };
        let keyed = self.machine.engine();
        let client = self.clients.at(at);
        client.rolls_back = true;
        match keyed.txns().abort_step(&mut client.txn) {
            Ok(false) => Ok(()),
            Ok(true) => {
                drop(self.clients.roll_back(at));
                Ok(())
            }
            Err(error) => self.tolerate("abort", &error),
        }
    }
}

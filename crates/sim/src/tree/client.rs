//! The steps of transactions; each reply is compared with the oracle.

use perdura_steal::Write;

use crate::report::Check;

use super::swarm::TABLES;
use super::world::{Client, Spot, World};

/// Transactions that run at once, at most.
const CLIENTS_MAX: usize = 6;

impl World {
    pub fn begin(&mut self) {
        if self.clients.len() < CLIENTS_MAX {
            self.clients_ever += 1;
            let client = Client {
                number: self.clients_ever,
                txn: self.keyed().begin(),
                writes: Vec::new(),
                rolls_back: false,
            };
            self.clients.push(client);
        }
    }

    fn pick(&mut self, rolls_back_too: bool) -> Option<usize> {
        let may = |client: &Client| rolls_back_too || !client.rolls_back;
        let fit: Vec<usize> = (0..self.clients.len())
            .filter(|at| may(&self.clients[*at]))
            .collect();
        (!fit.is_empty()).then(|| fit[self.rng.usize(0..fit.len())])
    }

    /// A spot with a row or a lock, or any.
    fn draw_spot(&mut self) -> Spot {
        let spots = self.oracle.spots();
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

    /// What is in a spot, as its holder sees it.
    fn expected(&self, spot: &Spot) -> Option<Option<Vec<u8>>> {
        let holder = self.oracle.holder(spot);
        let holder = holder.and_then(|number| self.clients.iter().find(|c| c.number == number));
        match holder {
            // Which of its changes are taken back is not ours to say.
            Some(client) if client.rolls_back => None,
            Some(client) => Some(client.wrote(spot).unwrap_or_else(|| self.committed(spot))),
            None => Some(self.committed(spot)),
        }
    }

    fn committed(&self, spot: &Spot) -> Option<Vec<u8>> {
        self.oracle.committed().get(spot).cloned()
    }

    /// A put, or a removal.
    pub fn write(&mut self, removes: bool) -> Check {
        let Some(at) = self.pick(false) else {
            return Ok(());
        };
        let spot = self.draw_spot();
        let is_full = self.oracle.committed().len() >= self.swarm.rows_max;
        let len = self.machine.rng.usize(..=self.swarm.value_max);
        let value = (!removes && !is_full).then(|| vec![self.machine.rng.u8(..); len]);
        let number = self.clients[at].number;
        let holder = self.oracle.holder(&spot);
        let free = holder.is_none_or(|holder| holder == number);
        let before = self.expected(&spot);
        let keyed = self.machine.engine();
        let txn = &mut self.clients[at].txn;
        let written = match keyed.write(txn, spot.0, &spot.1, value.as_deref()) {
            Ok(written) => written,
            Err(error) => return self.tolerate("write", &error),
        };
        match (written, free) {
            (Write::Taken, false) => Ok(()),
            (Write::Done(found), true) if Some(&found) == before.as_ref() => {
                self.oracle.lock(&spot, number);
                self.clients[at].writes.push((spot, value));
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
        let Some(expected) = self.expected(&spot) else {
            return Ok(());
        };
        let found = match self.keyed().read(spot.0, &spot.1) {
            Ok(found) => found,
            Err(error) => return self.tolerate("read", &error),
        };
        match found == expected {
            true => Ok(()),
            false => Err(format!("{spot:?} holds {found:?}, the model {expected:?}")),
        }
    }

    pub fn commit(&mut self) {
        let Some(at) = self.pick(false) else { return };
        let client = self.clients.swap_remove(at);
        let committed = self.keyed().commit(client.txn);
        let epoch = committed.epoch.0;
        self.oracle.commit(client.number, epoch, client.writes);
        self.promises.push(committed);
        self.tally.transactions += 1;
        self.note(epoch);
    }

    /// Begins a rollback, or takes one more step of one.
    pub fn abort(&mut self) -> Check {
        let Some(at) = self.pick(true) else {
            return Ok(());
        };
        let keyed = self.machine.engine();
        let client = &mut self.clients[at];
        client.rolls_back = true;
        match keyed.abort_step(&mut client.txn) {
            Ok(false) => Ok(()),
            Ok(true) => {
                let client = self.clients.swap_remove(at);
                self.oracle.abort(client.number);
                Ok(())
            }
            Err(error) => self.tolerate("abort", &error),
        }
    }
}

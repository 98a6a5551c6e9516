//! The steps of transactions; each reply is compared with the oracle.

use perdura_base::PartitionId;

use crate::report::Check;

use super::oracle::Spot;
use super::row::Row;
use super::world::{Client, World, place, spot};

/// Transactions that run at once, at most.
const CLIENTS_MAX: usize = 6;

impl World {
    pub fn begin(&mut self) {
        if self.clients.len() < CLIENTS_MAX {
            self.clients_ever += 1;
            let client = Client {
                number: self.clients_ever,
                txn: self.steal().begin(),
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

    /// A spot with a row or a lock.
    fn pick_spot(&mut self) -> Option<Spot> {
        let spots = self.oracle.spots();
        (!spots.is_empty()).then(|| spots[self.rng.usize(0..spots.len())])
    }

    /// What a client sees in a spot that no other client holds.
    fn sees(&self, at: usize, spot: Spot) -> Option<Row> {
        let committed = || self.oracle.committed().get(&spot).copied();
        self.clients[at].wrote(spot).unwrap_or_else(committed)
    }

    fn draw_row(&mut self) -> Row {
        let row = Row(self.rng.u64(..));
        row.fill(self.swarm.options.slot_bytes, &mut self.scratch);
        row
    }

    pub fn insert(&mut self) -> Check {
        if self.oracle.committed().len() >= self.swarm.rows_max {
            return self.change(true);
        }
        let Some(at) = self.pick(false) else {
            return Ok(());
        };
        let row = self.draw_row();
        let steal = self.machine.engine();
        let inserted = match steal.insert(&mut self.clients[at].txn, &self.scratch) {
            Ok(inserted) => inserted,
            Err(error) => return self.tolerate("insert", &error),
        };
        let Some(spot) = inserted.map(spot) else {
            return self.grow();
        };
        self.note(u64::from(spot.1));
        let number = self.clients[at].number;
        let holder = self.oracle.holder(&spot);
        if holder.is_some_and(|holder| holder != number) || self.sees(at, spot).is_some() {
            return Err(format!("an insert was given {spot:?}, which is not free"));
        }
        self.oracle.lock(&spot, number);
        self.clients[at].writes.push((spot, Some(row)));
        Ok(())
    }

    /// An update, or a delete.
    pub fn change(&mut self, deletes: bool) -> Check {
        let (Some(at), Some(spot)) = (self.pick(false), self.pick_spot()) else {
            return Ok(());
        };
        let number = self.clients[at].number;
        let free = self
            .oracle
            .holder(&spot)
            .is_none_or(|holder| holder == number);
        if free && self.sees(at, spot).is_none() {
            return Ok(());
        }
        let row = (!deletes).then(|| self.draw_row());
        let steal = self.machine.engine();
        let txn = &mut self.clients[at].txn;
        let done = match deletes {
            true => steal.delete(txn, place(spot)),
            false => steal.update(txn, place(spot), &self.scratch),
        };
        let done = match done {
            Ok(done) => done,
            Err(error) => return self.tolerate("update", &error),
        };
        if done != free {
            return Err(format!(
                "{spot:?} is free: {free}, the lock was given: {done}"
            ));
        }
        if done {
            self.oracle.lock(&spot, number);
            self.clients[at].writes.push((spot, row));
        }
        Ok(())
    }

    /// What is read is what the holder wrote, or what was committed.
    pub fn read(&mut self) -> Check {
        let Some(spot) = self.pick_spot() else {
            return Ok(());
        };
        let holder = self.oracle.holder(&spot);
        let holder = holder.and_then(|number| self.clients.iter().find(|c| c.number == number));
        let expected = match holder {
            // Which of its changes are taken back is not ours to say.
            Some(client) if client.rolls_back => return Ok(()),
            Some(client) => client.wrote(spot).flatten(),
            None => self.oracle.committed().get(&spot).copied(),
        };
        let mut bytes = Vec::new();
        let found = self.steal().read(place(spot), &mut bytes);
        self.same(spot, expected, found.then_some(&bytes))
    }

    /// Holds what is in a spot against what should be.
    pub fn same(&self, spot: Spot, expected: Option<Row>, found: Option<&Vec<u8>>) -> Check {
        let mut bytes = Vec::new();
        match (expected, found) {
            (None, None) => Ok(()),
            (Some(row), Some(found)) => {
                row.fill(self.swarm.options.slot_bytes, &mut bytes);
                match bytes == *found {
                    true => Ok(()),
                    false => Err(format!("the row in {spot:?} is not the model's")),
                }
            }
            (Some(_), None) => Err(format!("the row in {spot:?} is missing")),
            (None, Some(_)) => Err(format!("there is a row in {spot:?} that should not be")),
        }
    }

    pub fn commit(&mut self) {
        let Some(at) = self.pick(false) else { return };
        let client = self.clients.swap_remove(at);
        let committed = self.steal().commit(client.txn);
        let epoch = committed.epoch.0;
        self.oracle.commit(client.number, epoch, client.writes);
        self.promises.push(committed);
        self.tally.transactions += 1;
        self.note(epoch);
    }

    /// Begins a rollback, or takes one more step of one.
    pub fn abort(&mut self) {
        let Some(at) = self.pick(true) else { return };
        let at_once = self.rng.u8(0..6) == 0;
        let steal = self.machine.engine();
        if at_once && !self.clients[at].rolls_back {
            let client = self.clients.swap_remove(at);
            steal.abort(client.txn);
            self.oracle.abort(client.number);
            return;
        }
        let client = &mut self.clients[at];
        if !client.rolls_back {
            client.rolls_back = true;
            steal.abort_begin(&mut client.txn);
        }
        if steal.abort_step(&mut client.txn) {
            let client = self.clients.swap_remove(at);
            self.oracle.abort(client.number);
        }
    }

    pub fn grow(&mut self) -> Check {
        let partition = PartitionId(self.machine.rng.u16(0..self.swarm.options.partitions));
        match self.steal().grow(partition) {
            Ok(_) => Ok(()),
            Err(error) => self.tolerate("grow", &error),
        }
    }
}

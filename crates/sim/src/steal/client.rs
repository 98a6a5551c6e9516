//! The steps of transactions. The oracle checks each reply.

use perdura_base::PartitionId;

use crate::report::Check;

use super::row::Row;
use super::world::{Spot, World, place, spot};

impl World {
    /// Draws a spot with a row or a lock.
    fn pick_spot(&mut self) -> Option<Spot> {
        let spots = self.clients.oracle.spots();
        (!spots.is_empty()).then(|| spots[self.rng.usize(0..spots.len())])
    }

    fn draw_row(&mut self) -> Row {
        let row = Row(self.rng.u64(..));
        row.fill(self.swarm.options.slot_bytes, &mut self.scratch);
        row
    }

    pub fn insert(&mut self) -> Check {
        if self.clients.oracle.committed().len() >= self.swarm.rows_max {
            return self.change(true);
        }
        let Some(at) = self.clients.pick(&mut self.machine.rng, false) else {
            return Ok(());
        };
        let row = self.draw_row();
        let steal = self.machine.engine();
        let inserted = match steal.insert(&mut self.clients.at(at).txn, &self.scratch) {
            Ok(inserted) => inserted,
            Err(error) => return self.tolerate("insert", &error),
        };
        let Some(spot) = inserted.map(spot) else {
            return self.grow();
        };
        self.note(u64::from(spot.1));
        if !self.clients.may_lock(at, &spot) || self.clients.expected(&spot) != Some(None) {
            return Err(format!("an insert was given {spot:?}, which is not free"));
        }
        self.clients.wrote(at, spot, Some(row));
        Ok(())
    }

    /// Updates a drawn row, or deletes it if `deletes`.
    pub fn change(&mut self, deletes: bool) -> Check {
        let (Some(at), Some(spot)) = (
            self.clients.pick(&mut self.machine.rng, false),
            self.pick_spot(),
        ) else {
            return Ok(());
        };
        let free = self.clients.may_lock(at, &spot);
        if free && self.clients.expected(&spot) == Some(None) {
            return Ok(());
        }
        let row = (!deletes).then(|| self.draw_row());
        let steal = self.machine.engine();
        let txn = &mut self.clients.at(at).txn;
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
            self.clients.wrote(at, spot, row);
        }
        Ok(())
    }

    /// Reads a row. The reply must be the last write of the client that holds the row's lock. If no client holds it,
    /// the reply must be the last commit.
    pub fn read(&mut self) -> Check {
        let Some(spot) = self.pick_spot() else {
            return Ok(());
        };
        let Some(expected) = self.clients.expected(&spot) else {
            return Ok(());
        };
        let mut bytes = Vec::new();
        let found = self.steal().read(place(spot), &mut bytes);
        self.same(spot, expected, found.then_some(&bytes))
    }

    /// Compares the content of a spot with the expected content.
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

    /// Commits a drawn client, if any client can commit.
    pub fn commit(&mut self) {
        if let Some(at) = self.clients.pick(&mut self.machine.rng, false) {
            let committed = self.clients.commit(at, self.machine.engine());
            self.machine.promise(committed.epoch.0, committed);
        }
    }

    /// Chooses a client at random. Begins the client's rollback if it is not yet in progress, and then takes one step
    /// of it. In one of six calls, a new rollback runs at once to its end.
    pub fn abort(&mut self) {
        let Some(at) = self.clients.pick(&mut self.machine.rng, true) else {
            return;
        };
        let at_once = self.rng.u8(0..6) == 0;
        let steal = self.machine.engine();
        if at_once && !self.clients.at(at).rolls_back {
            steal.abort(self.clients.roll_back(at));
            return;
        }
        let client = self.clients.at(at);
        if !client.rolls_back {
            client.rolls_back = true;
            steal.abort_begin(&mut client.txn);
        }
        if steal.abort_step(&mut client.txn) {
            drop(self.clients.roll_back(at));
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

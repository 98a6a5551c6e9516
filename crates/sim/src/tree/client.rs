//! Clients with transactions that address rows of a tree by key. The oracle checks each reply.

use fastrand::Rng;
use perdura_base::{Error, TableId};
use perdura_recovery::tree::live::LiveTree;
use perdura_steal::{Committed, KeyTxns, Write};

use crate::locked::{self, Clients};
use crate::report::Check;
use crate::swarm::pick;

/// The address of a row: table and key.
pub(crate) type Spot = (TableId, Vec<u8>);
/// Rows by spot.
pub(crate) type State = locked::State<Spot, Vec<u8>>;

/// The tables of each run.
pub(crate) const TABLES: [TableId; 2] = [TableId(1), TableId(7)];

/// The character of a run's rows.
#[derive(Debug, Clone)]
pub(crate) struct KeyShape {
    /// The number of different letters at each of a key's first two positions.
    letters: u8,
    /// The maximum length of a key, in bytes.
    key_max: usize,
    /// The maximum length of a value, in bytes.
    value_max: usize,
    /// The number of committed rows from which on writes become removals.
    rows_max: usize,
}

impl KeyShape {
    /// Chooses the limits for keys, values and rows, most of them at random. The maximum length of a key depends on the
    /// page size.
    pub fn draw(rng: &mut Rng, page_bytes: usize) -> KeyShape {
        KeyShape {
            letters: pick(rng, &[2, 4, 8]),
            key_max: (page_bytes / 16).min(12),
            value_max: pick(rng, &[8, 40, 100]),
            rows_max: pick(rng, &[6, 40, 200]),
        }
    }
}

/// A step of the clients, or of the page writer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum KeyStep {
    Begin,
    Put,
    Remove,
    Commit,
    Abort,
    Read,
    WritePages,
}

/// Clients of a tree.
pub(crate) struct KeyClients {
    pub clients: Clients<KeyTxns, Spot, Vec<u8>>,
    shape: KeyShape,
    /// The number of dirty pages at or below which the page writer stops early.
    dirty_max: usize,
}

impl KeyClients {
    /// Returns clients without a running transaction.
    pub fn new(shape: KeyShape, dirty_max: usize) -> KeyClients {
        KeyClients {
            clients: Clients::default(),
            shape,
            dirty_max,
        }
    }

    /// Takes a step. Returns the commit if a client committed. The outer error is an error of the database; the inner
    /// error is a contradiction.
    pub fn step(
        &mut self,
        step: KeyStep,
        rng: &mut Rng,
        txns: &KeyTxns,
    ) -> Result<Check<Option<Committed>>, Error> {
        let checked = match step {
            KeyStep::Begin => {
                self.clients.begin(txns);
                Ok(())
            }
            KeyStep::Put => self.write(rng, txns, false)?,
            KeyStep::Remove => self.write(rng, txns, true)?,
            KeyStep::Commit => {
                let at = self.clients.pick(rng, false);
                return Ok(Ok(at.map(|at| self.clients.commit(at, txns))));
            }
            KeyStep::Abort => {
                self.abort(rng, txns)?;
                Ok(())
            }
            KeyStep::Read => self.read(rng, txns)?,
            KeyStep::WritePages => {
                self.write_pages(rng, txns)?;
                Ok(())
            }
        };
        Ok(checked.map(|()| None))
    }

    /// Chooses a spot at random. In half of the calls, chooses a spot that has a row or a lock, if there is one.
    fn draw_spot(&self, rng: &mut Rng) -> Spot {
        let spots = self.clients.oracle.spots();
        if !spots.is_empty() && rng.bool() {
            return spots[rng.usize(0..spots.len())].clone();
        }
        let table = TABLES[rng.usize(..TABLES.len())];
        let len = rng.usize(..=self.shape.key_max);
        let key = (0..len).map(|at| match at {
            0 | 1 => b'a' + rng.u8(..self.shape.letters),
            _ => b'x',
        });
        (table, key.collect())
    }

    /// Puts a row. Removes a row instead if `removes` is true or there are too many rows.
    fn write(&mut self, rng: &mut Rng, txns: &KeyTxns, removes: bool) -> Result<Check, Error> {
        let Some(at) = self.clients.pick(rng, false) else {
            return Ok(Ok(()));
        };
        let spot = self.draw_spot(rng);
        let is_full = self.clients.oracle.committed().len() >= self.shape.rows_max;
        let len = rng.usize(..=self.shape.value_max);
        let value = (!removes && !is_full).then(|| vec![rng.u8(..); len]);
        let free = self.clients.may_lock(at, &spot);
        let before = self.clients.expected(&spot);
        let txn = &mut self.clients.at(at).txn;
        let written = txns.write(txn, spot.0, &spot.1, value.as_deref())?;
        Ok(match (written, free) {
            (Write::Taken, false) => Ok(()),
            (Write::Done(found), true) if Some(&found) == before.as_ref() => {
                self.clients.wrote(at, spot, value);
                Ok(())
            }
            (written, _) => Err(format!(
                "a write to {spot:?}, which is free: {free} and held {before:?}, came to {written:?}"
            )),
        })
    }

    /// Reads a row. The result must be the last write of the transaction that holds the row's lock. If no transaction
    /// holds the lock, the result must be the last commit.
    fn read(&self, rng: &mut Rng, txns: &KeyTxns) -> Result<Check, Error> {
        let spot = self.draw_spot(rng);
        let Some(expected) = self.clients.expected(&spot) else {
            return Ok(Ok(()));
        };
        let found = txns.read(spot.0, &spot.1)?;
        Ok(match found == expected {
            true => Ok(()),
            false => Err(format!("{spot:?} holds {found:?}, the model {expected:?}")),
        })
    }

    /// Begins the rollback of a client, chosen at random, or takes one more step of the client's rollback.
    fn abort(&mut self, rng: &mut Rng, txns: &KeyTxns) -> Result<(), Error> {
        let Some(at) = self.clients.pick(rng, true) else {
            return Ok(());
        };
        let client = self.clients.at(at);
        client.rolls_back = true;
        if txns.abort_step(&mut client.txn)? {
            drop(self.clients.roll_back(at));
        }
        Ok(())
    }

    /// Writes one to eight pages. Stops early when few enough pages are dirty.
    fn write_pages(&self, rng: &mut Rng, live: &LiveTree) -> Result<(), Error> {
        for _ in 0..rng.u8(1..=8) {
            live.write_step()?;
            if live.tree().pool().monitor().lock().dirty_count() <= self.dirty_max {
                break;
            }
        }
        Ok(())
    }
}

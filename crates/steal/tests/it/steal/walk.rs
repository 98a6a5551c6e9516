//! Random transactions, flushes and closings of epochs. The tests that use this module add checkpoints themselves.

use perdura_base::{Epoch, PartitionId, StreamId};
use perdura_steal::{Committed, Steal};

use crate::steal::harness::{History, Open, begin, commit, delete, insert, row, rows, update};

/// The open transactions of a series of random actions, and the transactions committed since the start of the series.
#[derive(Default)]
pub struct Walk {
    pub history: History,
    open: Vec<Open>,
    number: u64,
}

impl Walk {
    /// Takes one random action. At most `open_max` transactions are open at once.
    pub fn step(&mut self, rng: &mut fastrand::Rng, steal: &Steal, open_max: usize) {
        let stream = StreamId(rng.u8(..steal.wal().streams()));
        let some = (!self.open.is_empty()).then(|| rng.usize(..self.open.len()));
        match (rng.u32(..47), some) {
            (0..6, _) if self.open.len() < open_max => self.open.push(begin(steal)),
            (6..24, Some(at)) if !self.open[at].txn.is_aborting() => self.change(rng, steal, at),
            (24..29, Some(at)) if !self.open[at].txn.is_aborting() => {
                let ended = self.open.swap_remove(at);
                let _acked_later = commit(steal, &mut self.history, ended);
            }
            (29..35, Some(at)) => self.roll_back(steal, at),
            (35, _) => {
                let partition = PartitionId(rng.u16(..steal.heap().geometry().partitions));
                drop(steal.grow(partition));
            }
            (36 | 37, _) => drop(steal.wal().close_begin()),
            (38..41, _) => steal.wal().close_visit(stream),
            (41..46, _) => drop(steal.flush_step(stream).unwrap()),
            (46, _) => steal.flush_all().unwrap(),
            _ => {}
        }
    }

    fn roll_back(&mut self, steal: &Steal, at: usize) {
        if steal.abort_step(&mut self.open[at].txn) {
            self.open.swap_remove(at);
        }
    }

    fn change(&mut self, rng: &mut fastrand::Rng, steal: &Steal, at: usize) {
        let open = &mut self.open[at];
        self.number += 1;
        let places: Vec<_> = rows(steal).into_keys().collect();
        let place = (!places.is_empty()).then(|| places[rng.usize(..places.len())]);
        match (rng.u32(..3), place) {
            (0, _) => drop(insert(steal, open, row(self.number))),
            (1, Some(place)) => drop(update(steal, open, place, row(self.number))),
            (2, Some(place)) => drop(delete(steal, open, place)),
            _ => {}
        }
    }

    /// Drops the open transactions, as a crash does. Returns the commits that were acknowledged.
    pub fn end_of_life(&mut self, steal: &Steal) -> Vec<Committed> {
        self.open.clear();
        let all = self.history.committed.iter().map(|(c, _)| *c);
        all.filter(|c| steal.is_acked(c)).collect()
    }

    /// Checks the state after a restart.
    pub fn check(&mut self, steal: &Steal, acked: &[Committed]) -> Result<(), String> {
        let durable = Epoch(steal.report().durable_epoch);
        if let Some(lost) = acked.iter().find(|c| c.epoch > durable) {
            return Err(format!("acknowledged and lost: {lost:?}"));
        }
        let expected = self.history.rows(durable);
        let found = rows(steal);
        if found != expected {
            let wrong = expected.iter().find(|(p, row)| found.get(p) != Some(row));
            let extra = found.iter().find(|(p, _)| !expected.contains_key(p));
            return Err(format!("wrong {wrong:?} extra {extra:?}"));
        }
        self.history.forget_after(durable);
        Ok(())
    }
}

/// Returns how many seeds to try: the environment variable `SEEDS` if it is set, otherwise `without`.
pub fn seeds(without: u64) -> u64 {
    std::env::var("SEEDS").map_or(without, |seeds| seeds.parse().unwrap())
}

//! The oracle: all rows, the partitions' transaction numbers, and the commits since the last restart. It shares no
//! code with the engine and knows nothing of pages, logs or images.

use std::collections::{BTreeMap, BTreeSet};

use super::rows::{Key, Row, Rows, Write};

/// Everything that a database must have.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct State {
    pub rows: Rows,
    /// For each partition, the number of transactions that the partition has counted.
    pub numbers: Vec<u64>,
}

/// A committed transaction.
#[derive(Debug, Clone)]
pub(crate) struct Commit {
    pub epoch: u64,
    pub writes: Vec<Write>,
    /// The partitions that counted the transaction, each with the transaction's number there.
    pub numbers: Vec<(usize, u64)>,
    /// The ids of the rows without keys that the transaction has appended.
    pub ids: Vec<u64>,
}

/// The model of a database of typed tables.
#[derive(Debug, Default)]
pub(crate) struct Oracle {
    base: State,
    live: State,
    history: Vec<Commit>,
    /// The epoch of the last write to each key since the restart.
    written: BTreeMap<Key, u64>,
    /// The ids of all rows without keys that surviving transactions have appended.
    spent: BTreeSet<u64>,
}

fn apply(state: &mut State, commit: &Commit) {
    for (key, row) in &commit.writes {
        match row {
            Some(row) => drop(state.rows.insert(*key, row.clone())),
            None => drop(state.rows.remove(key)),
        }
    }
    for (partition, number) in &commit.numbers {
        let before = state.numbers[*partition];
        assert_eq!(
            before + 1,
            *number,
            "the numbers of partition {partition} are dense"
        );
        state.numbers[*partition] = *number;
    }
}

impl Oracle {
    /// Returns the model of a new database with this number of partitions.
    pub fn new(partitions: u16) -> Oracle {
        let empty = State {
            rows: Rows::new(),
            numbers: vec![0; usize::from(partitions)],
        };
        Oracle {
            base: empty.clone(),
            live: empty,
            ..Oracle::default()
        }
    }

    /// Returns the committed state, durable or not.
    pub fn live(&self) -> &State {
        &self.live
    }

    /// Returns the row at a key.
    pub fn row(&self, key: Key) -> Option<&Row> {
        self.live.rows.get(&key)
    }

    /// Returns the epoch of the last write to a row. Returns 0 if the row has no write since the last restart.
    pub fn written(&self, key: Key) -> u64 {
        self.written.get(&key).copied().unwrap_or(0)
    }

    /// Returns whether a row already has, or had, this id.
    pub fn is_spent(&self, id: u64) -> bool {
        self.spent.contains(&id)
    }

    /// Adds a committed transaction.
    pub fn commit(&mut self, commit: Commit) {
        for (key, _) in &commit.writes {
            let before = self.written.insert(*key, commit.epoch);
            assert!(
                before <= Some(commit.epoch),
                "{key:?} is written in epoch {}, and was in {before:?}",
                commit.epoch
            );
        }
        for id in &commit.ids {
            assert!(self.spent.insert(*id), "row id {id} is given once");
        }
        apply(&mut self.live, &commit);
        self.history.push(commit);
    }

    /// Returns the expected state if exactly the epochs up to `durable` survived.
    pub fn state_at(&self, durable: u64) -> State {
        let mut state = self.base.clone();
        let survived = self.history.iter().filter(|c| c.epoch <= durable);
        survived.for_each(|commit| apply(&mut state, commit));
        state
    }

    /// Sets the model to the state after a restart: the epochs up to `durable` survived. The model forgets all later
    /// transactions. The engine may give the row ids of these transactions to other rows.
    pub fn restart(&mut self, durable: u64) {
        debug_assert_eq!(
            self.state_at(u64::MAX),
            self.live,
            "base and history make the live rows"
        );
        self.base = self.state_at(durable);
        for lost in self.history.iter().filter(|c| c.epoch > durable) {
            self.spent.retain(|id| !lost.ids.contains(id));
        }
        self.live.clone_from(&self.base);
        self.history.clear();
        self.written.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::content::Content;

    fn commit(epoch: u64, key: Key, number: u64, ids: &[u64]) -> Commit {
        let row = Row::Plain(Content {
            seed: epoch,
            len: 1,
        });
        Commit {
            epoch,
            writes: vec![(key, Some(row))],
            numbers: vec![(1, number)],
            ids: ids.to_vec(),
        }
    }

    #[test]
    fn a_restart_forgets_rows_numbers_and_ids_beyond_the_durable_epoch() {
        let mut oracle = Oracle::new(2);
        oracle.commit(commit(1, Key::Plain(1), 1, &[7]));
        oracle.commit(commit(2, Key::Plain(2), 2, &[8]));
        assert_eq!(oracle.live().numbers, [0, 2]);
        assert_eq!(oracle.state_at(1).rows.len(), 1);
        assert!(oracle.is_spent(8));
        oracle.restart(1);
        assert_eq!(oracle.live().numbers, [0, 1]);
        assert!(oracle.is_spent(7) && !oracle.is_spent(8));
        assert_eq!(oracle.written(Key::Plain(1)), 0);
    }
}

//! The oracle of databases with row locks. It keeps the rows in a sorted map, and lists the transactions since the last
//! restart. It shares no code with the engines and knows nothing of pages, logs or images.

use std::collections::BTreeMap;
use std::fmt::Debug;

mod clients;
mod database;

pub(crate) use clients::{CLIENTS_MAX, Clients};
pub(crate) use database::{Interleaved, close_part, interleaved};

/// Rows by *spot*. A spot is the address of a row, and also of the row's lock.
pub(crate) type State<S, R> = BTreeMap<S, R>;
/// A spot, and the row that a transaction left there. `None`: no row.
pub(crate) type Write<S, R> = (S, Option<R>);

/// The model of a database with locks.
#[derive(Debug)]
pub(crate) struct Oracle<S, R> {
    base: State<S, R>,
    committed: State<S, R>,
    history: Vec<(u64, Vec<Write<S, R>>)>,
    /// The number of the transaction that holds the lock, for each locked spot.
    locks: BTreeMap<S, u64>,
}

impl<S, R> Default for Oracle<S, R> {
    fn default() -> Self {
        Oracle {
            base: State::new(),
            committed: State::new(),
            history: Vec::new(),
            locks: BTreeMap::new(),
        }
    }
}

fn apply<S: Ord + Clone, R: Clone>(state: &mut State<S, R>, (spot, row): &Write<S, R>) {
    match row {
        Some(row) => drop(state.insert(spot.clone(), row.clone())),
        None => drop(state.remove(spot)),
    }
}

impl<S: Ord + Clone + Debug, R: Clone + Eq + Debug> Oracle<S, R> {
    /// Returns all committed rows, durable or not.
    pub fn committed(&self) -> &State<S, R> {
        &self.committed
    }

    /// Returns the number of the transaction that holds the lock of a spot, if any.
    pub fn holder(&self, spot: &S) -> Option<u64> {
        self.locks.get(spot).copied()
    }

    /// Returns every spot that has a row or a lock.
    pub fn spots(&self) -> Vec<S> {
        let spots = self.committed.keys().chain(self.locks.keys());
        let mut spots: Vec<S> = spots.cloned().collect();
        spots.sort_unstable();
        spots.dedup();
        spots
    }

    /// Locks a spot for the transaction with the number `holder`.
    pub fn lock(&mut self, spot: &S, holder: u64) {
        let before = self.locks.insert(spot.clone(), holder);
        assert!(
            before.is_none_or(|before| before == holder),
            "{spot:?} is locked for {holder}, and {before:?} holds it"
        );
    }

    fn release(&mut self, holder: u64) {
        self.locks.retain(|_, by| *by != holder);
    }

    /// Commits a transaction in `epoch`.
    pub fn commit(&mut self, holder: u64, epoch: u64, writes: Vec<Write<S, R>>) {
        for (spot, _) in &writes {
            assert_eq!(
                self.holder(spot),
                Some(holder),
                "a transaction commits what it has locked"
            );
            let wrote =
                |(_, writes): &&(u64, Vec<Write<S, R>>)| writes.iter().any(|(at, _)| at == spot);
            let before = self.history.iter().rev().find(wrote);
            debug_assert!(
                before.is_none_or(|(before, _)| *before <= epoch),
                "{spot:?} is written in epoch {epoch} behind {before:?}"
            );
        }
        writes
            .iter()
            .for_each(|write| apply(&mut self.committed, write));
        self.history.push((epoch, writes));
        self.release(holder);
    }

    /// Ends a rolled-back transaction.
    pub fn abort(&mut self, holder: u64) {
        self.release(holder);
    }

    /// Returns the expected rows if exactly the epochs up to `durable` survived.
    pub fn state_at(&self, durable: u64) -> State<S, R> {
        let mut state = self.base.clone();
        for (_, writes) in self.history.iter().filter(|(epoch, _)| *epoch <= durable) {
            writes.iter().for_each(|write| apply(&mut state, write));
        }
        state
    }

    /// Sets the rows that exist before the first transaction.
    pub fn load(&mut self, rows: State<S, R>) {
        self.committed.clone_from(&rows);
        self.base = rows;
    }

    /// Sets the model to the state after a restart: the epochs up to `durable` survived, and the model forgets all
    /// later transactions.
    pub fn restart(&mut self, durable: u64) {
        debug_assert_eq!(
            self.state_at(u64::MAX),
            self.committed,
            "base and history make the committed rows"
        );
        self.base = self.state_at(durable);
        self.committed.clone_from(&self.base);
        self.history.clear();
        self.locks.clear();
    }
}

//! The clients of a database with row locks, and the content that each client expects in the rows.

use std::fmt::Debug;

use fastrand::Rng;
use perdura_steal::Committed;

use super::{Interleaved, Oracle, Write};

/// The maximum number of transactions that run at once.
pub(crate) const CLIENTS_MAX: usize = 6;

/// A client with a running transaction.
pub(crate) struct Client<T, S, R> {
    number: u64,
    pub txn: T,
    /// The writes of the transaction, in order of time.
    writes: Vec<Write<S, R>>,
    pub rolls_back: bool,
}

/// The clients, and the oracle that their transactions build.
pub(crate) struct Clients<E: Interleaved, S, R> {
    running: Vec<Client<E::Txn, S, R>>,
    /// The count of all clients so far. The newest client has this value as its number.
    ever: u64,
    pub oracle: Oracle<S, R>,
}

impl<E: Interleaved, S, R> Default for Clients<E, S, R> {
    fn default() -> Self {
        Clients {
            running: Vec::new(),
            ever: 0,
            oracle: Oracle::default(),
        }
    }
}

impl<E, S, R> Clients<E, S, R>
where
    E: Interleaved,
    S: Ord + Clone + Debug,
    R: Clone + Eq + Debug,
{
    /// Begins a transaction of a new client, unless [`CLIENTS_MAX`] transactions already run.
    pub fn begin(&mut self, engine: &E) {
        if self.running.len() < CLIENTS_MAX {
            self.ever += 1;
            self.running.push(Client {
                number: self.ever,
                txn: engine.begin(),
                writes: Vec::new(),
                rolls_back: false,
            });
        }
    }

    /// Chooses a running client at random, and returns its index. Ignores clients that are rolling back, unless
    /// `rolls_back_too`. Returns `None` if no client is left to choose.
    pub fn pick(&self, rng: &mut Rng, rolls_back_too: bool) -> Option<usize> {
        let may = |client: &Client<E::Txn, S, R>| rolls_back_too || !client.rolls_back;
        let fit: Vec<usize> = (0..self.running.len())
            .filter(|at| may(&self.running[*at]))
            .collect();
        (!fit.is_empty()).then(|| fit[rng.usize(0..fit.len())])
    }

    /// Returns the client with the index `at`.
    pub fn at(&mut self, at: usize) -> &mut Client<E::Txn, S, R> {
        &mut self.running[at]
    }

    /// Returns whether the client with index `at` may lock a spot: no other client has locked the spot.
    pub fn may_lock(&self, at: usize, spot: &S) -> bool {
        let holder = self.oracle.holder(spot);
        holder.is_none_or(|holder| holder == self.running[at].number)
    }

    /// Returns the expected content of a spot: the last write of the lock's holder, or the last commit. Returns the
    /// outer `None` if the holder is rolling back. The oracle cannot know which changes the rollback has already
    /// undone.
    pub fn expected(&self, spot: &S) -> Option<Option<R>> {
        let holder = self.oracle.holder(spot);
        let holder = holder.and_then(|number| self.running.iter().find(|c| c.number == number));
        if holder.is_some_and(|holder| holder.rolls_back) {
            return None;
        }
        let writes = holder.map_or(&[][..], |holder| &holder.writes);
        let wrote = writes.iter().rev().find(|(at, _)| at == spot);
        let committed = || self.oracle.committed().get(spot).cloned();
        Some(wrote.map_or_else(committed, |(_, row)| row.clone()))
    }

    /// Records that the client with index `at` has locked a spot and written it. `row` is the spot's new row. `None`:
    /// the spot is now empty.
    pub fn wrote(&mut self, at: usize, spot: S, row: Option<R>) {
        let client = &mut self.running[at];
        self.oracle.lock(&spot, client.number);
        client.writes.push((spot, row));
    }

    /// Commits the transaction of the client with index `at`, and removes the client. The caller must wait for the
    /// epoch of the commit.
    pub fn commit(&mut self, at: usize, engine: &E) -> Committed {
        let client = self.running.swap_remove(at);
        let committed = engine.commit(client.txn);
        self.oracle
            .commit(client.number, committed.epoch.0, client.writes);
        committed
    }

    /// Removes a client after its rollback, or while the engine continues the rollback. Returns the client's
    /// transaction.
    pub fn roll_back(&mut self, at: usize) -> E::Txn {
        let client = self.running.swap_remove(at);
        self.oracle.abort(client.number);
        client.txn
    }

    /// Returns whether no transaction runs.
    pub fn are_idle(&self) -> bool {
        self.running.is_empty()
    }

    /// Removes all clients after a power cut.
    pub fn forget(&mut self) {
        self.running.clear();
    }
}

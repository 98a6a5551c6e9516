//! The clients of a database whose transactions lock rows, and what they know of its rows.

use std::fmt::Debug;

use fastrand::Rng;
use perdura_steal::Committed;

use super::{Interleaved, Oracle, Write};

/// Transactions that run at once, at most.
pub(crate) const CLIENTS_MAX: usize = 6;

/// A client with a transaction that runs.
pub(crate) struct Client<T, S, R> {
    number: u64,
    pub txn: T,
    /// In the order in which they were made.
    writes: Vec<Write<S, R>>,
    pub rolls_back: bool,
}

/// The clients, and the oracle that their transactions make.
pub(crate) struct Clients<E: Interleaved, S, R> {
    running: Vec<Client<E::Txn, S, R>>,
    /// How many there have been: the number of the newest.
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
    /// One more client begins a transaction, unless enough run.
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

    /// One of the clients, by its place; one that rolls back only if it may be.
    pub fn pick(&self, rng: &mut Rng, rolls_back_too: bool) -> Option<usize> {
        let may = |client: &Client<E::Txn, S, R>| rolls_back_too || !client.rolls_back;
        let fit: Vec<usize> = (0..self.running.len())
            .filter(|at| may(&self.running[*at]))
            .collect();
        (!fit.is_empty()).then(|| fit[rng.usize(0..fit.len())])
    }

    /// The client in a place.
    pub fn at(&mut self, at: usize) -> &mut Client<E::Txn, S, R> {
        &mut self.running[at]
    }

    /// Whether no other client holds a spot.
    pub fn may_lock(&self, at: usize, spot: &S) -> bool {
        let holder = self.oracle.holder(spot);
        holder.is_none_or(|holder| holder == self.running[at].number)
    }

    /// What is in a spot: what its holder wrote last, or what was committed last. Nobody knows while its
    /// holder rolls back: which of its changes are taken back is not ours to say.
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

    /// A client has locked a spot and left a row there, or none.
    pub fn wrote(&mut self, at: usize, spot: S, row: Option<R>) {
        let client = &mut self.running[at];
        self.oracle.lock(&spot, client.number);
        client.writes.push((spot, row));
    }

    /// The client in a place commits; it waits for its epoch.
    pub fn commit(&mut self, at: usize, engine: &E) -> Committed {
        let client = self.running.swap_remove(at);
        let committed = engine.commit(client.txn);
        self.oracle
            .commit(client.number, committed.epoch.0, client.writes);
        committed
    }

    /// A client has rolled back to the end, or leaves the rest to the engine; returns its transaction.
    pub fn roll_back(&mut self, at: usize) -> E::Txn {
        let client = self.running.swap_remove(at);
        self.oracle.abort(client.number);
        client.txn
    }

    /// Returns whether no transaction runs.
    pub fn are_idle(&self) -> bool {
        self.running.is_empty()
    }

    /// Power has failed: no transaction runs any more.
    pub fn forget(&mut self) {
        self.running.clear();
    }
}

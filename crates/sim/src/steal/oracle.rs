//! The oracle: a sorted map and the list of transactions since the last restart. It shares no code with
//! the engine and knows nothing of pages, logs or images.

use std::collections::BTreeMap;

use super::row::Row;

/// Where a row is: page and slot by number.
pub(crate) type Spot = (u32, u16);
/// Rows by spot.
pub(crate) type State = BTreeMap<Spot, Row>;
/// What a transaction left in a spot.
pub(crate) type Write = (Spot, Option<Row>);

/// The model of a database with slot locks.
#[derive(Debug, Default)]
pub(crate) struct Oracle {
    base: State,
    committed: State,
    history: Vec<(u64, Vec<Write>)>,
    /// Which transaction holds a spot.
    locks: BTreeMap<Spot, u64>,
}

fn apply(state: &mut State, (spot, row): &Write) {
    match row {
        Some(row) => drop(state.insert(*spot, *row)),
        None => drop(state.remove(spot)),
    }
}

impl Oracle {
    /// All committed rows, durable or not.
    pub fn committed(&self) -> &State {
        &self.committed
    }

    /// The transaction that holds a spot.
    pub fn holder(&self, spot: Spot) -> Option<u64> {
        self.locks.get(&spot).copied()
    }

    /// Every spot that a row or a lock is in.
    pub fn spots(&self) -> Vec<Spot> {
        let mut spots: Vec<Spot> = self
            .committed
            .keys()
            .chain(self.locks.keys())
            .copied()
            .collect();
        spots.sort_unstable();
        spots.dedup();
        spots
    }

    /// A transaction holds a spot from now on.
    pub fn lock(&mut self, spot: Spot, holder: u64) {
        let before = self.locks.insert(spot, holder);
        assert!(
            before.is_none_or(|before| before == holder),
            "{spot:?} is locked for {holder}, and {before:?} holds it"
        );
    }

    fn release(&mut self, holder: u64) {
        self.locks.retain(|_, by| *by != holder);
    }

    /// A transaction has committed in `epoch`.
    pub fn commit(&mut self, holder: u64, epoch: u64, writes: Vec<Write>) {
        for (spot, _) in &writes {
            assert_eq!(
                self.holder(*spot),
                Some(holder),
                "a transaction commits what it has locked"
            );
            let wrote = |(_, writes): &&(u64, Vec<Write>)| writes.iter().any(|(at, _)| at == spot);
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

    /// A transaction has been rolled back to its end.
    pub fn abort(&mut self, holder: u64) {
        self.release(holder);
    }

    /// What must be there if exactly the epochs up to `durable` survived.
    pub fn state_at(&self, durable: u64) -> State {
        let mut state = self.base.clone();
        for (_, writes) in self.history.iter().filter(|(epoch, _)| *epoch <= durable) {
            writes.iter().for_each(|write| apply(&mut state, write));
        }
        state
    }

    /// Rows that were there before the first transaction.
    pub fn load(&mut self, rows: State) {
        self.committed.clone_from(&rows);
        self.base = rows;
    }

    /// Only epochs up to `durable` survived; nothing else ever happened.
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

//! The oracle. It is a sequential interpreter over a sorted map, and keeps the transactions since the last restart. It
//! shares no code with the engine and knows nothing of pages, logs or images.
//!
//! After a restart that kept the epochs up to R, the rows must be exactly the following. Begin with the base state,
//! and apply all transactions of epochs up to R in the order of commit.

use std::collections::BTreeMap;

use crate::value::Value;

/// The address of a row: a database and the number of a key.
pub type Place = (u8, u8);

/// The number under which the model has the rows of the typed table. No Redis database has this number.
pub const LEDGER: u8 = u8::MAX;

/// A row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// The row's value.
    pub value: Value,
    /// The row's expiry time, in milliseconds since 1970. `None`: never.
    pub expiry_ms: Option<u64>,
}

impl Row {
    /// Returns whether readers see the row at `now_ms`.
    #[must_use]
    pub fn is_visible(&self, now_ms: u64) -> bool {
        self.expiry_ms.is_none_or(|ms| ms > now_ms)
    }
}

/// One change that a transaction made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// The place now holds this row.
    Put(Place, Row),
    /// The place now holds no row.
    Delete(Place),
    /// All rows of this database are gone. `None`: the rows of all Redis databases are gone.
    Flush(Option<u8>),
}

/// Rows by place. An expired row is included until something removes it.
pub type State = BTreeMap<Place, Row>;

/// The sequential model.
#[derive(Debug, Clone, Default)]
pub struct Model {
    base: State,
    /// The rows of the Redis databases.
    live: State,
    /// The rows of the typed table.
    ledger: State,
    history: Vec<(u64, Vec<Change>)>,
    written: BTreeMap<Place, u64>,
    /// The epoch of the last change to the key itself, for each place. The type, expiry, existence and string belong
    /// to the key itself. Elements of a collection do not.
    headed: BTreeMap<Place, u64>,
    /// The epoch of the newest write in this life.
    newest: u64,
}

/// Applies one change.
pub(crate) fn apply(state: &mut State, change: &Change) {
    match change {
        Change::Put(place, row) => drop(state.insert(*place, row.clone())),
        Change::Delete(place) => drop(state.remove(place)),
        Change::Flush(None) => state.retain(|(of, _), _| *of == LEDGER),
        Change::Flush(Some(database)) => state.retain(|(of, _), _| of != database),
    }
}

impl Model {
    /// Returns all committed rows of the Redis databases, durable or not.
    #[must_use]
    pub fn live(&self) -> &State {
        &self.live
    }

    /// Returns all committed rows of the typed table, durable or not.
    #[must_use]
    pub fn ledger(&self) -> &State {
        &self.ledger
    }

    /// Returns all committed rows, durable or not.
    #[must_use]
    pub fn everything(&self) -> State {
        let mut all = self.live.clone();
        all.extend(self.ledger.clone());
        all
    }

    /// Commits a transaction in `epoch`.
    pub fn commit(&mut self, epoch: u64, changes: Vec<Change>) {
        for change in &changes {
            match change {
                Change::Put(place, row) => {
                    let before = self.written.insert(*place, epoch);
                    assert!(
                        before <= Some(epoch),
                        "{place:?} is written in epoch {epoch}, and was in {before:?}"
                    );
                    let old = self.live.get(place);
                    let same = old.is_some_and(|old| {
                        let shape = row.value.shape();
                        shape.is_some()
                            && old.value.shape() == shape
                            && old.expiry_ms == row.expiry_ms
                    });
                    if !same {
                        self.headed.insert(*place, epoch);
                    }
                }
                Change::Delete(place) => {
                    let before = self.written.insert(*place, epoch);
                    assert!(
                        before <= Some(epoch),
                        "{place:?} is deleted in epoch {epoch}, and was written in {before:?}"
                    );
                    self.headed.insert(*place, epoch);
                }
                Change::Flush(database) => {
                    for place in self
                        .live
                        .keys()
                        .filter(|p| database.is_none_or(|d| d == p.0))
                    {
                        self.written.insert(*place, epoch);
                        self.headed.insert(*place, epoch);
                    }
                }
            }
            let of_ledger = |place: &Place| place.0 == LEDGER;
            let is_of_ledger = match change {
                Change::Put(place, _) | Change::Delete(place) => of_ledger(place),
                Change::Flush(_) => false,
            };
            apply(
                match is_of_ledger {
                    true => &mut self.ledger,
                    false => &mut self.live,
                },
                change,
            );
        }
        self.newest = self.newest.max(epoch);
        self.history.push((epoch, changes));
    }

    /// Returns the epoch of the last write to a place. Returns 0 if the place has no write since the last restart.
    #[must_use]
    pub fn written(&self, place: Place) -> u64 {
        self.written.get(&place).copied().unwrap_or(0)
    }

    /// Returns the epoch of the last change to the key itself. Changes to elements do not count. Returns 0 if the key
    /// has not changed since the last restart.
    #[must_use]
    pub fn headed(&self, place: Place) -> u64 {
        let headed = self.headed.get(&place).copied().unwrap_or(0);
        debug_assert!(
            headed <= self.written(place) && self.written(place) <= self.newest,
            "{place:?} changed itself in epoch {headed}, in all in {}",
            self.written(place)
        );
        headed
    }

    /// Returns the epoch of the newest write in this life.
    #[must_use]
    pub fn newest(&self) -> u64 {
        self.newest
    }

    /// Returns the expected rows if exactly the epochs up to `durable` survived.
    #[must_use]
    pub fn state_at(&self, durable: u64) -> State {
        let mut state = self.base.clone();
        for (_, changes) in self.history.iter().filter(|(epoch, _)| *epoch <= durable) {
            changes.iter().for_each(|change| apply(&mut state, change));
        }
        state
    }

    /// Returns the transactions since the last restart, in the order of commit, each with its epoch.
    #[must_use]
    pub fn history(&self) -> &[(u64, Vec<Change>)] {
        &self.history
    }

    /// Replaces the model by a model that begins with the restored `state`.
    pub fn begin_with(&mut self, state: State) {
        *self = Model {
            base: state,
            ..Model::default()
        };
        self.part_base();
    }

    /// Makes the live rows those of the base.
    fn part_base(&mut self) {
        let of_ledger = |row: &(&Place, &Row)| row.0.0 == LEDGER;
        let (ledger, live) = self.base.iter().partition(of_ledger);
        let owned = |rows: Vec<(&Place, &Row)>| {
            let rows = rows.into_iter();
            rows.map(|(place, row)| (*place, row.clone())).collect()
        };
        (self.ledger, self.live) = (owned(ledger), owned(live));
    }

    /// Sets the model to the state after a restart: the epochs up to `durable` survived, and the model forgets all
    /// later transactions.
    pub fn restart(&mut self, durable: u64) {
        debug_assert_eq!(
            self.state_at(u64::MAX),
            self.everything(),
            "base and history make the live rows"
        );
        self.base = self.state_at(durable);
        self.part_base();
        self.history.clear();
        self.written.clear();
        self.headed.clear();
        self.newest = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::content::Content;

    fn put(place: Place, seed: u64) -> Change {
        Change::Put(
            place,
            Row {
                value: Value::String(Content { seed, len: 1 }),
                expiry_ms: None,
            },
        )
    }

    #[test]
    fn a_restart_forgets_the_epochs_beyond_the_durable_one() {
        let mut model = Model::default();
        model.commit(1, vec![put((0, 1), 1), put((1, 1), 1)]);
        model.commit(2, vec![Change::Delete((0, 1)), put((0, 2), 2)]);
        model.commit(3, vec![Change::Flush(Some(0))]);
        assert_eq!(model.live().keys().copied().collect::<Vec<_>>(), [(1, 1)]);
        assert_eq!(
            (model.written((0, 2)), model.written((1, 1)), model.newest()),
            (3, 1, 3)
        );
        assert_eq!(
            model.state_at(2).keys().copied().collect::<Vec<_>>(),
            [(0, 2), (1, 1)]
        );
        model.restart(1);
        assert_eq!(
            model.live().keys().copied().collect::<Vec<_>>(),
            [(0, 1), (1, 1)]
        );
        assert_eq!(model.written((0, 2)), 0);
    }
}

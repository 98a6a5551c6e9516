//! The oracle of the archive: the state of each epoch, across all lives of a database.
//!
//! [`Model`] forgets the earlier history at each restart. The timeline keeps that history: a list of the transactions
//! that survived, each with its epoch. The timeline shares no code with the engine.

use std::collections::BTreeSet;

use crate::model::{Change, Model, State, apply};

/// All transactions of a database's ended lives, except the transactions that a crash has undone.
#[derive(Debug, Clone, Default)]
pub(crate) struct Timeline {
    past: Vec<(u64, Vec<Change>)>,
}

impl Timeline {
    /// Adds the surviving transactions of an ended life: all transactions with epochs up to `durable`.
    pub(crate) fn keep(&mut self, model: &Model, durable: u64) {
        let survived = model
            .history()
            .iter()
            .filter(|(epoch, _)| *epoch <= durable);
        self.past.extend(survived.cloned());
        debug_assert!(
            self.past.is_sorted_by_key(|(epoch, _)| *epoch),
            "epochs of a later life are higher"
        );
    }

    /// Drops all transactions after `epoch`, because the database was restored at `epoch`.
    pub(crate) fn branch(&mut self, epoch: u64) {
        self.past.retain(|(at, _)| *at <= epoch);
        debug_assert!(
            self.past.last().is_none_or(|(at, _)| *at <= epoch),
            "nothing lies behind a branch"
        );
    }

    /// Returns the state at `epoch`. The epoch may lie in this life or in an earlier life. `model` has this life's
    /// transactions.
    pub(crate) fn state_at(&self, epoch: u64, model: &Model) -> State {
        let mut state = State::new();
        let all = self.past.iter().chain(model.history());
        for (_, changes) in all.filter(|(at, _)| *at <= epoch) {
            changes.iter().for_each(|change| apply(&mut state, change));
        }
        state
    }

    /// Returns every epoch with a changed row.
    pub(crate) fn epochs(&self, model: &Model) -> BTreeSet<u64> {
        let all = self.past.iter().chain(model.history());
        all.map(|(epoch, _)| *epoch).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::content::Content;
    use crate::model::Row;
    use crate::value::Value;

    fn put(key: u8) -> Change {
        let content = Content { seed: 1, len: 1 };
        let row = Row {
            value: Value::String(content),
            expiry_ms: None,
        };
        Change::Put((0, key), row)
    }

    #[test]
    fn each_epoch_of_each_life_is_kept_and_a_branch_forgets_what_came_later() {
        let (mut model, mut timeline) = (Model::default(), Timeline::default());
        model.commit(1, vec![put(1)]);
        model.commit(3, vec![put(3)]);
        timeline.keep(&model, 2);
        model.restart(2);
        model.commit(5, vec![put(5), Change::Delete((0, 1))]);
        let keys = |timeline: &Timeline, model: &Model, epoch| {
            let state = timeline.state_at(epoch, model);
            state.keys().map(|place| place.1).collect::<Vec<_>>()
        };
        assert_eq!(keys(&timeline, &model, 0), []);
        assert_eq!(keys(&timeline, &model, 4), [1]);
        assert_eq!(keys(&timeline, &model, 5), [5]);
        assert_eq!(
            timeline.epochs(&model).into_iter().collect::<Vec<_>>(),
            [1, 5]
        );
        timeline.keep(&model, 5);
        model.begin_with(timeline.state_at(4, &Model::default()));
        timeline.branch(4);
        assert_eq!(keys(&timeline, &model, 9), [1]);
        assert_eq!(model.live().len(), 1);
    }
}

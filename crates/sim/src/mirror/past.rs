//! The oracle: the rows at the beginning of a life, and the writes in each epoch of that life. It shares no code with
//! the engine.

use std::collections::BTreeMap;

/// A value. No two writes have equal values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Value {
    pub number: u64,
    pub len: u16,
}

impl Value {
    pub fn bytes(self) -> Vec<u8> {
        let number = self.number.to_le_bytes();
        let mut bytes = vec![number[0] ^ 0x5a; usize::from(self.len.max(8))];
        bytes[..8].copy_from_slice(&number);
        bytes
    }
}

/// Rows by key.
pub(super) type State = BTreeMap<u8, Value>;
/// The changes of a transaction: a new value for a key, or `None` if the key is removed.
pub(super) type Changes = Vec<(u8, Option<Value>)>;

fn apply(state: &mut State, changes: &Changes) {
    for (key, value) in changes {
        match value {
            Some(value) => state.insert(*key, *value),
            None => state.remove(key),
        };
    }
}

/// The rows at the beginning of a life, and the life's writes.
#[derive(Debug, Clone, Default)]
pub(super) struct Past {
    base: State,
    live: State,
    history: Vec<(u64, Changes)>,
    /// By key, the epoch of the key's last write.
    written: BTreeMap<u8, u64>,
}

impl Past {
    /// Begins a life.
    pub fn from(base: State) -> Past {
        Past {
            live: base.clone(),
            base,
            ..Past::default()
        }
    }

    /// Returns the rows that the life's clients see.
    pub fn live(&self) -> &State {
        &self.live
    }

    /// Returns the epoch that last wrote a key in this life, or 0.
    pub fn written(&self, key: u8) -> u64 {
        self.written.get(&key).copied().unwrap_or(0)
    }

    pub fn commit(&mut self, epoch: u64, changes: Changes) {
        assert!(
            self.history.last().is_none_or(|(at, _)| *at <= epoch),
            "epochs do not go back"
        );
        assert!(!changes.is_empty(), "what changes nothing is not written");
        apply(&mut self.live, &changes);
        for (key, _) in &changes {
            self.written.insert(*key, epoch);
        }
        self.history.push((epoch, changes));
    }

    /// Returns the expected rows if exactly the epochs up to `kept` are kept.
    pub fn state_at(&self, kept: u64) -> State {
        let mut state = self.base.clone();
        let kept = self.history.iter().filter(|(epoch, _)| *epoch <= kept);
        kept.for_each(|(_, changes)| apply(&mut state, changes));
        state
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_has_the_epochs_up_to_its_own_and_what_the_life_began_with() {
        let value = |number| Value { number, len: 9 };
        let mut past = Past::from(State::from([(1, value(1))]));
        past.commit(5, vec![(1, None), (2, Some(value(2)))]);
        past.commit(7, vec![(2, Some(value(3)))]);
        assert_eq!(past.state_at(4), State::from([(1, value(1))]));
        assert_eq!(past.state_at(6), State::from([(2, value(2))]));
        assert_eq!(past.state_at(7), *past.live());
        assert_eq!(
            (past.written(1), past.written(2), past.written(3)),
            (5, 7, 0)
        );
        assert_ne!(value(1).bytes(), value(2).bytes());
    }
}

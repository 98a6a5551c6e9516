//! The verbs of typed tables, over a running transaction.

mod edit;
mod read;
mod write;

use std::ops::{Deref, DerefMut};

use perdura_base::checksum::mix64;
use perdura_base::{PartitionId, Result};
use perdura_txn::{RowHome, Tx};

use crate::key::KeyBytes;
use crate::prefix::WholeKey;
use crate::registry::{Entry, Registry};
use crate::table::Table;

/// The step of SplitMix64.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// A running transaction with the verbs of typed tables. It also has all verbs of [`Tx`].
///
/// A verb that meets a partition which is not latched fails, and the transaction runs again with it: a
/// closure passes errors on.
pub struct Cx<'x, 't> {
    tx: &'x mut Tx<'t>,
    registry: &'x Registry,
    /// Buffers for a row before and after a change.
    before: Vec<u8>,
    after: Vec<u8>,
    random: Option<u64>,
}

impl<'t> Deref for Cx<'_, 't> {
    type Target = Tx<'t>;

    fn deref(&self) -> &Tx<'t> {
        self.tx
    }
}

impl<'t> DerefMut for Cx<'_, 't> {
    fn deref_mut(&mut self) -> &mut Tx<'t> {
        self.tx
    }
}

/// A key as the heap has it, and where its row lies.
struct Placed {
    key: KeyBytes,
    home: RowHome,
}

impl<'x, 't> Cx<'x, 't> {
    /// The verbs over a transaction.
    pub fn new(tx: &'x mut Tx<'t>, registry: &'x Registry) -> Cx<'x, 't> {
        Cx {
            tx,
            registry,
            before: Vec::new(),
            after: Vec::new(),
            random: None,
        }
    }

    /// Returns the verbs of tables of bytes, some of whose names typed tables use in another way.
    #[must_use]
    pub fn bytes(&self) -> &Tx<'t> {
        self.tx
    }

    /// The tables of the database.
    #[must_use]
    pub fn registry(&self) -> &'x Registry {
        self.registry
    }

    /// The time of this transaction, milliseconds since 1970; at replay, what it was then.
    #[must_use]
    pub fn now(&self) -> u64 {
        self.tx.now_ms()
    }

    /// The next random number of this transaction; at replay, what it was then. The seed is the
    /// transaction's number in its first partition.
    ///
    /// # Errors
    /// [`Error::Undeclared`](perdura_base::Error::Undeclared), which the closure passes on, if the transaction has no
    /// partition yet.
    pub fn random(&mut self) -> Result<u64> {
        let state = match self.random {
            Some(state) => state,
            None => {
                let first = self.first_latched();
                let sequence = self.tx.sequence(first)?;
                mix64(self.registry.seed() ^ mix64(sequence) ^ u64::from(first.0))
            }
        };
        let state = state.wrapping_add(STEP);
        self.random = Some(state);
        Ok(mix64(state))
    }

    /// The first partition that this transaction holds; if it holds none, the first of all, and a verb
    /// on it makes the transaction run again with it.
    fn first_latched(&self) -> PartitionId {
        self.tx.latched().next().unwrap_or_default()
    }

    /// The table of a type.
    #[inline]
    fn entry<T: Table>(&self) -> Result<&'x Entry> {
        self.registry.entry::<T>()
    }

    #[inline]
    fn place<T: Table>(&self, key: &impl WholeKey<T::Key>) -> Placed {
        let mut bytes = KeyBytes::new();
        key.put(&mut bytes);
        let home = match key.home(self.registry.geometry()) {
            Some(home) if !T::DECLARATION.replicated => RowHome::One(home),
            _ => RowHome::All,
        };
        debug_assert!(
            T::DECLARATION.replicated || home != RowHome::All,
            "a whole key has a first column"
        );
        Placed { key: bytes, home }
    }

    /// The partition where a row is read.
    #[inline]
    fn read_at(&self, home: RowHome) -> PartitionId {
        match home {
            RowHome::One(home) => home,
            RowHome::All => self.first_latched(),
        }
    }
}

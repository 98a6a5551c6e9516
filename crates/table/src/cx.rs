//! The verbs of typed tables (`get`, `insert`, `rows` ...) in a running transaction.

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
/// A verb fails if it needs a partition that the transaction has not latched. The closure must return this error. The
/// transaction then runs again with the missing latch.
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

/// A key in the heap's form, and the place of the key's row: one partition, or all partitions.
struct Placed {
    key: KeyBytes,
    home: RowHome,
}

impl<'x, 't> Cx<'x, 't> {
    /// Returns an object with the verbs for a transaction.
    pub fn new(tx: &'x mut Tx<'t>, registry: &'x Registry) -> Cx<'x, 't> {
        Cx {
            tx,
            registry,
            before: Vec::new(),
            after: Vec::new(),
            random: None,
        }
    }

    /// Returns the object with the verbs of untyped tables. Some of these verbs have the same names as verbs of typed
    /// tables.
    #[must_use]
    pub fn bytes(&self) -> &Tx<'t> {
        self.tx
    }

    /// Returns the tables of the database.
    #[must_use]
    pub fn registry(&self) -> &'x Registry {
        self.registry
    }

    /// Returns the time of this transaction in milliseconds since 1970. A replay of the transaction gets the original
    /// time.
    #[must_use]
    pub fn now(&self) -> u64 {
        self.tx.now_ms()
    }

    /// Returns the next random number of this transaction. A replay gets the same numbers; see
    /// [`Tx::random_seed`](perdura_txn::Tx::random_seed).
    ///
    /// # Errors
    /// [`Error::Undeclared`](perdura_base::Error::Undeclared), which the closure must return, if the transaction has no
    /// partition yet.
    pub fn random(&mut self) -> Result<u64> {
        let state = match self.random {
            Some(state) => state,
            None => {
                let first = self.first_latched();
                mix64(self.registry.seed() ^ self.tx.random_seed(first)?)
            }
        };
        let state = state.wrapping_add(STEP);
        self.random = Some(state);
        Ok(mix64(state))
    }

    /// Returns the first partition that this transaction has latched. If it has latched none, returns partition 0. A
    /// verb on partition 0 then fails, and the transaction runs again with that latch.
    fn first_latched(&self) -> PartitionId {
        self.tx.latched().next().unwrap_or_default()
    }

    /// Returns the registry's entry for the table of type `T`.
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

    /// Returns the partition for reading a row.
    #[inline]
    fn read_at(&self, home: RowHome) -> PartitionId {
        match home {
            RowHome::One(home) => home,
            RowHome::All => self.first_latched(),
        }
    }
}

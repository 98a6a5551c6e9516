//! The traits and macros that all databases with interleaved, row-locking transactions share.

use std::ops::Deref;

use perdura_recovery::Life;
use perdura_steal::{Committed, KeyTxn, KeyTxns, Steal, Txn};

use crate::machine::{Engine, Machine};

/// A database with interleaved transactions. A commit returns an epoch.
pub(crate) trait Interleaved {
    /// A running transaction.
    type Txn;

    /// Begins a transaction.
    fn begin(&self) -> Self::Txn;
    /// Commits a transaction. Other transactions see its changes at once. The changes are durable once their epoch is
    /// durable.
    fn commit(&self, txn: Self::Txn) -> Committed;
}

impl Interleaved for KeyTxns {
    type Txn = KeyTxn;

    fn begin(&self) -> KeyTxn {
        KeyTxns::begin(self)
    }

    fn commit(&self, txn: KeyTxn) -> Committed {
        KeyTxns::commit(self, txn)
    }
}

impl Interleaved for Steal {
    type Txn = Txn;

    fn begin(&self) -> Txn {
        Steal::begin(self)
    }

    fn commit(&self, txn: Txn) -> Committed {
        Steal::commit(self, txn)
    }
}

/// Implements the simulator's traits for a database of the crate `perdura_steal`.
macro_rules! interleaved {
    ($engine:ident) => {
        $crate::machine::engine!(
            $engine,
            Committed,
            |engine: &$engine, promise: &Committed| {
                engine.is_acked(promise).then_some(promise.epoch.0)
            }
        );
    };
}

pub(crate) use interleaved;

/// Takes one step of closing the epoch. The step begins the closing, or seals the epoch's part of a randomly chosen
/// stream.
pub(crate) fn close_part<E: Engine + Deref<Target = Life>>(machine: &mut Machine<E>) {
    let stream = machine.draw_stream();
    match machine.rng.u8(0..3) {
        0 => drop(machine.engine().wal().close_begin()),
        _ => machine.engine().wal().close_visit(stream),
    }
}

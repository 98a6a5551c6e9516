//! What databases have in common whose transactions interleave and lock rows.

use std::ops::Deref;

use perdura_recovery::Life;
use perdura_steal::Committed;

use crate::machine::{Engine, Machine};

/// A database whose transactions interleave: it answers a commit with an epoch.
pub(crate) trait Interleaved: Engine<Promise = Committed> + Deref<Target = Life> {
    /// A transaction that runs.
    type Txn;

    /// Begins a transaction.
    fn begin(&self) -> Self::Txn;
    /// Ends one: visible to others, durable with its epoch.
    fn commit(&self, txn: Self::Txn) -> Committed;
}

/// A database of the crate `perdura_steal` as the simulator's engine: all have these methods.
macro_rules! interleaved {
    ($engine:ident, $txn:ident, $txns:ident) => {
        $crate::machine::engine!(
            $engine,
            Committed,
            |engine: &$engine, promise: &Committed| {
                engine.is_acked(promise).then_some(promise.epoch.0)
            }
        );

        impl $crate::locked::Interleaved for $engine {
            type Txn = $txn;

            fn begin(&self) -> $txn {
                $txns::begin(self.txns())
            }

            fn commit(&self, txn: $txn) -> Committed {
                $txns::commit(self.txns(), txn)
            }
        }
    };
}

pub(crate) use interleaved;

/// Takes a part of closing the epoch.
pub(crate) fn close_part<E: Interleaved>(machine: &mut Machine<E>) {
    let stream = machine.draw_stream();
    match machine.rng.u8(0..3) {
        0 => drop(machine.engine().wal().close_begin()),
        _ => machine.engine().wal().close_visit(stream),
    }
}

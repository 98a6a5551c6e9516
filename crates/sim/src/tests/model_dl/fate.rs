//! The fate of a transaction, and the rule that uses it. Both come from the engine's own predicates.

use perdura_base::{CkptEpoch, Epoch};
use perdura_recovery::rule::{self, Gate, ImageKind};

/// The fate of a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    InFlight,
    Committed(u64),
    AbortedCompensated,
    /// The transaction aborted, and the restart removes all its records and compensations instead of keeping them
    /// all.
    AbortedTakenOut,
    /// The transaction was rolled back without compensations. The number is that of the newest checkpoint at that
    /// time.
    AbortedClean(u64),
    /// A crash ended the transaction. The number is that of the newest checkpoint at that time.
    Lost(u64),
}

impl Fate {
    fn known(self) -> rule::Fate {
        match self {
            // As if a crash after all existing images ended it: each of these images has its changes.
            Fate::InFlight | Fate::AbortedTakenOut => rule::Fate::Lost(CkptEpoch(u64::MAX)),
            Fate::Committed(epoch) => rule::Fate::Committed(Epoch(epoch)),
            Fate::AbortedCompensated => rule::Fate::AbortedCompensated,
            Fate::AbortedClean(g) => rule::Fate::AbortedClean(CkptEpoch(g)),
            Fate::Lost(g) => rule::Fate::Lost(CkptEpoch(g)),
        }
    }
}

/// Returns whether image `k` contains the net effect of a transaction's change with this tag.
pub(super) fn net_reflected(tag: u64, k: u64, fate: Fate) -> bool {
    rule::net_reflected(CkptEpoch(tag), ImageKind::Sweep(CkptEpoch(k)), fate.known())
}

/// Returns whether a record must be applied to image `k` to reach the state of epoch `target`.
pub(super) fn applies(tag: u64, k: u64, fate: Fate, target: u64) -> bool {
    let image = ImageKind::Sweep(CkptEpoch(k));
    let gate = rule::gate_fate(CkptEpoch(tag), image, fate.known(), Epoch(target));
    gate == Gate::Apply
}

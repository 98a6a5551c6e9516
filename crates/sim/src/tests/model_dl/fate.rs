//! The fate of a transaction, and the rule that follows from it. Both use the engine's own predicates.

use perdura_base::{CkptEpoch, Epoch};
use perdura_recovery::rule::{self, Gate, ImageKind};

/// The fate of a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    InFlight,
    Committed(u64),
    AbortedCompensated,
    /// The fate of an aborted transaction whose records and compensations are all removed again, not all kept.
    AbortedTakenOut,
    /// The newest checkpoint's number when it was rolled back.
    AbortedClean(u64),
    /// The newest checkpoint's number when a crash took it.
    Lost(u64),
}

impl Fate {
    fn known(self) -> rule::Fate {
        match self {
            // A future crash ends it, in effect: every existing image has its changes.
            Fate::InFlight | Fate::AbortedTakenOut => rule::Fate::Lost(CkptEpoch(u64::MAX)),
            Fate::Committed(epoch) => rule::Fate::Committed(Epoch(epoch)),
            Fate::AbortedCompensated => rule::Fate::AbortedCompensated,
            Fate::AbortedClean(g) => rule::Fate::AbortedClean(CkptEpoch(g)),
            Fate::Lost(g) => rule::Fate::Lost(CkptEpoch(g)),
        }
    }
}

/// Returns whether the changes of a transaction are, on balance, part of image `k`.
pub(super) fn net_reflected(tag: u64, k: u64, fate: Fate) -> bool {
    rule::net_reflected(CkptEpoch(tag), ImageKind::Sweep(CkptEpoch(k)), fate.known())
}

/// Returns whether a record has to be applied to image `k` on the way to the target.
pub(super) fn applies(tag: u64, k: u64, fate: Fate, target: u64) -> bool {
    let image = ImageKind::Sweep(CkptEpoch(k));
    let gate = rule::gate_fate(CkptEpoch(tag), image, fate.known(), Epoch(target));
    gate == Gate::Apply
}

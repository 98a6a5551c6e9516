//! The fate of a transaction, and the rule that follows from it: the engine's own predicates.

use perdura_base::{CkptEpoch, Epoch};
use perdura_recovery::rule::{self, Gate, ImageKind};

/// What became of a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    InFlight,
    Committed(u64),
    AbortedCompensated,
    /// As an aborted transaction whose records and compensations are all taken out again, instead
    /// of all kept.
    AbortedTakenOut,
    /// The newest checkpoint's number when it was rolled back.
    AbortedClean(u64),
    /// The newest checkpoint's number when a crash took it.
    Lost(u64),
}

impl Fate {
    fn known(self) -> rule::Fate {
        match self {
            // As if a crash to come took it: every image that there is has its changes.
            Fate::InFlight | Fate::AbortedTakenOut => rule::Fate::Lost(CkptEpoch(u64::MAX)),
            Fate::Committed(epoch) => rule::Fate::Committed(Epoch(epoch)),
            Fate::AbortedCompensated => rule::Fate::AbortedCompensated,
            Fate::AbortedClean(g) => rule::Fate::AbortedClean(CkptEpoch(g)),
            Fate::Lost(g) => rule::Fate::Lost(CkptEpoch(g)),
        }
    }
}

/// Whether the changes of a transaction are, on balance, part of image `k`.
pub(super) fn net_reflected(tag: u64, k: u64, fate: Fate) -> bool {
    rule::net_reflected(CkptEpoch(tag), ImageKind::Sweep(CkptEpoch(k)), fate.known())
}

/// Whether a record has to be applied to image `k` on the way to the target.
pub(super) fn applies(tag: u64, k: u64, fate: Fate, target: u64) -> bool {
    let image = ImageKind::Sweep(CkptEpoch(k));
    let gate = rule::gate_fate(CkptEpoch(tag), image, fate.known(), Epoch(target));
    gate == Gate::Apply
}

//! The fate of a transaction, and the rule that depends on it. The rule consists of the engine's own predicates.

use perdura_base::{CkptEpoch, Epoch};
use perdura_recovery::rule::{self, Gate, ImageKind};

/// The fate of a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    InFlight,
    Committed(u64),
    AbortedCompensated,
    /// The transaction aborted. The restart removes the transaction's changes and compensations.
    AbortedTakenOut,
    /// The transaction was rolled back without compensations. The field is the id of the newest checkpoint at that
    /// time.
    AbortedClean(u64),
    /// A crash ended the transaction. The field is the id of the newest checkpoint at that time.
    Lost(u64),
}

impl Fate {
    fn known(self) -> rule::Fate {
        match self {
            // The rule treats these transactions as if a crash ended them after all existing images. So every
            // existing image has their changes.
            Fate::InFlight | Fate::AbortedTakenOut => rule::Fate::Lost(CkptEpoch(u64::MAX)),
            Fate::Committed(epoch) => rule::Fate::Committed(Epoch(epoch)),
            Fate::AbortedCompensated => rule::Fate::AbortedCompensated,
            Fate::AbortedClean(g) => rule::Fate::AbortedClean(CkptEpoch(g)),
            Fate::Lost(g) => rule::Fate::Lost(CkptEpoch(g)),
        }
    }
}

/// Returns whether image `k` has the net effect of a change. The change has this tag, and its transaction has this
/// fate.
pub(super) fn net_reflected(tag: u64, k: u64, fate: Fate) -> bool {
    rule::net_reflected(CkptEpoch(tag), ImageKind::Sweep(CkptEpoch(k)), fate.known())
}

/// Returns whether a record must be applied to image `k` to reach the state at epoch `target`.
pub(super) fn applies(tag: u64, k: u64, fate: Fate, target: u64) -> bool {
    let image = ImageKind::Sweep(CkptEpoch(k));
    let gate = rule::gate_fate(CkptEpoch(tag), image, fate.known(), Epoch(target));
    gate == Gate::Apply
}

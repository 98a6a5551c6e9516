//! What became of a transaction, and the rule that follows from it: the engine's own predicates.

use perdura_base::{CkptEpoch, Epoch};
use perdura_recovery::rule;

/// What became of a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    InFlight,
    Committed(u64),
    AbortedCompensated,
    /// The newest checkpoint's number when it was rolled back.
    AbortedClean(u64),
    /// The newest checkpoint's number when a crash took it.
    Lost(u64),
}

/// Whether the changes of a transaction are, on balance, part of image `k`: what was undone
/// without a record before the image began is not.
pub(super) fn net_reflected(tag: u64, k: u64, fate: Fate) -> bool {
    let seen = rule::reflected(CkptEpoch(tag), CkptEpoch(k));
    match fate {
        Fate::AbortedClean(g) | Fate::Lost(g) => seen && k <= g,
        Fate::Committed(_) | Fate::AbortedCompensated | Fate::InFlight => seen,
    }
}

/// Whether the target state has the transaction.
pub(super) fn wanted(fate: Fate, target: u64) -> bool {
    match fate {
        Fate::Committed(epoch) => rule::wanted(Epoch(epoch), Epoch(target)),
        _ => false,
    }
}

/// Whether a record has to be applied to image `k` on the way to the target.
pub(super) fn applies(tag: u64, k: u64, fate: Fate, target: u64) -> bool {
    net_reflected(tag, k, fate) != wanted(fate, target)
}

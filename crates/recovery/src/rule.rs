//! The two predicates, and the rule made of them.
//!
//! # Source
//! *Differential Logging* (000), section 3.4: the BackupID test of algorithm 3.
//!
//! # Deviations
//! A page carries a checkpoint *epoch* that is assigned, where the paper toggles one bit: a
//! cancelled sweep then leaves no mixed parity, and the test needs no page header, only the
//! image's number. In executor mode every logged record is committed, so `wanted` is "its epoch is
//! at most the target", which the cut has already decided for whole blocks.

use perdura_base::{CkptEpoch, Epoch};

/// Why a record is not applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Skip {
    /// The image has it already: its tag is below the image's epoch.
    Reflected,
    /// Its epoch lies beyond the target.
    NotWanted,
}

impl Skip {
    /// The reason's name in reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Skip::Reflected => "reflected_in_image",
            Skip::NotWanted => "beyond_target",
        }
    }
}

/// What to do with a record, decided without touching its page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gate {
    /// Leave it.
    Skip(Skip),
    /// Apply it.
    Apply,
}

/// Whether image `k` saw a change with this tag: the visit assigned `k` to the page, so changes
/// before it carry a smaller tag.
#[must_use]
pub fn reflected(tag: CkptEpoch, k: CkptEpoch) -> bool {
    tag < k
}

/// Whether the target state has a committed transaction of this epoch.
#[must_use]
pub fn wanted(epoch: Epoch, target: Epoch) -> bool {
    epoch <= target
}

/// The rule for a commuting record: apply it iff exactly one of the two holds. Reflected and
/// wanted is there already; neither is as it should be; wanted only is redone.
///
/// Reflected but not wanted would have to be taken out again by the same XOR. Restart never sees
/// that case: an image completes only when every change it reflects is durable, so it is `Apply`
/// here only for targets before the image.
#[must_use]
pub fn gate(tag: CkptEpoch, k: CkptEpoch, epoch: Epoch, target: Epoch) -> Gate {
    match (reflected(tag, k), wanted(epoch, target)) {
        (true, true) => Gate::Skip(Skip::Reflected),
        (false, false) => Gate::Skip(Skip::NotWanted),
        (false, true) | (true, false) => Gate::Apply,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_of_reflected_and_wanted_is_an_exclusive_or() {
        let (old, k, new) = (CkptEpoch(4), CkptEpoch(5), CkptEpoch(5));
        let (past, target, future) = (Epoch(7), Epoch(7), Epoch(8));
        assert_eq!(gate(old, k, past, target), Gate::Skip(Skip::Reflected));
        assert_eq!(gate(new, k, past, target), Gate::Apply);
        assert_eq!(gate(new, k, future, target), Gate::Skip(Skip::NotWanted));
        assert_eq!(gate(old, k, future, target), Gate::Apply);
    }
}

//! The two predicates, and the rule that follows from them.
//!
//! # Source
//! *Differential Logging* (000), section 3.4: the BackupID test of algorithm 3.
//!
//! # Deviations
//! A page carries an assigned checkpoint *epoch*, where the paper toggles one bit. A cancelled sweep therefore leaves
//! no mixed parity, and the test reads the image's number instead of a page header. In executor mode every logged
//! record is committed. `wanted` means that its epoch is at most the target, and the cut has already decided this for
//! whole blocks. In steal mode the transaction's [`Fate`] decides. The tag of every record is tested, where the paper
//! tests tags only within the window of the last checkpoint. The answer there is the same, and the phase of the scan
//! need not be known. The test does not permit an append after the latch is released (algorithm 1, step 6 after 5). A
//! change that the image contains and the log has lost could not be undone.

use perdura_base::{CkptEpoch, Epoch};

/// The state that an image's pages hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ImageKind {
    /// A sweep over running transactions, of this checkpoint epoch: each page has the changes made
    /// before its visit, whose tags are smaller. `Sweep(0)` is no image at all.
    Sweep(CkptEpoch),
    /// The state of an epoch: the transactions that committed up to it, and nothing else.
    Cut(Epoch),
}

impl Default for ImageKind {
    fn default() -> Self {
        ImageKind::Sweep(CkptEpoch(0))
    }
}

/// Why a record is not applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Skip {
    /// The image has it already: its tag is below the image's epoch.
    Reflected,
    /// Its transaction is not part of the target, and the image does not have it.
    NotWanted,
}

impl Skip {
    /// Returns the reason's name in reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Skip::Reflected => "reflected_in_image",
            Skip::NotWanted => "not_wanted",
        }
    }
}

/// The decision on a record, made without touching its page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gate {
    /// Leave it.
    Skip(Skip),
    /// Apply it.
    Apply,
}

/// Returns whether the image has a committed change with this tag and epoch. The visit of sweep k
/// assigned `k` to the page, so changes before it carry a smaller tag. For a cut the epoch alone
/// decides.
#[must_use]
pub fn reflected(tag: CkptEpoch, epoch: Epoch, image: ImageKind) -> bool {
    match image {
        ImageKind::Sweep(k) => saw(tag, k),
        ImageKind::Cut(cut) => epoch <= cut,
    }
}

/// Returns whether sweep `k` visited a page after the change with this tag.
fn saw(tag: CkptEpoch, k: CkptEpoch) -> bool {
    tag < k
}

/// Returns whether the target state has a committed transaction of this epoch.
#[must_use]
pub fn wanted(epoch: Epoch, target: Epoch) -> bool {
    epoch <= target
}

/// The fate of a transaction, as far as the log up to the target shows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// Committed in this epoch.
    Committed(Epoch),
    /// Rolled back by compensation records: they and the changes that they undo cancel.
    AbortedCompensated,
    /// Rolled back without a record, outside every checkpoint window, when this was the newest
    /// checkpoint epoch.
    AbortedClean(CkptEpoch),
    /// Unfinished when the log ended, with the newest checkpoint epoch at that point. The restart
    /// undid it without a record.
    Lost(CkptEpoch),
}

/// Returns whether the image holds the net effect of a change with this tag: it saw the change, and
/// not also an unlogged rollback of it. Such a rollback lies in no window, so relative to sweep `k`
/// it came wholly before (`k > gx`) or wholly after. A cut has no trace of a transaction that did
/// not commit. A compensated transaction counts as reflected, its compensations included: their sum
/// is nothing, and no record before the cut is needed.
#[must_use]
pub fn net_reflected(tag: CkptEpoch, image: ImageKind, fate: Fate) -> bool {
    match (image, fate) {
        (_, Fate::Committed(epoch)) => reflected(tag, epoch, image),
        (ImageKind::Sweep(k), Fate::AbortedCompensated) => saw(tag, k),
        (ImageKind::Sweep(k), Fate::AbortedClean(gx) | Fate::Lost(gx)) => saw(tag, k) && k <= gx,
        (ImageKind::Cut(_), Fate::AbortedCompensated) => true,
        (ImageKind::Cut(_), Fate::AbortedClean(_) | Fate::Lost(_)) => false,
    }
}

/// Returns whether the target state has this transaction's changes. A compensated transaction
/// counts as wanted, its compensations included: that is exact, and never needs a record before the
/// image's begin.
#[must_use]
pub fn wanted_fate(fate: Fate, target: Epoch) -> bool {
    match fate {
        Fate::Committed(epoch) => wanted(epoch, target),
        Fate::AbortedCompensated => true,
        Fate::AbortedClean(_) | Fate::Lost(_) => false,
    }
}

/// Applies the rule for a commuting record of an interleaved transaction.
#[must_use]
pub fn gate_fate(tag: CkptEpoch, image: ImageKind, fate: Fate, target: Epoch) -> Gate {
    match (net_reflected(tag, image, fate), wanted_fate(fate, target)) {
        (true, true) => Gate::Skip(Skip::Reflected),
        (false, false) => Gate::Skip(Skip::NotWanted),
        (false, true) | (true, false) => Gate::Apply,
    }
}

/// Applies the rule of two passes for a commuting record. What the image does not have is redone,
/// losers' changes too. The second pass takes those out again, reflected or redone.
#[must_use]
pub fn gate_tag(tag: CkptEpoch, k: CkptEpoch) -> Gate {
    if saw(tag, k) {
        Gate::Skip(Skip::Reflected)
    } else {
        Gate::Apply
    }
}

/// Decides on a record with an order. Behind the begin mark of its page's image `k` in its stream,
/// it is redone, reflected or not. `has_begun` returns whether it is behind that mark. Image 0 is
/// no image.
#[must_use]
pub fn gate_begun(k: CkptEpoch, has_begun: impl FnOnce(CkptEpoch) -> bool) -> Gate {
    if k == CkptEpoch(0) || has_begun(k) {
        Gate::Apply
    } else {
        Gate::Skip(Skip::Reflected)
    }
}

/// Applies the rule for a commuting record: apply it iff exactly one of the two holds. If it is
/// reflected and wanted, it is there already. If neither, the state is right without it. If it is
/// only wanted, it is redone.
///
/// If it is only reflected, the same XOR takes it out again. Restart never sees that case: an image
/// completes only when every change it reflects is durable. So this is `Apply` only for targets
/// before the image.
#[must_use]
pub fn gate(tag: CkptEpoch, image: ImageKind, epoch: Epoch, target: Epoch) -> Gate {
    match (reflected(tag, epoch, image), wanted(epoch, target)) {
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
        let (old, k, new) = (CkptEpoch(4), ImageKind::Sweep(CkptEpoch(5)), CkptEpoch(5));
        let (past, target, future) = (Epoch(7), Epoch(7), Epoch(8));
        assert_eq!(gate(old, k, past, target), Gate::Skip(Skip::Reflected));
        assert_eq!(gate(new, k, past, target), Gate::Apply);
        assert_eq!(gate(new, k, future, target), Gate::Skip(Skip::NotWanted));
        assert_eq!(gate(old, k, future, target), Gate::Apply);
    }

    #[test]
    fn an_unlogged_rollback_is_in_an_image_begun_after_it_and_in_no_other() {
        let (tag, target) = (CkptEpoch(4), Epoch(9));
        for gx in [4, 5, 6] {
            for k in [4, 5, 6, 7] {
                for fate in [Fate::AbortedClean(CkptEpoch(gx)), Fate::Lost(CkptEpoch(gx))] {
                    let saw_change_only = 4 < k && k <= gx;
                    let image = ImageKind::Sweep(CkptEpoch(k));
                    let gate = gate_fate(tag, image, fate, target);
                    assert_eq!(gate == Gate::Apply, saw_change_only, "{fate:?}, image {k}");
                }
            }
        }
    }

    #[test]
    fn a_commit_after_the_target_is_taken_out_of_an_image_that_has_it() {
        let (tag, new) = (CkptEpoch(4), CkptEpoch(5));
        let k = ImageKind::Sweep(new);
        let late = Fate::Committed(Epoch(10));
        assert_eq!(gate_fate(tag, k, late, Epoch(9)), Gate::Apply);
        assert_eq!(
            gate_fate(new, k, late, Epoch(9)),
            Gate::Skip(Skip::NotWanted)
        );
        assert_eq!(
            gate_fate(tag, k, late, Epoch(10)),
            Gate::Skip(Skip::Reflected)
        );
        let compensated = Fate::AbortedCompensated;
        assert_eq!(gate_fate(new, k, compensated, Epoch(9)), Gate::Apply);
        assert_eq!(
            gate_fate(tag, k, compensated, Epoch(9)),
            Gate::Skip(Skip::Reflected)
        );
    }
    #[test]
    fn a_cut_reflects_by_epoch_whatever_the_tag() {
        let cut = ImageKind::Cut(Epoch(5));
        for tag in [0, 4, 5, 6, u64::MAX].map(CkptEpoch) {
            for (epoch, target, expected) in [
                (5, 7, Gate::Skip(Skip::Reflected)),
                (6, 7, Gate::Apply),
                (7, 7, Gate::Apply),
                (8, 7, Gate::Skip(Skip::NotWanted)),
                // A target before the cut takes changes of the cut out.
                (4, 4, Gate::Skip(Skip::Reflected)),
                (5, 4, Gate::Apply),
                (6, 4, Gate::Skip(Skip::NotWanted)),
            ] {
                let (epoch, target) = (Epoch(epoch), Epoch(target));
                assert_eq!(gate(tag, cut, epoch, target), expected, "{epoch} {target}");
                let fate = Fate::Committed(epoch);
                assert_eq!(gate_fate(tag, cut, fate, target), expected);
            }
        }
    }

    #[test]
    fn a_cut_has_nothing_of_a_transaction_that_did_not_commit() {
        let (cut, target) = (ImageKind::Cut(Epoch(5)), Epoch(7));
        for tag in [4, 5, 6].map(CkptEpoch) {
            for gx in [4, 5, 6].map(CkptEpoch) {
                for fate in [Fate::AbortedClean(gx), Fate::Lost(gx)] {
                    let gate = gate_fate(tag, cut, fate, target);
                    assert_eq!(gate, Gate::Skip(Skip::NotWanted));
                }
            }
            let compensated = gate_fate(tag, cut, Fate::AbortedCompensated, target);
            assert_eq!(compensated, Gate::Skip(Skip::Reflected));
        }
    }
}

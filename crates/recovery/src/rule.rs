//! The predicates `reflected` and `wanted`, and the resulting rule: which records a restart applies.
//!
//! # Source
//! *Differential Logging* (000), section 3.4: the BackupID test of algorithm 3.
//!
//! # Deviations
//! The paper toggles one bit in a page for each checkpoint. Here a page carries a checkpoint *epoch*, and each record
//! has the page's epoch at the time of the change as its *tag*. So a cancelled sweep leaves no mixed parity. The test
//! compares the tag with the image's checkpoint epoch and reads no page header.
//!
//! In executor mode, where transactions do not interleave, every logged record is committed. A record is wanted if the
//! record's epoch is at most the target. The cut has already decided this for whole blocks. In steal mode, where
//! transactions interleave, the transaction's [`Fate`] decides.
//!
//! The tag of every record is tested. The paper tests tags only within the window of the last checkpoint. Outside the
//! window the two tests agree. So the scan here need not know whether it is in the window.
//!
//! Here a record is always appended before the latch is released. Algorithm 1 of the paper releases the latch first
//! (step 5) and appends the record afterwards (step 6). In that order, the image could contain a change whose record
//! the log has lost. Nothing could undo that change.

use perdura_base::{CkptEpoch, Epoch};

/// The state that an image's pages hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ImageKind {
    /// The image of a sweep with this checkpoint epoch, made while transactions ran. Each page has exactly the changes
    /// before the sweep's visit of the page. Their tags are below the checkpoint epoch. `Sweep(0)` means that there is
    /// no image.
    Sweep(CkptEpoch),
    /// The state at the end of this epoch: the changes of all transactions that committed in it or earlier, and no
    /// others.
    Cut(Epoch),
}

impl Default for ImageKind {
    fn default() -> Self {
        ImageKind::Sweep(CkptEpoch(0))
    }
}

/// The reason why a record is not applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Skip {
    /// The image has the change already.
    Reflected,
    /// The record's transaction is not part of the target state, and the image does not have the change.
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

/// The decision about a record, made without reading the record's page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gate {
    /// Skip the record.
    Skip(Skip),
    /// Apply the record.
    Apply,
}

/// Returns whether the image has a committed change with this tag and epoch. When sweep k visits a page, it sets the
/// page's checkpoint epoch to `k`. So changes before the visit have a smaller tag. For a cut the epoch alone decides.
#[must_use]
pub fn reflected(tag: CkptEpoch, epoch: Epoch, image: ImageKind) -> bool {
    match image {
        ImageKind::Sweep(k) => saw(tag, k),
        ImageKind::Cut(cut) => epoch <= cut,
    }
}

/// Returns whether sweep `k` visited the page after the change with this tag was made, and so copied the change.
fn saw(tag: CkptEpoch, k: CkptEpoch) -> bool {
    tag < k
}

/// Returns whether the target state includes a transaction that committed in this epoch.
#[must_use]
pub fn wanted(epoch: Epoch, target: Epoch) -> bool {
    epoch <= target
}

/// The fate of a transaction according to the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// The transaction committed in this epoch.
    Committed(Epoch),
    /// The transaction was rolled back by compensation records. Each cancels the change that it undoes.
    AbortedCompensated,
    /// The transaction was rolled back without a record, outside every checkpoint window. The value is the newest
    /// checkpoint epoch at the time of the rollback.
    AbortedClean(CkptEpoch),
    /// The transaction was unfinished when the log ended, and a restart undid it without a record. The value is the
    /// newest checkpoint epoch at the end of the log.
    Lost(CkptEpoch),
}

/// Returns whether the image still holds the effect of a change with this tag: the sweep saw the change, but did not
/// see an unlogged rollback of the change. An unlogged rollback never happens in a checkpoint's window. So the whole
/// rollback came before sweep `k` or after it. It came before the sweep if `k` is above `gx`, the value in `fate`.
///
/// An image of kind [`ImageKind::Cut`] contains no change of a transaction that did not commit. If compensation records
/// rolled back an uncommitted transaction, all records of this transaction count as reflected, including the
/// compensations. Together they change nothing, so no record before the cut is needed.
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

/// Returns whether the target state has this transaction's changes. If compensation records rolled the transaction
/// back, all its records count as wanted, including the compensations. Together they change nothing, so the result is
/// exact, and no record before the image's begin is needed.
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

/// Applies the rule of the two-pass player for a commuting record. The first pass redoes every change that the image
/// does not have, including changes of losers. So the second pass can undo all changes of losers.
#[must_use]
pub fn gate_tag(tag: CkptEpoch, k: CkptEpoch) -> Gate {
    if saw(tag, k) {
        Gate::Skip(Skip::Reflected)
    } else {
        Gate::Apply
    }
}

/// Decides about a record with an order number. `k` is the checkpoint that wrote the image of the record's page; 0 if
/// the page has no image. The record is applied if it is after the begin mark of checkpoint `k` in the record's stream.
/// The image may already have the change. `has_begun` returns whether the record is after the mark.
#[must_use]
pub fn gate_begun(k: CkptEpoch, has_begun: impl FnOnce(CkptEpoch) -> bool) -> Gate {
    if k == CkptEpoch(0) || has_begun(k) {
        Gate::Apply
    } else {
        Gate::Skip(Skip::Reflected)
    }
}

/// Applies the rule for a commuting record: apply the record iff the answers of `reflected` and `wanted` differ. If the
/// record is reflected and wanted, the image has the change already. If it is not reflected and not wanted, the state
/// rightly lacks the change. If it is only wanted, applying it redoes the change.
///
/// If the record is only reflected, the XOR removes the change. That happens only for targets before the image. It does
/// not happen in a restart, because an image completes only after every change that it reflects is durable.
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
                // If the target is before the cut, changes between the target and the cut are removed.
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

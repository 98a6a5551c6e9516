//! The decision about what survives: the durable epoch D and the cut of every stream.
//!
//! D is the highest epoch whose ends are known and which every stream holds in full. Everything beyond the ends of D is
//! void for good. If any block names a durable epoch above D, acknowledged data is missing and the database refuses to
//! start. A torn tail is an expected end; a missing acknowledged block never is. The same rule holds for an epoch that
//! a block names as acknowledged although only the memories of a mirror had it, and no disk. Only a caller that accepts
//! the loss continues then.
//!
//! `evidence` gathers the statements of anchor and scans, `verdict` is the decision as a table, and `refusal` words the
//! errors.

mod evidence;
mod refusal;
mod verdict;

use perdura_base::flaw::{Flaw, armed};
use perdura_base::{CkptEpoch, Epoch, Gsn, Pos, Result};

use crate::anchor::History;
use crate::scan::StreamScan;
use evidence::Known;
use verdict::Verdict;

/// The part of the log that a restart keeps.
#[derive(Debug, Clone)]
pub struct Cut {
    /// The durable epoch.
    pub durable: Epoch,
    /// The position at which each stream is cut.
    pub cut: Vec<Pos>,
    /// The highest commit epoch seen anywhere, void ones included.
    pub epoch_max: Epoch,
    /// The highest checkpoint epoch seen anywhere.
    pub ckpt_max: CkptEpoch,
    /// The latest wall clock seen, microseconds.
    pub wall_us: u64,
    /// The highest number of an operation seen anywhere, void ones included.
    pub gsn_max: Gsn,
    /// The highest epoch beyond `durable` that a block names as acknowledged: that loss was accepted. `None`: no block
    /// names one.
    pub lost_to: Option<Epoch>,
}

/// The contents of an image, which are intact without the log. Only texts of errors use it.
#[derive(Debug, Clone, Copy)]
pub struct Elsewhere {
    /// The epoch up to which the image holds the transactions.
    pub epoch: Epoch,
    /// The wall clock when it was written, microseconds since 1970.
    pub wall_us: u64,
}

/// Computes the cut from the scans of all streams. An error names what is intact `elsewhere`. With `accept_loss`
/// the log may end before epochs that only the memories of a mirror held, and [`Cut::lost_to`] names them.
///
/// # Errors
/// [`Error::Corrupt`](perdura_base::Error::Corrupt) if a block proves that acknowledged data is missing.
pub fn decide_cut(
    anchor: &History,
    scans: &[StreamScan],
    elsewhere: Option<Elsewhere>,
    accept_loss: bool,
) -> Result<Cut> {
    let known = Known::gather(anchor, scans, accept_loss);
    let (durable, mut cut) = match known.facts().decide() {
        Verdict::KeepLifeBefore | Verdict::KeepEnds => (known.log.epoch, known.log.ends.to_vec()),
        Verdict::KeepVouched => (anchor.vouched.epoch, anchor.vouched.ends.clone()),
        Verdict::ShortOfVouched => return Err(known.short_of_vouched(elsewhere)),
        Verdict::ProvenMissing => return Err(known.proven_missing()),
        Verdict::SyncedMissing => return Err(known.synced_missing()),
        Verdict::AckedMissing => return Err(known.acked_missing()),
        Verdict::Contradiction => return Err(known.contradiction()),
    };
    let before = anchor.chain.last().map(|link| link.durable);
    assert!(
        before <= Some(durable),
        "D goes back from {before:?} to {durable}"
    );
    if armed(Flaw::CutIgnored) {
        cut = scans.iter().map(|scan| scan.valid_end).collect();
    }
    let mut decided = Cut {
        durable,
        cut,
        epoch_max: anchor.epoch_floor,
        ckpt_max: anchor.ckpt_max,
        wall_us: 0,
        gsn_max: Gsn(0),
        lost_to: known.acked_beyond().map(|proof| proof.epoch),
    };
    assert!(
        accept_loss || decided.lost_to.is_none(),
        "acknowledged epochs up to {:?} are lost, and D is {durable}",
        decided.lost_to
    );
    for seen in scans.iter().map(|scan| &scan.evidence) {
        decided.epoch_max = decided.epoch_max.max(seen.epoch_max);
        decided.ckpt_max = decided.ckpt_max.max(seen.ckpt_max);
        decided.wall_us = decided.wall_us.max(seen.wall_us);
        decided.gsn_max = decided.gsn_max.max(seen.gsn_max);
    }
    Ok(decided)
}

#[cfg(test)]
mod tests;

//! Decides which part of the log survives a restart: the durable epoch D and the cut of every stream.
//!
//! D is the highest epoch that every stream has in full, with a known end position in each stream. Everything beyond
//! these positions is void for good. If a block names a durable epoch above D, acknowledged data is missing and the
//! database refuses to start. A torn tail is an expected end; a missing acknowledged block never is. The rule also
//! covers an acknowledged epoch that only the memories of a mirror had, if a block names the epoch. In that case alone
//! a caller may accept the loss and continue.
//!
//! `evidence` gathers what the anchor and the scans say, `verdict` is the decision as a table, and `refusal` writes the
//! error messages.

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
    /// The cut position of each stream.
    pub cut: Vec<Pos>,
    /// The highest commit epoch in any block, including void blocks.
    pub epoch_max: Epoch,
    /// The highest checkpoint epoch in any block.
    pub ckpt_max: CkptEpoch,
    /// The latest wall-clock time in any block, in microseconds since 1970.
    pub wall_us: u64,
    /// The highest number of an operation in any block, including void blocks.
    pub gsn_max: Gsn,
    /// The highest acknowledged epoch above `durable` in any block; the caller accepted the loss of this epoch. `None`
    /// if no acknowledged epoch is lost.
    pub lost_to: Option<Epoch>,
}

/// The contents of an image, which are intact even if the log is damaged. Only the texts of errors use them.
#[derive(Debug, Clone, Copy)]
pub struct Elsewhere {
    /// The last epoch with transactions in the image.
    pub epoch: Epoch,
    /// The wall clock when the image was written, microseconds since 1970.
    pub wall_us: u64,
}

/// Computes the cut from the scans of all streams. An error's text names `elsewhere` as an intact copy of the data.
/// With `accept_loss` the log may lack epochs that only the memories of a mirror had. [`Cut::lost_to`] then has the
/// highest of these epochs.
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

//! Writes the log's durable end into the anchor.
//!
//! At the end of a log, a file that lost its newest blocks looks like a tail that a crash has torn. So the anchor,
//! which is on another disk or at least in another file, names a durable epoch, and the position in each stream at
//! which that epoch ends. A restart that finds less log refuses to start. The engine calls [`vouch`] about once a
//! second while the log is written and when it is closed; no commit waits for it.
//!
//! # Invariants
//! * The epoch that the anchor names is at most D: no record is vouched for before it is durable.
//! * The end that the anchor names never goes back.

use perdura_base::Result;
use perdura_base::flaw::{Flaw, armed};
use perdura_wal::{History, Rung, Wal};

use crate::anchor_cell::AnchorCell;

/// Makes the anchor vouch for the log that is durable now. Returns whether the anchor had to be written.
///
/// # Errors
/// The log has stopped. Or the anchor cannot be written, which stops the log. If only space is missing, the log is not
/// stopped, and the caller tries again later.
pub fn vouch(anchor: &AnchorCell, wal: &Wal) -> Result<bool> {
    wal.check()?;
    let is_known = anchor.get().vouched.epoch >= wal.durable(Rung::Disk);
    if is_known {
        return Ok(false);
    }
    anchor
        .update_running(wal, |record| take_over(record, wal))
        .map(|_| true)
}

/// Marks the anchor clean and makes it vouch for the log's exact end. The caller has taken a checkpoint and flushed the
/// log, and nothing is running.
///
/// # Errors
/// [`perdura_base::Error::Stopped`] with the error of the anchor's disk.
pub fn mark_clean(anchor: &AnchorCell, wal: &Wal) -> Result<()> {
    let marked = anchor.update_running(wal, |record| {
        take_over(record, wal);
        record.clean = true;
    });
    if let Err(error) = marked {
        // An update that is refused for want of space would still take effect with a later update, when the database
        // may not be clean. So the log is stopped.
        wal.stop("anchor", &error);
    }
    wal.check()
}

/// Makes the anchor vouch for the durable log at the end of a life, with one sync of the anchor instead of two. No
/// other update follows in this life.
///
/// # Errors
/// The log has stopped, or the anchor cannot be written. The end that the anchor named before stays valid.
pub fn vouch_last(anchor: &AnchorCell, wal: &Wal) -> Result<()> {
    wal.check()?;
    if anchor.get().vouched.epoch < wal.durable(Rung::Disk) {
        anchor.update_last(|record| take_over(record, wal))?;
    }
    Ok(())
}

/// Sets the durable end in the anchor's record to that of the log.
fn take_over(record: &mut History, wal: &Wal) {
    let durable = wal.durable_end(match armed(Flaw::VouchedOnMirror) {
        true => Rung::Mirror,
        false => Rung::Disk,
    });
    assert!(
        durable.epoch >= record.vouched.epoch,
        "what is durable never becomes less"
    );
    assert_eq!(
        durable.ends.len(),
        record.vouched.ends.len(),
        "the anchor is of this log: it has an end for each stream"
    );
    let mut ends = durable.ends.iter().zip(&record.vouched.ends);
    assert!(
        ends.all(|(now, before)| now >= before),
        "no stream ends ahead of what was vouched for"
    );
    record.vouched = durable;
    assert!(
        record.vouched.epoch <= wal.durable(Rung::Disk),
        "the anchor vouches for at most D"
    );
}

//! Reports of the log's durable end to the anchor.
//!
//! The end of a log is the one place where a cut and a torn tail look alike. So the anchor, which is on another disk or
//! at least in another file, names a durable epoch and the end of each stream's part of it. A restart that finds less
//! refuses to start. The engine calls [`vouch`] about once a second while the log is written and when it is closed; no
//! commit waits for it.
//!
//! # Invariants
//! * The anchor names at most D: a record is vouched for when it is durable and never before.
//! * The anchor's durable end only grows.

use perdura_base::Result;
use perdura_base::flaw::{Flaw, armed};
use perdura_wal::{History, Rung, Wal};

use crate::anchor_cell::AnchorCell;

/// Makes the anchor vouch for the log that is durable now. Returns whether it had to be written.
///
/// # Errors
/// The log has stopped. Or the anchor cannot be written, which stops the log, unless it was refused for want of space:
/// then the caller calls it again later.
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

/// Marks the anchor clean and makes it vouch for the log's exact end. The caller has checkpointed and flushed,
/// and nothing runs.
///
/// # Errors
/// [`perdura_base::Error::Stopped`] with the error of the anchor's disk.
pub fn mark_clean(anchor: &AnchorCell, wal: &Wal) -> Result<()> {
    let marked = anchor.update_running(wal, |record| {
        take_over(record, wal);
        record.clean = true;
    });
    if let Err(error) = marked {
        // An update that is refused for want of space would come into force later, whatever happens
        // in between.
        wal.stop("anchor", &error);
    }
    wal.check()
}

/// Makes the anchor vouch for the durable log at the end of a life, with one sync of the anchor instead of two. No
/// other update follows in this life.
///
/// # Errors
/// The log has stopped, or the anchor cannot be written. Its earlier entry stays true.
pub fn vouch_last(anchor: &AnchorCell, wal: &Wal) -> Result<()> {
    wal.check()?;
    if anchor.get().vouched.epoch < wal.durable(Rung::Disk) {
        anchor.update_last(|record| take_over(record, wal))?;
    }
    Ok(())
}

/// Puts the durable end of the log into the record.
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

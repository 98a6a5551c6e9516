//! Writes the log's durable end into the anchor.
//!
//! A log that has lost its newest blocks looks like a log whose end was torn by a crash. So the anchor names a durable
//! epoch, and the end position of that epoch in each stream. The anchor is a separate file, perhaps on a separate disk.
//! A restart refuses a log that ends before these positions. The engine calls [`vouch`] about once a second while the
//! log is written, and when the log is closed. No commit waits for it.
//!
//! # Invariants
//! * The epoch that the anchor names is at most D, the durable epoch: no record is vouched for before it is durable.
//! * An update of the anchor never replaces the named end by an earlier one.

use perdura_base::Result;
use perdura_base::flaw::{Flaw, armed};
use perdura_wal::{History, Rung, Wal};

use crate::anchor_cell::AnchorCell;

/// Makes the anchor vouch for the log that is durable now. Returns whether it had to write the anchor.
///
/// # Errors
/// The log has stopped, or the anchor cannot be written. A failed write of the anchor stops the log, unless it failed
/// for lack of space. In that case the caller tries again later.
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
        // An update that is refused for want of space would take effect together with a later update. The database may
        // not be clean at that time, so the log is stopped.
        wal.stop("anchor", &error);
    }
    wal.check()
}

/// Makes the anchor vouch for the durable log at the end of a life, with one sync of the anchor instead of two. The
/// life must not update the anchor again.
///
/// # Errors
/// The log has stopped, or the anchor cannot be written. After an error, the end that the anchor already names stays
/// valid.
pub fn vouch_last(anchor: &AnchorCell, wal: &Wal) -> Result<()> {
    wal.check()?;
    if anchor.get().vouched.epoch < wal.durable(Rung::Disk) {
        anchor.update_last(|record| take_over(record, wal))?;
    }
    Ok(())
}

/// Sets the durable end in the anchor's record to the log's durable end.
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

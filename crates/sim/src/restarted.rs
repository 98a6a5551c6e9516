//! The checks of a restart in every world, for any rows. The restart kept everything that it had to keep. It found
//! damage only if a fault explains it. After bit rot it refused, or kept everything that evidence remained of.

use std::sync::Arc;

use perdura_base::Error;
use perdura_base::error::Family;
use perdura_device::SimDisk;
use perdura_recovery::RestartReport;

use crate::machine::{Engine, Machine};
use crate::report::Check;

/// Returns whether an injected fault made a read of this disk fail. The restart may take the unread bytes for
/// damaged.
fn read_failed(disk: &SimDisk) -> bool {
    disk.faults()
        .get("read_failed")
        .is_some_and(|count| *count > 0)
}

/// Returns whether something on this disk rotted.
pub(crate) fn has_rotted(disk: &SimDisk) -> bool {
    disk.faults().contains_key("rot")
}

impl<E: Engine> Machine<E> {
    /// Checks that a restart that kept the epochs up to `kept` has lost nothing that was acknowledged.
    pub(crate) fn check_kept(&self, kept: u64) -> Check {
        if kept < self.must_survive {
            return Err(format!(
                "epoch {} was acknowledged, the restart kept only {kept}",
                self.must_survive
            ));
        }
        Ok(())
    }

    /// Checks that a restart has found an image damaged only if a disk has failed to read or has rotted.
    pub(crate) fn check_images_met(&self, report: &RestartReport) -> Check {
        let unusable = |note: &String| note.contains("cannot be used");
        let damaged = report.pages_rebuilt > 0 || report.notes.iter().any(unusable);
        let may_be = |disk: &Arc<SimDisk>| read_failed(disk) || has_rotted(disk);
        if damaged && !self.disks.iter().any(may_be) {
            return Err(format!(
                "an image is damaged although nothing rots: {:?}",
                report.notes
            ));
        }
        Ok(())
    }

    /// Counts a restart that has been compared and made all epochs up to `durable` durable. The next life begins.
    pub(crate) fn count_restart(&mut self, durable: u64) {
        self.must_survive = durable;
        self.evidence = durable;
        self.tally.restarts += 1;
        self.note(durable);
    }
}

/// Checks that the engine does not use an epoch again that the restart found in a void block. `current` is the open
/// epoch.
pub(crate) fn check_void(report: &RestartReport, current: u64) -> Check {
    let durable = report.durable_epoch;
    if report.void_blocks > 0 && current < durable + 2 {
        return Err(format!(
            "epoch {} is in a void block and used again",
            durable + 1
        ));
    }
    Ok(())
}

/// Checks an open of damaged disks. Returns `None` after an error of the corruption family. Otherwise returns the
/// engine, and the epoch up to which the engine `kept` all transactions. That epoch must not be below `evidence`.
pub(crate) fn started<E>(
    opened: Result<E, Error>,
    kept: impl FnOnce(&E) -> u64,
    evidence: u64,
    damage: &str,
) -> Check<Option<(E, u64)>> {
    let engine = match opened {
        Ok(engine) => engine,
        Err(error) => return refused(&error, damage).map(|()| None),
    };
    let kept = kept(&engine);
    if kept < evidence {
        return Err(format!(
            "{damage}: started at epoch {kept}, but {evidence} has later evidence"
        ));
    }
    Ok(Some((engine, kept)))
}

/// Checks that an error of an open after damage belongs to the corruption family.
pub(crate) fn refused(error: &Error, damage: &str) -> Check {
    match error.family() {
        Family::Corruption => Ok(()),
        _ => Err(format!("{damage}: {error}")),
    }
}

//! The checks of a restart in every world, for any rows. The restart must have kept every epoch that must survive. It
//! may have found damage only if a fault explains the damage. After bit rot, it must have refused to start, or kept
//! every epoch that the remaining evidence proves durable.

use std::sync::Arc;

use perdura_base::Error;
use perdura_base::error::Family;
use perdura_device::SimDisk;
use perdura_recovery::RestartReport;

use crate::machine::{Engine, Machine};
use crate::report::Check;

/// Returns whether an injected fault made a read of this disk fail. The restart may treat the unread bytes as
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
    /// Checks that a restart has lost no acknowledged epoch. The restart kept the epochs up to `kept`.
    pub(crate) fn check_kept(&self, kept: u64) -> Check {
        if kept < self.must_survive {
            return Err(format!(
                "epoch {} was acknowledged, the restart kept only {kept}",
                self.must_survive
            ));
        }
        Ok(())
    }

    /// Checks that a fault explains any damaged image that the restart found. The fault is a failed read of a disk, or
    /// rot of a disk.
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

    /// Counts a restart after its comparison with the model. The restart made all epochs up to `durable` durable, and
    /// the next life begins.
    pub(crate) fn count_restart(&mut self, durable: u64) {
        self.must_survive = durable;
        self.evidence = durable;
        self.tally.restarts += 1;
        self.note(durable);
    }
}

/// Checks that the engine does not reuse the epoch of a void block. `current` is the open epoch.
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

/// Checks the result of opening damaged disks. Returns `None` after an error of the corruption family. `kept` computes
/// the last epoch that the engine has kept and that has transactions. Returns the engine and this epoch, if the epoch
/// is at least `evidence`.
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

/// Checks that the error of an open after damage belongs to the corruption family.
pub(crate) fn refused(error: &Error, damage: &str) -> Check {
    match error.family() {
        Family::Corruption => Ok(()),
        _ => Err(format!("{damage}: {error}")),
    }
}

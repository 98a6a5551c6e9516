//! The epochs with the records that a restore needs. They decide which runs the restore reads.

use perdura_archive::backup::{BackupHeader, BackupKind};
use perdura_archive::{Run, RunId};
use perdura_base::flaw::{Flaw, armed};
use perdura_base::{Epoch, Error, Result};

/// The part of the log that a restore from one backup to one moment needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Reach {
    /// The epoch to be restored.
    pub(crate) target: Epoch,
    /// The first and the last needed epoch. `None`: no records are needed, because the backup is the state to restore.
    needed: Option<(Epoch, Epoch)>,
    /// The epoch of the backup, if the backup is a cut. No run may have combined records of epochs up to this epoch
    /// with records of later epochs.
    cut: Option<Epoch>,
}

/// Returns the error for a run that is missing.
fn missing(from: Epoch, to: Epoch) -> Error {
    Error::corrupt(
        "archive",
        0,
        format!("runs of epochs {from} to {to}"),
        "none",
        "A run is missing. Restore an earlier moment, or restore from a later backup.",
    )
}

/// Fails if epochs are missing between two runs.
fn check_adjacent(runs: &[RunId]) -> Result<()> {
    let mut pairs = runs.windows(2).map(|pair| (pair[0].epochs, pair[1].epochs));
    match pairs.find(|(a, b)| a.end != b.begin) {
        Some((a, b)) => Err(missing(a.end, b.begin)),
        None => Ok(()),
    }
}

impl Reach {
    /// Computes the epochs that a restore of `target` needs. If `target` is `None`, the target is the last epoch of the
    /// runs and the backup. `runs` must be in the order of their epochs.
    ///
    /// # Errors
    /// [`Error::Usage`] if the runs do not reach the target; the error names the epochs that they have.
    /// [`Error::Corrupt`] if a run between two others is missing.
    pub(crate) fn of(
        header: &BackupHeader,
        runs: &[RunId],
        target: Option<Epoch>,
    ) -> Result<Reach> {
        // A cut before its first lacking epoch serves no earlier moment: its rows cannot be taken out.
        let end = header.moment();
        check_adjacent(runs)?;
        let epochs = runs.first().zip(runs.last());
        let epochs = epochs.map(|(first, last)| (first.epochs.begin, last.epochs.last()));
        let (first, last) = match (epochs, header.kind) {
            (Some(epochs), _) => epochs,
            (None, BackupKind::Sweep) if header.begin <= end => {
                return Err(missing(header.begin, end));
            }
            // Without runs, the backup must need no records. A backup of kind `Sweep` needs none if the database was
            // itself restored and the log is still empty.
            (None, BackupKind::Sweep | BackupKind::Cut) => (Epoch(end.0 + 1), end),
        };
        let target = target.unwrap_or(last.max(end));
        // The first epoch whose records the backup's pages may lack.
        let lacking = match header.kind {
            BackupKind::Sweep => header.begin,
            BackupKind::Cut => Epoch(end.0 + 1),
        };
        if target < end && header.is_of_one_moment() {
            return Err(Error::Usage(format!(
                "epoch {target} cannot be restored from backup {}. The database has key-addressed tables, and the backup \
                 has their rows as of epoch {end}. An older backup leads to earlier epochs",
                header.id.name()
            )));
        }
        // If the target is before the backup's end, the epochs after the target, up to the backup's end, must be taken
        // out of the pages. The first epoch of an archive may lack the records before the begin marks of its first
        // image, so that epoch cannot be taken out. So the target must be that epoch or a later one.
        let (from, to) = match target < end {
            true => (lacking.min(target), end),
            false => (lacking, target),
        };
        let needs_runs = from <= to;
        assert!(
            from.0 <= target.0 + 1 && to >= target,
            "epochs {from} to {to} lead to {target}"
        );
        if needs_runs && (first > from || last < to) {
            return Err(Error::Usage(format!(
                "epoch {target} cannot be restored from backup {}. It needs the runs of epochs \
                 {from} to {to}, but only those of {first} to {last} exist",
                header.id.name()
            )));
        }
        let up_to = if armed(Flaw::RunsReadUpToTarget) {
            target
        } else {
            to
        };
        assert!(
            !needs_runs || first <= from && to <= last,
            "all that makes a difference is in the runs"
        );
        Ok(Reach {
            target,
            needed: needs_runs.then_some((from, up_to)),
            cut: (header.kind == BackupKind::Cut && needs_runs).then_some(end),
        })
    }

    /// Returns whether any run is needed.
    pub(crate) fn needs_runs(&self) -> bool {
        self.needed.is_some()
    }

    /// Returns whether a run has any of the needed epochs.
    pub(crate) fn needs(&self, run: RunId) -> bool {
        let epochs = run.epochs;
        self.needed
            .is_some_and(|(from, up_to)| epochs.end > from && epochs.begin <= up_to)
    }

    /// Returns the epochs across which a merge must not combine records: the target, and the backup's end if the backup
    /// is a cut.
    pub(crate) fn moments(&self) -> impl Iterator<Item = Epoch> + use<> {
        let kept = self.needed.map(|_| self.target);
        let mut moments: Vec<Epoch> = kept.into_iter().chain(self.cut).collect();
        moments.sort_unstable();
        moments.dedup();
        moments.into_iter()
    }

    /// Fails if records of `run` from before and after the target were combined. If the backup is a cut, also fails if
    /// records from before and after the cut's epoch were combined.
    ///
    /// # Errors
    /// [`Error::Usage`].
    pub(crate) fn check_moments(&self, run: &Run) -> Result<()> {
        let mut within = [self.target].into_iter().chain(self.cut);
        let gone =
            within.find(|moment| run.id().epochs.contains(*moment) && !run.has_moment(*moment));
        match gone {
            None => Ok(()),
            Some(moment) => Err(Error::Usage(format!(
                "epoch {moment} can no longer be restored: {} has combined the records around it",
                run.id().name()
            ))),
        }
    }
}

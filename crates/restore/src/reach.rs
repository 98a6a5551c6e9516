//! The epochs whose records a restore needs. They decide which runs it reads.

use perdura_archive::backup::{BackupHeader, BackupKind};
use perdura_archive::{Run, RunId};
use perdura_base::flaw::{Flaw, armed};
use perdura_base::{Epoch, Error, Result};
use perdura_wal::Archived;

/// The part of the log that a restore from one backup to one moment needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Reach {
    /// The epoch whose state is restored.
    pub(crate) target: Epoch,
    /// The first and the last needed epoch. `None`: no records are needed, because the backup is the state to restore.
    needed: Option<(Epoch, Epoch)>,
    /// The end of a backup that is a cut. A run must not have combined records of epochs up to it with records of later
    /// epochs.
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

impl Reach {
    /// Computes the epochs that are needed to restore `target`, or the last epoch that the runs hold. `runs` must be
    /// ascending.
    ///
    /// # Errors
    /// [`Error::Usage`] if the runs do not reach the moment; the error names the epochs that they have.
    /// [`Error::Corrupt`] if a run is missing between others.
    pub(crate) fn of(
        header: &BackupHeader,
        runs: &[RunId],
        target: Option<Epoch>,
    ) -> Result<Reach> {
        let end = header.id.end;
        if header.archive() == Archived::Carried && !armed(Flaw::RunsAppliedToKept) {
            return Reach::only(end, target);
        }
        for pair in runs.windows(2) {
            let (a, b) = (pair[0].epochs, pair[1].epochs);
            if a.end != b.begin {
                return Err(missing(a.end, b.begin));
            }
        }
        let epochs = runs.first().zip(runs.last());
        let epochs = epochs.map(|(first, last)| (first.epochs.begin, last.epochs.last()));
        let (first, last) = match (epochs, header.kind) {
            (Some(epochs), _) => epochs,
            (None, BackupKind::Sweep) if header.begin <= end => {
                return Err(missing(header.begin, end));
            }
            // Without runs, the backup has to be complete by itself. That includes the backup of a restored database
            // whose log is still empty.
            (None, BackupKind::Sweep | BackupKind::Cut) => (Epoch(end.0 + 1), end),
        };
        let target = target.unwrap_or(last.max(end));
        // The first epoch of which the backup's pages may lack records.
        let lacking = match header.kind {
            BackupKind::Sweep => header.begin,
            BackupKind::Cut => Epoch(end.0 + 1),
        };
        // If the target is before the backup's end, the epochs after the target, up to the backup's end, must be taken
        // out of the pages. The first epoch of an archive may lack the records before the begin marks of its first
        // image, so it cannot be taken out. So the target has to be that epoch or a later one.
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

    /// Returns the reach of a backup whose database has key-addressed tables. The log of such a database has records
    /// that belong to no page, so only the state at the backup's end can be restored.
    fn only(end: Epoch, target: Option<Epoch>) -> Result<Reach> {
        match target.filter(|target| *target != end) {
            None => Ok(Reach {
                target: end,
                needed: None,
                cut: None,
            }),
            Some(target) => Err(Error::Usage(format!(
                "epoch {target} cannot be restored. The database has key-addressed tables, so only the epochs of its \
                 backups can be restored. The epoch of this backup is {end}"
            ))),
        }
    }

    /// Returns whether a run has any of the needed epochs.
    pub(crate) fn needs(&self, run: RunId) -> bool {
        let epochs = run.epochs;
        self.needed
            .is_some_and(|(from, up_to)| epochs.end > from && epochs.begin <= up_to)
    }

    /// Returns the epochs across which a merge must not combine records: the target, and the end of a backup that is a
    /// cut.
    pub(crate) fn moments(&self) -> impl Iterator<Item = Epoch> + use<> {
        let kept = self.needed.map(|_| self.target);
        let mut moments: Vec<Epoch> = kept.into_iter().chain(self.cut).collect();
        moments.sort_unstable();
        moments.dedup();
        moments.into_iter()
    }

    /// Checks that merging has not combined the records of a run across an epoch at which this restore must separate
    /// them.
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

//! Which backup and runs restore a moment, and whether they can.

use std::sync::Arc;

use perdura_archive::backup::{Backup, BackupKind};
use perdura_archive::{Run, RunId, RunRecord};
use perdura_base::flaw::{Flaw, armed};
use perdura_base::{CkptEpoch, Epoch, Error, Result};

use super::at::wall_of;
use super::difference;
use crate::rule::{ImageKind, reflected, wanted};

/// A backup, the runs that lead from it to a moment, and the moment.
pub struct RestorePlan {
    pub(crate) backup: Arc<Backup>,
    /// In the order of their epochs; those that hold nothing that makes a difference are left out.
    pub(crate) runs: Vec<Arc<Run>>,
    pub(crate) target: Epoch,
    /// The wall clock of the last listed moment up to the target, microseconds since 1970; 0 if there is none.
    pub(super) wall_us: u64,
}

/// What a run that is missing means.
fn missing(from: Epoch, to: Epoch) -> Error {
    Error::corrupt(
        "archive",
        0,
        format!("runs of epochs {from} to {to}"),
        "none",
        "A run is missing. Restore a moment before it, or from a later backup.",
    )
}

impl RestorePlan {
    /// A plan to restore the state of `target`, or the last one that the runs hold. The runs are those of the backup's
    /// database, ascending.
    ///
    /// # Errors
    /// [`Error::Usage`] for a moment that they do not reach or that merging has given up, with the range that they do
    /// reach; [`Error::Corrupt`] for a run that is missing between them.
    pub fn new(
        backup: Arc<Backup>,
        runs: Vec<Arc<Run>>,
        target: Option<Epoch>,
    ) -> Result<RestorePlan> {
        let header = *backup.header();
        let end = header.id.end;
        if header.families != 0 && !armed(Flaw::RunsAppliedToKept) {
            // The log of such a database has records that are no page's: the image is its only moment.
            return match target.filter(|target| *target != end) {
                None => Ok(RestorePlan {
                    backup,
                    runs: Vec::new(),
                    target: end,
                    wall_us: header.wall_us,
                }),
                Some(target) => Err(Error::Usage(format!(
                    "epoch {target} cannot be restored: the database has key-addressed tables, whose moments are those of \
                     its backups; this one's is {end}"
                ))),
            };
        }
        for pair in runs.windows(2) {
            let (a, b) = (pair[0].id().epochs, pair[1].id().epochs);
            if a.end != b.begin {
                return Err(missing(a.end, b.begin));
            }
        }
        let epochs = runs.first().zip(runs.last());
        let epochs = epochs.map(|(first, last)| (first.id().epochs.begin, last.id().epochs.last()));
        let (first, last) = match (epochs, header.kind) {
            (Some(epochs), _) => epochs,
            (None, BackupKind::Cut) => (Epoch(end.0 + 1), end),
            (None, BackupKind::Sweep) => return Err(missing(header.begin, end)),
        };
        let target = target.unwrap_or(last.max(end));
        let (from, to) = match header.kind {
            BackupKind::Sweep => (header.begin, end),
            BackupKind::Cut => (Epoch(end.0 + 1), end),
        };
        // What is not in the pages begins at `from`, what has to come out of them may reach up to `to`.
        let (from, to) = (from.min(Epoch(target.0 + 1)), to.max(target));
        let needs_runs = from <= to;
        if needs_runs && (first > from || last < to) {
            return Err(Error::Usage(format!(
                "epoch {target} cannot be restored from backup {}, which needs the runs of epochs {from} to {to}: there are \
                 those of {first} to {last}",
                header.id.name()
            )));
        }
        let cut = (header.kind == BackupKind::Cut && needs_runs).then_some(end);
        for moment in [target].into_iter().chain(cut) {
            let within = runs.iter().find(|run| run.id().epochs.contains(moment));
            if let Some(run) = within.filter(|run| !run.has_moment(moment)) {
                return Err(Error::Usage(format!(
                    "epoch {moment} is no moment any more: {} has combined the records around it",
                    run.id().name()
                )));
            }
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
        let matters = |run: &Arc<Run>| {
            let epochs = run.id().epochs;
            epochs.end > from && epochs.begin <= up_to
        };
        let listed = wall_of(&runs, target);
        let of_backup = Some(header.wall_us).filter(|_| end <= target);
        Ok(RestorePlan {
            wall_us: listed.or(of_backup).unwrap_or(0),
            runs: runs.into_iter().filter(matters).collect(),
            backup,
            target,
        })
    }

    /// The backup alone.
    pub(super) fn without_runs(&self) -> RestorePlan {
        RestorePlan {
            backup: Arc::clone(&self.backup),
            wall_us: self.wall_us,
            runs: Vec::new(),
            target: self.target,
        }
    }

    /// The runs that are read, in the order of their epochs.
    pub fn run_ids(&self) -> impl Iterator<Item = RunId> + '_ {
        self.runs.iter().map(|run| run.id())
    }

    /// The epoch whose state is restored.
    #[must_use]
    pub fn target(&self) -> Epoch {
        self.target
    }

    /// The wall clock of the last moment up to the target that the archive lists, microseconds since 1970; 0 if it lists
    /// none. If moments are sampled, the target lies at or behind it and before the next one.
    #[must_use]
    pub fn wall_us(&self) -> u64 {
        self.wall_us
    }

    /// Bytes that are read.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.backup.bytes() + self.runs.iter().map(|run| run.bytes()).sum::<u64>()
    }

    fn kind(&self) -> ImageKind {
        let id = self.backup.header().id;
        match self.backup.header().kind {
            BackupKind::Sweep => ImageKind::Sweep(id.k),
            BackupKind::Cut if armed(Flaw::CutJudgedByTag) => ImageKind::Sweep(self.highest_tag()),
            BackupKind::Cut => ImageKind::Cut(id.end),
        }
    }

    /// What a record does to its page: `Some(true)` goes in, `Some(false)` comes out.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if it stands for changes on both sides of the target or the backup.
    pub(super) fn gate(&self, record: &RunRecord<'_>) -> Result<Option<bool>> {
        let kind = self.kind();
        let side = |epoch: Epoch| {
            (
                reflected(record.tag, epoch, kind),
                wanted(epoch, self.target),
            )
        };
        let (first, last) = (side(record.epochs.first), side(record.epochs.last));
        if first != last {
            return Err(Error::corrupt(
                "archive",
                0,
                format!(
                    "records on one side of epoch {} and of the backup",
                    self.target
                ),
                format!(
                    "a net record of epochs {} to {}",
                    record.epochs.first, record.epochs.last
                ),
                "Merging has combined what this restore needs apart. Restore another moment, or from another backup.",
            ));
        }
        Ok(difference(first.0, first.1))
    }

    /// The number of the image that is made: above every tag of a page or record.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if there is no such number.
    pub(crate) fn image_number(&self) -> Result<CkptEpoch> {
        let next = self.highest_tag().0.checked_add(1);
        next.map(CkptEpoch).ok_or_else(|| {
            let found = "the highest number that there is";
            Error::corrupt("archive", 0, "a tag", found, "The archive is damaged.")
        })
    }

    fn highest_tag(&self) -> CkptEpoch {
        let blocks = self.runs.iter().flat_map(|run| run.index());
        let highest = blocks.map(|block| block.tags.1).max();
        highest.unwrap_or_default().max(self.backup.header().id.k)
    }

    /// The highest epoch of backup and runs.
    pub(super) fn highest_epoch(&self) -> Epoch {
        let runs = self.runs.iter().map(|run| run.id().epochs.last());
        let highest = runs.max().unwrap_or_default();
        highest.max(self.backup.header().id.end).max(self.target)
    }
}

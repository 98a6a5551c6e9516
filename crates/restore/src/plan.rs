//! The plan of a restore: the backup and the runs that a moment is restored from.

use std::sync::Arc;

use perdura_archive::backup::{Backup, BackupKind, Section};
use perdura_archive::{Run, RunId, RunRecord};
use perdura_base::flaw::{Flaw, armed};
use perdura_base::{CkptEpoch, Epoch, Error, PartitionId, Result};
use perdura_recovery::rule::{ImageKind, reflected, wanted};

use crate::at::wall_of;
use crate::reach::Reach;
use crate::scratch::Scratch;

/// A moment to restore, a backup, and the runs that lead from the backup to the moment.
pub struct RestorePlan {
    pub(crate) backup: Arc<Backup>,
    /// The runs in the order of their epochs. Runs outside the needed epochs are left out.
    pub(crate) runs: Vec<Arc<Run>>,
    pub(crate) target: Epoch,
    /// The time of the last listed moment up to the target, microseconds since 1970; 0 if there is no such moment.
    pub(crate) wall_us: u64,
    /// The folder of the runs that the restore has made. `None`: it has made no runs.
    pub(crate) scratch: Option<Scratch>,
    /// The number of runs that were merged because there were too many.
    pub(crate) runs_merged: usize,
}

impl RestorePlan {
    /// Makes a plan to restore the state of `target`, or the last state that the runs hold. The runs must be of the
    /// backup's database and in ascending order.
    ///
    /// # Errors
    /// [`Error::Usage`] if the runs do not reach the moment; the error names the range that they reach.
    /// [`Error::Usage`] also if the moment was lost when runs were merged. [`Error::Corrupt`] if a run is missing
    /// between others.
    pub fn new(
        backup: Arc<Backup>,
        runs: Vec<Arc<Run>>,
        target: Option<Epoch>,
    ) -> Result<RestorePlan> {
        let ids: Vec<RunId> = runs.iter().map(|run| run.id()).collect();
        let reach = Reach::of(backup.header(), &ids, target)?;
        runs.iter().try_for_each(|run| reach.check_moments(run))?;
        let listed = wall_of(&runs, reach.target);
        let runs = runs.into_iter().filter(|run| reach.needs(run.id()));
        Ok(RestorePlan::of(backup, &reach, runs.collect(), listed))
    }

    /// Makes a plan. The backup and runs have been checked to reach the moment.
    pub(crate) fn of(
        backup: Arc<Backup>,
        reach: &Reach,
        runs: Vec<Arc<Run>>,
        listed_us: Option<u64>,
    ) -> RestorePlan {
        let header = backup.header();
        assert!(
            runs.windows(2)
                .all(|pair| pair[0].id().epochs.end == pair[1].id().epochs.begin),
            "the runs that are read have no hole"
        );
        let of_backup = Some(header.wall_us).filter(|_| header.id.end <= reach.target);
        RestorePlan {
            wall_us: listed_us.or(of_backup).unwrap_or(0),
            target: reach.target,
            scratch: None,
            runs_merged: 0,
            backup,
            runs,
        }
    }

    /// Returns this plan without its runs.
    pub(crate) fn without_runs(&self) -> RestorePlan {
        RestorePlan {
            backup: Arc::clone(&self.backup),
            wall_us: self.wall_us,
            runs: Vec::new(),
            target: self.target,
            scratch: self.scratch.clone(),
            runs_merged: 0,
        }
    }

    /// Returns the runs that are read, in the order of their epochs.
    pub fn run_ids(&self) -> impl Iterator<Item = RunId> + '_ {
        self.runs.iter().map(|run| run.id())
    }

    /// Returns the epoch whose state is restored.
    #[must_use]
    pub fn target(&self) -> Epoch {
        self.target
    }

    /// Returns the time of the last moment up to the target that the archive lists, microseconds since 1970; 0 if it
    /// lists none. A run may list only some of its moments. Then the target may lie between this moment and the next
    /// listed moment.
    #[must_use]
    pub fn wall_us(&self) -> u64 {
        self.wall_us
    }

    /// Returns the number of runs that are read at the same time.
    #[must_use]
    pub fn runs(&self) -> usize {
        self.runs.len()
    }

    /// Returns the number of runs that were merged first, because there were too many to read at the same time.
    #[must_use]
    pub fn runs_merged(&self) -> usize {
        self.runs_merged
    }

    /// Reads a partition's part of the backup. The sidecar lists the keys as of the end of the sweep, including keys of
    /// records that the pages do not reflect. So it is left out if the target is earlier.
    ///
    /// # Errors
    /// Damage of the backup; the disk's.
    pub(crate) fn section(&self, partition: PartitionId) -> Result<Section> {
        let mut section = self.backup.section(partition)?;
        if self.target < self.backup.header().id.end {
            section.sidecar.clear();
        }
        Ok(section)
    }

    /// Returns the number of bytes in the backup and the runs.
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

    /// Decides about a record. `Some(true)`: apply it to its page. `Some(false)`: take it out of its page. `None`: skip
    /// it.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if the record combines changes on both sides of the target or the backup.
    pub(crate) fn gate(&self, record: &RunRecord<'_>) -> Result<Option<bool>> {
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
                    "records before or after epoch {} and the backup",
                    self.target
                ),
                format!(
                    "a combined record of epochs {} to {}",
                    record.epochs.first, record.epochs.last
                ),
                "A merge has combined records that this restore needs. Restore another moment or from another backup.",
            ));
        }
        Ok(difference(first.0, first.1))
    }

    /// Returns the checkpoint epoch of the new image, which is above the tag of every page and record.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if there is no higher number.
    pub(crate) fn image_number(&self) -> Result<CkptEpoch> {
        let next = self.highest_tag().0.checked_add(1);
        next.map(CkptEpoch).ok_or_else(|| {
            let found = "the highest possible number";
            let lost = "The archive is damaged. Run `perdura archive verify`.";
            Error::corrupt("archive", 0, "a tag", found, lost)
        })
    }

    fn highest_tag(&self) -> CkptEpoch {
        let blocks = self.runs.iter().flat_map(|run| run.index());
        let highest = blocks.map(|block| block.tags.1).max();
        highest.unwrap_or_default().max(self.backup.header().id.k)
    }

    /// Returns the highest epoch of backup and runs.
    pub(crate) fn highest_epoch(&self) -> Epoch {
        let runs = self.runs.iter().map(|run| run.id().epochs.last());
        let highest = runs.max().unwrap_or_default();
        highest.max(self.backup.header().id.end).max(self.target)
    }
}

/// Decides about a record by [`perdura_recovery::rule`]. `Some(true)`: apply it. `Some(false)`: take it out. `None`:
/// skip it.
fn difference(reflected: bool, wanted: bool) -> Option<bool> {
    let differ = reflected != wanted && !(reflected && armed(Flaw::LaterEpochsKept));
    differ.then_some(wanted)
}

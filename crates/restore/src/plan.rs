//! The backup and runs that restore a moment, with checks that they can.

use std::sync::Arc;

use perdura_archive::backup::{Backup, BackupKind, Section};
use perdura_archive::{Run, RunId, RunRecord};
use perdura_base::flaw::{Flaw, armed};
use perdura_base::{CkptEpoch, Epoch, Error, PartitionId, Result};
use perdura_recovery::rule::{ImageKind, reflected, wanted};

use crate::at::wall_of;
use crate::reach::Reach;
use crate::scratch::Scratch;

/// A backup, the runs that lead from it to a moment, and the moment.
pub struct RestorePlan {
    pub(crate) backup: Arc<Backup>,
    /// The runs in the order of their epochs. Those without a record that makes a difference are
    /// left out.
    pub(crate) runs: Vec<Arc<Run>>,
    pub(crate) target: Epoch,
    /// The wall clock of the last listed moment up to the target, microseconds since 1970; 0 without such a moment.
    pub(crate) wall_us: u64,
    /// The place of the runs that the restore has made. `None`: it has made no runs.
    pub(crate) scratch: Option<Scratch>,
    /// Runs of the archive that were merged because there are too many.
    pub(crate) runs_merged: usize,
}

impl RestorePlan {
    /// Makes a plan to restore the state of `target`, or the last state that the runs hold. The runs are those of the
    /// backup's database, ascending.
    ///
    /// # Errors
    /// [`Error::Usage`] for a moment that they do not reach or that merging has given up, with the range that they do
    /// reach. [`Error::Corrupt`] for a run that is missing between them.
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

    /// Makes a plan of a backup and runs that are known to reach the moment.
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

    /// Returns the plan with the backup alone.
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

    /// Returns the wall clock of the last moment up to the target that the archive lists, microseconds since 1970; 0 if
    /// it lists none. If moments are sampled, the target lies at or behind it and before the next one.
    #[must_use]
    pub fn wall_us(&self) -> u64 {
        self.wall_us
    }

    /// Returns the number of runs that are read side by side.
    #[must_use]
    pub fn runs(&self) -> usize {
        self.runs.len()
    }

    /// Returns the number of runs that were merged first, because there are more than are read side
    /// by side.
    #[must_use]
    pub fn runs_merged(&self) -> usize {
        self.runs_merged
    }

    /// Reads a partition's part of the backup. Its sidecar lists the keys at the end of the sweep, also those of
    /// records that the pages do not reflect. So it is of no use at an earlier moment.
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

    /// Returns the number of bytes that are read.
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

    /// Returns what to do with a record on its page: `Some(true)`: put it in, `Some(false)`: take
    /// it out. `None`: skip it.
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

    /// Returns the number of the image that is made: above every tag of a page or record.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if there is no such number.
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

/// Returns what to do with a record, by [`perdura_recovery::rule`]: `Some(true)`: put it in, `Some(false)`: take it
/// out. `None`: skip it.
fn difference(reflected: bool, wanted: bool) -> Option<bool> {
    let differ = reflected != wanted && !(reflected && armed(Flaw::LaterEpochsKept));
    differ.then_some(wanted)
}

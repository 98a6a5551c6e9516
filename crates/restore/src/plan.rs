//! The plan of a restore: a moment, a backup, and runs.

use std::sync::Arc;

use perdura_archive::backup::{Backup, BackupHeader, BackupKind};
use perdura_archive::keyed::{Keyed, PlannedPage, PlannedSection};
use perdura_archive::run::FrameBlock;
use perdura_archive::{BackupId, Run, RunId, RunRecord};
use perdura_base::flaw::{Flaw, armed};
use perdura_base::{CkptEpoch, Epoch, Error, PartitionId, Result};
use perdura_page::digest::bound;
use perdura_recovery::rule::{ImageKind, reflected, wanted};

use crate::at::wall_of;
use crate::reach::Reach;
use crate::scratch::Scratch;

/// A moment to restore, a backup, and the runs that lead from the backup to the moment.
pub struct RestorePlan {
    pub(crate) backup: Arc<Backup>,
    /// The cut of key-addressed tables. `None`: the backup is the cut.
    pub(crate) keyed: Option<Keyed>,
    /// The runs in the order of their epochs. Runs outside the needed epochs are left out.
    pub(crate) runs: Vec<Arc<Run>>,
    pub(crate) target: Epoch,
    /// The time of the last listed moment up to the target, in microseconds since 1970. It is 0 if no such moment is
    /// listed.
    pub(crate) wall_us: u64,
    /// The time of the last listed moment up to the cut, microseconds since 1970. `None`: no such moment is listed.
    pub(crate) cut_us: Option<u64>,
    /// The folder of the runs that this restore has made. `None`: it has made no runs.
    pub(crate) scratch: Option<Scratch>,
    /// The number of runs that the restore merged because there were too many.
    pub(crate) runs_merged: usize,
}

impl RestorePlan {
    /// Makes a plan to restore the state of `target`, or the last state that the runs hold if `target` is `None`. The
    /// runs must be of the backup's database, in the order of their epochs.
    ///
    /// # Errors
    /// [`Error::Usage`] if the runs do not reach the target; the error names the range that they reach.
    /// [`Error::Usage`] also if a merge of runs has lost the state of the target. [`Error::Corrupt`] if a run between
    /// two others is missing.
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

    /// Makes a plan. The caller has checked that the target can be restored from the backup and the runs.
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
        let of_backup = Some(header.wall_us).filter(|_| header.moment() <= reach.target);
        RestorePlan {
            wall_us: listed_us.or(of_backup).unwrap_or(0),
            target: reach.target,
            scratch: None,
            runs_merged: 0,
            keyed: None,
            cut_us: None,
            backup,
            runs,
        }
    }

    /// Returns whether a run has ordered frames up to the target. The backup may have some of them.
    pub(crate) fn has_frames(&self) -> bool {
        let mut frames = self.runs.iter().filter_map(|run| run.frames());
        let is_wanted = |block: &FrameBlock| wanted(block.epochs.0, self.target);
        frames.any(|frames| frames.blocks.iter().any(is_wanted))
    }

    /// Returns the header of the cut of key-addressed tables: that of an increment, or of the backup.
    #[must_use]
    pub fn cut(&self) -> &BackupHeader {
        let keyed = self.keyed.as_ref();
        keyed.map_or(self.backup.header(), Keyed::header)
    }

    /// Returns the increment that the restore uses besides the backup.
    #[must_use]
    pub fn increment(&self) -> Option<BackupId> {
        self.keyed.as_ref().map(|keyed| keyed.header().id)
    }

    /// Returns the time from the cut to the target, microseconds, as the clock showed it. The changes to replay were made in
    /// that time. `None`: the archive has no time for the cut or the target.
    #[must_use]
    pub fn frames_span_us(&self) -> Option<u64> {
        let target_us = Some(self.wall_us).filter(|us| *us > 0)?;
        Some(target_us.saturating_sub(self.cut_us?))
    }

    /// Returns the number of ordered frames in the runs after the cut. A run may begin before the cut and end after the
    /// target, so fewer may be needed.
    #[must_use]
    pub fn frames_at_most(&self) -> u64 {
        let runs = self.runs.iter();
        let later = runs.filter(|run| run.id().epochs.last() >= self.cut().begin);
        let frames = later.filter_map(|run| run.frames());
        frames.map(|frames| frames.count).sum()
    }

    /// Returns whether the new image is of one instant, for its key-addressed tables. That holds for the image of a
    /// consistent backup. It also holds if the backup has no key-addressed tables, and ordered frames follow it.
    pub(crate) fn is_consistent(&self) -> bool {
        self.cut().consistent || self.has_frames()
    }

    /// Returns this plan without its runs.
    pub(crate) fn without_runs(&self) -> RestorePlan {
        RestorePlan {
            backup: Arc::clone(&self.backup),
            keyed: self.keyed.clone(),
            cut_us: self.cut_us,
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

    /// Returns whether the plan has made runs in the target directory.
    #[must_use]
    pub fn has_scratch(&self) -> bool {
        self.scratch.is_some()
    }

    /// Returns the epoch to be restored.
    #[must_use]
    pub fn target(&self) -> Epoch {
        self.target
    }

    /// Returns the time of the last listed moment up to the target, in microseconds since 1970. Returns 0 if no such
    /// moment is listed. A run may list only some moments, so the target may be later than the last listed moment.
    #[must_use]
    pub fn wall_us(&self) -> u64 {
        self.wall_us
    }

    /// Returns the number of runs that the restore reads simultaneously.
    #[must_use]
    pub fn runs(&self) -> usize {
        self.runs.len()
    }

    /// Returns the number of runs merged first, because there were too many to read simultaneously.
    #[must_use]
    pub fn runs_merged(&self) -> usize {
        self.runs_merged
    }

    /// Reads a partition's section of the backup. The section's index sidecar lists the keys at the end of the sweep,
    /// including keys of records that the pages do not reflect. If the target is before the end of the sweep, some of
    /// these keys may not exist at the target. So the sidecar is then left out.
    ///
    /// # Errors
    /// Damage of the backup; errors of the disk.
    pub(crate) fn section(&self, partition: PartitionId) -> Result<PlannedSection> {
        let mut section = match &self.keyed {
            Some(keyed) => keyed.section(&self.backup, partition)?,
            None => PlannedSection::of(self.backup.section(partition)?),
        };
        if self.target < self.backup.header().id.end {
            section.sidecar.clear();
        }
        Ok(section)
    }

    /// Returns the digest of each partition's pages before any record is applied.
    ///
    /// # Errors
    /// Damage of the backup or an increment; errors of the disk.
    pub(crate) fn digests(&self) -> Result<Vec<u64>> {
        let chunks = self.backup.header().chunks;
        let partitions = (0..chunks.partitions).map(PartitionId);
        if self.keyed.is_none() {
            return Ok(partitions.map(|id| self.backup.proof(id)).collect());
        }
        let digest = |partition| {
            let section = self.section(partition)?;
            let bound = section.pages.iter().map(|page| {
                let id = chunks.page_id(partition, page.entry.local);
                bound(id.expect("the section was checked"), page.entry.digest)
            });
            Ok(bound.fold(0, |sum, digest| sum ^ digest))
        };
        partitions.map(digest).collect()
    }

    /// Returns the number of bytes in the backup, the increments and the runs.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        let of_increments = self.keyed.as_ref().map_or(0, Keyed::bytes);
        let of_runs = self.runs.iter().map(|run| run.bytes()).sum::<u64>();
        self.backup.bytes() + of_increments + of_runs
    }

    /// Returns the file that holds a page.
    pub(crate) fn file(&self, page: &PlannedPage) -> &Arc<Backup> {
        match &self.keyed {
            Some(keyed) if page.file > 0 => keyed.file(page.file),
            _ => &self.backup,
        }
    }

    fn kind(&self) -> ImageKind {
        let id = self.backup.header().id;
        match self.backup.header().kind {
            BackupKind::Sweep => ImageKind::Sweep(id.k),
            BackupKind::Cut if armed(Flaw::CutJudgedByTag) => ImageKind::Sweep(self.highest_tag()),
            BackupKind::Cut => ImageKind::Cut(id.end),
        }
    }

    /// Decides about a record. Returns `Some(true)` to apply the record, `Some(false)` to take the record out, and
    /// `None` to skip the record.
    ///
    /// # Errors
    /// [`Error::Corrupt`] for a record that combines changes from before and after the target, and for a record that
    /// the backup reflects only partly.
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

    /// Returns the checkpoint epoch of the new image, which is above the tags of all pages and records.
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
        let own = self.backup.header().id.k.max(self.cut().rows_k());
        highest.unwrap_or_default().max(own)
    }

    /// Returns the highest epoch of backup and runs.
    pub(crate) fn highest_epoch(&self) -> Epoch {
        let runs = self.runs.iter().map(|run| run.id().epochs.last());
        let highest = runs.max().unwrap_or_default();
        let own = self.backup.header().id.end.max(self.cut().id.end);
        highest.max(own).max(self.target)
    }
}

/// Decides about a record by [`perdura_recovery::rule`]. Returns `Some(true)` to apply the record, `Some(false)` to
/// take the record out, and `None` to skip the record.
fn difference(reflected: bool, wanted: bool) -> Option<bool> {
    let differ = reflected != wanted && !(reflected && armed(Flaw::LaterEpochsKept));
    differ.then_some(wanted)
}

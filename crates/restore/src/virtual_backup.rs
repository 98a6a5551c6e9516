//! A *virtual backup*: a backup made from an older backup and the later runs.
//!
//! The database is not read, and need not exist. Only the archive's directory is needed, so a remote computer can make
//! the backup (*remote virtual backup*). The merge join is the restore's, but the pages go into a backup instead of an
//! image.
//!
//! The result is `Cut(e)`: the state at the end of epoch e, and nothing later. The epoch of a record decides whether
//! the result reflects the record. Tags are not used, because they refer to checkpoints, and a cut belongs to no
//! checkpoint. So the pages of a cut have the tag 0, and the cut has no checkpoint epoch. All virtual backups of an
//! epoch have equal pages, even if made from different backups and runs.
//!
//! A cut of epoch e can be made and used only if no run combines records of epochs up to e with records of later epochs
//! (`perdura_archive::merge`). Adding the cut to the archive cancels a running merge that would combine such records.
//! If the merge has already replaced its inputs, [`Edit::AddCut`] detects that. For this check, the edit names the run
//! that contains both e and e + 1.
//!
//! # Source
//! C. Sauer, G. Graefe, T. Härder, "Single-pass restore after a media failure", section 5.5.
//! # Deviations
//! The paper's virtual backup is "up to date"; here the caller names the epoch.

use std::sync::Arc;

use perdura_archive::backup::{
    BackupHeader, BackupId, BackupKind, BackupSummary, BackupTail, BackupWriter, READ_PAGES,
};
use perdura_archive::store::{Lease, Publication};
use perdura_archive::{Edit, Object, ObjectId, Progress, RunId, Store};
use perdura_base::{Epoch, Error, PartitionId, Result};

use crate::part::{Merging, PartMerge};
use crate::plan::RestorePlan;
use crate::progress::RestoreProgress;
use crate::sink::BackupSink;

/// The description of a virtual backup. It includes the counts of bytes and records that were processed to make the
/// backup.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VirtualSummary {
    /// The new backup.
    pub backup: BackupSummary,
    /// The older backup that it was made from.
    pub base: BackupId,
    /// Bytes of the older backup and of the runs.
    pub bytes_read: u64,
    /// Records that were applied.
    pub applied: u64,
    /// Records taken out of the older backup's pages.
    pub taken_out: u64,
    /// Records that were neither applied nor taken out.
    pub skipped: u64,
}

/// A virtual backup that is being made, in small steps.
pub struct VirtualBackup {
    store: Arc<Store>,
    plan: RestorePlan,
    progress: Arc<RestoreProgress>,
    stage: Stage,
    summary: VirtualSummary,
    _lease: Lease,
}

enum Stage {
    Merge(Box<Making>),
    Tail(Box<BackupTail>),
    /// The backup's file is complete. This stage checks that the runs still have the backup's moment.
    Check,
    Publish(Box<Publication>, Option<RunId>),
    /// The backup is done, or has failed.
    Over,
}

/// The state while pages are made.
struct Making {
    merging: Merging<BackupSink>,
    next: PartitionId,
    open: Option<PartMerge>,
}

impl VirtualBackup {
    /// Takes the right to make backups. Begins a backup of epoch `target`, or of the archive's last epoch if `target`
    /// is `None`. If the database has key-addressed tables, the backup is of the newest increment's epoch up to there,
    /// because only a program can replay the changes after it. If an older backup or an increment cannot be used, calls
    /// `passed_over` with it and the reason.
    ///
    /// # Errors
    /// [`Error::Usage`] if the archive already has a cut of that epoch, or if the runs cannot restore that epoch.
    /// [`Error::Usage`] also if the database has key-addressed tables, and no increment follows its backup. Other errors
    /// are those of [`RestorePlan::from_archive`] and [`Store::lease_backups`].
    pub fn begin(
        store: &Arc<Store>,
        target: Option<Epoch>,
        progress: Arc<RestoreProgress>,
        mut passed_over: impl FnMut(ObjectId, &Error),
    ) -> Result<VirtualBackup> {
        let lease = store.lease_backups()?;
        store.refresh()?;
        let mut plan = RestorePlan::from_archive(store, target, &mut passed_over)?;
        if let Some(moment) = moment_of_rows(&plan)? {
            plan = RestorePlan::from_archive(store, Some(moment), passed_over)?;
            if plan.cut().moment() != moment {
                return Err(Error::Usage(format!(
                    "no virtual backup of epoch {moment} can be made: meanwhile the archive has lost its increment"
                )));
            }
        }
        let base = *plan.backup.header();
        let header = header(&plan);
        if store.manifest().backups().any(|other| other == header.id) {
            let name = header.id.name();
            return Err(Error::Usage(format!(
                "the archive has a backup of epoch {} already: {name}",
                plan.target
            )));
        }
        let writer = BackupWriter::create(Arc::clone(store.disk()), &store.backups_dir(), header)?;
        progress.begin(plan.backup.pages(), plan.backup.header().chunks.partitions);
        let making = Making {
            merging: Merging::new(BackupSink::new(writer), header.id.k, plan.image_number()?),
            next: PartitionId(0),
            open: None,
        };
        Ok(VirtualBackup {
            store: Arc::clone(store),
            summary: VirtualSummary {
                backup: BackupSummary {
                    header,
                    bytes: 0,
                    crc: 0,
                    pages: 0,
                    proof: 0,
                },
                base: base.id,
                bytes_read: plan.bytes(),
                applied: 0,
                taken_out: 0,
                skipped: 0,
            },
            plan,
            progress,
            stage: Stage::Merge(Box::new(making)),
            _lease: lease,
        })
    }

    /// Takes one step. A step is one I/O, or reads, merges and writes a batch of pages. A batch is the number of pages
    /// that one read returns. The backup is part of the archive once a step has returned [`Progress::Done`].
    ///
    /// # Errors
    /// [`Error::Corrupt`] if a page of the backup or a record of the runs is damaged. [`Error::Usage`] if merges of
    /// runs since [`begin`](Self::begin) have made it impossible to restore the epoch. Errors of the disk. After an
    /// error the backup has failed, and the next backup removes the failed backup's file.
    pub fn step(&mut self) -> Result<Progress<VirtualSummary>> {
        self.stage = match std::mem::replace(&mut self.stage, Stage::Over) {
            Stage::Merge(mut making) => match self.make(&mut making)? {
                Progress::More => Stage::Merge(making),
                Progress::Done(()) => {
                    let writer = making.merging.into_sink().into_writer();
                    Stage::Tail(Box::new(writer.finish()?))
                }
            },
            Stage::Tail(mut tail) => match tail.step()? {
                Progress::More => Stage::Tail(tail),
                Progress::Done(backup) => {
                    self.summary.backup = backup;
                    Stage::Check
                }
            },
            Stage::Check => {
                let checked = self.check();
                let (publication, within) = self.or_remove(checked)?;
                Stage::Publish(Box::new(publication), within)
            }
            Stage::Publish(mut publication, within) => match publication.step() {
                Ok(Progress::More) => Stage::Publish(publication, within),
                Ok(Progress::Done(_)) => return Ok(Progress::Done(self.summary.clone())),
                // The run was merged after the check. The merged run may still have the moment, so the check is made
                // again.
                Err(Error::Usage(_)) if self.within()? != within => Stage::Check,
                Err(error @ Error::Usage(_)) => return self.or_remove(Err(error)),
                Err(error) => return Err(error),
            },
            Stage::Over => return Err(Error::Stopped("the virtual backup has ended".into())),
        };
        Ok(Progress::More)
    }

    /// Takes all steps.
    ///
    /// # Errors
    /// As [`step`](Self::step).
    pub fn run(mut self) -> Result<VirtualSummary> {
        loop {
            if let Progress::Done(summary) = self.step()? {
                return Ok(summary);
            }
        }
    }

    /// Makes some pages, or begins or ends a partition.
    fn make(&mut self, making: &mut Making) -> Result<Progress<()>> {
        let partitions = self.plan.backup.header().chunks.partitions;
        let Some(mut open) = making.open.take() else {
            if making.next.0 == partitions {
                return Ok(Progress::Done(()));
            }
            making.open = Some(making.merging.begin(&self.plan, making.next)?);
            making.next.0 += 1;
            return Ok(Progress::More);
        };
        for _ in 0..READ_PAGES {
            if !making
                .merging
                .advance(&self.plan, &mut open, &self.progress)?
            {
                let part = making.merging.end(open, &self.progress)?;
                self.summary.applied += part.applied;
                self.summary.taken_out += part.taken_out;
                self.summary.skipped += part.skipped;
                return Ok(Progress::More);
            }
        }
        making.open = Some(open);
        Ok(Progress::More)
    }

    /// Returns the run that contains the target, unless the target is the run's last epoch. Returns `None` if no run
    /// qualifies.
    fn within(&self) -> Result<Option<RunId>> {
        let manifest = self.store.refresh()?;
        Ok(manifest.run_around(self.plan.target))
    }

    /// Begins to add the backup to the archive. Fails if the runs no longer have the backup's moment.
    fn check(&self) -> Result<(Publication, Option<RunId>)> {
        let within = self.within()?;
        if let Some(id) = within
            && !self.store.open_run(id)?.has_moment(self.plan.target)
        {
            return Err(Error::Usage(format!(
                "epoch {} can no longer be restored: meanwhile {} has combined the records around it",
                self.plan.target,
                id.name()
            )));
        }
        let backup = &self.summary.backup;
        let object = Object {
            id: ObjectId::Cut(backup.header.id),
            bytes: backup.bytes,
            crc: backup.crc,
        };
        let edit = Edit::AddCut {
            cut: object,
            within,
        };
        Ok((self.store.publish(edit), within))
    }

    /// Removes the backup's file if the archive refused the backup. Returns `result`.
    fn or_remove<T>(&self, result: Result<T>) -> Result<T> {
        if let Err(Error::Usage(_)) = &result {
            let id = self.summary.backup.header.id;
            let removed = self
                .store
                .disk()
                .remove(&id.path(&self.store.backups_dir()));
            if let Err(error) = removed
                && !error.is_not_found()
            {
                return Err(error);
            }
        }
        result
    }
}

/// Returns the epoch of the key-addressed rows that a plan begins with. `None`: the database has no such tables.
///
/// # Errors
/// [`Error::Usage`] if the plan begins with the rows of its backup.
fn moment_of_rows(plan: &RestorePlan) -> Result<Option<Epoch>> {
    let cut = plan.cut();
    if cut.continues().is_some() {
        return Ok(Some(cut.moment()));
    }
    if !cut.is_of_one_moment() && !plan.has_frames() {
        return Ok(None);
    }
    Err(Error::Usage(format!(
        "no virtual backup of epoch {} can be made: the database has key-addressed tables, and no increment follows {}. \
         Take a checkpoint, which is followed by an increment, or make a backup with `perdura backup create`",
        plan.target(),
        plan.backup.header().id.name()
    )))
}

/// Returns the header of a virtual backup.
fn header(plan: &RestorePlan) -> BackupHeader {
    let (base, cut) = (plan.backup.header(), plan.cut());
    let has_rows = cut.is_of_one_moment();
    assert!(
        !has_rows || cut.moment() == plan.target,
        "the rows are as of the backup's epoch"
    );
    BackupHeader {
        id: BackupId::cut(plan.target),
        kind: BackupKind::Cut,
        base: has_rows.then_some(cut.id),
        families: cut.families,
        consistent: has_rows,
        begin: Epoch(plan.target.0 + 1),
        wall_us: match plan.wall_us() {
            0 => base.wall_us,
            listed => listed,
        },
        ..*base
    }
}

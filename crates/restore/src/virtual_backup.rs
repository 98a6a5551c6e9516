//! A *virtual backup*: a backup that is made from an older backup and the runs after it.
//!
//! The database is not read, and need not exist. Only the archive's directory is needed, so another machine can do the
//! work (*remote virtual backup*). The merge join is the same as in a restore, but the pages go into a backup instead
//! of an image.
//!
//! The result is `Cut(e)`: the state at the end of epoch e, and nothing later. Whether the result reflects a record is
//! decided by the record's epoch. Tags are not used, because they refer to checkpoints, and a cut belongs to no
//! checkpoint. So its pages have the tag 0, and it has no checkpoint epoch. Any two virtual backups of one epoch have
//! the same pages, even if they were made from different backups and runs.
//!
//! A cut needs its moment: in the runs, no records of epochs up to e may be combined with records of later epochs
//! (`perdura_archive::merge`). If a merge that does not keep e is under way when the cut becomes part of the archive,
//! the merge is given up. If such a merge has already replaced its inputs, [`Edit::AddCut`] detects that: it names the
//! run that has e in its middle.
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
use perdura_wal::Archived;

use crate::part::{Merging, PartMerge};
use crate::plan::RestorePlan;
use crate::progress::RestoreProgress;
use crate::sink::BackupSink;

/// The description of a virtual backup and of the making of it.
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
    /// Records that were taken out of the older backup's pages.
    pub taken_out: u64,
    /// Records that made no difference.
    pub skipped: u64,
}

/// A virtual backup that is being made, by a machine of small steps.
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
    /// The backup's file is complete. This stage checks that its moment still exists.
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
    /// Takes the right to make backups, and begins a backup of epoch `target`, or of the last epoch that the archive
    /// holds. Calls `passed_over` with each older backup that cannot be used, and the reason.
    ///
    /// # Errors
    /// [`Error::Usage`] if the archive has a cut of that epoch already, or if the runs do not have that moment.
    /// [`Error::Usage`] also if the database has key-addressed tables: then only its backups are moments, and the error
    /// names the nearest. Otherwise as [`RestorePlan::from_archive`] and [`Store::lease_backups`].
    pub fn begin(
        store: &Arc<Store>,
        target: Option<Epoch>,
        progress: Arc<RestoreProgress>,
        passed_over: impl FnMut(BackupId, &Error),
    ) -> Result<VirtualBackup> {
        let lease = store.lease_backups()?;
        store.refresh()?;
        let plan = RestorePlan::from_archive(store, target, passed_over)?;
        let base = *plan.backup.header();
        if base.archive() == Archived::Carried {
            return Err(Error::Usage(format!(
                "no virtual backup can be made: the database has key-addressed tables, so only \
                 the epochs of its backups can be restored. The nearest is epoch {}, of {}",
                base.id.end,
                base.id.name()
            )));
        }
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

    /// Takes a step. It performs one I/O, or makes as many pages as one read returns, with the reads and the write for
    /// these pages. The backup is part of the archive once this has returned [`Progress::Done`].
    ///
    /// # Errors
    /// [`Error::Corrupt`] if a page of the backup or a record of the runs is damaged. [`Error::Usage`] if the runs were
    /// merged in the meantime and no longer have the moment. The disk's. After an error the backup is given up, and the
    /// next backup removes its remains.
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
                // The run was merged after the check. The merged run may still have the moment, so it is checked again.
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

    /// Returns the run that has the target in its middle. `None`: the target is the last epoch of a run, or in no run.
    fn within(&self) -> Result<Option<RunId>> {
        let manifest = self.store.refresh()?;
        Ok(manifest.run_around(self.plan.target))
    }

    /// Begins to add the backup to the archive, if the moment still exists.
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

    /// Removes the backup's file if adding it was refused, because it is not part of the archive.
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

/// Returns the header of a virtual backup.
fn header(plan: &RestorePlan) -> BackupHeader {
    let base = plan.backup.header();
    assert_eq!(
        base.archive(),
        Archived::Runs,
        "all that the log changes is in pages"
    );
    BackupHeader {
        id: BackupId::cut(plan.target),
        kind: BackupKind::Cut,
        consistent: false,
        begin: Epoch(plan.target.0 + 1),
        wall_us: match plan.wall_us() {
            0 => base.wall_us,
            listed => listed,
        },
        ..*base
    }
}

//! The edits that turn a manifest into the next one.
//!
//! An edit is applied to the newest manifest. Another writer may have made that manifest after the edit was planned. So
//! each edit has conditions. They are checked again, and the edit is refused if a condition no longer holds.

use perdura_base::{Epoch, Error, Pos, Result};
use perdura_wal::EpochEnds;

use super::{Manifest, Object, ObjectId, reads_both_of_equal_ranges};
use crate::backup::BackupId;
use crate::merge::Images;
use crate::name::{EpochRange, RunId};
use crate::run::Moments;

/// A change of the archive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Edit {
    /// Changes only the writer. For a process that has just opened the archive.
    Open,
    /// Replaces the objects of a damaged archive by those of a manifest that was made from the files.
    Mend(Box<Manifest>),
    /// Replaces the list of the database's own images.
    Images(Images),
    /// Adds a run that begins where the last run ends.
    AddRun {
        /// The run.
        run: Object,
        /// The end of the run's last epoch in each stream.
        ends: Vec<Pos>,
        /// The new list of the database's own images. `None`: the list does not change.
        images: Option<Images>,
        /// The moments that the run lists.
        moments: Moments,
    },
    /// Notes a later time at which the archive had everything that was durable, and nothing was open.
    CaughtUp {
        /// The archive's last epoch.
        epoch: Epoch,
        /// The time, microseconds since 1970.
        wall_us: u64,
    },
    /// Adds a backup that is a copy of an image.
    AddBackup(Object),
    /// Adds an increment.
    AddIncrement {
        /// The increment.
        increment: Object,
        /// The sweep that it continues.
        base: BackupId,
    },
    /// Adds a cut: a backup that holds the state at the end of an epoch.
    AddCut {
        /// The backup.
        cut: Object,
        /// The run that contains the backup's epoch and the next epoch. The caller has checked that the backup's epoch
        /// is a moment of this run. `None`: a run ends with the backup's epoch.
        within: Option<RunId>,
    },
    /// Replaces runs by the run into which they were merged.
    Replace {
        /// The replaced runs, ordered by their epochs.
        inputs: Vec<RunId>,
        /// The merged run.
        output: Object,
        /// The epochs that are still moments of the merged run, besides its last epoch. `None`: no records were
        /// combined, and each epoch is a moment.
        kept: Option<Vec<Epoch>>,
    },
    /// Removes the runs that end at or before an epoch.
    RemoveRuns {
        /// The epoch.
        before: Epoch,
    },
    /// Removes a backup, and the increments that continue it.
    RemoveBackup(ObjectId),
    /// Leaves out the epochs up to [`EpochEnds::epoch`], because another archive holds these epochs. The first run will
    /// begin with the next epoch. Only for an archive without runs and backups.
    Skip(EpochEnds),
}

fn refused<T>(why: String) -> Result<T> {
    Err(Error::Usage(why))
}

impl Edit {
    /// Applies the edit to the manifest's list of objects and to the fields that depend on it. Does not change the
    /// manifest's number, writer and predecessor.
    ///
    /// # Errors
    /// [`Error::Usage`] if the conditions of the edit do not hold. The manifest may then be partly changed and must
    /// be discarded.
    pub fn apply(&self, manifest: &mut Manifest) -> Result<()> {
        match self {
            Edit::Open => Ok(()),
            Edit::Mend(mended) => {
                mend(manifest, mended);
                Ok(())
            }
            Edit::Images(images) => {
                set_images(manifest, images);
                Ok(())
            }
            Edit::AddRun {
                run,
                ends,
                images,
                moments,
            } => {
                if let Some(images) = images {
                    set_images(manifest, images);
                }
                add_run(manifest, *run, ends)?;
                manifest.clock.see_all(moments.list());
                Ok(())
            }
            Edit::CaughtUp { epoch, wall_us } => caught_up(manifest, *epoch, *wall_us),
            Edit::AddBackup(backup) => add_backup(manifest, *backup),
            Edit::AddIncrement { increment, base } => add_increment(manifest, *increment, *base),
            Edit::AddCut { cut, within } => add_cut(manifest, *cut, *within),
            Edit::Replace {
                inputs,
                output,
                kept,
            } => replace(manifest, inputs, *output, kept.as_deref()),
            Edit::RemoveRuns { before } => remove_runs(manifest, *before),
            Edit::RemoveBackup(id) => remove_backup(manifest, *id),
            Edit::Skip(to) => skip(manifest, to),
        }
    }
}

fn mend(manifest: &mut Manifest, mended: &Manifest) {
    assert_eq!(manifest.uuid, mended.uuid, "both are of one database");
    (manifest.begin, manifest.end) = (mended.begin, mended.end);
    manifest.positions.clone_from(&mended.positions);
    manifest.objects.clone_from(&mended.objects);
}

fn set_images(manifest: &mut Manifest, images: &Images) {
    let mut images = images.clone();
    images.retained.sort_unstable();
    images.retained.dedup();
    manifest.images = images;
}

fn add_run(manifest: &mut Manifest, run: Object, ends: &[Pos]) -> Result<()> {
    let Some(id) = run.id.run() else {
        return refused(format!("{} is not a run", run.id.path()));
    };
    let known = manifest.runs().any(|other| other.epochs == id.epochs);
    let is_twice = known && reads_both_of_equal_ranges();
    if id.epochs.begin != manifest.end && !is_twice {
        return refused(format!(
            "{} cannot be added: the archive ends before epoch {}",
            id.name(),
            manifest.end
        ));
    }
    let goes_back = ends
        .iter()
        .zip(&manifest.positions)
        .any(|(new, old)| new < old);
    if ends.len() != manifest.positions.len() || goes_back {
        return refused(format!(
            "{} ends at {ends:?} in the log's streams, but the archive before it ends at {:?}",
            id.name(),
            manifest.positions
        ));
    }
    manifest.positions = ends.to_vec();
    manifest.end = manifest.end.max(id.epochs.end);
    insert(manifest, run);
    Ok(())
}

fn caught_up(manifest: &mut Manifest, epoch: Epoch, wall_us: u64) -> Result<()> {
    let (last, _) = manifest.held();
    if epoch != last {
        return refused(format!(
            "the archive ends with epoch {last}, so it did not have everything at epoch {epoch}"
        ));
    }
    // The next epoch is the first one after a step.
    manifest.clock.see(manifest.end, wall_us);
    Ok(())
}

fn add_backup(manifest: &mut Manifest, backup: Object) -> Result<()> {
    let ObjectId::Sweep(id) = backup.id else {
        return refused(format!("{} is not a copy of an image", backup.id.path()));
    };
    if manifest.has_later_increment(id) {
        return refused(format!(
            "{} cannot be added: an increment of a later image continues another backup",
            id.name()
        ));
    }
    insert_backup(manifest, backup, id)
}

fn add_increment(manifest: &mut Manifest, increment: Object, base: BackupId) -> Result<()> {
    let Some(id) = increment.id.increment() else {
        return refused(format!("{} is not an increment", increment.id.path()));
    };
    if manifest.sweep_before(id.k) != Some(base) {
        return refused(format!(
            "{} cannot be added: {} is no longer the newest backup before it",
            increment.id.name(),
            base.name()
        ));
    }
    if id.end >= manifest.end {
        return refused(format!(
            "{} cannot be added: the archive ends before epoch {}",
            increment.id.name(),
            manifest.end
        ));
    }
    if manifest.object(increment.id).is_some() {
        return refused(format!("the archive has {} already", increment.id.name()));
    }
    assert!(base.k < id.k, "an increment is later than its base");
    insert(manifest, increment);
    Ok(())
}

fn insert_backup(manifest: &mut Manifest, backup: Object, id: BackupId) -> Result<()> {
    if manifest.backups().any(|other| other == id) {
        return refused(format!("the archive has {} already", id.name()));
    }
    insert(manifest, backup);
    Ok(())
}

fn add_cut(manifest: &mut Manifest, cut: Object, within: Option<RunId>) -> Result<()> {
    let ObjectId::Cut(id) = cut.id else {
        return refused(format!("{} is not the state of an epoch", cut.id.path()));
    };
    let around = manifest.run_around(id.end);
    if let Some(run) = around.filter(|_| around != within) {
        return refused(format!(
            "{} cannot be added: meanwhile runs were merged into {}, which may not contain its \
             moment",
            id.name(),
            run.name()
        ));
    }
    insert_backup(manifest, cut, id)
}

fn replace(
    manifest: &mut Manifest,
    inputs: &[RunId],
    output: Object,
    kept: Option<&[Epoch]>,
) -> Result<()> {
    let Some(merged) = output.id.run() else {
        return refused(format!("{} is not a run", output.id.path()));
    };
    let found: Vec<RunId> = manifest
        .runs()
        .filter(|run| {
            merged.epochs.begin <= run.epochs.begin && run.epochs.end <= merged.epochs.end
        })
        .collect();
    let ends = inputs.first().zip(inputs.last());
    let epochs = ends.and_then(|(a, b)| EpochRange::new(a.epochs.begin, b.epochs.end));
    if found != inputs || epochs != Some(merged.epochs) {
        return refused(format!(
            "the runs that {} was merged from are no longer in the archive",
            merged.name()
        ));
    }
    let lost = kept.and_then(|kept| {
        let cuts = manifest
            .objects
            .iter()
            .filter_map(|object| match object.id {
                ObjectId::Cut(id) => Some(id),
                ObjectId::Run(_) | ObjectId::Sweep(_) | ObjectId::Increment(_) => None,
            });
        let is_lost = |end: Epoch| {
            merged.epochs.contains(end) && end != merged.epochs.last() && !kept.contains(&end)
        };
        cuts.into_iter().find(|id| is_lost(id.end))
    });
    if let Some(cut) = lost {
        return refused(format!(
            "{} cannot be added: meanwhile {} was merged and does not contain its moment",
            cut.name(),
            merged.name()
        ));
    }
    manifest
        .objects
        .retain(|object| object.id.run().is_none_or(|run| !inputs.contains(&run)));
    insert(manifest, output);
    Ok(())
}

fn remove_runs(manifest: &mut Manifest, before: Epoch) -> Result<()> {
    let goes = |run: RunId| run.epochs.end <= before;
    manifest
        .objects
        .retain(|object| object.id.run().is_none_or(|run| !goes(run)));
    let first = manifest.runs().next();
    manifest.begin = first.map_or(manifest.end, |run| run.epochs.begin);
    manifest.clock.forget(manifest.begin);
    debug_assert!(manifest.begin <= manifest.end, "a range, or none");
    Ok(())
}

fn remove_backup(manifest: &mut Manifest, id: ObjectId) -> Result<()> {
    if id.backup().is_none() || manifest.object(id).is_none() {
        return refused(format!("the archive has no backup {}", id.path()));
    }
    let increments = id
        .backup()
        .into_iter()
        .flat_map(|id| manifest.increments_of(id));
    let mut gone: Vec<ObjectId> = increments.map(ObjectId::Increment).collect();
    gone.push(id);
    manifest.objects.retain(|object| !gone.contains(&object.id));
    Ok(())
}

fn skip(manifest: &mut Manifest, to: &EpochEnds) -> Result<()> {
    let begin = Epoch(to.epoch.0.saturating_add(1));
    let goes_back = begin < manifest.end || to.ends.len() != manifest.positions.len();
    if !manifest.objects.is_empty() || goes_back {
        return refused(format!(
            "the archive ends before epoch {} and has {} objects, so epoch {begin} cannot be added",
            manifest.end,
            manifest.objects.len()
        ));
    }
    manifest.is_whole = false;
    (manifest.begin, manifest.end) = (begin, begin);
    manifest.positions.clone_from(&to.ends);
    Ok(())
}

fn insert(manifest: &mut Manifest, object: Object) {
    let at = manifest
        .objects
        .partition_point(|other| other.id < object.id);
    let next = manifest.objects.get(at);
    assert!(
        next.is_none_or(|next| next.id != object.id),
        "{} is named once",
        object.id.path()
    );
    manifest.objects.insert(at, object);
}

//! A state machine that reads the planner's inputs and removes the superfluous files, one I/O a step.

use std::sync::Arc;

use perdura_base::{Epoch, Result};

use super::Retention;
use super::plan::{Known, plan};
use crate::backup::{Backup, BackupId};
use crate::manifest::{Edit, Manifest};
use crate::name::RunId;
use crate::output::Progress;
use crate::run::Moment;
use crate::store::{Publication, Store};

/// The count of files that were removed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Removed {
    /// The number of backups that were removed.
    pub backups: usize,
    /// The number of runs that were removed.
    pub runs: usize,
}

enum Stage {
    /// Search for the first moment that is promised. These runs remain to be searched, from the last to the first. The
    /// epoch is that of the last moment before, which is too old.
    Moments(Vec<RunId>, Option<Epoch>),
    /// Open the backups to read their begin epochs.
    Backups(Epoch, Vec<BackupId>, Vec<Known>),
    /// Publish these edits, from the last to the first.
    Edits(Vec<Edit>, Option<Box<Publication>>),
}

/// One search for files to remove, and the removal of these files.
pub struct Retaining {
    store: Arc<Store>,
    manifest: Arc<Manifest>,
    now_us: u64,
    keep_us: u64,
    removed: Removed,
    stage: Stage,
}

impl Retaining {
    /// Begins a search at wall clock `now_us`, microseconds since 1970. `None`: the retention promises all moments, so
    /// nothing can be removed.
    #[must_use]
    pub fn new(store: Arc<Store>, retention: &Retention, now_us: u64) -> Option<Retaining> {
        let horizon = retention.grains().last().and_then(|grain| grain.until_us);
        let keep_us = match (retention.keep_us(), horizon) {
            (Some(keep), Some(horizon)) => keep.min(horizon),
            (keep, horizon) => keep.or(horizon)?,
        };
        let manifest = store.manifest();
        let mut runs: Vec<RunId> = manifest.runs().collect();
        runs.reverse();
        Some(Retaining {
            store,
            manifest,
            now_us,
            keep_us,
            removed: Removed::default(),
            stage: Stage::Moments(runs, None),
        })
    }

    /// Makes one I/O.
    ///
    /// # Errors
    /// Those of [`Store::open_run`] and [`Publication::step`]. An error does not bring back the removed files.
    pub fn step(&mut self) -> Result<Progress<Removed>> {
        match &mut self.stage {
            Stage::Moments(runs, oldest) => {
                if let Some(id) = runs.pop() {
                    let run = self.store.open_run(id)?;
                    let clock = &self.manifest.clock;
                    let is_old =
                        |moment: &&Moment| clock.age_us(moment, self.now_us) >= self.keep_us;
                    let moments = run.moments().list();
                    let old: Vec<&Moment> = moments.iter().take_while(is_old).collect();
                    *oldest = old.last().map(|moment| moment.epoch).or(*oldest);
                    assert!(old.len() <= moments.len(), "some of its moments");
                    if old.len() == moments.len() {
                        return Ok(Progress::More);
                    }
                }
                // If the first moment is promised, nothing is removed.
                let Some(oldest) = *oldest else {
                    return Ok(Progress::Done(self.removed));
                };
                let backups = self.manifest.backups().collect();
                self.stage = Stage::Backups(oldest, backups, Vec::new());
            }
            Stage::Backups(oldest, left, known) => match left.pop() {
                Some(id) => {
                    let (disk, dir) = (self.store.disk().as_ref(), self.store.backups_dir());
                    let backup = Backup::open(disk, &dir, id, self.store.uuid());
                    let begin = backup.ok().map(|backup| backup.header().begin);
                    known.push(Known { id, begin });
                }
                None => {
                    let removals = plan(&self.manifest, known, *oldest);
                    let runs = removals
                        .runs_before
                        .map(|before| Edit::RemoveRuns { before });
                    let backups = removals.backups.into_iter().map(Edit::RemoveBackup);
                    self.stage = Stage::Edits(runs.into_iter().chain(backups).collect(), None);
                }
            },
            Stage::Edits(edits, publication) => {
                if let Some(going_on) = publication {
                    if let Progress::Done(_) = going_on.step()? {
                        *publication = None;
                    }
                    return Ok(Progress::More);
                }
                let Some(edit) = edits.pop() else {
                    return Ok(Progress::Done(self.removed));
                };
                match edit {
                    Edit::RemoveRuns { before } => {
                        let goes = |run: &RunId| run.epochs.end <= before;
                        self.removed.runs += self.manifest.runs().filter(goes).count();
                    }
                    _ => self.removed.backups += 1,
                }
                *publication = Some(Box::new(self.store.publish(edit)));
            }
        }
        Ok(Progress::More)
    }

    /// Takes all steps to the end.
    ///
    /// # Errors
    /// Those of [`step`](Self::step).
    pub fn run(mut self) -> Result<Removed> {
        loop {
            if let Progress::Done(removed) = self.step()? {
                return Ok(removed);
            }
        }
    }
}

//! Which of an archive's backups a restore begins with.
//!
//! The nearest one before the moment needs the fewest runs; a later one serves as well, because records are taken out of it.
//! A backup that cannot be opened is passed over: an older one and more runs give the same state.

use perdura_archive::Store;
use perdura_archive::backup::BackupId;
use perdura_base::{Epoch, Error, Result};

use super::RestorePlan;

impl RestorePlan {
    /// The plan to restore the state of `target`, or the last one that an archive holds. `passed_over` hears why a
    /// backup does not serve.
    ///
    /// # Errors
    /// [`Error::Usage`] if the archive has no backup; else the reason why the nearest backup does not serve.
    pub fn from_archive(
        store: &Store,
        target: Option<Epoch>,
        mut passed_over: impl FnMut(BackupId, &Error),
    ) -> Result<RestorePlan> {
        let runs = store.readable_runs()?;
        let mut backups: Vec<BackupId> = store.manifest().backups().collect();
        let last = runs.last().map(|run| run.id().epochs.last());
        let wanted = target.or(last).unwrap_or_default();
        // Those before the moment, the nearest first, then those behind it.
        backups.sort_by_key(|id| {
            let is_behind = id.end > wanted;
            (is_behind, id.end.0.abs_diff(wanted.0))
        });
        let mut first = None;
        for id in backups {
            let backup = store.open_backup(id);
            match backup.and_then(|backup| RestorePlan::new(backup, runs.clone(), target)) {
                Ok(plan) => return Ok(plan),
                Err(error) => {
                    passed_over(id, &error);
                    first.get_or_insert(error);
                }
            }
        }
        Err(first.unwrap_or_else(|| {
            Error::Usage(format!(
                "the archive of {} has no backup: make one with `perdura backup create` while the database is there",
                store.uuid()
            ))
        }))
    }

    /// Log streams of the database.
    #[must_use]
    pub fn streams(&self) -> usize {
        usize::from(self.backup.header().streams)
    }

    /// The backup that it begins with.
    #[must_use]
    pub fn backup(&self) -> BackupId {
        self.backup.header().id
    }
}

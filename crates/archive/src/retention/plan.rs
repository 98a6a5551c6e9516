//! The planner: it finds the backups and runs that no promised moment needs.
//!
//! A restore begins with a backup and reads the runs from the backup's begin epoch. Of the backups that end at or
//! before the oldest promised moment, only the newest undamaged one is needed. It is called the *base*. Runs that end
//! at or before the base's begin epoch are not needed. Backups after the base make restores faster and are not removed.

use perdura_base::Epoch;

use crate::backup::BackupId;
use crate::manifest::{Manifest, ObjectId};

/// A backup, and its begin epoch if the backup can be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Known {
    /// The backup.
    pub id: BackupId,
    /// The begin epoch of the backup. A restore from the backup needs the records of this epoch and of later epochs.
    /// `None`: the backup is damaged and cannot be used.
    pub begin: Option<Epoch>,
}

/// The backups and runs to remove.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Removals {
    /// The backups to remove.
    pub backups: Vec<ObjectId>,
    /// The limit of the removal. The runs that end at or before this epoch are removed. `None`: no run is removed.
    pub runs_before: Option<Epoch>,
}

impl Removals {
    /// Returns whether nothing is to be removed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.backups.is_empty() && self.runs_before.is_none()
    }
}

/// Returns the backups and runs to remove. The state at the end of epoch `oldest` must stay restorable; no earlier
/// moment is promised. `known` are the manifest's backups.
#[must_use]
pub fn plan(manifest: &Manifest, known: &[Known], oldest: Epoch) -> Removals {
    let whole = known.iter().filter_map(|one| Some((one.id, one.begin?)));
    let before = whole.filter(|(id, _)| id.end <= oldest);
    let Some((base, begin)) = before.max_by_key(|(id, _)| *id) else {
        return Removals::default();
    };
    let goes = |object: &ObjectId| object.backup().is_some_and(|id| id < base);
    let objects = manifest.objects.iter().map(|object| object.id);
    let backups: Vec<ObjectId> = objects.filter(goes).collect();
    let first = manifest.runs().next();
    let runs_before = first.filter(|run| run.epochs.end <= begin).map(|_| begin);
    debug_assert!(
        backups.iter().all(|object| object.backup() != Some(base)),
        "the base stays"
    );
    Removals {
        backups,
        runs_before,
    }
}

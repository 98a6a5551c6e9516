//! The archive of a database, as a program uses it.

use perdura_archive::backup::BackupSummary;
use perdura_base::Result;

use super::Db;
use crate::stats::{BackupState, ListedBackup};

impl Db {
    /// Returns the fault of the archive: the reason of the last failed proof, until one holds, or that no image was proven for some
    /// checkpoints. `None` if no fault is known, or without an archive.
    #[must_use]
    pub fn alarm(&self) -> Option<String> {
        self.shared.archive.alarm()
    }

    /// Takes a checkpoint and copies its image to the archive while writers continue. On return the archive has the backup, and
    /// the log up to its end, durable.
    ///
    /// # Errors
    /// [`Error::Usage`](perdura_base::Error::Usage) if the database has no archive or it cannot be written; damage of the image; the disks'.
    pub fn back_up(&self) -> Result<BackupSummary> {
        self.shared.backups.back_up()
    }

    /// Asks for a backup and does not wait. Returns its number: it has ended when [`BackupState::ended`] is that high. One that is
    /// being made already may lack what was written since it began, so another one follows it.
    ///
    /// # Errors
    /// [`Error::Usage`](perdura_base::Error::Usage) if the database has no archive.
    pub fn begin_backup(&self) -> Result<u64> {
        self.shared.backups.want()
    }

    /// The backups that the archive has, by their ends; none while it is not open.
    #[must_use]
    pub fn backups(&self) -> Vec<ListedBackup> {
        self.shared.backups.list()
    }

    /// Returns the progress of the backup that is being made, and the outcome of the last one.
    #[must_use]
    pub fn backup_state(&self) -> BackupState {
        self.shared.backups.state()
    }
}

//! The archive of a database, as a program uses it.

use perdura_archive::backup::BackupSummary;
use perdura_base::{Error, Result};
use perdura_recovery::TimelineName;

use super::Db;
use crate::stats::{BackupState, ListedBackup};

impl Db {
    /// Returns the archive's fault: the archive cannot be reached, a proof or a drill has failed, no image was proven
    /// for several checkpoints, or files are missing. A failed proof is reported until a later proof holds. `None`:
    /// no fault is known, or the database has no archive.
    #[must_use]
    pub fn alarm(&self) -> Option<String> {
        self.shared.archive.alarm()
    }

    /// Ends the archiving of the database. The log is then kept only for the images. The next archive is that of the
    /// timeline `next`, or of the present one if `next` is `None`.
    ///
    /// # Errors
    /// [`Error::Usage`] if the database was opened with its archive; the errors of updating
    /// the anchor.
    pub fn end_archive(&self, next: Option<&TimelineName>) -> Result<()> {
        if self.shared.archive.archives {
            return Err(Error::Usage(
                "the database was opened with its archive. Open it without, and end archiving then"
                    .into(),
            ));
        }
        self.shared.ground.core.end_archive(next)
    }

    /// Takes a checkpoint and copies its image to the archive while writers continue. On return the archive durably
    /// holds the backup, and the log up to the backup's end.
    ///
    /// # Errors
    /// [`Error::Usage`] if the database has no archive, or the archive cannot be written.
    /// Also errors for damage of the image, and errors of the disks.
    pub fn back_up(&self) -> Result<BackupSummary> {
        self.shared.backups.back_up()
    }

    /// Requests a backup without waiting for it. Returns the number of the attempt that will make it. The attempt has
    /// ended when [`BackupState::ended`] has reached that number. An attempt that is already running does not count,
    /// because its backup may lack the newest writes.
    ///
    /// # Errors
    /// [`Error::Usage`] if the database has no archive.
    pub fn begin_backup(&self) -> Result<u64> {
        self.shared.backups.want()
    }

    /// Returns the backups in the archive, ordered by end epoch. The list is empty while the archive is not open.
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

//! A database whose files lose their names stops: what it would acknowledge from then on is in no file that a
//! restart finds.

use perdura_base::Result;

use super::Core;

impl Core {
    /// Fails, and stops the log, if the directories, the locks, the anchor or the segments that are written are
    /// no longer found under their names.
    ///
    /// # Errors
    /// [`Error::Displaced`](perdura_base::Error::Displaced); that of a log that has stopped.
    pub fn check_files(&self) -> Result<()> {
        self.wal.check()?;
        let checked = self.footing.check();
        let Err(error) = checked.and_then(|()| self.wal.check_segments()) else {
            return Ok(());
        };
        self.wal.stop("the database's files", &error);
        self.wal.check()
    }
}

//! Restoring a database from an archive by the program that has its procedures.
//!
//! `perdura restore` makes the same database. It cannot replay calls, because only the program has the procedures. This
//! restore opens the new database at once, so the calls after the cut are replayed before it returns.

use std::path::Path;
use std::sync::Arc;

use perdura_archive::{Store, list_archives};
use perdura_base::{Error, Result, Uuid};
use perdura_device::{Clock, Disk, FileDisk, SystemClock};
use perdura_restore::{
    At, Deadlines, RestoreMeans, RestorePlan, RestoreProgress, default_threads, restore,
};

use super::Db;
use super::open::seed;
use crate::files;
use crate::options::Options;

/// Opens the only archive in a directory.
fn only_archive(dir: &Path) -> Result<Arc<Store>> {
    let disk: Arc<dyn Disk> = Arc::new(FileDisk::at(dir));
    let ids = list_archives(disk.as_ref())?;
    match ids[..] {
        [uuid] => Store::read_only(disk, &uuid),
        _ => Err(Error::Usage(format!(
            "{} has the archives of {} databases. Restore one of them with `perdura restore --uuid`, then open it",
            dir.display(),
            ids.len()
        ))),
    }
}

impl Db {
    /// Restores a database from an archive into the directories of these options, and opens it. The directories must be
    /// missing or empty. The database gets the state of the moment `at`, or the last state of the archive if `at` is
    /// `None`. The open replays the changes of key-addressed tables after the newest increment or the backup, with the
    /// procedures in the options.
    /// The result is a new database, and its archive may be in the same directory.
    ///
    /// # Errors
    /// [`Error::Usage`] if the archive's directory does not have exactly one archive, or if the moment cannot be restored.
    /// [`Error::Foreign`] if the new directory is not empty. [`Error::OlderOnly`] if only an older state than the last can
    /// be restored. The errors of [`open`](Self::open): if they name a missing procedure, open the restored database
    /// again with a program that has it.
    pub fn restore(mut options: Options, archive: &Path, at: Option<At>) -> Result<Db> {
        let store = only_archive(archive)?;
        let clock: Arc<SystemClock> = Arc::new(SystemClock::new());
        let chosen = at.map(|at| at.resolve(&store, &[], clock.wall_us()));
        let target = chosen.transpose()?.map(|chosen| chosen.epoch);
        let plan = RestorePlan::from_archive(&store, target, |_, _| {})?;
        options.streams = u8::try_from(plan.streams()).unwrap_or(u8::MAX);
        let (disks, locks) = files::open_empty(&options)?;
        let means = RestoreMeans {
            disks,
            uuid: Uuid::of_seed(seed(&clock)),
            threads: default_threads(),
            clock: &(clock as Arc<dyn Clock>),
            progress: &RestoreProgress::default(),
            deadlines: Deadlines::Keep,
        };
        let report = restore(&plan, &means)?;
        assert_eq!(report.epoch, plan.target(), "the moment that was asked for");
        drop(locks);
        Db::open(options)
    }
}

//! Opening a database, in steps: archive, core, parts, threads.

use std::path::Path;
use std::sync::Arc;

use perdura_archive::Generation;
use perdura_base::{Error, Result};
use perdura_device::{Clock, Disk, FileDisk, SystemClock};
use perdura_recovery::disks::{Disks, Locks, lock_new_anchor};
use perdura_recovery::{Anchor, Progress, read_anchor, timeline_dir};
use perdura_wal::EpochEnds;

use super::Db;
use super::threads::Threads;
use crate::archive::Archiving;
use crate::archive::backlog::BacklogOptions;
use crate::core::{Core, Env};
use crate::files;
use crate::ground::Ground;
use crate::options::Options;
use crate::shared::Shared;
use crate::yardstick::Yardstick;

impl Db {
    /// Opens the database in a directory, or makes a new one there. Returns when all data is available.
    ///
    /// # Errors
    /// As [`crate::core::Core::open`]; [`perdura_base::Error::Locked`] if the database is open in a different process.
    pub fn open(options: Options) -> Result<Db> {
        Db::open_with_progress(options, Arc::new(Progress::default()))
    }

    /// Opens the database and reports its progress.
    ///
    /// # Errors
    /// As [`Db::open`].
    pub fn open_with_progress(options: Options, progress: Arc<Progress>) -> Result<Db> {
        let (disks, locks) = files::open(&options)?;
        Db::open_locked(options, disks, locks, progress)
    }

    /// Opens the database with the disks and locks that [`files::open`] has returned for these options.
    ///
    /// # Errors
    /// As [`Db::open`].
    pub fn open_locked(
        options: Options,
        disks: Disks,
        locks: Locks,
        progress: Arc<Progress>,
    ) -> Result<Db> {
        let anchor = read_anchor(disks.data.as_ref())?;
        let archive = options.archive.as_deref();
        let archive = archive.map(|dir| archive_at(dir, anchor.as_ref()));
        let archive = archive.transpose()?;
        Db::open_archived(options, disks, locks, progress, archive)
    }

    /// Opens the database on disks that the caller supplies. The directories in `options` are
    /// ignored.
    ///
    /// # Errors
    /// As [`Db::open`].
    pub fn open_on(
        options: Options,
        disks: Disks,
        locks: Locks,
        progress: Arc<Progress>,
    ) -> Result<Db> {
        Db::open_archived(options, disks, locks, progress, None)
    }

    /// Opens the database and archives its log onto the disk `archive`, if given. Makes the archive if it is missing.
    ///
    /// # Errors
    /// As [`Db::open`]. [`perdura_base::Error::LostLog`] if the archive holds epochs that the log does not have.
    /// [`perdura_base::Error::Corrupt`] if the archive lacks epochs that the log no longer has. An archive that cannot
    /// be read is no error of the open: [`delayed`](Self::delayed) lists it.
    pub fn open_archived(
        options: Options,
        disks: Disks,
        locks: Locks,
        progress: Arc<Progress>,
        archive: Option<Arc<dyn Disk>>,
    ) -> Result<Db> {
        let opening = Opening {
            disks,
            locks,
            progress,
            archive,
        };
        opening.open(options, Yardstick::Product)
    }

    /// Opens the database with the log and the archive that `yardstick` chooses, for measurements.
    ///
    /// # Errors
    /// As [`Db::open_archived`](Self::open_archived).
    pub fn open_by(
        yardstick: Yardstick,
        options: Options,
        disks: Disks,
        locks: Locks,
        archive: Option<Arc<dyn Disk>>,
    ) -> Result<Db> {
        let opening = Opening {
            disks,
            locks,
            progress: Arc::new(Progress::default()),
            archive,
        };
        opening.open(options, yardstick)
    }
}

/// The disks, locks and settings of a database that is being opened.
struct Opening {
    disks: Disks,
    locks: Locks,
    progress: Arc<Progress>,
    /// The disk of the database's archive, if it has an archive.
    archive: Option<Arc<dyn Disk>>,
}

impl Opening {
    fn open(self, options: Options, yardstick: Yardstick) -> Result<Db> {
        let Opening {
            disks,
            mut locks,
            progress,
            archive,
        } = self;
        if archive.is_some() {
            check_archivable(&disks)?;
        }
        let clock = Arc::new(SystemClock::new());
        let row = generation(&options, yardstick);
        let archiving = archive.map(|disk| archiving_onto(disk, &options, &clock).by(row));
        let mut core_options = options.core()?;
        if let Some(archiving) = &archiving {
            core_options.archived = archived_end(archiving, &disks)?;
        }
        let env = Env {
            disks: disks.clone(),
            clock: Arc::clone(&clock) as Arc<dyn Clock>,
            seed: seed(clock.as_ref()),
            nodes: options.nodes.clone(),
            accept_loss: options.node_settings.accept_loss,
        };
        let core = Core::open_by(yardstick, env, core_options, progress)?;
        lock_new_anchor(&disks, &mut locks)?;
        core.vouch_for_life()?;
        let shared = Arc::new(Shared::new(Ground::new(core, options, clock), archiving));
        let threads = Arc::new(Threads::start(&shared, locks)?);
        Ok(Db { shared, threads })
    }
}

/// Returns the method for making the archive's runs.
fn generation(options: &Options, yardstick: Yardstick) -> Generation {
    match (yardstick, options.archive_selects) {
        (Yardstick::Unsorted, _) => Generation::Unsorted,
        (_, true) => Generation::Selection,
        (_, false) => Generation::Quick,
    }
}

/// Returns an [`Archiving`] that writes to `disk`, with a backlog if the options allow one.
fn archiving_onto(disk: Arc<dyn Disk>, options: &Options, clock: &Arc<SystemClock>) -> Archiving {
    let archiving = Archiving::new(disk, seed(clock.as_ref()));
    let Some(bytes_max) = options.archive_backlog else {
        return archiving;
    };
    let clock = Arc::clone(clock);
    let retention = &options.archive_retention;
    let policy = retention.policy(Arc::new(move || clock.wall_us()));
    archiving.with_backlog(BacklogOptions { bytes_max, policy })
}

/// Returns the disk of the archive in a directory. A named timeline has a folder in that directory. If the anchor says
/// that the database is archived, the directory need not exist: an open does not need to reach such an archive.
fn archive_at(dir: &Path, anchor: Option<&Anchor>) -> Result<Arc<dyn Disk>> {
    let timeline = anchor.and_then(|anchor| anchor.timeline.as_ref());
    let dir = timeline_dir(dir, timeline);
    let is_archived = anchor.is_some_and(|anchor| anchor.archived.is_some());
    Ok(match is_archived {
        true => Arc::new(FileDisk::at(&dir)),
        false => Arc::new(FileDisk::new(&dir)?),
    })
}

/// Checks that an archive can hold the log of the database, if the database exists.
///
/// # Errors
/// [`Error::Usage`](perdura_base::Error::Usage) with the reason.
fn check_archivable(disks: &Disks) -> Result<()> {
    let anchor = read_anchor(disks.data.as_ref())?;
    anchor.map_or(Ok(()), |anchor| anchor.check_archivable())
}

/// Returns the end of the log in a database's archive. `None` if the database is not archived, or the archive cannot be
/// read. If the archive cannot be read, the archiver reports the error and tries again. Fails if the archive has another
/// history than the database.
fn archived_end(archiving: &Archiving, disks: &Disks) -> Result<Option<EpochEnds>> {
    let anchor = read_anchor(disks.data.as_ref())?;
    let Some(anchor) = anchor.filter(|anchor| anchor.archived.is_some()) else {
        return Ok(None);
    };
    // Any other error says that the archive cannot be read now.
    if let Err(error @ Error::OtherHistory { .. }) = archiving.check_history(&anchor) {
        return Err(error);
    }
    Ok(archiving.end_of(&anchor.uuid, &disks.logs).ok().flatten())
}

/// Returns a random number.
pub(super) fn seed(clock: &SystemClock) -> u64 {
    use std::hash::{BuildHasher, Hasher};
    let mut hasher = std::hash::RandomState::new().build_hasher();
    hasher.write_u64(clock.wall_us());
    hasher.write_u32(std::process::id());
    hasher.finish()
}

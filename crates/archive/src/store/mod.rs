//! An archive in a directory: opening, changing and reading it.
//!
//! ```text
//!  newest manifest ── Edit ──► next manifest: create, write, sync, publish, sync the folder ──► remove unnamed files
//! ```
//!
//! A [`Store`] holds the newest manifest and makes the next one with a [`Publication`]. Several threads of one process
//! may share a store. An agent may have a second store of the archive, in a second process. If two writers try to
//! publish manifests with the same number, the later writer fails. The failed writer reads the winner's manifest and
//! applies the edit to that manifest.
//!
//! | module | one idea |
//! |---|---|
//! | `chain` | the manifests in a folder, damaged ones among them |
//! | `history` | comparing the archive's history with the history of a database |
//! | `mend` | the contents of an archive whose newest manifest is damaged or missing |
//! | [`restart`] | the treatment of each file in the folder when the archive is opened |
//! | `open` | opening an archive: taking locks, adopting runs, removing files; making a new archive |
//! | [`publication`] | one change of the archive, one I/O a step |
//! | `rebuild` | a manifest for an archive that has no undamaged one |
//! | `readable` | the runs that a reader of the archive can use |
//! | [`verify`] | reading every object to find damage |
//!
//! # Invariants
//! * The runs of each manifest cover the manifest's epochs without a gap. The files of the newest manifest exist: a
//!   file is removed only when a manifest without it is durable.
//! * Each role belongs to at most one writing process at a time. At most one process at a time merges. Locks ensure
//!   both if the file system has locks. A writer stops if it finds a manifest by another process with the same role.
//!
//! # Source
//! "Single-pass restore after a media failure", 3.3, where the archive's index is a catalogue of runs.
//! # Deviations
//! Readers take no lock. In a local directory an open file stays readable after its removal. A reader that finds a file
//! missing reads the newest manifest and starts again.

mod chain;
mod history;
mod mend;
mod open;
pub mod publication;
mod readable;
mod rebuild;
pub mod restart;
pub mod verify;

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use perdura_base::{Error, Pos, Result, Uuid};
use perdura_device::Disk;

pub(crate) use open::folder;
pub use open::{Creation, Lease, Opened, Own, list_archives};
pub use publication::{Publication, Published};
pub use restart::{Duty, Plan};
pub use verify::{Fault, Verified};

use crate::backup::{Backup, BackupId};
use crate::manifest::object::{BACKUPS, RUNS};
use crate::manifest::{Edit, Manifest, Object, ObjectId, Writer};
use crate::merge::Images;
use crate::name::{EpochRange, RunId};
use crate::reader::Run;
use crate::writer::RunSummary;

/// The number of manifests that are kept.
pub const KEPT: u64 = 16;

/// The newest manifest that the store knows, and whether the store may still write.
struct Known {
    manifest: Arc<Manifest>,
    crc: u32,
    /// The highest number of a manifest in the folder, damaged or not.
    highest: u64,
    /// The reason why this store makes no more changes. `None`: it may make changes.
    stopped: Option<Stop>,
}

/// The reason why a store makes no more changes.
#[derive(Clone)]
enum Stop {
    /// Another process has taken the store's role. The text names the manifest that the other process wrote.
    Taken(String),
    /// The disk failed, and it is unknown which bytes are durable.
    Failed(String),
}

/// The archive of one database.
pub struct Store {
    disk: Arc<dyn Disk>,
    uuid: Uuid,
    /// The folder of the database.
    dir: String,
    /// The role and the random number (life) that identify this store as a writer. `None`: the store is read-only.
    writer: Option<Writer>,
    known: Mutex<Known>,
    temporaries: AtomicU64,
    /// The database's anchor, encoded. It goes into the next manifest.
    anchor: Mutex<Vec<u8>>,
    /// The lock of the role.
    _lock: Option<Box<dyn Any + Send + Sync>>,
}

impl Store {
    /// Returns the identity of the database.
    #[must_use]
    pub fn uuid(&self) -> &Uuid {
        &self.uuid
    }

    /// Returns the disk of the archive.
    #[must_use]
    pub fn disk(&self) -> &Arc<dyn Disk> {
        &self.disk
    }

    /// Returns the path of the folder of runs.
    #[must_use]
    pub fn runs_dir(&self) -> String {
        self.path(RUNS)
    }

    /// Returns the path of the folder of backups.
    #[must_use]
    pub fn backups_dir(&self) -> String {
        self.path(BACKUPS)
    }

    /// Returns the newest manifest that the store has read or made.
    #[must_use]
    pub fn manifest(&self) -> Arc<Manifest> {
        self.base().0
    }

    /// Makes the manifests in the folder durable. A killed process may have published the newest manifest without
    /// syncing the folder. So a caller must call this before it deletes epochs from the log because a manifest contains
    /// them.
    ///
    /// # Errors
    /// Errors of the disk.
    pub fn make_durable(&self) -> Result<()> {
        self.disk.sync_dir(&self.dir)
    }

    /// Reads the new manifests that other writers have made. Returns the newest manifest.
    ///
    /// # Errors
    /// [`Error::ArchiveTaken`] if another process has made a manifest in this store's role; [`Error::Corrupt`]; errors
    /// of the disk.
    pub fn refresh(&self) -> Result<Arc<Manifest>> {
        let known = self.manifest().number;
        if chain::numbers(self.disk.as_ref(), &self.dir)?.last() == Some(&known) {
            return Ok(self.manifest());
        }
        let found = chain::newest(self.disk.as_ref(), &self.dir, &self.uuid)?;
        let newer = found.filter(|found| found.manifest.number >= known);
        let Some(mut newest) = newer else {
            let path = self.path(&chain::name(known));
            let found = "an older one as the newest";
            return Err(crate::manifest::damage(
                &path,
                0,
                "this manifest, or a newer one",
                found,
            ));
        };
        let Some(own) = self.writer else {
            let newest = open::as_files_show(self, newest)?;
            self.set_newest(&newest.manifest, newest.crc);
            return Ok(self.manifest());
        };
        if !newest.damaged.is_empty() {
            // The next opening mends the archive.
            return Err(newest.damaged.swap_remove(0));
        }
        let newer = chain::read_above(self.disk.as_ref(), &self.dir, &self.uuid, known)?;
        let rival = newer
            .iter()
            .find(|m| m.writer.role == own.role && m.writer != own);
        if let Some(rival) = rival {
            let path = self.path(&chain::name(rival.number));
            self.known.lock().stopped = Some(Stop::Taken(path));
            self.may_write()?;
        }
        // The writer of the read manifest may not have made it durable. This store's next manifest will follow it.
        self.make_durable()?;
        self.set_newest(&newest.manifest, newest.crc);
        Ok(self.manifest())
    }

    /// Sets the database's anchor, encoded as `record`. Each later manifest of this store contains it.
    pub fn note_anchor(&self, record: Vec<u8>) {
        *self.anchor.lock() = record;
    }

    /// Begins a change of the archive.
    #[must_use]
    pub fn publish(self: &Arc<Store>, edit: Edit) -> Publication {
        Publication::new(Arc::clone(self), edit)
    }

    /// Adds a run from [`runs_dir`](Self::runs_dir). `ends` has, for each stream of the log, the position where the run
    /// ends. `images` are the database's images, including the one being built. The new manifest lists these images.
    ///
    /// # Errors
    /// Those of [`Publication::step`].
    pub fn add_run(
        self: &Arc<Store>,
        run: &RunSummary,
        ends: &[Pos],
        images: &Images,
    ) -> Result<Published> {
        let edit = Edit::AddRun {
            run: Object::of(run),
            ends: ends.to_vec(),
            images: Some(images.clone()),
            moments: self.open_run(run.id)?.moments().clone(),
        };
        self.publish(edit).run()
    }

    /// Adds a backup from [`backups_dir`](Self::backups_dir).
    ///
    /// # Errors
    /// Those of [`Publication::step`].
    pub fn add_backup(self: &Arc<Store>, backup: Object) -> Result<Published> {
        self.publish(Edit::AddBackup(backup)).run()
    }

    /// Adds an increment from [`backups_dir`](Self::backups_dir). `base` is the sweep that it continues.
    ///
    /// # Errors
    /// Those of [`Publication::step`]. [`Error::Usage`] if `base` is not the newest sweep before the increment.
    pub fn add_increment(
        self: &Arc<Store>,
        increment: Object,
        base: BackupId,
    ) -> Result<Published> {
        self.publish(Edit::AddIncrement { increment, base }).run()
    }

    /// Opens a run of the archive.
    ///
    /// # Errors
    /// Those of [`Run::open`].
    pub fn open_run(&self, id: RunId) -> Result<Arc<Run>> {
        Run::open(self.disk.as_ref(), &self.runs_dir(), id, &self.uuid).map(Arc::new)
    }

    /// Opens a backup of the archive.
    ///
    /// # Errors
    /// Those of [`Backup::open`].
    pub fn open_backup(&self, id: BackupId) -> Result<Arc<Backup>> {
        let dir = self.backups_dir();
        Backup::open(self.disk.as_ref(), &dir, id, &self.uuid).map(Arc::new)
    }

    /// Opens an increment of the archive.
    ///
    /// # Errors
    /// Those of [`Backup::open_increment`].
    pub fn open_increment(&self, id: BackupId) -> Result<Arc<Backup>> {
        let dir = self.backups_dir();
        Backup::open_increment(self.disk.as_ref(), &dir, id, &self.uuid).map(Arc::new)
    }

    /// Returns the runs that hold the epochs of a range; see [`Manifest::tiling`].
    ///
    /// # Errors
    /// Those of [`Manifest::tiling`].
    pub fn tiling(&self, epochs: EpochRange) -> Result<Vec<RunId>> {
        self.manifest().tiling(epochs)
    }

    /// Returns the path of file `name` in the folder of the database.
    pub(crate) fn path(&self, name: &str) -> String {
        debug_assert!(!name.is_empty(), "a file has a name");
        format!("{}/{name}", self.dir)
    }

    /// Sets the newest known manifest to `manifest`, which is durable. Does nothing if the store already knows a newer
    /// one.
    fn set_newest(&self, manifest: &Manifest, crc: u32) {
        assert_eq!(manifest.uuid, self.uuid, "it is of this database");
        let mut known = self.known.lock();
        assert!(
            known.manifest.number != manifest.number || known.crc == crc,
            "a number is published once"
        );
        if known.manifest.number < manifest.number {
            known.manifest = Arc::new(manifest.clone());
            known.crc = crc;
            known.highest = known.highest.max(manifest.number);
        }
    }

    /// Returns the newest manifest, its checksum, and the number of the next one. That is above the numbers of all
    /// manifests, also of damaged ones.
    fn base(&self) -> (Arc<Manifest>, u32, u64) {
        let known = self.known.lock();
        assert!(known.highest >= known.manifest.number, "it was listed");
        (Arc::clone(&known.manifest), known.crc, known.highest + 1)
    }

    /// Returns the store's identity as a writer. Fails if the store may not write.
    fn may_write(&self) -> Result<Writer> {
        let Some(writer) = self.writer else {
            return Err(Error::Usage("the archive was opened read-only".into()));
        };
        let stopped = self.known.lock().stopped.clone();
        match stopped {
            None => Ok(writer),
            Some(Stop::Taken(manifest)) => Err(Error::ArchiveTaken {
                manifest,
                role: writer.role.name(),
            }),
            Some(Stop::Failed(why)) => Err(Error::Stopped(why)),
        }
    }

    /// Returns `result`. If it is an error, stops the store, because it is unknown which manifest is the newest.
    fn latch(&self, result: Result<()>) -> Result<()> {
        if let Err(error) = &result {
            let why = format!("publishing a manifest: {error}");
            self.known.lock().stopped.get_or_insert(Stop::Failed(why));
        }
        result
    }

    /// Returns a temporary file name for a manifest. No other writer uses it.
    fn temporary(&self, number: u64, writer: Writer) -> String {
        let counter = self.temporaries.fetch_add(1, Ordering::Relaxed);
        let name = open::temporary_name(number, writer, counter);
        self.path(&name)
    }
}

impl Object {
    /// Returns the object of a finished run.
    #[must_use]
    pub fn of(run: &RunSummary) -> Object {
        Object {
            id: ObjectId::Run(run.id),
            bytes: run.bytes,
            crc: run.crc,
        }
    }
}

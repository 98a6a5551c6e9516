//! Runs that only one restore reads. They are made from a surviving log, or by merging other runs.
//!
//! They are on the new database's data disk, in the folder of the image slot that the restore does not write. They are
//! removed before the database is complete. Before the first run is made, the database's directory is marked as
//! unfinished. So after a crash the directory does not open.

use std::sync::Arc;

use perdura_archive::{Run, RunId};
use perdura_base::{ImageSlot, Result, Uuid};
use perdura_device::Disk;
use perdura_recovery::found::mark_unfinished;
use perdura_recovery::image::folder;

/// The slot that a restored image is written to.
pub(crate) const SLOT: ImageSlot = ImageSlot::A;
/// The name of the command that makes the new database. The mark of an unfinished directory contains this name.
pub(crate) const VERB: &str = "perdura restore";

/// The folder of temporary runs, which only one restore reads.
#[derive(Clone)]
pub struct Scratch {
    disk: Arc<dyn Disk>,
}

impl Scratch {
    /// Marks `disk`, the empty data disk of the new database, as unfinished, and makes the folder on it.
    ///
    /// # Errors
    /// [`Error::Foreign`](perdura_base::Error::Foreign) if the disk is not empty; errors of the disk.
    pub fn begin(disk: Arc<dyn Disk>) -> Result<Scratch> {
        mark_unfinished(disk.as_ref(), VERB)?;
        let scratch = Scratch { disk };
        scratch.disk.make_dir(scratch.dir())?;
        Ok(scratch)
    }

    /// Returns the disk that the folder is on.
    pub(crate) fn disk(&self) -> &Arc<dyn Disk> {
        &self.disk
    }

    /// Returns the folder's path.
    pub(crate) fn dir(&self) -> &'static str {
        folder(SLOT.other())
    }

    /// Opens one of the runs.
    pub(crate) fn open(&self, id: RunId, uuid: &Uuid) -> Result<Arc<Run>> {
        let run = Run::open(self.disk.as_ref(), self.dir(), id, uuid)?;
        assert_eq!(run.id(), id, "a run is opened by its name");
        Ok(Arc::new(run))
    }

    /// Removes a run that is no longer needed. A reader that has the run open can still read it.
    pub(crate) fn remove(&self, id: RunId) -> Result<()> {
        self.disk.remove(&id.path(self.dir()))
    }

    /// Removes all runs.
    pub(crate) fn clear(&self) -> Result<()> {
        for name in self.disk.list(self.dir())? {
            if let Some(id) = RunId::parse(&name) {
                self.remove(id)?;
            }
        }
        self.disk.sync_dir(self.dir())
    }
}

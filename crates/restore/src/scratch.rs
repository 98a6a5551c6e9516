//! Runs that only one restore reads. They are made from a surviving log, or by merging other runs.
//!
//! They are on the new database's data disk, in the folder of the image slot that the restore does not write, and are
//! removed before the database is complete. The directory is marked as unfinished from the beginning, so after a crash
//! the remains do not open.

use std::sync::Arc;

use perdura_archive::{Run, RunId};
use perdura_base::{ImageSlot, Result, Uuid};
use perdura_device::Disk;
use perdura_recovery::found::mark_unfinished;
use perdura_recovery::image::folder;

/// The slot that a restored image is written to.
pub(crate) const SLOT: ImageSlot = ImageSlot::A;
/// The command that the mark of an unfinished directory names.
pub(crate) const VERB: &str = "perdura restore";

/// The folder of the runs that only one restore reads.
#[derive(Clone)]
pub struct Scratch {
    disk: Arc<dyn Disk>,
}

impl Scratch {
    /// Takes the data disk of the new database, which is empty, and marks it as unfinished.
    ///
    /// # Errors
    /// [`Error::Foreign`](perdura_base::Error::Foreign) if the disk is not empty; the disk's.
    pub fn begin(disk: Arc<dyn Disk>) -> Result<Scratch> {
        mark_unfinished(disk.as_ref(), VERB)?;
        let scratch = Scratch { disk };
        scratch.disk.make_dir(scratch.dir())?;
        Ok(scratch)
    }

    /// Returns the disk.
    pub(crate) fn disk(&self) -> &Arc<dyn Disk> {
        &self.disk
    }

    /// Returns the folder.
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

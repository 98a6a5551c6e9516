//! Runs that only one restore reads: made of a surviving log, or of many runs that were merged.
//!
//! They are on the new database's data disk, in the folder of the image that it does not have yet, and are removed
//! before it is whole. The place is marked as unfinished from the beginning, so the remains of a crash do not open.

use std::sync::Arc;

use perdura_archive::{Run, RunId};
use perdura_base::{ImageSlot, Result, Uuid};
use perdura_device::Disk;
use perdura_recovery::found::mark_unfinished;
use perdura_recovery::image::folder;

/// The slot of a restored image.
pub(crate) const SLOT: ImageSlot = ImageSlot::A;
/// The maker that an unfinished directory names.
pub(crate) const VERB: &str = "perdura restore";

/// The place of a restore's own runs.
#[derive(Clone)]
pub struct Scratch {
    disk: Arc<dyn Disk>,
}

impl Scratch {
    /// Takes the data disk of the new database, which is empty, and marks it as unfinished.
    ///
    /// # Errors
    /// [`Error::Foreign`](perdura_base::Error::Foreign) for a disk that holds something; the disk's.
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

    /// Opens one of its runs.
    pub(crate) fn open(&self, id: RunId, uuid: &Uuid) -> Result<Arc<Run>> {
        let run = Run::open(self.disk.as_ref(), self.dir(), id, uuid)?;
        assert_eq!(run.id(), id, "a run is opened by its name");
        Ok(Arc::new(run))
    }

    /// Removes a run that is of no more use. A reader that has it open can continue to read it.
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

//! Runs that only one restore reads: made of a surviving log, or of many runs that were merged.
//!
//! They stand on the new database's data disk, in the folder of the image that it does not have yet, and are removed
//! before it is whole. The place says from the beginning that it is unfinished, so what a crash leaves there opens
//! as nothing.

use std::sync::Arc;

use perdura_archive::{Run, RunId};
use perdura_base::{Result, Uuid};
use perdura_device::Disk;

use super::{SLOT, VERB};
use crate::found::mark_unfinished;
use crate::image::folder;

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

    /// The disk.
    pub(super) fn disk(&self) -> &Arc<dyn Disk> {
        &self.disk
    }

    /// The folder.
    pub(super) fn dir(&self) -> &'static str {
        folder(SLOT.other())
    }

    /// Opens one of its runs.
    pub(super) fn open(&self, id: RunId, uuid: &Uuid) -> Result<Arc<Run>> {
        let run = Run::open(self.disk.as_ref(), self.dir(), id, uuid)?;
        assert_eq!(run.id(), id, "a run is opened by its name");
        Ok(Arc::new(run))
    }

    /// Removes a run that is of no more use. Who has it open goes on reading it.
    pub(super) fn remove(&self, id: RunId) -> Result<()> {
        self.disk.remove(&id.path(self.dir()))
    }

    /// Removes all runs.
    pub(super) fn clear(&self) -> Result<()> {
        for name in self.disk.list(self.dir())? {
            if let Some(id) = RunId::parse(&name) {
                self.remove(id)?;
            }
        }
        self.disk.sync_dir(self.dir())
    }
}

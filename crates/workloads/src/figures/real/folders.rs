//! The directories of one experiment: new ones in the directories of the caller, removed with the experiment.

use std::fs::{self, File};
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result};
use perdura_device::{Disk, FileDisk};
use rustix::fs::{Advice, fadvise};

use super::super::scratch::Scratch;
use super::RealDisks;
use super::laid_out::LaidOut;

/// The real disks of one experiment.
pub struct Folders {
    /// The disk of the anchor, in the directory of the first log disk.
    pub data: Arc<dyn Disk>,
    /// The log disks.
    pub logs: Vec<Arc<dyn Disk>>,
    /// The image disks. Empty: the caller named none.
    pub images: Vec<Arc<dyn Disk>>,
    /// The directories of all disks.
    scratches: Vec<Scratch>,
}

impl Folders {
    /// Makes new directories in the first `logs` log directories, and in the first `images` image directories.
    ///
    /// # Errors
    /// Errors of the file system.
    pub fn new(disks: &RealDisks, logs: usize, images: usize) -> Result<Folders> {
        let mut scratches = Vec::new();
        let mut disk = |base: &Path| -> Result<Arc<dyn Disk>> {
            let scratch = Scratch::within(base)?;
            let disk = FileDisk::shared(&scratch.dir)?;
            scratches.push(scratch);
            Ok(disk)
        };
        let data = disk(disks.logs.first().context("there is a log directory")?)?;
        let logs = disks.logs.iter().take(logs).map(|base| disk(base));
        let logs = logs.collect::<Result<_>>()?;
        let images = disks.images.iter().take(images).map(|base| disk(base));
        let images = images.collect::<Result<_>>()?;
        Ok(Folders {
            data,
            logs,
            images,
            scratches,
        })
    }

    /// Returns the disks with files whose space was written before.
    #[must_use]
    pub fn laid_out(mut self) -> Folders {
        for disk in self.logs.iter_mut().chain(&mut self.images) {
            *disk = Arc::new(LaidOut::new(Arc::clone(disk)));
        }
        self
    }

    /// Removes all files from the operating system's cache.
    ///
    /// # Errors
    /// Errors of the file system.
    pub fn cool(&self) -> Result<()> {
        let mut dirs = self.scratches.iter();
        dirs.try_for_each(|scratch| cool(&scratch.dir))
    }
}

/// Removes the files below `dir` from the cache. Writes them first, because the cache keeps what is not yet on disk.
pub(super) fn cool(dir: &Path) -> Result<()> {
    let named = || format!("dropping the cache of {}", dir.display());
    for entry in fs::read_dir(dir).with_context(named)? {
        let entry = entry.with_context(named)?;
        if entry.file_type().with_context(named)?.is_dir() {
            cool(&entry.path())?;
            continue;
        }
        let file = File::open(entry.path()).with_context(named)?;
        file.sync_all().with_context(named)?;
        fadvise(&file, 0, None, Advice::DontNeed).with_context(named)?;
    }
    Ok(())
}

//! The disks of a database, and their directories.
//!
//! Servers, offline verbs and benchmarks open a database's directories here. The order never changes: the data
//! directory and its locks, then the logs' directories, then the images' directories. A process that opens a database
//! to write holds each lock alone; readers share the locks. A locked lock file can still be removed. So the directories
//! and the anchor are locked as well.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use perdura_base::{Error, ImageSlot, PartitionId, Result, StreamId};
use perdura_device::Disk;
use perdura_wal::anchor::ANCHOR_PATH;
use perdura_wal::segment::LOG_DIR;

use crate::anchor::Anchor;
use crate::found::{find, is_database, missing_image_dir, missing_log, write_version};
use crate::image::{disk_of, pages_path};

/// The lock file of the data directory.
pub(crate) const LOCK_PATH: &str = "LOCK";

/// Returns the name of the lock file in the directory of a log stream.
pub(crate) fn log_lock(stream: StreamId) -> String {
    format!("{LOCK_PATH}.s{:02}", stream.0)
}

/// Returns the name of the lock file in an image directory.
pub(crate) fn image_lock(number: usize) -> String {
    format!("{LOCK_PATH}.i{number:02}")
}

/// The disks of a database.
#[derive(Clone)]
pub struct Disks {
    /// The disk of the anchor and the images' directories.
    pub data: Arc<dyn Disk>,
    /// The disks of the images' pages, at least one; [`of_partition`](Self::of_partition) returns the disk of a
    /// partition.
    pub images: Vec<Arc<dyn Disk>>,
    /// The disk of each log stream.
    pub logs: Vec<Arc<dyn Disk>>,
}

impl Disks {
    /// Puts all files on one disk.
    #[must_use]
    pub fn on_one(disk: Arc<dyn Disk>, streams: usize) -> Disks {
        Disks {
            images: vec![Arc::clone(&disk)],
            logs: vec![Arc::clone(&disk); streams],
            data: disk,
        }
    }

    /// Returns the disk that holds a partition's pages in the images.
    #[must_use]
    pub fn of_partition(&self, partition: PartitionId) -> &Arc<dyn Disk> {
        &self.images[disk_of(partition, self.images.len())]
    }
}

/// The directories of a database.
#[derive(Debug, Clone, Default)]
pub struct Paths {
    /// The data directory.
    pub data: PathBuf,
    /// One directory for each disk that holds pages of the images. The order is the same as when the database was
    /// created. Empty: the pages are in the data directory.
    pub images: Vec<PathBuf>,
    /// One directory for all log streams, or one for each. Empty: the streams are in the data directory.
    pub logs: Vec<PathBuf>,
}

impl Paths {
    /// Returns the directory of a stream, if it is not the data directory.
    fn log(&self, stream: StreamId) -> Option<&PathBuf> {
        match self.logs.len() {
            1 => self.logs.first(),
            _ => self.logs.get(usize::from(stream.0)),
        }
    }

    /// Returns the number of image disks that the paths name.
    #[must_use]
    pub fn image_disks(&self) -> usize {
        self.images.len().max(1)
    }

    /// Checks that the paths name a log directory for each stream, one for all streams, or none.
    ///
    /// # Errors
    /// [`Error::Usage`].
    pub fn check_logs(&self, streams: u8) -> Result<()> {
        let logs = self.logs.len();
        if logs > 1 && logs != usize::from(streams) {
            return Err(Error::Usage(format!(
                "{logs} log directories were given for {streams} stream(s). Give one for each, \
                 one for all, or none"
            )));
        }
        Ok(())
    }
}

/// Fails if `given` and `has` differ. `given` is the count of image disks that would be used, and `has` is the count of
/// image disks that the database has.
///
/// # Errors
/// [`Error::Usage`].
pub(crate) fn check_image_disks(given: usize, has: usize) -> Result<()> {
    if given != has {
        return Err(Error::Usage(format!(
            "this database has {has} image director(ies), but {given} would be used. Give all of \
             them in the order in which the database was made, or none if its images are in the \
             data directory"
        )));
    }
    Ok(())
}

/// The directories that must exist.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Demand {
    /// All directories, if the database exists. For a new database the directories are made.
    OfExisting,
    /// All directories that a restart needs.
    All,
    /// The data directory, with an anchor that can be read. Other directories may be missing.
    Anchor,
}

pub use perdura_device::Locks;

/// Locks the anchor of a new database. The directories were locked before the anchor existed.
///
/// # Errors
/// Errors of the disk.
pub fn lock_new_anchor(disks: &Disks, locks: &mut Locks) -> Result<()> {
    match disks.data.lock_present(ANCHOR_PATH) {
        // The anchor is not new: this process, which holds the directory's lock, holds the anchor's lock already.
        Err(Error::Locked { .. }) => Ok(()),
        Err(error) => Err(error),
        Ok(lock) => {
            locks.extend(lock);
            Ok(())
        }
    }
}

/// A database with an open and locked data directory.
pub struct Opening<'a> {
    paths: &'a Paths,
    open: &'a dyn Fn(&Path) -> Result<Arc<dyn Disk>>,
    data: Arc<dyn Disk>,
    exists: bool,
    locks: Locks,
    /// The locked directories, without the data directory.
    locked: Vec<&'a Path>,
}

impl<'a> Opening<'a> {
    /// Opens and locks the data directory. `open` returns the disk of a directory.
    ///
    /// # Errors
    /// [`Error::Locked`], [`Error::Version`]; [`Error::Foreign`] if the directory holds files that belong to no
    /// database.
    pub fn begin(
        paths: &'a Paths,
        open: &'a dyn Fn(&Path) -> Result<Arc<dyn Disk>>,
    ) -> Result<Self> {
        let data = open(&paths.data)?;
        let exists = is_database(data.as_ref())?;
        let mut locks = vec![data.lock(LOCK_PATH)?];
        locks.extend(data.lock_present("")?);
        if exists {
            locks.extend(data.lock_present(ANCHOR_PATH)?);
        }
        Ok(Opening {
            paths,
            open,
            data,
            exists,
            locks,
            locked: Vec::new(),
        })
    }

    /// Returns whether the data directory holds a database.
    #[must_use]
    pub fn exists(&self) -> bool {
        self.exists
    }

    /// Writes the file with the format's version into the data directory, unless it is there.
    ///
    /// # Errors
    /// [`Error::Version`]; errors of the disk.
    pub fn write_version(&self) -> Result<()> {
        write_version(self.data.as_ref())
    }

    /// Returns the anchor, and a text for each fault that did not prevent reading it. `None`: there is no database.
    ///
    /// # Errors
    /// Errors of [`find`].
    pub fn anchor(&self) -> Result<Option<(Anchor, Vec<String>)>> {
        let logs = self.paths.logs.iter().map(|dir| (self.open)(dir));
        let logs = logs.collect::<Result<Vec<_>>>()?;
        let found = find(self.data.as_ref(), &logs)?;
        Ok(found.map(|(_, anchor, notes)| (anchor, notes)))
    }

    /// Opens and locks the directories of the logs and the images.
    ///
    /// # Errors
    /// [`Error::Usage`] if the number of paths is wrong, or a path is given twice. [`Error::Corrupt`] if `demand`
    /// requires a directory that is missing. [`Error::Locked`].
    pub fn finish(
        mut self,
        streams: u8,
        image_disks: usize,
        demand: Demand,
    ) -> Result<(Disks, Locks)> {
        self.paths.check_logs(streams)?;
        check_image_disks(self.paths.image_disks(), image_disks)?;
        let demanded = match demand {
            Demand::OfExisting => self.exists,
            Demand::All => true,
            Demand::Anchor => false,
        };
        let mut logs = Vec::new();
        for stream in (0..streams).map(StreamId) {
            logs.push(match self.paths.log(stream) {
                None => Arc::clone(&self.data),
                // If the directory is missing or empty, its disk is not mounted or the name is wrong. So it must not be
                // made.
                Some(dir) if demanded && !dir.join(LOG_DIR).is_dir() => {
                    return Err(missing_log(&dir.display().to_string(), stream));
                }
                Some(dir) => self.open_locked(dir, &log_lock(stream))?,
            });
        }
        let mut images = Vec::new();
        for (number, dir) in self.paths.images.iter().enumerate() {
            if demanded && !holds_pages(dir) {
                return Err(self.no_pages(dir, number));
            }
            images.push(self.open_locked(dir, &image_lock(number))?);
            let earlier = &self.paths.images[..number];
            if earlier.iter().any(|other| is_same(other, dir)) {
                return Err(Error::Usage(format!(
                    "{} is given twice as an image directory. Give one for each disk",
                    dir.display()
                )));
            }
        }
        if images.is_empty() {
            images.push(Arc::clone(&self.data));
        }
        assert_eq!(
            (images.len(), logs.len()),
            (image_disks, usize::from(streams)),
            "as many disks as the database has"
        );
        assert!(
            self.locks.len() <= 3 + 2 * (logs.len() + images.len()),
            "the anchor, and for each directory a lock file and itself at most"
        );
        for log in &logs {
            log.keep_locked(&self.locks);
        }
        let disks = Disks {
            data: self.data,
            images,
            logs,
        };
        Ok((disks, self.locks))
    }

    /// Returns the error for an image directory without a pages file.
    fn no_pages(&self, dir: &Path, number: usize) -> Error {
        let dir = dir.display().to_string();
        if self.paths.images.len() == 1 && holds_pages(&self.paths.data) {
            return Error::Usage(format!(
                "{dir} has no image. The images of this database are in its data directory. Open \
                 it without --image-dir"
            ));
        }
        missing_image_dir(&dir, number)
    }

    /// Locks a directory and returns its disk. For the data directory, which is locked already, returns the disk that
    /// is open.
    fn open_locked(&mut self, dir: &'a Path, lock: &str) -> Result<Arc<dyn Disk>> {
        if is_same(dir, &self.paths.data) {
            return Ok(Arc::clone(&self.data));
        }
        let disk = (self.open)(dir)?;
        self.locks.push(disk.lock(lock)?);
        if !self.locked.iter().any(|known| is_same(known, dir)) {
            self.locks.extend(disk.lock_present("")?);
            self.locked.push(dir);
        }
        Ok(disk)
    }
}

/// Returns whether a directory has a pages file of any image.
fn holds_pages(dir: &Path) -> bool {
    let mut slots = ImageSlot::ALL.iter();
    slots.any(|slot| dir.join(pages_path(*slot)).is_file())
}

/// Returns whether the two paths lead to one existing directory.
fn is_same(one: &Path, other: &Path) -> bool {
    match (one.canonicalize(), other.canonicalize()) {
        (Ok(one), Ok(other)) => one == other,
        (Ok(_) | Err(_), _) => false,
    }
}

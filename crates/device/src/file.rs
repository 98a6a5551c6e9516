//! A directory of a real file system.
//!
//! A file opened for direct I/O has two descriptors: a direct one, which bypasses the cache, and a buffered one. An
//! access uses the direct one if its offset, length and address are multiples of a sector. Otherwise it uses the
//! buffered one. The kernel keeps the two coherent. The disk opens both descriptors together, because the path may
//! later lead to another file. File systems without direct I/O refuse it with `EINVAL`, some only at the first access.
//! Whenever that happens, the file uses only the cache from then on, and [`File::is_direct`] returns `false`.
//!
//! # Invariants
//!
//! * Directories are created with mode 0700 and files with 0600, even if the umask allows more.
//! * When [`Disk::make_dir`] has returned, the directory is durable: its parents are synced.
//! * A sync is issued once. A failed sync is reported and never retried.

mod dirs;
mod locks;
mod real;
mod regular;

use std::any::Any;
use std::fs::{self, DirBuilder, OpenOptions};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock, Weak};

use parking_lot::Mutex;
use perdura_base::{Error, Result};

use crate::durable::{DurableQueue, WaitQueue};
use crate::in_memory::in_memory;
use crate::path::{check_dir, check_file};
use crate::probe::{self, LogIo, LogWay, LogWayReport};
use crate::publish::publish;
use crate::ring::RingQueue;
use crate::{Access, Disk, File, FileId, Locks, Through, WriteCache};

use dirs::OpenDirs;
use locks::Present;
pub use real::read_ahead;
use real::{RealFile, refuses_direct};
pub use regular::{open_regular, read_input};

/// A disk in a directory of a real file system.
#[derive(Debug)]
pub struct FileDisk {
    root: PathBuf,
    /// The setting that says how the log's writes become durable.
    log_io: LogIo,
    /// The method and the reason for the choice. The first queue makes the choice.
    way: OnceLock<LogWayReport>,
    /// The locks that must stay held while writes are in flight.
    locks: Mutex<Vec<Weak<OwnedFd>>>,
    dirs: OpenDirs,
}

impl FileDisk {
    /// Returns the disk below `root`. If the directory `root` does not exist, it is created with mode 0700.
    pub fn new(root: &Path) -> Result<FileDisk> {
        let disk = FileDisk::at(root);
        match disk.make_durable_dir(root) {
            // The caller named the root. So the error names it, and not the parent that is missing.
            Err(Error::Io { op, source, .. }) => {
                Err(Error::io(op, root.display().to_string(), source))
            }
            made => made.map(|()| disk),
        }
    }

    /// Like [`new`](Self::new), but returns a shared [`Disk`].
    pub fn shared(root: &Path) -> Result<Arc<dyn Disk>> {
        Ok(Arc::new(FileDisk::new(root)?))
    }

    /// Returns the disk below `root`. The directory `root` need not exist: [`Disk::make_dir`] makes it, and until
    /// then no file is found.
    #[must_use]
    pub fn at(root: &Path) -> FileDisk {
        FileDisk {
            root: root.to_path_buf(),
            log_io: LogIo::default(),
            way: OnceLock::new(),
            locks: Mutex::default(),
            dirs: OpenDirs::default(),
        }
    }

    /// Sets how the log's writes become durable.
    #[must_use]
    pub fn with_log_io(self, log_io: LogIo) -> FileDisk {
        FileDisk { log_io, ..self }
    }

    /// Sets the method of the log's writes to one that another disk has chosen. This disk does not measure.
    ///
    /// Methods of nearly equal speed are chosen by chance. So a second measurement may choose another method.
    #[must_use]
    pub fn with_log_way(self, way: LogWayReport) -> FileDisk {
        FileDisk {
            log_io: LogIo::Auto,
            way: OnceLock::from(way),
            ..self
        }
    }

    fn full(&self, path: &str) -> PathBuf {
        if path.is_empty() {
            self.root.clone()
        } else {
            self.root.join(path)
        }
    }

    fn open_both(&self, path: &str, access: Access, create: bool) -> Result<Arc<dyn File>> {
        check_file(path)?;
        let op = if create { "create" } else { "open" };
        let full = self.full(path);
        let named = |source| Error::io(op, full.display().to_string(), source);

        let mut options = OpenOptions::new();
        options.read(true).write(true).mode(0o600);
        let mut creating = options.clone();
        creating.create_new(create);
        let buffered = open_regular(&creating, 0, &full).map_err(named)?;
        let around = match access {
            Access::Buffered => None,
            Access::Direct => match open_regular(&options, libc::O_DIRECT, &full) {
                Ok(file) => Some(file),
                Err(e) if refuses_direct(&e) => None,
                Err(e) => return Err(named(e)),
            },
        };
        let full = full.display().to_string();
        Ok(Arc::new(RealFile::new(path, full, buffered, around)))
    }

    /// Creates `dir` and its missing parents. Makes the name of each created directory durable.
    fn make_durable_dir(&self, dir: &Path) -> Result<()> {
        if dir.is_dir() {
            return Ok(());
        }
        let parent = match dir.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        self.make_durable_dir(parent)?;
        match DirBuilder::new().mode(0o700).create(dir) {
            Ok(()) => {}
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists && dir.is_dir() => {}
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
                let e = io::Error::from_raw_os_error(libc::ENOTDIR);
                return Err(Error::io("create directory", dir.display().to_string(), e));
            }
            Err(e) => return Err(Error::io("create directory", dir.display().to_string(), e)),
        }
        sync_directory(parent)
    }
}

fn sync_directory(dir: &Path) -> Result<()> {
    fs::File::open(dir)
        .and_then(|handle| handle.sync_all())
        .map_err(|e| Error::io("sync directory", dir.display().to_string(), e))
}

impl Disk for FileDisk {
    fn create(&self, path: &str, access: Access) -> Result<Arc<dyn File>> {
        self.open_both(path, access, true)
    }

    fn open(&self, path: &str, access: Access) -> Result<Arc<dyn File>> {
        self.open_both(path, access, false)
    }

    fn list(&self, dir: &str) -> Result<Vec<String>> {
        let full = self.full(check_dir(dir)?);
        let names = || -> io::Result<Vec<String>> {
            let mut names = Vec::new();
            for entry in fs::read_dir(&full)? {
                names.push(entry?.file_name().to_string_lossy().into_owned());
            }
            names.sort_unstable();
            Ok(names)
        };
        names().map_err(|e| Error::io("list", full.display().to_string(), e))
    }

    fn make_dir(&self, dir: &str) -> Result<()> {
        self.make_durable_dir(&self.full(check_dir(dir)?))
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        check_file(from)?;
        check_file(to)?;
        let source = self.full(from);
        fs::rename(&source, self.full(to))
            .map_err(|e| Error::io("rename", source.display().to_string(), e))
    }

    fn publish(&self, from: &str, to: &str) -> Result<()> {
        check_file(from)?;
        check_file(to)?;
        let (source, target) = (self.full(from), self.full(to));
        publish(&source, &target).map_err(|e| Error::io("publish", target.display().to_string(), e))
    }

    fn remove(&self, path: &str) -> Result<()> {
        check_file(path)?;
        let full = self.full(path);
        fs::remove_file(&full).map_err(|e| Error::io("remove", full.display().to_string(), e))
    }

    fn sync_dir(&self, dir: &str) -> Result<()> {
        self.dirs.sync(&self.full(check_dir(dir)?))
    }

    fn lock(&self, path: &str) -> Result<Box<dyn Any + Send + Sync>> {
        check_file(path)?;
        let full = self.full(path);
        let named = |source| Error::io("lock", full.display().to_string(), source);
        match locks::lock_file(&full).map_err(named)? {
            Some(lock) => Ok(Box::new(lock)),
            None => Err(Error::Locked { dir: self.name() }),
        }
    }

    fn lock_present(&self, path: &str) -> Result<Option<Box<dyn Any + Send + Sync>>> {
        let full = self.full(check_dir(path)?);
        let locked = locks::lock_present(&full);
        match locked.map_err(|e| Error::io("lock", full.display().to_string(), e))? {
            Present::Taken(lock) => Ok(Some(Box::new(lock))),
            Present::Held => Err(Error::Locked { dir: self.name() }),
            Present::Unsupported => Ok(None),
        }
    }

    fn identity(&self, path: &str) -> Result<Option<FileId>> {
        let full = self.full(check_dir(path)?);
        let found = fs::metadata(&full);
        let found = found.map_err(|e| Error::io("stat", full.display().to_string(), e))?;
        Ok(Some(locks::id_of(&found)))
    }

    fn keep_locked(&self, locks: &Locks) {
        let files = locks
            .iter()
            .filter_map(|lock| lock.downcast_ref::<Arc<OwnedFd>>());
        let files: Vec<Weak<OwnedFd>> = files.map(Arc::downgrade).collect();
        assert_eq!(
            files.len(),
            locks.len(),
            "locks of directories are kept with the writes to one"
        );
        *self.locks.lock() = files;
    }

    fn durable_queue(&self) -> Result<Box<dyn DurableQueue>> {
        let locks: Vec<_> = self.locks.lock().iter().filter_map(Weak::upgrade).collect();
        let report = match self.way.get() {
            Some(report) => report,
            None => {
                let found = probe::choose(self, self.log_io, &locks)?;
                let cache = WriteCache::below(&self.root);
                let in_memory = in_memory(&self.root);
                self.way.get_or_init(|| LogWayReport {
                    cache,
                    in_memory,
                    ..found
                })
            }
        };
        assert!(
            match self.log_io {
                LogIo::Auto => true,
                LogIo::Ring => report.way == LogWay::Ring,
                LogIo::Sync => report.way == LogWay::Sync,
            },
            "log-io is {}, and writes become durable by {}",
            self.log_io.name(),
            report.way.name()
        );
        Ok(match report.way {
            LogWay::Ring => {
                let ring = RingQueue::new(locks);
                Box::new(ring.map_err(|e| Error::io("set up a ring for", self.name(), e))?)
            }
            LogWay::Dsync => Box::new(WaitQueue::new(Through::Dsync)),
            LogWay::Sync => Box::new(WaitQueue::new(Through::WriteAndSync)),
        })
    }

    fn log_way(&self) -> Option<LogWayReport> {
        self.way.get().cloned()
    }

    fn name(&self) -> String {
        self.root.display().to_string()
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use perdura_base::limits::SECTOR_BYTES;

    use super::real::{ZEROS_BYTES, ZEROS_PER_WRITE};
    use super::*;
    use crate::AlignedBuf;
    use crate::path::bytes_u64;

    #[test]
    fn directories_and_files_are_private() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("a/b");
        let disk = FileDisk::new(&root).unwrap();
        disk.make_dir("c").unwrap();
        disk.create("c/f", Access::Buffered).unwrap();
        let mode = |path: &str| fs::metadata(root.join(path)).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(""), 0o700);
        assert_eq!(mode("c"), 0o700);
        assert_eq!(mode("c/f"), 0o600);
    }

    #[test]
    fn a_second_disk_writes_by_the_method_that_the_first_has_chosen() {
        let dir = tempfile::tempdir().unwrap();
        let first = FileDisk::new(dir.path()).unwrap();
        drop(first.durable_queue().unwrap());
        let chosen = first.log_way().unwrap();
        for way in [LogWay::Dsync, LogWay::Sync] {
            let given = LogWayReport {
                way,
                ..chosen.clone()
            };
            let second = FileDisk::at(dir.path()).with_log_way(given);
            drop(second.durable_queue().unwrap());
            assert_eq!(second.log_way().unwrap().way, way);
        }
    }

    #[test]
    fn direct_files_take_accesses_of_any_alignment() {
        let dir = tempfile::tempdir().unwrap();
        let disk = FileDisk::new(dir.path()).unwrap();
        let file = disk.create("f", Access::Direct).unwrap();
        let mut aligned = AlignedBuf::zeroed(2 * SECTOR_BYTES);
        aligned.fill(7);
        file.write_at(0, &aligned).unwrap();
        file.write_at(10, b"unaligned").unwrap();
        file.sync().unwrap();
        let mut back = AlignedBuf::zeroed(4 * SECTOR_BYTES);
        assert_eq!(file.read_at(0, &mut back).unwrap(), 2 * SECTOR_BYTES);
        assert_eq!(&back[9..20], b"\x07unaligned\x07");
        let mut odd = [0; 3];
        assert_eq!(file.read_at(10, &mut odd).unwrap(), 3);
        assert_eq!(&odd, b"una");
        let len = 3 * ZEROS_PER_WRITE * bytes_u64(ZEROS_BYTES) + 5;
        file.allocate(len).unwrap();
        assert_eq!(file.len().unwrap(), len);
        let mut tail = vec![1; 2 * ZEROS_BYTES + 7];
        let before = len - bytes_u64(tail.len());
        assert_eq!(file.read_at(before, &mut tail).unwrap(), tail.len());
        assert!(
            tail.iter().all(|b| *b == 0),
            "an allocated file ends in zeros"
        );
    }

    #[test]
    fn a_file_that_cannot_grow_keeps_its_length_and_says_the_disk_is_full() {
        let dir = tempfile::tempdir().unwrap();
        let disk = FileDisk::new(dir.path()).unwrap();
        let file = disk.create("f", Access::Buffered).unwrap();
        file.write_at(0, b"kept").unwrap();
        // No file system can have a file of 2^62 bytes.
        let refused = file.allocate(1 << 62).unwrap_err();
        assert!(refused.is_disk_full(), "{refused}");
        assert_eq!(file.len().unwrap(), 4);
    }
}

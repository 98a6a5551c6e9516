//! A read-only disk, for verbs that must not change anything.
//!
//! [`ReadDisk`] opens files without write permission. So these verbs also work on a read-only mount, and their bugs
//! cannot damage the data.

use std::any::Any;
use std::fs::{self, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use perdura_base::limits::SECTOR_BYTES;
use perdura_base::num::to_u64;
use perdura_base::{Error, Result};
use perdura_device::{Access, ReadDir, ReadFile, ReadOnly, open_regular, read_ahead};

/// The longest wait for a lock. A server may hold the lock for some time after a kill.
const LOCK_WAIT: Duration = Duration::from_secs(2);
/// The pause between two attempts to take the lock.
const LOCK_PAUSE: Duration = Duration::from_millis(5);

/// A directory that is only read.
#[derive(Debug)]
pub struct ReadDisk {
    root: PathBuf,
}

impl ReadDisk {
    /// Returns the disk below `root`. Does not create `root`.
    pub fn open(root: &Path) -> ReadOnly<ReadDisk> {
        ReadOnly(ReadDisk {
            root: root.to_owned(),
        })
    }

    fn full(&self, path: &str) -> PathBuf {
        if path.is_empty() {
            self.root.clone()
        } else {
            self.root.join(path)
        }
    }
}

impl ReadDisk {
    /// Takes a shared lock. Waits up to `LOCK_WAIT` for it.
    fn share(&self, full: &Path, file: fs::File) -> Result<fs::File> {
        let begin = Instant::now();
        loop {
            match file.try_lock_shared() {
                Ok(()) => return Ok(file),
                Err(TryLockError::WouldBlock) if begin.elapsed() < LOCK_WAIT => {
                    std::thread::sleep(LOCK_PAUSE);
                }
                Err(TryLockError::WouldBlock) => return Err(Error::Locked { dir: self.name() }),
                Err(TryLockError::Error(source)) => {
                    return Err(Error::io("lock", full.display().to_string(), source));
                }
            }
        }
    }
}

impl ReadDir for ReadDisk {
    type File = OpenFile;

    fn open(&self, path: &str, access: Access) -> Result<OpenFile> {
        let full = self.full(path);
        let name = full.display().to_string();
        let named = |source| Error::io("open", name.clone(), source);
        let mut options = OpenOptions::new();
        options.read(true);
        let cached = open_regular(&options, 0, &full).map_err(named)?;
        // If the file system has no direct I/O, reads go through the cache. This only affects speed.
        let around = match access {
            Access::Buffered => None,
            Access::Direct => open_regular(&options, libc::O_DIRECT, &full).ok(),
        };
        Ok(OpenFile {
            path: path.to_owned(),
            name,
            cached,
            around,
        })
    }

    fn list(&self, dir: &str) -> Result<Vec<String>> {
        let full = self.full(dir);
        let names = || -> io::Result<Vec<String>> {
            let mut names = Vec::new();
            for entry in fs::read_dir(&full)? {
                names.push(entry?.file_name().to_string_lossy().into_owned());
            }
            names.sort_unstable();
            Ok(names)
        };
        names().map_err(|source| Error::io("list", full.display().to_string(), source))
    }

    /// Takes the lock in shared mode, so that other readers can take it too. A running server holds it exclusively, and
    /// a killed server holds it until its last write has ended. If the lock file does not exist, no process holds the
    /// lock, and this function creates no file.
    fn lock(&self, path: &str) -> Result<Box<dyn Any + Send + Sync>> {
        let full = self.full(path);
        let named = |source| Error::io("lock", full.display().to_string(), source);
        let file = match open_regular(OpenOptions::new().read(true), 0, &full) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Box::new(())),
            Err(error) => return Err(named(error)),
        };
        Ok(Box::new(self.share(&full, file)?))
    }

    /// Takes the lock of an existing file or directory in shared mode. Returns `None` if the file system cannot lock
    /// directories.
    fn lock_present(&self, path: &str) -> Result<Option<Box<dyn Any + Send + Sync>>> {
        let full = self.full(path);
        let named = |source| Error::io("lock", full.display().to_string(), source);
        let mut options = OpenOptions::new();
        options.read(true);
        let file = match fs::metadata(&full).map_err(named)?.is_dir() {
            true => options.custom_flags(libc::O_DIRECTORY).open(&full),
            false => open_regular(&options, 0, &full),
        };
        match self.share(&full, file.map_err(named)?) {
            Ok(shared) => Ok(Some(Box::new(shared))),
            // The file system cannot lock directories. The lock file still protects the database.
            Err(Error::Io { source, .. }) if source.raw_os_error().is_some_and(is_unsupported) => {
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    fn name(&self) -> String {
        self.root.display().to_string()
    }
}

fn is_unsupported(errno: i32) -> bool {
    matches!(
        errno,
        libc::EBADF | libc::EINVAL | libc::EOPNOTSUPP | libc::ENOSYS
    )
}

/// An open file.
pub struct OpenFile {
    /// The path relative to the disk's root.
    path: String,
    name: String,
    cached: fs::File,
    around: Option<fs::File>,
}

impl OpenFile {
    fn read_some(&self, buf: &mut [u8], at: u64) -> io::Result<usize> {
        let aligned = at.is_multiple_of(to_u64(SECTOR_BYTES))
            && buf.len().is_multiple_of(SECTOR_BYTES)
            && buf.as_ptr().addr().is_multiple_of(SECTOR_BYTES);
        match &self.around {
            Some(around) if aligned => around
                .read_at(buf, at)
                .or_else(|_| self.cached.read_at(buf, at)),
            _ => self.cached.read_at(buf, at),
        }
    }
}

impl ReadFile for OpenFile {
    fn len(&self) -> Result<u64> {
        let length = self.cached.metadata().map(|data| data.len());
        length.map_err(|source| Error::io("stat", self.name.clone(), source))
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<usize> {
        let mut done = 0;
        while done < buf.len() {
            match self.read_some(&mut buf[done..], offset + to_u64(done)) {
                Ok(0) => break,
                Ok(n) => done += n,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(Error::io("read", self.name.clone(), error)),
            }
        }
        debug_assert!(done <= buf.len(), "no more is read than was asked for");
        Ok(done)
    }

    fn will_read(&self, offset: u64, len: u64) {
        read_ahead(&self.cached, offset, len);
    }

    fn path(&self) -> &str {
        &self.path
    }

    fn is_direct(&self) -> bool {
        self.around.is_some()
    }
}

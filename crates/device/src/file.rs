//! A directory of a real file system.
//!
//! A file opened for direct I/O holds two descriptors: a direct one, which bypasses the cache, and a
//! buffered one. An access uses the direct one if its offset, length and address are
//! multiples of a sector, else the buffered one; the kernel keeps the two coherent. Both are
//! opened together, because the path may name another file later.
//! File systems without direct I/O refuse it with `EINVAL`, some only at the first access;
//! either way the file falls back to the cache, and [`File::is_direct`] returns `false`.
//!
//! # Invariants
//!
//! * Directories are created with mode 0700 and files with 0600, even if the umask allows more.
//! * A directory that [`Disk::make_dir`] has returned is durable: its parents are synced.
//! * A sync is issued once: a failure is reported, never retried.

use std::any::Any;
use std::fs::{self, DirBuilder, OpenOptions, TryLockError};
use std::io::{self, IoSlice};
use std::num::NonZeroU64;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use parking_lot::Mutex;
use perdura_base::limits::SECTOR_BYTES;
use perdura_base::{Error, Result};
use rustix::fs::{Advice, FallocateFlags, fadvise, fallocate};
use rustix::io::{Errno, ReadWriteFlags, pwritev, pwritev2};

use crate::durable::{DurableQueue, WaitQueue};
use crate::path::{bytes_u64, check_dir, check_file};
use crate::probe::{self, LogIo, LogWay, LogWayReport};
use crate::publish::publish;
use crate::ring::RingQueue;
use crate::{Access, AlignedBuf, Disk, File, Locks, Through, WriteCache};

/// Zeros are written from a buffer of this many bytes.
const ZEROS_BYTES: usize = 64 << 10;
/// One write takes it so many times, and ends at a multiple of what that is.
const ZEROS_PER_WRITE: u64 = 16;

/// A disk that is a directory.
#[derive(Debug)]
pub struct FileDisk {
    root: PathBuf,
    /// How the log's writes are to become durable.
    log_io: LogIo,
    /// The way that was found at the first queue.
    way: OnceLock<LogWayReport>,
    /// The locks that what is in flight keeps.
    locks: Mutex<Vec<Weak<OwnedFd>>>,
}

impl FileDisk {
    /// The disk below `root`, which is created with mode 0700 if it is missing.
    pub fn new(root: &Path) -> Result<FileDisk> {
        let disk = FileDisk::at(root);
        match disk.make_durable_dir(root) {
            // The caller named the root, not the parent that is missing.
            Err(Error::Io { op, source, .. }) => {
                Err(Error::io(op, root.display().to_string(), source))
            }
            made => made.map(|()| disk),
        }
    }

    /// The same, as the parts of a database share it.
    pub fn shared(root: &Path) -> Result<Arc<dyn Disk>> {
        Ok(Arc::new(FileDisk::new(root)?))
    }

    /// The disk below `root`, which need not be there: until it is, nothing is found. [`Disk::make_dir`] makes it.
    #[must_use]
    pub fn at(root: &Path) -> FileDisk {
        FileDisk {
            root: root.to_path_buf(),
            log_io: LogIo::default(),
            way: OnceLock::new(),
            locks: Mutex::default(),
        }
    }

    /// The same disk, with another way to make the log's writes durable.
    #[must_use]
    pub fn with_log_io(self, log_io: LogIo) -> FileDisk {
        FileDisk { log_io, ..self }
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
        let buffered = options
            .clone()
            .create_new(create)
            .open(&full)
            .map_err(named)?;
        if buffered.metadata().map_err(named)?.is_dir() {
            return Err(named(io::Error::from_raw_os_error(libc::EISDIR)));
        }
        let around = match access {
            Access::Buffered => None,
            Access::Direct => match options.custom_flags(libc::O_DIRECT).open(&full) {
                Ok(file) => Some(file),
                Err(e) if refuses_direct(&e) => None,
                Err(e) => return Err(named(e)),
            },
        };
        Ok(Arc::new(RealFile {
            path: path.to_owned(),
            full: full.display().to_string(),
            direct_works: AtomicBool::new(around.is_some()),
            around,
            buffered,
        }))
    }

    /// Creates `dir` and the parents it lacks, each made durable in its parent.
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

fn refuses_direct(e: &io::Error) -> bool {
    matches!(e.raw_os_error(), Some(libc::EINVAL | libc::EOPNOTSUPP))
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
        sync_directory(&self.full(check_dir(dir)?))
    }

    fn lock(&self, path: &str) -> Result<Box<dyn Any + Send + Sync>> {
        check_file(path)?;
        let full = self.full(path);
        let named = |source| Error::io("lock", full.display().to_string(), source);
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&full)
            .map_err(named)?;
        match file.try_lock() {
            Ok(()) => Ok(Box::new(Arc::new(OwnedFd::from(file)))),
            Err(TryLockError::WouldBlock) => Err(Error::Locked { dir: self.name() }),
            Err(TryLockError::Error(e)) => Err(named(e)),
        }
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
                self.way.get_or_init(|| LogWayReport { cache, ..found })
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

/// Has the kernel read a part of a file into its cache, without waiting; see [`File::will_read`].
pub fn read_ahead(file: &fs::File, offset: u64, len: u64) {
    if let Some(len) = NonZeroU64::new(len) {
        // A file system that takes no advice reads as it would without.
        let _ = fadvise(file, offset, Some(len), Advice::WillNeed);
    }
}

/// One open file, with its direct descriptor if the file system has direct I/O.
struct RealFile {
    path: String,
    full: String,
    around: Option<fs::File>,
    direct_works: AtomicBool,
    buffered: fs::File,
}

impl RealFile {
    fn error(&self, op: &'static str, source: io::Error) -> Error {
        Error::io(op, self.full.as_str(), source)
    }

    /// The descriptor for one access, and whether it is the direct one.
    fn route(&self, offset: u64, buf: &[u8]) -> (&fs::File, bool) {
        let sector = bytes_u64(SECTOR_BYTES);
        let aligned = offset.is_multiple_of(sector)
            && buf.len().is_multiple_of(SECTOR_BYTES)
            && buf.as_ptr().addr().is_multiple_of(SECTOR_BYTES);
        debug_assert!(
            self.around.is_some() || !self.is_direct(),
            "direct I/O needs its descriptor"
        );
        match &self.around {
            Some(around) if aligned && self.is_direct() => (around, true),
            _ => (&self.buffered, false),
        }
    }

    /// Whether the access is to be tried again: interrupted, or refused by direct I/O alone.
    fn try_again(&self, direct: bool, e: &io::Error) -> bool {
        if direct && refuses_direct(e) {
            assert!(
                self.around.is_some(),
                "a direct access went around the cache"
            );
            self.direct_works.store(false, Ordering::Relaxed);
            return true;
        }
        e.kind() == io::ErrorKind::Interrupted
    }

    fn length(&self) -> io::Result<u64> {
        Ok(self.buffered.metadata()?.len())
    }

    fn reserve(&self, from: u64, to: u64) -> io::Result<()> {
        assert!(from < to, "a file grows from {from} to {to}");
        loop {
            match fallocate(&self.buffered, FallocateFlags::empty(), from, to - from) {
                Ok(()) | Err(Errno::OPNOTSUPP | Errno::NOSYS) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(e) => return Err(e.into()),
            }
        }
    }

    fn write_all(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let mut done = 0;
        while done < data.len() {
            let at = offset + bytes_u64(done);
            let rest = &data[done..];
            let (file, direct) = self.route(at, rest);
            match file.write_at(rest, at) {
                Ok(0) => return Err(io::Error::from(io::ErrorKind::WriteZero)),
                Ok(n) => {
                    assert!(n <= rest.len(), "{n} bytes were written of {}", rest.len());
                    done += n;
                }
                Err(e) if self.try_again(direct, &e) => {}
                Err(e) => return Err(e),
            }
        }
        assert_eq!(done, data.len(), "a write is whole or an error");
        Ok(())
    }

    /// One write that returns when it is durable. A short one is an error: what it wrote is not known to
    /// be durable.
    fn write_through(
        &self,
        direct: BorrowedFd<'_>,
        offset: u64,
        parts: &[&[u8]],
    ) -> io::Result<()> {
        let slices: Vec<IoSlice<'_>> = parts.iter().map(|part| IoSlice::new(part)).collect();
        let bytes: usize = parts.iter().map(|part| part.len()).sum();
        let written = loop {
            match pwritev2(direct, &slices, offset, ReadWriteFlags::DSYNC) {
                Err(Errno::INTR) => {}
                other => break other?,
            }
        };
        assert!(written <= bytes, "{written} bytes were written of {bytes}");
        if written != bytes {
            let what = format!("the device wrote {written} of {bytes} bytes");
            return Err(io::Error::new(io::ErrorKind::WriteZero, what));
        }
        Ok(())
    }

    /// Writes one small buffer many times over: what a process allocates to make a segment it may keep.
    fn write_zeros(&self, from: u64, to: u64) -> io::Result<()> {
        let zeros = AlignedBuf::zeroed(ZEROS_BYTES);
        let piece = bytes_u64(ZEROS_BYTES) * ZEROS_PER_WRITE;
        let mut at = from;
        while at < to {
            let end = to.min((at / piece + 1) * piece);
            let mut parts = Vec::new();
            let mut left = usize::try_from(end - at).unwrap_or(ZEROS_BYTES);
            while left > 0 {
                let part = &zeros[..left.min(ZEROS_BYTES)];
                parts.push(IoSlice::new(part));
                left -= part.len();
            }
            let last = parts.last().expect("a piece has bytes");
            let (file, direct) = self.route(at, last);
            match pwritev(file, &parts, at) {
                Ok(0) => return Err(io::Error::from(io::ErrorKind::WriteZero)),
                Ok(n) => at += bytes_u64(n),
                Err(e) if self.try_again(direct, &e.into()) => {}
                Err(e) => return Err(e.into()),
            }
            assert!(at <= end, "a piece ends at {end}, and {at} is written");
        }
        assert_eq!(at, to.max(from), "all zeros are written");
        Ok(())
    }
}

impl File for RealFile {
    fn len(&self) -> Result<u64> {
        self.length().map_err(|e| self.error("stat", e))
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<usize> {
        let mut done = 0;
        while done < buf.len() {
            let at = offset + bytes_u64(done);
            let rest = &mut buf[done..];
            let (file, direct) = self.route(at, rest);
            match file.read_at(rest, at) {
                Ok(0) => break,
                Ok(n) => {
                    assert!(n <= rest.len(), "{n} bytes were read into {}", rest.len());
                    done += n;
                }
                Err(e) if self.try_again(direct, &e) => {}
                Err(e) => return Err(self.error("read", e)),
            }
        }
        Ok(done)
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> Result<()> {
        self.write_all(offset, data)
            .map_err(|e| self.error("write", e))
    }

    fn will_read(&self, offset: u64, len: u64) {
        read_ahead(&self.buffered, offset, len);
    }

    fn allocate(&self, len: u64) -> Result<()> {
        let old = self.len()?;
        if len <= old {
            return Ok(());
        }
        // The reservation makes a full disk fail before a long write of zeros, not after it.
        let grown = self
            .reserve(old, len)
            .and_then(|()| self.write_zeros(old, len));
        grown.map_err(|e| {
            // The first failure is the one to report; a truncation that fails as well leaves a
            // longer file of zeros, which the next allocation accepts.
            let _ = self.buffered.set_len(old);
            self.error("allocate", e)
        })
    }

    fn set_len(&self, len: u64) -> Result<()> {
        self.buffered
            .set_len(len)
            .map_err(|e| self.error("resize", e))
    }

    fn sync(&self) -> Result<()> {
        self.buffered.sync_data().map_err(|e| self.error("sync", e))
    }

    fn write_durable(&self, offset: u64, parts: &[&[u8]], through: Through) -> Result<()> {
        match (through, self.direct_fd()) {
            (Through::Dsync, Some(direct)) => self
                .write_through(direct, offset, parts)
                .map_err(|e| self.error("write", e)),
            _ => {
                let mut at = offset;
                for part in parts {
                    self.write_at(at, part)?;
                    at += bytes_u64(part.len());
                }
                self.sync()
            }
        }
    }

    fn direct_fd(&self) -> Option<BorrowedFd<'_>> {
        let direct = self.around.as_ref().filter(|_| self.is_direct());
        direct.map(AsFd::as_fd)
    }

    fn path(&self) -> &str {
        &self.path
    }

    fn is_direct(&self) -> bool {
        self.direct_works.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

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
        // No file system holds a file of 2^62 bytes.
        let refused = file.allocate(1 << 62).unwrap_err();
        assert!(refused.is_disk_full(), "{refused}");
        assert_eq!(file.len().unwrap(), 4);
    }
}

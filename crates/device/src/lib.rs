//! Disks and clocks: the traits for all I/O of the core.
//!
//! The engine does all its I/O and reads all clocks by [`Disk`], [`File`] and [`Clock`]. These are trait objects, so
//! production and the simulator run the same machine code. One virtual call per I/O is negligible compared with a
//! system call. Hot paths in memory do not make these calls.
//!
//! | implementation | purpose |
//! |---|---|
//! | [`FileDisk`] | a directory of a real file system, with direct I/O and a ring if the system allows them |
//! | [`MemDisk`] | memory in which writes are durable at once, for unit tests and benchmarks without a disk |
//! | [`ModelDisk`] | slows another disk down to a given bandwidth and latency |
//! | [`SimDisk`] | memory that fails like disks: power cuts, torn and lost writes, rot |
//! | [`ReadOnly`] | a view of a disk that refuses every change |
//! | [`Folder`] | a folder of another disk |
//! | [`DiskLayer`] | any disk in front of another one, which replaces some verbs |
//! | [`OverlayDisk`] | another disk, which stays unchanged: all changes go to a scratch file |
//!
//! # Contract
//!
//! * Paths are relative to the disk's root, and `/` separates their parts.
//! * A write becomes durable only when a later [`File::sync`] of the file returns `Ok`. The name of a file becomes
//!   durable only when a later [`Disk::sync_dir`] of its directory returns `Ok`.
//! * [`Disk::rename`] replaces an existing target, [`Disk::publish`] never does. If several threads or processes
//!   publish one name, exactly one succeeds.
//! * A durable write makes only its own range durable. The range is durable when the write has returned or completed
//!   with `Ok`: see [`durable`].
//! * After a failed sync it is unknown which writes since the last successful sync are durable. The caller must treat
//!   the file as failed from then on, and must not sync it again.
//! * [`File::read_at`] returns fewer bytes than requested only at the end of the file.

mod aligned;
mod clock;
pub mod conformance;
pub mod descriptors;
pub mod durable;
mod file;
mod folder;
mod in_memory;
mod layer;
mod mem;
mod model;
mod overlay;
mod path;
mod probe;
mod publish;
mod read_only;
mod ring;
mod sim;
mod write_cache;

use std::sync::Arc;

use perdura_base::Result;

pub use aligned::AlignedBuf;
pub use clock::{Clock, ManualClock, SystemClock};
pub use durable::{Completed, DurableQueue, DurableWrite, Part, WaitQueue};
pub use file::{FileDisk, open_regular, read_ahead, read_input};
pub use folder::Folder;
pub use in_memory::in_memory;
pub use layer::{DiskLayer, FileLayer};
pub use mem::MemDisk;
pub use model::ModelDisk;
pub use overlay::OverlayDisk;
pub use probe::{LogIo, LogWay, LogWayReport};
pub use read_only::{ReadDir, ReadFile, ReadOnly};
pub use sim::{CrashProfile, FaultPlan, SimDisk, SimSnapshot, SyncFailure};
pub use write_cache::WriteCache;

/// The method of accessing a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Through the operating system's cache.
    Buffered,
    /// Bypassing that cache if the file system allows it. Offsets, lengths and addresses must be multiples of
    /// [`SECTOR_BYTES`](perdura_base::limits::SECTOR_BYTES); use [`AlignedBuf`].
    Direct,
}

/// The method for making a thread's write durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Through {
    /// A write and then a sync of the file.
    WriteAndSync,
    /// One write that returns when its range is durable (`RWF_DSYNC`).
    Dsync,
}

/// The identity of a file. Two files never have the same identity while both are open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileId {
    /// The number of the file system.
    pub device: u64,
    /// The number of the file in that file system.
    pub number: u64,
}

/// The locks of a database. They are released when this is dropped.
pub type Locks = Vec<Box<dyn std::any::Any + Send + Sync>>;

/// A directory tree that holds a database or a part of it.
pub trait Disk: Send + Sync + 'static {
    /// Creates an empty file. Fails if the file exists.
    fn create(&self, path: &str, access: Access) -> Result<Arc<dyn File>>;

    /// Opens an existing file for reading and writing. If it does not exist, the error is
    /// [`is_not_found`](perdura_base::Error::is_not_found).
    fn open(&self, path: &str, access: Access) -> Result<Arc<dyn File>>;

    /// Returns the names in a directory, sorted. Fails if the directory does not exist.
    fn list(&self, dir: &str) -> Result<Vec<String>>;

    /// Creates a directory and its missing parents. Succeeds if the directory exists.
    fn make_dir(&self, dir: &str) -> Result<()>;

    /// Renames a file of the disk. Replaces an existing target. Open files stay usable, and messages about them keep
    /// the old path.
    fn rename(&self, from: &str, to: &str) -> Result<()>;

    /// Gives a file of the disk a new name, like [`rename`](Self::rename), but never replaces a target. If the target
    /// exists, be it a file or a directory, this fails with [`AlreadyExists`](std::io::ErrorKind::AlreadyExists) and
    /// changes nothing. The new name becomes durable when a later [`sync_dir`](Self::sync_dir) of its directory returns
    /// `Ok`.
    fn publish(&self, from: &str, to: &str) -> Result<()>;

    /// Removes a file.
    fn remove(&self, path: &str) -> Result<()>;

    /// Makes the names in a directory durable.
    fn sync_dir(&self, dir: &str) -> Result<()>;

    /// Locks the lock file `path` exclusively until the guard is dropped. Creates the file if it does not exist.
    /// Fails with [`Error::Locked`](perdura_base::Error::Locked) if the lock is held already.
    fn lock(&self, path: &str) -> Result<Box<dyn std::any::Any + Send + Sync>>;

    /// Locks an existing file or directory exclusively until the guard is dropped. The empty path is the root. `None`:
    /// the disk has no locks. Fails with [`Error::Locked`](perdura_base::Error::Locked) if the lock is held already.
    fn lock_present(&self, _path: &str) -> Result<Option<Box<dyn std::any::Any + Send + Sync>>> {
        Ok(None)
    }

    /// Returns the identity of the file at a path. The empty path is the root. `None`: the disk has no file
    /// identities. Fails if the file does not exist.
    fn identity(&self, _path: &str) -> Result<Option<FileId>> {
        Ok(None)
    }

    /// Keeps `locks` held while writes are in flight on this disk, even after the process was killed. So no other
    /// process gets the locks before the last write has reached the disk. Does nothing on a disk without writes that
    /// outlive the process.
    fn keep_locked(&self, _locks: &Locks) {}

    /// Returns a queue for durable writes to this disk's files.
    ///
    /// # Errors
    /// Errors of the disk. Also an error if the settings require a method that the disk does not support.
    fn durable_queue(&self) -> Result<Box<dyn DurableQueue>> {
        Ok(Box::new(WaitQueue::new(Through::WriteAndSync)))
    }

    /// Returns the method of [`durable_queue`](Self::durable_queue) and the reason for the choice.
    fn log_way(&self) -> Option<LogWayReport> {
        None
    }

    /// Returns the path of the root directory, for messages.
    fn name(&self) -> String;
}

/// An open file.
pub trait File: Send + Sync {
    /// Returns the file's length, bytes.
    fn len(&self) -> Result<u64>;

    /// Returns whether the file is empty.
    fn is_empty(&self) -> Result<bool> {
        Ok(self.len()? == 0)
    }

    /// Reads up to `buf.len()` bytes at `offset`. Returns the number of bytes read, which is smaller only at the end of
    /// the file.
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<usize>;

    /// Hints that `len` bytes at `offset` will soon be read through the cache. The file may begin to read them ahead.
    /// The call does not wait and cannot fail.
    fn will_read(&self, _offset: u64, _len: u64) {}

    /// Writes all of `data` at `offset`. The file grows if needed.
    fn write_at(&self, offset: u64, data: &[u8]) -> Result<()>;

    /// Grows the file from its present end to `len` bytes by writing zeros into allocated space. So later overwrites
    /// do not change metadata. If the disk is full, this fails and the file stays shorter.
    fn allocate(&self, len: u64) -> Result<()>;

    /// Sets the length. New bytes read as zeros and may take no space.
    fn set_len(&self, len: u64) -> Result<()>;

    /// Makes all earlier writes to this file durable.
    fn sync(&self) -> Result<()>;

    /// Writes `parts` in sequence from `offset` on. Returns when they are durable.
    fn write_durable(&self, offset: u64, parts: &[&[u8]], _through: Through) -> Result<()> {
        durable::in_sequence(offset, parts, |at, part| self.write_at(at, part))?;
        self.sync()
    }

    /// Returns the descriptor for direct I/O. `None`: this is not a file of the operating system, or it does not
    /// support direct I/O.
    fn direct_fd(&self) -> Option<std::os::fd::BorrowedFd<'_>> {
        None
    }

    /// Returns the identity of the file, which does not depend on its names; see [`Disk::identity`].
    fn identity(&self) -> Result<Option<FileId>> {
        Ok(None)
    }

    /// Returns the path that was used to open the file.
    fn path(&self) -> &str;

    /// Returns whether I/O actually bypasses the cache.
    fn is_direct(&self) -> bool;
}

/// Reads exactly `buf.len()` bytes. Fails if the file ends before that.
pub fn read_exact_at(file: &dyn File, offset: u64, buf: &mut [u8]) -> Result<()> {
    let got = file.read_at(offset, buf)?;
    assert!(got <= buf.len(), "{got} bytes were read into {}", buf.len());
    if got == buf.len() {
        return Ok(());
    }
    Err(perdura_base::Error::corrupt(
        file.path(),
        offset,
        format!("{} bytes", buf.len()),
        format!("{got} bytes before the end of the file"),
        "The file is shorter than its contents say.",
    ))
}

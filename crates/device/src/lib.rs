//! Disks and clocks: the traits through which the core does all I/O.
//!
//! The engine reaches the outside through [`Disk`], [`File`] and [`Clock`] alone. They are trait objects, so that the
//! same machine code runs in production and under the simulator. One virtual call per I/O is negligible beside a system
//! call, and hot in-memory paths never cross this boundary.
//!
//! | implementation | for |
//! |---|---|
//! | [`FileDisk`] | a directory of a real file system; direct I/O and a ring where they are allowed |
//! | [`MemDisk`] | memory, durable at once: unit tests, benchmarks without a disk |
//! | [`ModelDisk`] | another disk, slowed to a set bandwidth and latency |
//! | [`SimDisk`] | memory that fails as disks do: power cuts, torn and lost writes, rot |
//! | [`ReadOnly`] | a view that refuses every change |
//! | [`Folder`] | a folder of another disk |
//! | [`OverlayDisk`] | another disk, whose changes go to a scratch file and change nothing below |
//!
//! # Contract
//!
//! * Paths are relative to the disk's root, with `/` between parts.
//! * A write is durable when a later [`File::sync`] of that file has returned `Ok`, and not before. A file's name is
//!   durable when a later [`Disk::sync_dir`] of its directory has.
//! * [`Disk::rename`] replaces an existing target, [`Disk::publish`] never does. Of several publishers of one name, in
//!   one process or in several, exactly one succeeds.
//! * A durable write is durable when it has returned or completed with `Ok`, its own range alone: see [`durable`].
//! * After a failed sync nothing may be assumed about the writes since the last good one. Callers latch the failure and
//!   never retry.
//! * [`File::read_at`] returns fewer bytes than asked only at the end of the file.

mod aligned;
mod clock;
pub mod conformance;
pub mod descriptors;
pub mod durable;
mod file;
mod folder;
mod in_memory;
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
pub use mem::MemDisk;
pub use model::ModelDisk;
pub use overlay::OverlayDisk;
pub use probe::{LogIo, LogWay, LogWayReport};
pub use read_only::{ReadDir, ReadFile, ReadOnly};
pub use sim::{CrashProfile, FaultPlan, SimDisk, SimSnapshot, SyncFailure};
pub use write_cache::WriteCache;

/// The way in which a file is to be accessed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Through the operating system's cache.
    Buffered,
    /// Bypassing that cache, where the file system allows. Offsets, lengths and addresses are multiples
    /// of [`SECTOR_BYTES`](perdura_base::limits::SECTOR_BYTES); use [`AlignedBuf`].
    Direct,
}

/// The way in which a write becomes durable in the thread that makes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Through {
    /// By a write and then a sync of the file.
    WriteAndSync,
    /// By one write that returns when its range is durable (`RWF_DSYNC`).
    Dsync,
}

/// The number that a file system gives a file. No two open files have the same number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileId {
    /// The file system.
    pub device: u64,
    /// The number in that file system.
    pub number: u64,
}

/// The locks of a database, held until they are dropped.
pub type Locks = Vec<Box<dyn std::any::Any + Send + Sync>>;

/// A directory tree that holds one database, or part of it.
pub trait Disk: Send + Sync + 'static {
    /// Creates an empty file. An existing file is an error.
    fn create(&self, path: &str, access: Access) -> Result<Arc<dyn File>>;

    /// Opens an existing file for reading and writing; see
    /// [`Error::is_not_found`](perdura_base::Error::is_not_found).
    fn open(&self, path: &str, access: Access) -> Result<Arc<dyn File>>;

    /// Returns the names in a directory, sorted. A missing directory is an error.
    fn list(&self, dir: &str) -> Result<Vec<String>>;

    /// Creates a directory and its parents. An existing directory is no error.
    fn make_dir(&self, dir: &str) -> Result<()>;

    /// Renames a file within the disk, replacing an existing target. Files that are open stay
    /// usable and keep the path they were opened with in their messages.
    fn rename(&self, from: &str, to: &str) -> Result<()>;

    /// Gives a file another name within the disk, like [`rename`](Self::rename), but never replaces a target. If the
    /// target exists, file or directory, this fails with [`AlreadyExists`](std::io::ErrorKind::AlreadyExists), and both
    /// stay. The new name is durable when a later [`sync_dir`](Self::sync_dir) of its directory has returned `Ok`.
    fn publish(&self, from: &str, to: &str) -> Result<()>;

    /// Removes a file.
    fn remove(&self, path: &str) -> Result<()>;

    /// Makes the names in a directory durable.
    fn sync_dir(&self, dir: &str) -> Result<()>;

    /// Takes the exclusive lock file `path`, creating it if needed, until the guard is dropped.
    /// Fails with [`Error::Locked`](perdura_base::Error::Locked) if another holder exists.
    fn lock(&self, path: &str) -> Result<Box<dyn std::any::Any + Send + Sync>>;

    /// Takes the exclusive lock of a file or directory that exists, until the guard is dropped. The empty path is the
    /// root. `None`: the disk has no such locks. Fails with [`Error::Locked`](perdura_base::Error::Locked) if another
    /// holder exists.
    fn lock_present(&self, _path: &str) -> Result<Option<Box<dyn std::any::Any + Send + Sync>>> {
        Ok(None)
    }

    /// Returns the number of the file at a path; the empty path is the root. `None`: the disk does not number its
    /// files. A missing file is an error.
    fn identity(&self, _path: &str) -> Result<Option<FileId>> {
        Ok(None)
    }

    /// Lets the writes in flight on this disk keep `locks` even if the process is killed. So no other process gets the
    /// locks before the last write has landed. For disks on which writes outlive a process.
    fn keep_locked(&self, _locks: &Locks) {}

    /// Returns a queue for durable writes to files of this disk.
    ///
    /// # Errors
    /// The disk's. Also if the settings ask for a way that the disk does not have.
    fn durable_queue(&self) -> Result<Box<dyn DurableQueue>> {
        Ok(Box::new(WaitQueue::new(Through::WriteAndSync)))
    }

    /// Returns the way in which [`durable_queue`](Self::durable_queue) makes writes durable, and the reason.
    fn log_way(&self) -> Option<LogWayReport> {
        None
    }

    /// Returns the root directory, which names the disk in messages.
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

    /// Reads up to `buf.len()` bytes at `offset`; fewer only at the end of the file.
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<usize>;

    /// Hints that `len` bytes at `offset` will be read soon through a cache. A file that reads ahead begins to read
    /// them, and the caller does not wait. A hint changes nothing and cannot fail.
    fn will_read(&self, _offset: u64, _len: u64) {}

    /// Writes all of `data` at `offset`, growing the file if needed.
    fn write_at(&self, offset: u64, data: &[u8]) -> Result<()>;

    /// Grows the file to `len` bytes of allocated, written zeros (from its current end), so that later overwrites
    /// change no metadata. A full disk is an error and leaves the file shorter.
    fn allocate(&self, len: u64) -> Result<()>;

    /// Sets the length. New bytes read as zeros and may be holes.
    fn set_len(&self, len: u64) -> Result<()>;

    /// Makes all earlier writes to this file durable.
    fn sync(&self) -> Result<()>;

    /// Writes `parts`, one behind the other, and returns when they are durable.
    fn write_durable(&self, offset: u64, parts: &[&[u8]], _through: Through) -> Result<()> {
        let mut at = offset;
        for part in parts {
            self.write_at(at, part)?;
            at += path::bytes_u64(part.len());
        }
        self.sync()
    }

    /// Returns the descriptor for direct I/O. `None`: the file is not the operating system's, or does not take direct
    /// I/O.
    fn direct_fd(&self) -> Option<std::os::fd::BorrowedFd<'_>> {
        None
    }

    /// Returns the number of the file, whatever its names are; see [`Disk::identity`].
    fn identity(&self) -> Result<Option<FileId>> {
        Ok(None)
    }

    /// Returns the path with which the file was opened.
    fn path(&self) -> &str;

    /// Returns whether I/O actually bypasses the cache.
    fn is_direct(&self) -> bool;
}

/// Reads exactly `buf.len()` bytes, or fails because the file is too short.
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

//! A FUSE file system with one file, of which a loop device makes a disk.
//!
//! The loop device turns a flush, or a write with forced unit access (FUA), into a sync of the file. `fuser` is the
//! maintained crate for FUSE file systems. Without the default features, `fuser` needs no libfuse and mounts the file
//! system directly.

use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

pub use fuser::{BackgroundSession, Errno};
use fuser::{
    Config, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo, LockOwner,
    OpenFlags, ReplyAttr, ReplyData, ReplyEmpty, ReplyEntry, ReplyOpen, ReplyWrite, Request,
    WriteFlags,
};

/// The inode number of the file.
const FILE: INodeNo = INodeNo(2);
/// The name of the file.
const NAME: &str = "disk";
/// The time for which the kernel may keep the attributes of the file, which never change.
const TTL: Duration = Duration::from_secs(3600);
/// The threads that serve requests. A slow sync must not delay reads and writes.
const THREADS: usize = 4;

/// The bytes behind the file. Several threads call the verbs at once.
pub trait Cells: Send + Sync + 'static {
    /// Returns the size of the file, bytes. It never changes.
    fn bytes(&self) -> u64;

    /// Reads at most `size` bytes.
    ///
    /// # Errors
    /// The error that the kernel gets.
    fn read(&self, offset: u64, size: usize) -> Result<Vec<u8>, Errno>;

    /// Writes bytes.
    ///
    /// # Errors
    /// The error that the kernel gets.
    fn write(&self, offset: u64, data: &[u8]) -> Result<(), Errno>;

    /// Makes all written bytes durable.
    ///
    /// # Errors
    /// The error that the kernel gets.
    fn sync(&self) -> Result<(), Errno>;
}

/// Returns the path of the file in a file system that is mounted at `mount`.
#[must_use]
pub fn file_in(mount: &Path) -> PathBuf {
    mount.join(NAME)
}

/// Mounts the file system at a new directory. It is unmounted when the session is dropped.
///
/// # Errors
/// The directory cannot be made, or the system permits no FUSE file system.
pub fn mount(cells: &Arc<impl Cells>, at: &Path) -> io::Result<BackgroundSession> {
    std::fs::create_dir(at)?;
    let mut config = Config::default();
    config.n_threads = Some(THREADS);
    fuser::spawn_mount(Served(Arc::clone(cells)), at, &config)
}

/// The file system. It has only one file.
struct Served<C>(Arc<C>);

impl<C: Cells> Served<C> {
    fn attributes(&self, ino: INodeNo) -> FileAttr {
        let is_file = ino == FILE;
        FileAttr {
            ino,
            size: if is_file { self.0.bytes() } else { 0 },
            blocks: 0,
            atime: UNIX_EPOCH,
            mtime: UNIX_EPOCH,
            ctime: UNIX_EPOCH,
            crtime: UNIX_EPOCH,
            kind: if is_file {
                FileType::RegularFile
            } else {
                FileType::Directory
            },
            perm: 0o700,
            nlink: 1,
            uid: 0,
            gid: 0,
            rdev: 0,
            flags: 0,
            blksize: 4096,
        }
    }
}

impl<C: Cells> Filesystem for Served<C> {
    fn lookup(&self, _: &Request, _: INodeNo, name: &OsStr, reply: ReplyEntry) {
        if name == NAME {
            reply.entry(&TTL, &self.attributes(FILE), Generation(0));
        } else {
            reply.error(Errno::ENOENT);
        }
    }

    fn getattr(&self, _: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        reply.attr(&TTL, &self.attributes(ino));
    }

    fn open(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        // The kernel must not cache anything: every write and read must reach this process.
        reply.opened(FileHandle(0), FopenFlags::FOPEN_DIRECT_IO);
    }

    fn read(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let size = usize::try_from(size).map_err(|_| Errno::EINVAL);
        match size.and_then(|size| self.0.read(offset, size)) {
            Ok(bytes) => reply.data(&bytes),
            Err(error) => reply.error(error),
        }
    }

    fn write(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let len = u32::try_from(data.len()).map_err(|_| Errno::EINVAL);
        match len.and_then(|len| self.0.write(offset, data).map(|()| len)) {
            Ok(len) => reply.written(len),
            Err(error) => reply.error(error),
        }
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        // Closing the file makes nothing durable.
        reply.ok();
    }

    fn fsync(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        match self.0.sync() {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(error),
        }
    }
}

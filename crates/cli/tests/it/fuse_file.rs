//! A FUSE file system with one file, of which a loop device makes a disk.
//!
//! The loop device turns a flush, or a write with forced unit access (FUA), into a sync of the file. `fuser` is the
//! maintained crate for FUSE file systems. Without the default features, `fuser` needs no libfuse and mounts the file
//! system directly.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, UNIX_EPOCH};

use fuser::{
    BackgroundSession, Config, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags,
    Generation, INodeNo, LockOwner, OpenFlags, ReplyAttr, ReplyData, ReplyEmpty, ReplyEntry,
    ReplyOpen, ReplyWrite, Request, WriteFlags,
};

const FILE: INodeNo = INodeNo(2);
const TTL: Duration = Duration::from_secs(3600);

/// The bytes behind the file.
pub trait Cells: Send + 'static {
    /// Returns the size of the file, which never changes.
    fn bytes(&self) -> u64;
    /// Reads at most `size` bytes.
    fn read(&mut self, offset: u64, size: usize) -> Result<Vec<u8>, Errno>;
    fn write(&mut self, offset: u64, data: &[u8]) -> Result<(), Errno>;
    fn sync(&mut self) -> Result<(), Errno>;
    /// Returns the time that passes before a sync.
    fn pause(&mut self) -> Duration {
        Duration::ZERO
    }
}

/// Returns the path of the file in a file system that is mounted at `mount`.
pub fn file_in(mount: &Path) -> PathBuf {
    mount.join("disk")
}

/// Mounts the file system at a new directory.
pub fn mount(cells: &Arc<Mutex<impl Cells>>, at: &Path) -> Result<BackgroundSession, String> {
    std::fs::create_dir(at).map_err(|error| error.to_string())?;
    let mut config = Config::default();
    // Several threads are needed, because a slow flush must not delay other requests.
    config.n_threads = Some(4);
    let session = fuser::spawn_mount(Served(Arc::clone(cells)), at, &config);
    session.map_err(|error| format!("FUSE: {error}"))
}

/// The file system. It has only one file.
struct Served<C>(Arc<Mutex<C>>);

impl<C: Cells> Served<C> {
    fn attributes(&self, ino: INodeNo) -> FileAttr {
        let is_file = ino == FILE;
        FileAttr {
            ino,
            size: if is_file {
                self.0.lock().unwrap().bytes()
            } else {
                0
            },
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
            blksize: 512,
        }
    }
}

impl<C: Cells> Filesystem for Served<C> {
    fn lookup(&self, _: &Request, _: INodeNo, name: &OsStr, reply: ReplyEntry) {
        if name == "disk" {
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
        let size = usize::try_from(size).unwrap();
        let bytes = self.0.lock().unwrap().read(offset, size);
        match bytes {
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
        let written = self.0.lock().unwrap().write(offset, data);
        match written {
            Ok(()) => reply.written(u32::try_from(data.len()).unwrap()),
            Err(error) => reply.error(error),
        }
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        // Closing the file makes nothing durable.
        reply.ok();
    }

    fn fsync(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        let pause = self.0.lock().unwrap().pause();
        std::thread::sleep(pause);
        let flushed = self.0.lock().unwrap().sync();
        match flushed {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(error),
        }
    }
}

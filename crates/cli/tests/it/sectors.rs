//! A disk that, at a power cut, loses a random part of the sectors that were written but not flushed.
//!
//! This process serves a FUSE file system with one file. A loop device makes the disk from this file. The loop device
//! turns a flush, or a write with forced unit access (FUA), into a sync of the file. [`Disk`] keeps all versions of a
//! sector that were written since the last flush.
//!
//! At a power cut, each sector gets a random one of these versions or its flushed version. A group of several sectors
//! (see [`Disk::make`]) gets its newest or its flushed versions. So writes are torn, reordered and lost. After the cut,
//! every request fails until the power is back, even a sync. So no sync is acknowledged after the cut, and the test
//! need not stop the writing process before the cut.
//!
//! `fuser` is the maintained crate for FUSE file systems. Without the default features, `fuser` needs no libfuse and
//! mounts the file system directly.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant, UNIX_EPOCH};

use fuser::{
    BackgroundSession, Config, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags,
    Generation, INodeNo, LockOwner, OpenFlags, ReplyAttr, ReplyData, ReplyEmpty, ReplyEntry,
    ReplyOpen, ReplyWrite, Request, WriteFlags,
};

use crate::mounts::command;
use crate::support::arg;

const SECTOR: usize = 512;
const SECTOR_BYTES: u64 = 512;
const FILE: INodeNo = INodeNo(2);
const TTL: Duration = Duration::from_secs(3600);

/// The disk, and the mounted file system that serves it.
pub struct Disk {
    mount: PathBuf,
    cells: Cells,
    session: Option<BackgroundSession>,
}

/// The result of a power cut: counts of unflushed sectors. A kept sector has one of its unflushed versions. A lost
/// sector has its flushed version.
#[derive(Debug, Clone, Copy, Default)]
pub struct Cut {
    pub kept: u64,
    pub lost: u64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Power {
    On,
    /// Reads succeed. Every other request fails.
    Failing,
    Off,
}

/// The state that the test shares with the file-serving threads.
type Cells = Arc<Mutex<State>>;

struct State {
    flushed: File,
    bytes: u64,
    /// The sectors written since the last flush. Each has all versions written since then, the oldest first.
    unflushed: BTreeMap<u64, Vec<Vec<u8>>>,
    power: Power,
    flushes: u64,
    /// A flush takes at most this long.
    slowness: Duration,
    /// This many adjacent sectors are lost or kept together.
    unit: u64,
    rng: fastrand::Rng,
}

impl Disk {
    /// Makes a disk. The flushed sectors are in the file `flushed`. A power cut never tears a group of `unit` sectors.
    pub fn make(flushed: &Path, mount: &Path, unit: u64, seed: u64) -> Result<Disk, String> {
        let said = |error: std::io::Error| error.to_string();
        let file = OpenOptions::new().read(true).write(true).open(flushed);
        let file = file.map_err(said)?;
        let state = State {
            bytes: file.metadata().map_err(said)?.len(),
            flushed: file,
            unflushed: BTreeMap::new(),
            power: Power::On,
            flushes: 0,
            slowness: Duration::ZERO,
            unit,
            rng: fastrand::Rng::with_seed(seed),
        };
        let cells = Arc::new(Mutex::new(state));
        std::fs::create_dir(mount).map_err(said)?;
        let mut config = Config::default();
        // Several threads are needed, because a slow flush must not delay other requests.
        config.n_threads = Some(4);
        let served = Served(cells.clone());
        let session = fuser::spawn_mount(served, mount, &config);
        let session = session.map_err(|error| format!("FUSE: {error}"))?;
        Ok(Disk {
            mount: mount.to_owned(),
            cells,
            session: Some(session),
        })
    }

    /// Returns the path of the file of which a loop device makes the disk.
    pub fn file(&self) -> PathBuf {
        self.mount.join("disk")
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.cells.lock().unwrap()
    }

    /// Returns the number of flushes so far.
    pub fn flushes(&self) -> u64 {
        self.state().flushes
    }

    /// Makes each flush take up to `slowness` from now on.
    pub fn slow_down(&self, slowness: Duration) {
        self.state().slowness = slowness;
    }

    /// Waits until a sector is unflushed, but at most for `patience`. Then cuts the power.
    pub fn cut(&self, patience: Duration) -> Cut {
        let begin = Instant::now();
        let mut state = self.state();
        while state.unflushed.is_empty() && begin.elapsed() < patience {
            drop(state);
            std::thread::sleep(Duration::from_micros(300));
            state = self.state();
        }
        state.power = Power::Off;
        let odds = [0.0, 0.1, 0.5, 0.9, 1.0];
        let odds = odds[state.rng.usize(..odds.len())];
        let mut cut = Cut::default();
        let (mut unit, mut is_kept) = (None, false);
        for (sector, versions) in std::mem::take(&mut state.unflushed) {
            if unit != Some(sector / state.unit) {
                unit = Some(sector / state.unit);
                is_kept = state.rng.f64() < odds;
            }
            if is_kept {
                let version = match state.unit {
                    1 => state.rng.usize(..versions.len()),
                    _ => versions.len() - 1,
                };
                let at = sector * SECTOR_BYTES;
                state.flushed.write_all_at(&versions[version], at).unwrap();
                cut.kept += 1;
            } else {
                cut.lost += 1;
            }
        }
        cut
    }

    /// Makes every request except reads fail from now on.
    pub fn fail(&self) {
        self.state().power = Power::Failing;
    }

    /// Restores the power after a cut. No process may be using the file.
    pub fn come_back(&self) {
        self.state().power = Power::On;
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // The kernel may still use the loop device. A lazy unmount takes effect when nothing uses the file system.
        let _ = command("umount", &["-l", arg(&self.mount)]);
        drop(self.session.take());
    }
}

impl State {
    fn read(&self, offset: u64, size: usize) -> Result<Vec<u8>, Errno> {
        if self.power == Power::Off {
            return Err(Errno::EIO);
        }
        let left = usize::try_from(self.bytes.saturating_sub(offset)).unwrap();
        let mut bytes = vec![0; size.min(left)];
        let read = self.flushed.read_exact_at(&mut bytes, offset);
        read.map_err(|_| Errno::EIO)?;
        let end = offset + u64::try_from(bytes.len()).unwrap();
        let sectors = offset / SECTOR_BYTES..end.div_ceil(SECTOR_BYTES);
        for (sector, versions) in self.unflushed.range(sectors) {
            let newest = versions.last().expect("a version");
            for (at, byte) in (sector * SECTOR_BYTES..).zip(newest) {
                if (offset..end).contains(&at) {
                    bytes[usize::try_from(at - offset).unwrap()] = *byte;
                }
            }
        }
        Ok(bytes)
    }

    fn write(&mut self, offset: u64, data: &[u8]) -> Result<(), Errno> {
        if self.power != Power::On {
            return Err(Errno::EIO);
        }
        let end = offset + u64::try_from(data.len()).unwrap();
        let is_whole = offset.is_multiple_of(SECTOR_BYTES) && data.len().is_multiple_of(SECTOR);
        if !is_whole || end > self.bytes {
            return Err(Errno::EINVAL);
        }
        for (sector, bytes) in (offset / SECTOR_BYTES..).zip(data.chunks(SECTOR)) {
            let versions = self.unflushed.entry(sector).or_default();
            versions.push(bytes.to_vec());
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), Errno> {
        if self.power != Power::On {
            return Err(Errno::EIO);
        }
        for (sector, versions) in std::mem::take(&mut self.unflushed) {
            let newest = versions.last().expect("a version");
            let at = sector * SECTOR_BYTES;
            self.flushed
                .write_all_at(newest, at)
                .map_err(|_| Errno::EIO)?;
        }
        self.flushes += 1;
        Ok(())
    }
}

/// The file system. It has only one file.
struct Served(Cells);

impl Served {
    fn attributes(&self, ino: INodeNo) -> FileAttr {
        let is_file = ino == FILE;
        FileAttr {
            ino,
            size: if is_file {
                self.0.lock().unwrap().bytes
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

impl Filesystem for Served {
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
        let mut state = self.0.lock().unwrap();
        let wait = state.slowness.mul_f64(state.rng.f64());
        drop(state);
        std::thread::sleep(wait);
        let flushed = self.0.lock().unwrap().flush();
        match flushed {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(error),
        }
    }
}

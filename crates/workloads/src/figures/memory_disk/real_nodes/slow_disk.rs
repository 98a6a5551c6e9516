//! A disk that takes the paper's time for each sync, mounted as a file system.
//!
//! This process serves a FUSE file system with one file ([`fuse_file`]). A loop device makes a disk from this file, and ext4 is mounted
//! on that disk. The loop device turns a flush into a sync of the file. The bytes are in memory. A sync sleeps until the
//! time of its packages has passed ([`Timing`]), and only one sync is served at a time.
//!
//! Zeros cost nothing: they prepare a log file before it is used, and the paper's log files exist before the measurement.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use parking_lot::Mutex;
use perdura_base::num::to_u64;

use super::super::super::scratch::Scratch;
use super::super::paper::Formula;
use crate::fuse_file::{self, BackgroundSession, Cells, Errno};

/// The size of the disk, bytes. The file has holes, so it takes as much memory as is written.
const DISK_BYTES: u64 = 2 << 30;
/// The arguments of mkfs.ext4. Nothing is left for the kernel to zero later: such writes would take the disk's time
/// beside the log.
const MKFS: [&str; 6] = [
    "-q",
    "-F",
    "-E",
    "lazy_itable_init=0,lazy_journal_init=0",
    "-N",
    "1024",
];
/// The mount options. A write to a file that has its length changes times alone, and these wait for the next commit of
/// the journal. So a sync of the log has no metadata to write.
const MOUNT: &str = "loop,noatime,lazytime,commit=900";
/// The unit in which written bytes are counted.
const SECTOR: usize = 4096;
/// The number of attempts to unmount, and the pause between them.
const UNMOUNTS: (u32, Duration) = (200, Duration::from_millis(10));

/// The time that a sync takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Timing {
    /// No time.
    Free,
    /// Formula 3 for each package, one package after another: one disk. The number is the longest package, KB.
    One(u32),
    /// Formula 3 for the longest package of a sync: each package goes to a different disk. The number is as in `One`.
    Pool(u32),
}

impl Timing {
    /// Returns the time of a sync that makes `bytes` bytes durable.
    #[must_use]
    pub fn of(self, bytes: u64) -> Duration {
        let (block_kb, is_pool) = match self {
            Timing::Free => return Duration::ZERO,
            Timing::One(block_kb) => (block_kb, false),
            Timing::Pool(block_kb) => (block_kb, true),
        };
        let kb = u32::try_from(bytes.div_ceil(1024)).unwrap_or(u32::MAX);
        let (whole, rest) = (kb / block_kb, kb % block_kb);
        let ms = |kb: u32| if kb == 0 { 0.0 } else { Formula::DISK.ms(kb) };
        let ms = match is_pool {
            true => ms(kb.min(block_kb)),
            false => f64::from(whole).mul_add(ms(block_kb), ms(rest)),
        };
        Duration::from_secs_f64(ms / 1e3)
    }
}

/// The state of the disk.
struct State {
    bytes: File,
    timing: Mutex<Timing>,
    /// The bytes that were written since the last sync and are not all zero.
    pending: AtomicU64,
    /// Held while a sync passes: the disk has one head.
    head: Mutex<()>,
}

impl Cells for State {
    fn bytes(&self) -> u64 {
        DISK_BYTES
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<(), Errno> {
        let end = offset.checked_add(to_u64(data.len()));
        if end.is_none_or(|end| end > DISK_BYTES) {
            return Err(Errno::ENOSPC);
        }
        self.bytes
            .write_all_at(data, offset)
            .map_err(|_| Errno::EIO)?;
        let is_data = |sector: &&[u8]| sector.iter().any(|byte| *byte != 0);
        let sectors = data.chunks(SECTOR).filter(is_data).count();
        self.pending
            .fetch_add(to_u64(sectors * SECTOR), Ordering::SeqCst);
        Ok(())
    }

    fn read(&self, offset: u64, size: usize) -> Result<Vec<u8>, Errno> {
        let left = DISK_BYTES.saturating_sub(offset).min(to_u64(size));
        let mut bytes = vec![0; usize::try_from(left).map_err(|_| Errno::EINVAL)?];
        let read = self.bytes.read_exact_at(&mut bytes, offset);
        read.map_err(|_| Errno::EIO)?;
        Ok(bytes)
    }

    fn sync(&self) -> Result<(), Errno> {
        let begin = Instant::now();
        let _head = self.head.lock();
        let waited = begin.elapsed();
        let takes = self
            .timing
            .lock()
            .of(self.pending.swap(0, Ordering::SeqCst));
        let due = begin + waited + takes;
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        Ok(())
    }
}

/// The disk, mounted. It is unmounted when this value is dropped.
pub struct SlowDisk {
    state: Arc<State>,
    /// The folder with both mount points and the bytes, in memory.
    folder: Scratch,
    session: Option<BackgroundSession>,
}

impl SlowDisk {
    /// Makes and mounts an empty disk whose syncs take no time yet.
    ///
    /// # Errors
    /// The machine permits no FUSE file system, or no loop device.
    pub fn new() -> Result<SlowDisk> {
        let folder = Scratch::in_memory()?;
        let path = folder.dir.join("bytes");
        let bytes = File::options()
            .read(true)
            .write(true)
            .create_new(true)
            .open(&path)
            .with_context(|| format!("making {}", path.display()))?;
        bytes.set_len(DISK_BYTES)?;
        let state = Arc::new(State {
            bytes,
            timing: Mutex::new(Timing::Free),
            pending: AtomicU64::new(0),
            head: Mutex::new(()),
        });
        let (served, mounted) = (folder.dir.join("fuse"), folder.dir.join("mounted"));
        std::fs::create_dir(&mounted)?;
        let session = fuse_file::mount(&state, &served);
        let session = session.with_context(|| format!("mounting {} by FUSE", served.display()))?;
        let disk = SlowDisk {
            state,
            folder,
            session: Some(session),
        };
        let file = fuse_file::file_in(&served);
        command("mkfs.ext4", &[&MKFS[..], &[text(&file)?]].concat())?;
        command("mount", &["-o", MOUNT, text(&file)?, text(&mounted)?])?;
        Ok(disk)
    }

    /// Returns the folder of the file system.
    #[must_use]
    pub fn folder(&self) -> PathBuf {
        self.folder.dir.join("mounted")
    }

    /// Sets the time of every later sync.
    pub fn set(&self, timing: Timing) {
        *self.state.timing.lock() = timing;
    }

    /// Measures a durable write of `bytes` bytes to an existing file of this disk, milliseconds.
    ///
    /// # Errors
    /// Errors of the file system.
    pub fn durable_write_ms(&self, bytes: usize, rounds: usize) -> Result<Vec<f64>> {
        let path = self.folder().join("probe");
        let file = File::create(&path).with_context(|| format!("making {}", path.display()))?;
        let mut block = vec![1; bytes];
        file.write_all_at(&block, 0)?;
        file.sync_all()?;
        let mut times = Vec::new();
        for round in 0..rounds {
            block.fill(u8::try_from(round % 200)? + 2);
            let begin = Instant::now();
            file.write_all_at(&block, 0)?;
            file.sync_data()?;
            times.push(1e3 * begin.elapsed().as_secs_f64());
        }
        std::fs::remove_file(&path)?;
        Ok(times)
    }
}

impl Drop for SlowDisk {
    fn drop(&mut self) {
        self.set(Timing::Free);
        let mounted = self.folder();
        // A file of a database that has just been closed may still be in use by the kernel.
        for _ in 0..UNMOUNTS.0 {
            if umount(&mounted, false) {
                break;
            }
            std::thread::sleep(UNMOUNTS.1);
        }
        umount(&self.folder.dir.join("fuse"), true);
        drop(self.session.take());
    }
}

/// Unmounts `folder`, lazily if `lazily` is true. Returns whether that succeeded.
fn umount(folder: &Path, lazily: bool) -> bool {
    let mut command = Command::new("umount");
    if lazily {
        command.arg("-l");
    }
    let output = command.arg(folder).output();
    output.is_ok_and(|output| output.status.success())
}

fn text(path: &Path) -> Result<&str> {
    path.to_str()
        .with_context(|| format!("{} is no text", path.display()))
}

/// Runs a program. Fails with its words if it fails.
fn command(program: &str, args: &[&str]) -> Result<()> {
    let output = Command::new(program).args(args).output();
    let output = output.with_context(|| format!("starting {program}"))?;
    ensure!(
        output.status.success(),
        "{program} {}: {}",
        args.join(" "),
        String::from_utf8_lossy(&output.stderr).trim()
    );
    Ok(())
}

/// Fails if this machine or this user cannot mount such a disk. The message names what is missing.
///
/// # Errors
/// The first thing that is missing.
pub fn check() -> Result<()> {
    if !rustix::process::geteuid().is_root() {
        bail!("the disk with the paper's delays is a mounted file system: run as root");
    }
    for device in ["/dev/fuse", "/dev/loop-control"] {
        let opened = File::options().read(true).write(true).open(device);
        opened.with_context(|| {
            format!("the disk with the paper's delays needs {device}: use a machine or container that has it")
        })?;
    }
    for program in ["mkfs.ext4", "mount", "umount"] {
        let started = Command::new(program).arg("-V").output();
        started.with_context(|| {
            format!("the disk with the paper's delays needs the program {program}: install it")
        })?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sync_takes_formula_3_for_each_package() {
        let ms = |timing: Timing, kb: u64| 1e3 * timing.of(kb << 10).as_secs_f64();
        let near =
            |ours: f64, theirs: f64| assert!((ours - theirs).abs() < 1e-6, "{ours} {theirs}");
        near(ms(Timing::One(4), 4), 6.708);
        near(ms(Timing::One(4), 12), 3.0 * 6.708);
        near(ms(Timing::Pool(4), 12), 6.708);
        near(ms(Timing::One(64), 12), 6.924);
        near(ms(Timing::One(8), 12), 6.816 + 6.708);
        near(ms(Timing::Pool(64), 200), Formula::DISK.ms(64));
        near(ms(Timing::Free, 64), 0.0);
        near(ms(Timing::One(4), 0), 0.0);
    }

    #[test]
    fn a_mounted_disk_takes_its_time_and_keeps_its_bytes() {
        if let Err(why) = check() {
            eprintln!("NOT TESTED: the disk with delays: {why:#}");
            return;
        }
        let disk = SlowDisk::new().unwrap();
        let folder = disk.folder();
        std::fs::write(folder.join("kept"), "bytes").unwrap();
        disk.set(Timing::One(4));
        let one = disk.durable_write_ms(4096, 3).unwrap();
        let four = disk.durable_write_ms(4 * 4096, 3).unwrap();
        disk.set(Timing::Free);
        assert!(one.iter().all(|ms| *ms >= 6.7), "{one:?}");
        assert!(four.iter().all(|ms| *ms >= 4.0 * 6.7), "{four:?}");
        assert_eq!(std::fs::read(folder.join("kept")).unwrap(), b"bytes");
        let outer = disk.folder.dir.clone();
        drop(disk);
        assert!(!outer.exists(), "everything is unmounted and removed");
    }
}

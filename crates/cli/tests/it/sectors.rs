//! A disk that, at a power cut, loses a random part of the sectors that were written but not flushed.
//!
//! This process serves a FUSE file system with one file (`perdura_workloads::fuse_file`). A loop device makes the disk from this file.
//! [`Disk`] keeps all versions of a sector that were written since the last flush.
//!
//! At a power cut, each sector gets a random one of these versions or its flushed version. A group of several sectors
//! (see [`Disk::make`]) gets its newest or its flushed versions. So writes are torn, reordered and lost. After the cut,
//! every request fails until the power is back, even a sync. So no sync is acknowledged after the cut, and the test
//! need not stop the writing process before the cut.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use perdura_workloads::fuse_file::{self, BackgroundSession, Cells, Errno};

use crate::mounts::command;
use crate::support::arg;

const SECTOR: usize = 512;
const SECTOR_BYTES: u64 = 512;

/// The disk, and the mounted file system that serves it.
pub struct Disk {
    mount: PathBuf,
    cells: Arc<Shared>,
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
struct Shared(Mutex<State>);

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
        let cells = Arc::new(Shared(Mutex::new(state)));
        let session = fuse_file::mount(&cells, mount);
        let session = session.map_err(|error| format!("FUSE: {error}"))?;
        Ok(Disk {
            mount: mount.to_owned(),
            cells,
            session: Some(session),
        })
    }

    /// Returns the path of the file of which a loop device makes the disk.
    pub fn file(&self) -> PathBuf {
        fuse_file::file_in(&self.mount)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.cells.state()
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

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap()
    }
}

impl Cells for Shared {
    fn bytes(&self) -> u64 {
        self.state().bytes
    }

    fn read(&self, offset: u64, size: usize) -> Result<Vec<u8>, Errno> {
        self.state().read(offset, size)
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<(), Errno> {
        self.state().write(offset, data)
    }

    fn sync(&self) -> Result<(), Errno> {
        let pause = self.state().pause();
        std::thread::sleep(pause);
        self.state().sync()
    }
}

impl State {
    fn read(&mut self, offset: u64, size: usize) -> Result<Vec<u8>, Errno> {
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

    fn sync(&mut self) -> Result<(), Errno> {
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

    fn pause(&mut self) -> Duration {
        self.slowness.mul_f64(self.rng.f64())
    }
}

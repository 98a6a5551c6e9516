//! The rates at which real disks read and write: one file on each disk, all at once.

use std::path::{Path, PathBuf};
use std::thread;
use std::time::Instant;

use anyhow::{Result, anyhow};
use perdura_device::{Access, AlignedBuf, Disk, FileDisk};

use super::super::scale::PAPER_DISK_MBPS;
use super::super::scratch::Scratch;
use super::RealDisks;
use super::folders::cool;
use crate::num::{f64_of, ratio, rounded};

/// The number of bytes of each access.
const ACCESS_BYTES: usize = 1 << 20;
/// The number of accesses of a measurement. They are many, because a throttled disk may begin with a burst.
const ACCESSES: u64 = 64;
/// The greatest distance from the paper's rate at which a disk counts as one of the paper's, as a part of that rate.
const TOLERANCE: f64 = 0.1;

/// The rates of one disk, 10^6 bytes a second.
#[derive(Debug, Clone, Copy)]
struct Rate {
    read: f64,
    write: f64,
    /// True if the accesses bypassed the operating system's cache.
    is_direct: bool,
}

/// The rates of all disks: first the log disks, then the image disks.
#[derive(Debug, Clone, Default)]
pub struct Rates(Vec<Rate>);

impl Rates {
    /// Writes a file on each disk and reads it again, on all disks at once.
    ///
    /// # Errors
    /// Errors of the file system.
    pub fn measure(disks: &RealDisks) -> Result<Rates> {
        let dirs: Vec<&PathBuf> = disks.logs.iter().chain(&disks.images).collect();
        let writes = at_once(&dirs, |dir| {
            let scratch = Scratch::within(dir)?;
            let rate = written(&scratch.dir)?;
            cool(&scratch.dir)?;
            Ok((scratch, rate))
        })?;
        let scratches: Vec<PathBuf> = writes.iter().map(|(at, _)| at.dir.clone()).collect();
        let reads = at_once(&scratches.iter().collect::<Vec<_>>(), read)?;
        let rate = |((_, write), (read, is_direct)): (&(Scratch, f64), (f64, bool))| Rate {
            read,
            write: *write,
            is_direct,
        };
        Ok(Rates(writes.iter().zip(reads).map(rate).collect()))
    }

    /// Returns the rates of one disk that reads and writes `mbps` MB/s.
    #[cfg(test)]
    pub(super) fn of(mbps: f64) -> Rates {
        Rates(vec![Rate {
            read: mbps,
            write: mbps,
            is_direct: true,
        }])
    }

    /// Returns a text with the number of the disks, their rates, and how they are accessed.
    #[must_use]
    pub fn describe(&self, disks: &RealDisks) -> String {
        let images = match disks.images.len() {
            0 => "images in memory".to_owned(),
            count => format!("{count} image disk(s)"),
        };
        let direct = match self.0.iter().all(|rate| rate.is_direct) {
            true => "O_DIRECT",
            false => "no O_DIRECT on some of them",
        };
        format!(
            "real disks: {} log disk(s), {images}; all at once, each reads {} MB/s and writes {} MB/s; {direct}; the \
             cache is dropped before each restart",
            disks.logs.len(),
            self.span(|rate| rate.read),
            self.span(|rate| rate.write)
        )
    }

    /// Returns the lowest and the highest of a rate.
    fn span(&self, of: fn(&Rate) -> f64) -> String {
        let low = self.0.iter().map(of).fold(f64::INFINITY, f64::min);
        let high = self.0.iter().map(of).fold(0.0, f64::max);
        match (rounded(low), rounded(high)) {
            (low, high) if low >= high => format!("{low}"),
            (low, high) => format!("{low} to {high}"),
        }
    }

    /// Returns whether each disk reads and writes as fast as the paper's.
    #[must_use]
    pub fn are_the_papers(&self) -> bool {
        let paper = f64_of(PAPER_DISK_MBPS);
        let near = |rate: f64| (rate - paper).abs() <= TOLERANCE * paper;
        let mut rates = self.0.iter();
        rates.all(|rate| near(rate.read) && near(rate.write))
    }
}

/// Runs `work` for each directory, in as many threads. Returns the results in the order of the directories.
fn at_once<T: Send>(dirs: &[&PathBuf], work: impl Fn(&Path) -> Result<T> + Sync) -> Result<Vec<T>> {
    thread::scope(|scope| {
        let work = &work;
        let threads: Vec<_> = dirs
            .iter()
            .map(|dir| scope.spawn(move || work(dir)))
            .collect();
        let ended = threads.into_iter().map(|thread| {
            let ended = thread.join();
            ended.map_err(|_| anyhow!("a thread that measured a disk panicked"))?
        });
        ended.collect()
    })
}

/// Returns the rate of writing a file in `dir` and syncing it.
fn written(dir: &Path) -> Result<f64> {
    let file = FileDisk::new(dir)?.create("rate", Access::Direct)?;
    let mut block = AlignedBuf::zeroed(ACCESS_BYTES);
    block.fill(0x5a);
    let bytes = u64::try_from(ACCESS_BYTES)?;
    let begin = Instant::now();
    for number in 0..ACCESSES {
        file.write_at(number * bytes, &block)?;
    }
    file.sync()?;
    Ok(mbps(bytes, begin))
}

/// Returns the rate of reading the file that [`written`] left in `dir`, and whether the cache was bypassed.
fn read(dir: &Path) -> Result<(f64, bool)> {
    let file = FileDisk::new(dir)?.open("rate", Access::Direct)?;
    let mut block = AlignedBuf::zeroed(ACCESS_BYTES);
    let bytes = u64::try_from(ACCESS_BYTES)?;
    let begin = Instant::now();
    for number in 0..ACCESSES {
        file.read_at(number * bytes, &mut block)?;
    }
    Ok((mbps(bytes, begin), file.is_direct()))
}

/// Returns the rate of accesses of `bytes` that began at `begin`.
fn mbps(bytes: u64, begin: Instant) -> f64 {
    ratio(
        f64_of(bytes * ACCESSES) / 1e6,
        begin.elapsed().as_secs_f64(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rates(pairs: &[(f64, f64)]) -> Rates {
        let rate = |(read, write): &(f64, f64)| Rate {
            read: *read,
            write: *write,
            is_direct: true,
        };
        Rates(pairs.iter().map(rate).collect())
    }

    #[test]
    fn only_disks_at_the_papers_rate_are_the_papers() {
        assert!(rates(&[(29.0, 28.8), (31.1, 27.4)]).are_the_papers());
        assert!(!rates(&[(29.0, 29.0), (14.5, 29.0)]).are_the_papers());
        assert!(!rates(&[(29.0, 700.0)]).are_the_papers());
    }

    #[test]
    fn rates_of_directories_are_measured() {
        let dir = tempfile::tempdir().unwrap();
        let disks = RealDisks {
            logs: vec![dir.path().into()],
            images: vec![dir.path().into()],
        };
        let rates = Rates::measure(&disks).unwrap();
        assert!(rates.0.len() == 2 && rates.0.iter().all(|rate| rate.read > 0.0));
        let text = rates.describe(&disks);
        assert!(
            text.starts_with("real disks: 1 log disk(s), 1 image disk(s);"),
            "{text}"
        );
        let left = std::fs::read_dir(dir.path()).unwrap().count();
        assert_eq!(left, 0, "the measurement leaves no files");
    }
}

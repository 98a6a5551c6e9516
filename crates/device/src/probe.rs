//! The choice of the method that makes the log's writes durable. The methods are measured in the log's directory.
//!
//! The kernel, the file system, the device and the container decide which method is fastest. A memory file system
//! accepts rings but is many times slower with them. A container's profile may forbid rings. So each method makes some
//! writes of one size to a file with the layout of a segment. A ring needs no waiting thread. So the ring is chosen
//! even if its writes take up to a tenth longer than those of the fastest other method. Otherwise the fastest other
//! method is chosen.

use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use perdura_base::limits::SECTOR_BYTES;
use perdura_base::{Error, Result};

use crate::durable::{Completed, DurableQueue, DurableWrite, Part, WaitQueue};
use crate::path::bytes_u64;
use crate::ring::RingQueue;
use crate::{Access, AlignedBuf, Clock, Disk, File, SystemClock, Through, WriteCache};

/// The setting that says how the log's writes become durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LogIo {
    /// The method is chosen by measuring.
    #[default]
    Auto,
    /// A ring is used. If it does not work, the log is not opened.
    Ring,
    /// A thread writes, syncs and waits.
    Sync,
}

impl LogIo {
    /// All values.
    pub const ALL: [LogIo; 3] = [LogIo::Auto, LogIo::Ring, LogIo::Sync];

    /// Returns the name of the value in the settings.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            LogIo::Auto => "auto",
            LogIo::Ring => "ring",
            LogIo::Sync => "sync",
        }
    }

    /// Returns the value with this name in the settings. `None`: no value has this name.
    #[must_use]
    pub fn named(name: &str) -> Option<LogIo> {
        LogIo::ALL.into_iter().find(|value| value.name() == name)
    }
}

/// A method that makes a write durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogWay {
    /// A ring (`io_uring`). No thread waits.
    Ring,
    /// One write with `RWF_DSYNC`, awaited by a thread.
    Dsync,
    /// A write and `fdatasync`, awaited by a thread.
    Sync,
}

impl LogWay {
    /// Returns the name of the method in reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            LogWay::Ring => "ring",
            LogWay::Dsync => "dsync",
            LogWay::Sync => "sync",
        }
    }
}

/// The chosen method, and the reason.
#[derive(Debug, Clone)]
pub struct LogWayReport {
    /// The chosen method.
    pub way: LogWay,
    /// The median duration of a write by each method that works. Empty if nothing was measured.
    pub measured: Vec<(LogWay, Duration)>,
    /// The methods that do not work, each with the reason.
    pub refused: Vec<(LogWay, String)>,
    /// The processor time that a thread needs for a write and its sync; zero if nothing was measured. If a ring makes
    /// the write, the kernel does not charge the device's part of that time to any thread.
    pub cost: Duration,
    /// The write cache of the disk.
    pub cache: WriteCache,
    /// The name of the memory file system that holds the log. Nothing is durable there. `None`: no memory file system
    /// was found.
    pub in_memory: Option<&'static str>,
}

impl LogWayReport {
    /// Returns a report of a method that was not measured.
    fn asked(way: LogWay) -> LogWayReport {
        LogWayReport {
            way,
            measured: Vec::new(),
            refused: Vec::new(),
            cost: Duration::ZERO,
            cache: WriteCache::default(),
            in_memory: None,
        }
    }

    /// Returns the duration of a write by the chosen method. `None`: nothing was measured.
    #[must_use]
    pub fn latency(&self) -> Option<Duration> {
        let chosen = self.measured.iter().find(|(way, _)| *way == self.way);
        let took = chosen.map(|(_, took)| *took);
        assert!(
            took.is_some() || self.measured.is_empty(),
            "a way is chosen among those that were measured"
        );
        took
    }
}

impl fmt::Display for LogWayReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "writes become durable by {}", self.way.name())?;
        let mut sep = " (";
        for (way, took) in &self.measured {
            write!(f, "{sep}{} takes {} us", way.name(), took.as_micros())?;
            sep = ", ";
        }
        for (way, why) in &self.refused {
            write!(f, "{sep}{} is not possible: {why}", way.name())?;
            sep = ", ";
        }
        match sep {
            ", " => f.write_str(")")?,
            _ => f.write_str(", as log-io says")?,
        }
        write!(f, "; {}", self.cache)
    }
}

/// The file that the measurement writes.
const PATH: &str = "log-io.tmp";
/// The size of the file, in bytes. Each write has a different offset.
const FILE_BYTES: u64 = 1 << 20;
/// The number of writes by each method.
const WRITES: usize = 20;
const WRITES_U32: u32 = 20;
/// The size of each write, bytes.
const WRITE_BYTES: usize = 2 * SECTOR_BYTES;

/// Chooses the method for a disk. `locks` are the files that a ring would keep locked. The measured ring gets these
/// files too, because a container's profile may allow rings but refuse file tables of rings.
///
/// # Errors
/// An error if the settings require a ring and it does not work; errors of the disk.
pub(crate) fn choose(
    disk: &dyn Disk,
    log_io: LogIo,
    locks: &[Arc<OwnedFd>],
) -> Result<LogWayReport> {
    if log_io == LogIo::Sync {
        return Ok(LogWayReport::asked(LogWay::Sync));
    }
    // Remove a file that an earlier process has left.
    match disk.remove(PATH) {
        Err(error) if !error.is_not_found() => return Err(error),
        _ => {}
    }
    let file = disk.create(PATH, Access::Direct)?;
    let measured = measure_all(&file, locks);
    drop(file);
    let removed = disk.remove(PATH);
    let report = match (measured, log_io) {
        // The disk is too full to measure. `LogWay::Sync` works everywhere.
        (Err(error), LogIo::Auto) if error.is_disk_full() => LogWayReport {
            refused: vec![(LogWay::Ring, error.to_string())],
            ..LogWayReport::asked(LogWay::Sync)
        },
        (measured, _) => measured?,
    };
    removed?;
    let ring = report.refused.iter().find(|(way, _)| *way == LogWay::Ring);
    match (log_io, ring) {
        (LogIo::Ring, Some((_, why))) => Err(Error::Usage(format!(
            "log-io is ring, and the log's directory {} cannot be written through one: {why}. Set \
             log-io to auto or sync",
            disk.name()
        ))),
        (LogIo::Ring, None) => Ok(LogWayReport {
            way: LogWay::Ring,
            ..report
        }),
        _ => Ok(report),
    }
}

/// Measures every method that works. The methods write in turn, so that a disturbance affects all methods.
fn measure_all(file: &Arc<dyn File>, locks: &[Arc<OwnedFd>]) -> Result<LogWayReport> {
    file.allocate(FILE_BYTES)?;
    file.sync()?;
    let mut report = LogWayReport::asked(LogWay::Sync);
    let mut trials = Vec::new();
    for way in [LogWay::Sync, LogWay::Dsync, LogWay::Ring] {
        match queue_of(way, file, locks) {
            Ok(queue) => trials.push(Trial {
                way,
                queue,
                took: Vec::new(),
                cpu: Duration::ZERO,
            }),
            Err(error) => report.refused.push((way, error.to_string())),
        }
    }
    let mut buf = Some(AlignedBuf::zeroed(WRITE_BYTES));
    for number in 0..WRITES {
        let mut at = 0;
        while at < trials.len() {
            match trials[at].write(file, bytes_u64(number * WRITE_BYTES), &mut buf) {
                Ok(()) => at += 1,
                // No method is left, so the caller must get this error.
                Err(error) if trials[at].way == LogWay::Sync => return Err(error),
                Err(error) => {
                    let refused = trials.remove(at);
                    report.refused.push((refused.way, error.to_string()));
                }
            }
        }
    }
    for mut trial in trials {
        assert_eq!(trial.took.len(), WRITES, "each way makes as many writes");
        trial.took.sort_unstable();
        if trial.way == LogWay::Sync {
            report.cost = trial.cpu / WRITES_U32;
        }
        report.measured.push((trial.way, trial.took[WRITES / 2]));
    }
    report.way = quickest(&report.measured);
    Ok(report)
}

/// Returns the processor time that this thread has used.
fn thread_cpu() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    let part = |part: i64| u64::try_from(part).unwrap_or(0);
    Duration::from_secs(part(time.tv_sec)) + Duration::from_nanos(part(time.tv_nsec))
}

/// Returns the ring if its writes take at most a tenth longer than those of the fastest other method. Otherwise returns
/// the fastest other method.
fn quickest(measured: &[(LogWay, Duration)]) -> LogWay {
    let ring = measured.iter().find(|(way, _)| *way == LogWay::Ring);
    let others = measured.iter().filter(|(way, _)| *way != LogWay::Ring);
    let best = others.min_by_key(|(_, took)| *took);
    match (ring, best) {
        (Some((_, ring)), Some((_, best))) if *ring <= *best + *best / 10 => LogWay::Ring,
        (_, Some((way, _))) => *way,
        (Some(_), None) => LogWay::Ring,
        (None, None) => LogWay::Sync,
    }
}

fn queue_of(
    way: LogWay,
    file: &Arc<dyn File>,
    locks: &[Arc<OwnedFd>],
) -> Result<Box<dyn DurableQueue>> {
    if way != LogWay::Sync && file.direct_fd().is_none() {
        let why = io::Error::new(
            io::ErrorKind::Unsupported,
            "the file system has no direct I/O",
        );
        return Err(Error::io("write", file.path(), why));
    }
    Ok(match way {
        LogWay::Sync => Box::new(WaitQueue::new(Through::WriteAndSync)),
        LogWay::Dsync => Box::new(WaitQueue::new(Through::Dsync)),
        LogWay::Ring => {
            let ring = RingQueue::new(locks.to_vec());
            Box::new(ring.map_err(|e| Error::io("set up a ring for", file.path(), e))?)
        }
    })
}

/// A method that is being measured.
struct Trial {
    way: LogWay,
    queue: Box<dyn DurableQueue>,
    took: Vec<Duration>,
    /// The processor time that the measuring thread has used for all writes of the method.
    cpu: Duration,
}

impl Trial {
    /// Makes one durable write. If it fails, the buffer is lost.
    fn write(
        &mut self,
        file: &Arc<dyn File>,
        offset: u64,
        buf: &mut Option<AlignedBuf>,
    ) -> Result<()> {
        let clock = SystemClock::new();
        let (begin_ns, cpu) = (clock.mono_ns(), thread_cpu());
        self.queue.submit(DurableWrite {
            token: offset,
            file: Arc::clone(file),
            offset,
            parts: vec![Part {
                buf: buf
                    .take()
                    .unwrap_or_else(|| AlignedBuf::zeroed(WRITE_BYTES)),
                len: WRITE_BYTES,
            }],
        });
        let mut done: Vec<Completed> = Vec::new();
        while done.is_empty() {
            self.queue.wait();
            self.queue.collect(&mut done);
        }
        let took_ns = clock.mono_ns().saturating_sub(begin_ns);
        self.took.push(Duration::from_nanos(took_ns));
        self.cpu += thread_cpu().saturating_sub(cpu);
        let mut ended = done.pop().expect("a write has completed");
        assert!(
            done.is_empty() && ended.token == offset,
            "one write was in flight"
        );
        *buf = ended.parts.pop().map(|part| part.buf);
        ended.result
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ring_is_taken_unless_it_is_slower_by_a_tenth() {
        let us = Duration::from_micros;
        let both = |ring, sync, dsync| {
            quickest(&[
                (LogWay::Sync, us(sync)),
                (LogWay::Dsync, us(dsync)),
                (LogWay::Ring, us(ring)),
            ])
        };
        assert_eq!(both(100, 100, 100), LogWay::Ring);
        assert_eq!(both(109, 100, 120), LogWay::Ring);
        assert_eq!(both(112, 100, 120), LogWay::Sync);
        assert_eq!(both(250, 100, 90), LogWay::Dsync);
        assert_eq!(quickest(&[(LogWay::Sync, us(9))]), LogWay::Sync);
    }
}

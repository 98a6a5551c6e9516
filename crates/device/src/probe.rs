//! The choice of the way in which the log's writes become durable, by measuring the ways on the log's directory.
//!
//! The quickest way depends on kernel, file system, device and container. A memory file system accepts rings and is
//! many times slower with them, and a container's profile may forbid them. So each way makes a few equal writes to a
//! file that is laid out like a segment. The ring is chosen unless it is slower than the best other way by more than a
//! tenth, because no thread has to wait for its writes. Otherwise the quicker of the two other ways is chosen.

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

/// The setting: how the log's writes are to become durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LogIo {
    /// By the way that is fastest in the measurement.
    #[default]
    Auto,
    /// Through a ring, or the log is not opened.
    Ring,
    /// By a thread that waits.
    Sync,
}

impl LogIo {
    /// All values.
    pub const ALL: [LogIo; 3] = [LogIo::Auto, LogIo::Ring, LogIo::Sync];

    /// Returns its name in the settings.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            LogIo::Auto => "auto",
            LogIo::Ring => "ring",
            LogIo::Sync => "sync",
        }
    }

    /// Returns the value with a name.
    #[must_use]
    pub fn named(name: &str) -> Option<LogIo> {
        LogIo::ALL.into_iter().find(|value| value.name() == name)
    }
}

/// A way in which a write becomes durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogWay {
    /// Through a ring (`io_uring`): no thread waits.
    Ring,
    /// By one write with `RWF_DSYNC`, for which a thread waits.
    Dsync,
    /// By a write and `fdatasync`, for which a thread waits.
    Sync,
}

impl LogWay {
    /// Returns its name in reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            LogWay::Ring => "ring",
            LogWay::Dsync => "dsync",
            LogWay::Sync => "sync",
        }
    }
}

/// The chosen way, and the reason.
#[derive(Debug, Clone)]
pub struct LogWayReport {
    /// The way.
    pub way: LogWay,
    /// The median duration of a write in each way that works; empty if nothing was measured.
    pub measured: Vec<(LogWay, Duration)>,
    /// The ways that do not work, with the reasons.
    pub refused: Vec<(LogWay, String)>,
    /// The processor time of a write and its sync by a thread that waits; zero if nothing was measured. The kernel
    /// charges a device's part in a write through a ring to no thread; this time includes it.
    pub cost: Duration,
    /// The cache of the disk.
    pub cache: WriteCache,
    /// The file system in memory that holds the log, where nothing is durable. `None`: no such file system is known.
    pub in_memory: Option<&'static str>,
}

impl LogWayReport {
    /// Returns the way that the settings ask for, without measurements.
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

    /// Returns the duration of a write in the chosen way. `None`: nothing was measured.
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

/// The file for the measurement.
const PATH: &str = "log-io.tmp";
/// Its size, bytes. Each write has a separate place.
const FILE_BYTES: u64 = 1 << 20;
/// The number of writes of each way, and the bytes of each.
const WRITES: usize = 20;
const WRITES_U32: u32 = 20;
const WRITE_BYTES: usize = 2 * SECTOR_BYTES;

/// Chooses the way for a disk. `locks` are the files that a ring keeps locked: a container's profile may allow rings
/// and forbid that.
///
/// # Errors
/// If a ring was asked for and does not work; the disk's.
pub(crate) fn choose(
    disk: &dyn Disk,
    log_io: LogIo,
    locks: &[Arc<OwnedFd>],
) -> Result<LogWayReport> {
    if log_io == LogIo::Sync {
        return Ok(LogWayReport::asked(LogWay::Sync));
    }
    // A file that an earlier process left is of no use.
    match disk.remove(PATH) {
        Err(error) if !error.is_not_found() => return Err(error),
        _ => {}
    }
    let file = disk.create(PATH, Access::Direct)?;
    let measured = measure_all(&file, locks);
    drop(file);
    let removed = disk.remove(PATH);
    let report = match (measured, log_io) {
        // The disk is too full to measure on. This way works everywhere.
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

/// Writes in every way that works, one write of each way in turn, so that a disturbance affects all ways.
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
                // No other way is left, so the caller must see this error.
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

/// Returns the processor time of this thread.
fn thread_cpu() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    let part = |part: i64| u64::try_from(part).unwrap_or(0);
    Duration::from_secs(part(time.tv_sec)) + Duration::from_nanos(part(time.tv_nsec))
}

/// Returns the ring unless it is slower than another way by more than a tenth, else the quickest way.
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

/// A way that is being measured.
struct Trial {
    way: LogWay,
    queue: Box<dyn DurableQueue>,
    took: Vec<Duration>,
    /// The processor time of this thread in all writes.
    cpu: Duration,
}

impl Trial {
    /// Makes one write durable. The buffer is lost with a write that fails.
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

//! Runs the workload step by step up to a number of transactions, or at full speed with threads that flush.
//!
//! A run in steps gives the same bytes each time. A single thread appends, flushes and takes the steps of
//! checkpoints, each at a fixed number of transactions. A run at full speed has one flusher for each stream. Its
//! driver continues while its transactions wait for their epochs, as long as the queues are not full.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Result;
use hdrhistogram::Histogram;
use perdura_base::{Epoch, StreamId};
use perdura_recovery::CheckpointProgress;
use perdura_steal::{Flushers, Steal};
use perdura_wal::FlushProgress;

use super::driver::{Driver, Stepped};
use super::{Counts, SmsOptions};
use crate::latency::{LatencyUs, histogram, micros, record};
use crate::num::{f64_of, ratio};

/// In a run in steps, the sealed blocks are written after each `TXNS_PER_WRITE` ended transactions, and an epoch ends
/// after each `TXNS_PER_EPOCH`. Epochs are as long as with slow disks.
const TXNS_PER_WRITE: u64 = 1_024;
const TXNS_PER_EPOCH: u64 = 65_536;
/// The number of transactions of the last epoch of a run in steps. It is small, so that only a small part of the log
/// has no later block that vouches for it. A restart reads that part twice.
const TXNS_OF_LAST_EPOCH: u64 = 64;
/// The number of turns between two readings of the durable epoch.
const TURNS_PER_LOOK: u32 = 64;
/// If more bytes than this wait for each stream's flusher, the driver waits.
pub const QUEUE_BYTES: u64 = 3 << 20;
/// The time for which a waiting driver sleeps.
const NAP: Duration = Duration::from_micros(300);

/// The condition that ends a run at full speed.
#[derive(Debug, Clone, Copy)]
pub enum RunLimit {
    /// A number of transactions. The run ends when all of them are durable.
    Txns(u64),
    /// The run ends after a time. In its first part, the queues are filled.
    Time {
        /// The part that is not measured.
        warm_up: Duration,
        /// The measured part.
        measured: Duration,
    },
}

/// The checkpoints of a run in steps.
#[derive(Debug)]
pub struct Pace {
    /// The numbers of ended transactions at which checkpoints begin, descending.
    due: Vec<u64>,
    running: bool,
    txns_per_visit: u64,
    /// The number of transactions that ended while a checkpoint ran.
    pub in_window: u64,
    /// The number of completed checkpoints.
    pub completed: u64,
}

impl Pace {
    /// Returns the checkpoints of a run of `txns` transactions.
    #[must_use]
    pub fn new(options: &SmsOptions, txns: u64) -> Pace {
        let mut due: Vec<u64> = options
            .checkpoints
            .iter()
            .map(|share| share_of(txns, *share))
            .collect();
        due.sort_unstable_by(|a, b| b.cmp(a));
        Pace {
            due,
            running: false,
            txns_per_visit: options.txns_per_visit.max(1),
            in_window: 0,
            completed: 0,
        }
    }

    /// Notes that `ended` transactions have ended, and begins or continues a checkpoint if it is due.
    fn ended(&mut self, steal: &Steal, ended: u64) -> Result<()> {
        if self.running {
            self.in_window += 1;
            if ended.is_multiple_of(self.txns_per_visit) {
                self.step(steal)?;
            }
        } else if self.due.last().is_some_and(|due| *due <= ended) {
            self.due.pop();
            steal.checkpoint_begin()?;
            self.running = true;
        }
        Ok(())
    }

    fn step(&mut self, steal: &Steal) -> Result<()> {
        match steal.checkpoint_step()? {
            // The checkpoint waits for the log. A run in steps has no flushers, so the log is flushed here.
            CheckpointProgress::Waiting => steal.flush_all()?,
            CheckpointProgress::Done => {
                self.running = false;
                self.completed += 1;
            }
            CheckpointProgress::Idle | CheckpointProgress::Working(_) => {}
        }
        Ok(())
    }
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
fn share_of(txns: u64, share: f64) -> u64 {
    (f64_of(txns) * share.clamp(0.0, 1.0)) as u64
}

/// Takes steps until `txns` transactions have ended, and then makes everything durable. Open transactions stay open.
/// After a crash they are losers.
///
/// # Errors
/// Errors of the store.
pub fn run_steps(driver: &mut Driver<'_>, steal: &Steal, pace: &mut Pace, txns: u64) -> Result<()> {
    while driver.counts().ended() < txns {
        match driver.step()? {
            Stepped::Went => {}
            Stepped::Committed(_) | Stepped::Aborted => {
                let ended = driver.counts().ended();
                pace.ended(steal, ended)?;
                if ended.is_multiple_of(TXNS_PER_EPOCH) || ended + TXNS_OF_LAST_EPOCH == txns {
                    steal.flush_all()?;
                } else if ended.is_multiple_of(TXNS_PER_WRITE) {
                    write_sealed(steal)?;
                }
            }
        }
    }
    steal.flush_all()?;
    Ok(())
}

/// Writes the sealed blocks without ending the epoch.
fn write_sealed(steal: &Steal) -> Result<()> {
    for stream in (0..steal.wal().streams()).map(StreamId) {
        while steal.flush_step(stream)? != FlushProgress::Idle {}
    }
    Ok(())
}

/// The results of a run at full speed.
#[derive(Debug, Clone)]
pub struct Speed {
    /// The number of transactions that became durable in the measured time, plus a proportional number of rolled-back
    /// ones.
    pub txns: u64,
    /// The measured time, seconds.
    pub seconds: f64,
    /// The time from a transaction's commit until it is durable.
    pub latency_us: LatencyUs,
    /// The numbers of all transactions, including those of the warm-up.
    pub counts: Counts,
}

impl Speed {
    /// Returns the number of transactions a second.
    #[must_use]
    pub fn tps(&self) -> f64 {
        ratio(f64_of(self.txns), self.seconds)
    }
}

/// The commits that wait for their epochs, and the latencies so far.
struct Waiting {
    queue: VecDeque<(Epoch, Instant)>,
    latencies: Histogram<u64>,
    durable: u64,
    /// For each time at which more transactions were seen to be durable: that time, and the number of durable
    /// transactions.
    advances: Vec<(Instant, u64)>,
}

impl Waiting {
    fn look(&mut self, steal: &Steal, now: Instant) {
        let (durable, before) = (steal.durable(), self.durable);
        while let Some((epoch, since)) = self.queue.front() {
            if *epoch > durable {
                break;
            }
            record(&mut self.latencies, micros(now - *since), 1);
            self.durable += 1;
            self.queue.pop_front();
        }
        if self.durable > before {
            self.advances.push((now, self.durable));
        }
    }

    /// Returns the number of transactions that became durable between the first and the last advance since `begin`,
    /// and the seconds between the two. Each epoch makes many transactions durable at once. So any other interval
    /// would count one epoch too many or too few.
    fn between(&self, begin: Instant) -> (u64, f64) {
        let mut of = self.advances.iter().filter(|(at, _)| *at >= begin);
        let (Some(first), Some(last)) = (of.next(), of.next_back()) else {
            return (0, 0.0);
        };
        (last.1 - first.1, (last.0 - first.0).as_secs_f64())
    }

    /// Reads the durable epoch, and waits while the log's queue is too long.
    fn keep_up(&mut self, steal: &Steal) -> Result<()> {
        self.look(steal, Instant::now());
        while steal.wal().stats().queued_bytes > QUEUE_BYTES * u64::from(steal.wal().streams()) {
            std::thread::sleep(NAP);
            steal.wal().check()?;
            self.look(steal, Instant::now());
        }
        Ok(())
    }

    /// Waits until all commits are durable.
    fn drain(&mut self, steal: &Steal) -> Result<()> {
        while !self.queue.is_empty() {
            std::thread::sleep(NAP);
            steal.wal().check()?;
            self.look(steal, Instant::now());
        }
        Ok(())
    }
}

/// Drives at full speed with a flusher for each stream. Checkpoints proceed with the number of ended transactions.
///
/// # Errors
/// Errors of the store.
pub fn run_for(
    driver: &mut Driver<'_>,
    steal: &Arc<Steal>,
    pace: &mut Pace,
    limit: RunLimit,
) -> Result<Speed> {
    let flushers = Flushers::start(steal.wal());
    let mut waiting = Waiting {
        queue: VecDeque::new(),
        latencies: histogram(),
        durable: 0,
        advances: Vec::new(),
    };
    let start = Instant::now();
    let mut turns = 0u32;
    let mut measured_from = None;
    loop {
        match driver.step()? {
            Stepped::Went => {}
            Stepped::Aborted => pace.ended(steal, driver.counts().ended())?,
            Stepped::Committed(done) => {
                waiting.queue.push_back((done.epoch, Instant::now()));
                pace.ended(steal, driver.counts().ended())?;
            }
        }
        turns = turns.wrapping_add(1);
        if let RunLimit::Txns(txns) = limit
            && driver.counts().ended() >= txns
        {
            break;
        }
        if !turns.is_multiple_of(TURNS_PER_LOOK) {
            continue;
        }
        waiting.keep_up(steal)?;
        if let RunLimit::Time { warm_up, measured } = limit {
            let now = Instant::now();
            if measured_from.is_none() && now - start >= warm_up {
                measured_from = Some(now);
                waiting.latencies.reset();
            }
            if now - start >= warm_up + measured {
                break;
            }
        }
    }
    let counts = driver.counts();
    let (txns, seconds) = match measured_from {
        Some(begin) => {
            let (committed, seconds) = waiting.between(begin);
            // A rolled-back transaction never becomes durable, so those are counted in proportion to the commits.
            let ended = committed * counts.ended() / counts.committed.max(1);
            (ended, seconds)
        }
        None => {
            waiting.drain(steal)?;
            (counts.ended(), start.elapsed().as_secs_f64())
        }
    };
    drop(flushers);
    Ok(Speed {
        txns,
        seconds,
        latency_us: LatencyUs::of(&waiting.latencies),
        counts,
    })
}

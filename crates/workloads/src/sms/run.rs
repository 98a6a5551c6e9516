//! Runs the workload step by step up to a number of transactions, or at full speed with threads that flush.
//!
//! Repeated runs in steps give identical bytes. A single thread does all the work. It flushes and takes steps of
//! checkpoints after fixed numbers of transactions. A run at full speed has one flusher for each stream. The driver
//! does not wait until transactions are durable. It waits only while the queues are too long.

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

/// The number of ended transactions after which a run in steps writes the sealed blocks.
const TXNS_PER_WRITE: u64 = 1_024;
/// The number of ended transactions after which a run in steps ends an epoch. On slow disks, an epoch is as long.
const TXNS_PER_EPOCH: u64 = 65_536;
/// The number of transactions in the last epoch of a run in steps. A restart reads a block twice if no later block
/// vouches for it. The number is small, so that few blocks at the end of the log are read twice.
const TXNS_OF_LAST_EPOCH: u64 = 64;
/// The number of calls of [`Driver::step`] between two readings of the durable epoch.
const TURNS_PER_LOOK: u32 = 64;
/// The limit of the mean size of the streams' queues, in bytes. While the mean size is above the limit, the driver
/// waits for the flushers.
pub const QUEUE_BYTES: u64 = 3 << 20;
/// The sleep time of a waiting driver.
const NAP: Duration = Duration::from_micros(300);

/// The condition that ends a run at full speed.
#[derive(Debug, Clone, Copy)]
pub enum RunLimit {
    /// A number of transactions. The run ends when all transactions are durable.
    Txns(u64),
    /// A time limit. The run has a warm-up, during which the queues fill, and then a measured part.
    Time {
        /// The duration of the warm-up.
        warm_up: Duration,
        /// The duration of the measured part.
        measured: Duration,
    },
}

/// The checkpoints of a run in steps.
#[derive(Debug)]
pub struct Pace {
    /// The numbers of ended transactions at which checkpoints begin, in descending order.
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
/// A restart after a crash rolls them back.
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
    /// The number of transactions in the measured time. Transactions that became durable are counted. With a
    /// time limit, the number of rolled-back transactions is estimated from their ratio to the commits of the run.
    pub txns: u64,
    /// The measured time, seconds.
    pub seconds: f64,
    /// The time from a transaction's commit until it is durable.
    pub latency_us: LatencyUs,
    /// The counts of all transactions, including the warm-up.
    pub counts: Counts,
}

impl Speed {
    /// Returns the number of transactions a second.
    #[must_use]
    pub fn tps(&self) -> f64 {
        ratio(f64_of(self.txns), self.seconds)
    }
}

/// The committed transactions that are not durable yet, and the latencies of the durable ones.
struct Waiting {
    queue: VecDeque<(Epoch, Instant)>,
    latencies: Histogram<u64>,
    durable: u64,
    /// An entry for each time when the driver saw that more transactions were durable. The entry is the time and the
    /// new number of durable transactions.
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

    /// Returns the number of transactions that became durable between two entries of `advances`, and the seconds
    /// between the entries. The entries are the first and the last since `begin`. Each epoch makes many transactions
    /// durable at once. So an interval between other moments would count one epoch too many or too few.
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

/// Runs the workload at full speed, with a flusher for each stream. The number of ended transactions decides when a
/// checkpoint takes its next step.
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
            // Rolled-back transactions never become durable, so they are counted in proportion to the commits.
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

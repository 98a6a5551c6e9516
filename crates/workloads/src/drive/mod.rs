//! Runs transactions at full speed or at a given rate, for a given time or up to a given number of transactions.
//!
//! *Closed loop*: each client has one transaction under way, and begins the next when the transaction is durable. A
//! worker is a thread that serves many clients. The worker begins transactions until each client has a transaction that
//! is not durable. Then the worker waits for the oldest epoch of these transactions. *Open loop*: transactions have
//! intended starts, evenly spaced, whatever the database does. Each worker has its own schedule. A latency is counted
//! from the intended start. So if the database stalls, all transactions due in that time have longer latencies.
//!
//! | module | one idea |
//! |---|---|
//! | [`worker`] | one thread: begins transactions, notes when they are durable |
//! | [`report`] | the results of a run |
//! | [`site`] | the database, its disks and the form of its log |
//! | [`model`] | the speed of a modelled disk |
//! | [`archived`] | the lag of the archive |
//! | [`beside`] | additional runs on the same database |
//!
//! The driver accesses transactions only through [`Load`] and durability only through [`Log`], so tests need no
//! database.

pub mod archived;
pub mod beside;
pub mod model;
pub mod report;
pub mod site;
pub mod worker;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use hdrhistogram::Histogram;
use perdura::{Db, Ticket};
use perdura_base::Epoch;

use crate::latency::histogram;
use crate::process;

pub use beside::Beside;
pub use model::ModelledDisk;
pub use report::{KindReport, RunReport};
pub use site::{LogScheme, Site};

/// The maximum number of transactions of an open loop that have begun and are not durable yet.
pub const OUTSTANDING_MAX: usize = 5_000;

/// A transaction that has run.
#[derive(Debug, Clone, Copy)]
pub struct Submitted {
    /// The index of the transaction's kind.
    pub kind: usize,
    /// The transaction's commit epoch.
    pub epoch: Epoch,
    /// True if the transaction was rolled back.
    pub aborted: bool,
    /// The number of bytes that the transaction logged. `None`: not measured.
    pub log_bytes: Option<u64>,
}

/// A worker's source of transactions.
pub trait Load {
    /// Runs the next transaction. Returns once other transactions see its effect.
    ///
    /// # Errors
    /// A failure that ends the run. A transaction that aborts is not an error.
    fn step(&mut self) -> Result<Submitted>;
}

/// Counters of a log.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LogCounters {
    /// The size of the frames that were appended, bytes.
    pub log_bytes: u64,
    /// The size of the blocks that were written, bytes.
    pub device_bytes: u64,
    /// The number of syncs.
    pub syncs: u64,
}

/// The log that makes transactions durable.
pub trait Log: Sync {
    /// Returns the newest durable epoch.
    fn durable(&self) -> Epoch;
    /// Waits until an epoch is durable.
    ///
    /// # Errors
    /// The log has stopped.
    fn wait(&self, epoch: Epoch) -> Result<()>;
    /// Asks the log to make transactions durable, without waiting for it.
    fn nudge(&self);
    /// Returns the counters up to now.
    fn counters(&self) -> LogCounters;
}

impl Log for Db {
    fn durable(&self) -> Epoch {
        Db::durable(self)
    }

    fn wait(&self, epoch: Epoch) -> Result<()> {
        Ok(Db::wait(self, Ticket { epoch })?)
    }

    fn nudge(&self) {
        self.want_durable();
    }

    fn counters(&self) -> LogCounters {
        let log = self.stats().log;
        LogCounters {
            log_bytes: log.log_bytes,
            device_bytes: log.log_device_bytes,
            syncs: log.syncs,
        }
    }
}

/// The condition that ends a run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Limit {
    /// A number of transactions. The run ends when all transactions are durable.
    Txns(u64),
    /// The run ends after a time. The first part of the time is not measured.
    Time {
        /// The part that is not measured.
        warm_up: Duration,
        /// The measured part.
        measured: Duration,
    },
}

/// The settings of a run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct DriveOptions {
    /// The number of threads.
    pub workers: usize,
    /// The number of clients of a closed loop. They are divided among the workers.
    pub clients: usize,
    /// The number of transactions due each second in an open loop. A slow database does not reduce it. `None`: a closed
    /// loop.
    pub rate: Option<f64>,
    /// The condition that ends the run.
    pub limit: Limit,
}

impl DriveOptions {
    fn check(&self) -> Result<()> {
        ensure!(self.workers > 0, "there is at least one worker");
        ensure!(
            self.clients >= self.workers,
            "there are at least as many clients as workers"
        );
        ensure!(
            self.rate
                .is_none_or(|rate| rate.is_finite() && rate >= 0.001),
            "a rate is at least 0.001 a second"
        );
        Ok(())
    }

    /// Returns a worker's share of `total`. If `total` cannot be divided evenly, the first workers get one more each.
    fn share(&self, total: u64, worker: usize) -> u64 {
        let workers = u64::try_from(self.workers).expect("a number of threads");
        let worker = u64::try_from(worker).expect("a number of a thread");
        total / workers + u64::from(worker < total % workers)
    }
}

/// The results of a run.
#[derive(Debug, Clone)]
pub struct Driven {
    /// The latencies of the measured transactions.
    pub latencies: Histogram<u64>,
    /// The counts of each kind of transaction.
    pub kinds: Vec<KindCounts>,
    /// The measured time, seconds.
    pub seconds: f64,
    /// The log's counters for the measured time.
    pub log: LogCounters,
    /// The CPU time of the process in the measured time, seconds. `None`: the kernel does not report it.
    pub cpu_seconds: Option<f64>,
    /// The number of transactions of an open loop that were due and had not begun when the loop ended.
    pub unstarted: u64,
    /// The time in which workers began nothing, because as many transactions as allowed were under way. Summed over
    /// the workers, seconds.
    pub waited_seconds: f64,
}

/// The measured transactions of one kind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct KindCounts {
    /// All transactions.
    pub txns: u64,
    /// The number of rolled-back transactions.
    pub aborts: u64,
    /// The number of transactions with measured log bytes.
    pub sized: u64,
    /// The log bytes of the `sized` transactions.
    pub log_bytes: u64,
}

impl KindCounts {
    fn add(&mut self, other: &KindCounts) {
        self.txns += other.txns;
        self.aborts += other.aborts;
        self.sized += other.sized;
        self.log_bytes += other.log_bytes;
    }
}

/// The times of a run.
#[derive(Debug, Clone, Copy)]
pub struct Times {
    /// The start of the first transaction.
    pub begin: Instant,
    /// The start of the measured time. Transactions that become durable later than this are measured.
    pub measured_from: Instant,
    /// The last moment at which a transaction may begin. `None`: the run ends after a number of transactions.
    pub end: Option<Instant>,
}

/// Drives a load. Each worker's thread calls `make` to make its source of transactions.
///
/// # Errors
/// Errors of [`Load::step`] and of the log.
pub fn drive<L: Load>(
    log: &impl Log,
    options: &DriveOptions,
    kinds: usize,
    make: impl Fn(usize) -> L + Sync,
) -> Result<Driven> {
    options.check()?;
    let begin = Instant::now();
    let times = match options.limit {
        Limit::Txns(_) => Times {
            begin,
            measured_from: begin,
            end: None,
        },
        Limit::Time { warm_up, measured } => Times {
            begin,
            measured_from: begin + warm_up,
            end: Some(begin + warm_up + measured),
        },
    };
    let stop = AtomicBool::new(false);
    // A run with a fixed number of transactions is measured as a whole, so no transaction may begin before this sample.
    let at_begin = Reading::take(log);
    let (outcomes, before, after) = std::thread::scope(|scope| {
        let (make, stop) = (&make, &stop);
        let workers: Vec<_> = (0..options.workers)
            .map(|number| {
                let named = std::thread::Builder::new().name(format!("worker-{number}"));
                let started = named.spawn_scoped(scope, move || {
                    let outcome = worker::Worker::new(log, options, number, times, kinds)
                        .run(make(number), stop);
                    if outcome.is_err() {
                        stop.store(true, Ordering::SeqCst);
                    }
                    outcome
                });
                started.expect("a thread starts, as by `thread::spawn`")
            })
            .collect();
        let window = times.end.map(|end| {
            sleep_until(times.measured_from, stop);
            let before = Reading::take(log);
            sleep_until(end, stop);
            (before, Reading::take(log))
        });
        let outcomes: Vec<Result<worker::Outcome>> = workers
            .into_iter()
            .map(|worker| match worker.join() {
                Ok(outcome) => outcome,
                Err(panic) => std::panic::resume_unwind(panic),
            })
            .collect();
        let (before, after) = window.unwrap_or_else(|| (at_begin, Reading::take(log)));
        (outcomes, before, after)
    });
    let mut driven = Driven {
        latencies: histogram(),
        kinds: vec![KindCounts::default(); kinds],
        seconds: match times.end {
            Some(end) => end - times.measured_from,
            None => after.at - before.at,
        }
        .as_secs_f64(),
        log: LogCounters {
            log_bytes: after.log.log_bytes - before.log.log_bytes,
            device_bytes: after.log.device_bytes - before.log.device_bytes,
            syncs: after.log.syncs - before.log.syncs,
        },
        cpu_seconds: after
            .cpu_seconds
            .zip(before.cpu_seconds)
            .map(|(after, before)| after - before),
        unstarted: 0,
        waited_seconds: 0.0,
    };
    for outcome in outcomes {
        let outcome = outcome?;
        driven
            .latencies
            .add(&outcome.latencies)
            .expect("the same bounds");
        driven.unstarted += outcome.unstarted;
        driven.waited_seconds += outcome.waited.as_secs_f64();
        for (all, one) in driven.kinds.iter_mut().zip(&outcome.kinds) {
            all.add(one);
        }
    }
    Ok(driven)
}

/// The state of the log and of the process at one moment.
struct Reading {
    at: Instant,
    log: LogCounters,
    cpu_seconds: Option<f64>,
}

impl Reading {
    fn take(log: &impl Log) -> Reading {
        Reading {
            at: Instant::now(),
            log: log.counters(),
            cpu_seconds: process::cpu_seconds(std::process::id()),
        }
    }
}

/// Sleeps until a moment, or until the run has failed.
fn sleep_until(moment: Instant, stop: &AtomicBool) {
    const LOOK_EVERY: Duration = Duration::from_millis(50);
    while !stop.load(Ordering::SeqCst) {
        let left = moment.saturating_duration_since(Instant::now());
        if left.is_zero() {
            break;
        }
        std::thread::sleep(left.min(LOOK_EVERY));
    }
}

#[cfg(test)]
mod tests;

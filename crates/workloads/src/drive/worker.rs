//! One thread of a driver, which begins transactions and notes when they are durable.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::Result;
use hdrhistogram::Histogram;
use perdura_base::Epoch;

use super::{DriveOptions, KindCounts, Limit, Load, Log, OUTSTANDING_MAX, Submitted, Times};
use crate::latency::{histogram, micros, record};

/// The time between two readings of the durable epoch while no transaction is due.
const LOOK_EVERY: Duration = Duration::from_micros(100);

/// The results of a worker.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// The latencies of the measured transactions.
    pub latencies: Histogram<u64>,
    /// The counts of each kind of transaction.
    pub kinds: Vec<KindCounts>,
    /// The number of transactions that were due but had not begun when the run ended.
    pub unstarted: u64,
    /// The measured time in which the worker began nothing, because as many transactions as allowed were under way.
    pub waited: Duration,
}

/// The transactions of an epoch that is not durable yet, each with the time from which its latency is counted.
#[derive(Debug)]
struct Batch {
    epoch: Epoch,
    txns: Vec<(Instant, Submitted)>,
}

/// The start times of a worker's transactions.
#[derive(Debug)]
enum Arrivals {
    /// Each transaction begins when a client is free.
    Closed,
    /// The next transaction begins at `next`, and later transactions follow at the interval `every`.
    Open { next: Instant, every: Duration },
}

/// One thread of a driver.
#[derive(Debug)]
pub struct Worker<'a, G> {
    log: &'a G,
    times: Times,
    arrivals: Arrivals,
    /// The maximum number of transactions that may be under way.
    outstanding_max: usize,
    /// The number of transactions that the worker begins. `None`: the run ends at a time.
    txns: Option<u64>,
    outstanding: usize,
    /// Batches by epoch, ascending. A transaction that only reads may have an older epoch than a
    /// write before it.
    batches: VecDeque<Batch>,
    /// The vectors of finished batches, kept to be used again.
    spare: Vec<Vec<(Instant, Submitted)>>,
    outcome: Outcome,
}

impl<'a, G: Log> Worker<'a, G> {
    /// Makes a worker that has done nothing yet.
    #[must_use]
    pub fn new(
        log: &'a G,
        options: &DriveOptions,
        number: usize,
        times: Times,
        kinds: usize,
    ) -> Worker<'a, G> {
        let usize_of = |count: u64| usize::try_from(count).expect("a part of a usize");
        let share = |total: usize| {
            let total = u64::try_from(total).expect("a usize");
            usize_of(options.share(total, number)).max(1)
        };
        let (arrivals, outstanding_max) = match options.rate {
            None => (Arrivals::Closed, share(options.clients)),
            Some(rate) => {
                let spacing = Duration::from_secs_f64(1.0 / rate);
                let number = u32::try_from(number).expect("a number of a thread");
                let workers = u32::try_from(options.workers).expect("a number of threads");
                let open = Arrivals::Open {
                    next: times.begin + spacing * number,
                    every: spacing * workers,
                };
                (open, share(OUTSTANDING_MAX))
            }
        };
        Worker {
            log,
            times,
            arrivals,
            outstanding_max,
            txns: match options.limit {
                Limit::Txns(txns) => Some(options.share(txns, number)),
                Limit::Time { .. } => None,
            },
            outstanding: 0,
            batches: VecDeque::new(),
            spare: Vec::new(),
            outcome: Outcome {
                latencies: histogram(),
                kinds: vec![KindCounts::default(); kinds],
                unstarted: 0,
                waited: Duration::ZERO,
            },
        }
    }

    /// Runs until the end or until any worker fails.
    ///
    /// # Errors
    /// Errors of [`Load::step`] and of the log.
    pub fn run(mut self, mut load: impl Load, stop: &AtomicBool) -> Result<Outcome> {
        let mut begun = 0;
        let mut now = Instant::now();
        while !stop.load(Ordering::Relaxed)
            && self.times.end.is_none_or(|end| now < end)
            && self.txns.is_none_or(|txns| begun < txns)
        {
            self.collect(now);
            if self.outstanding >= self.outstanding_max {
                let begin = now;
                self.wait_for_oldest()?;
                now = Instant::now();
                if begin >= self.times.measured_from {
                    self.outcome.waited += now - begin;
                }
                continue;
            }
            let Some(start) = self.arrival(now) else {
                now = self.pause();
                continue;
            };
            let submitted = load.step()?;
            begun += 1;
            now = Instant::now();
            self.took(start, submitted, now);
        }
        if let Some(end) = self.times.end {
            self.outcome.unstarted = self.missed(end);
        }
        while !self.batches.is_empty() {
            self.wait_for_oldest()?;
            self.collect(Instant::now());
        }
        assert_eq!(self.outstanding, 0, "all that has begun is durable");
        Ok(self.outcome)
    }

    /// Returns the time from which the next transaction's latency is counted. `None`: no transaction is due.
    fn arrival(&mut self, now: Instant) -> Option<Instant> {
        match &mut self.arrivals {
            Arrivals::Closed => Some(now),
            Arrivals::Open { next, every } => (*next <= now).then(|| {
                let start = *next;
                *next += *every;
                start
            }),
        }
    }

    /// Sleeps until the next transaction is due. While transactions are not durable, it sleeps at
    /// most [`LOOK_EVERY`].
    fn pause(&self) -> Instant {
        let mut until = match self.arrivals {
            Arrivals::Closed => Instant::now(),
            Arrivals::Open { next, .. } => next,
        };
        if let Some(end) = self.times.end {
            until = until.min(end);
        }
        let mut left = until.saturating_duration_since(Instant::now());
        if self.outstanding > 0 {
            left = left.min(LOOK_EVERY);
        }
        std::thread::sleep(left);
        Instant::now()
    }

    /// Notes a transaction that has run.
    fn took(&mut self, start: Instant, submitted: Submitted, now: Instant) {
        assert!(
            submitted.kind < self.outcome.kinds.len(),
            "the load has said how many kinds it has"
        );
        if submitted.epoch <= self.log.durable() {
            self.done(start, &submitted, now);
            return;
        }
        self.log.nudge();
        let epoch = submitted.epoch;
        let behind = self.batches.iter().rposition(|batch| batch.epoch <= epoch);
        let at = match behind {
            Some(at) if self.batches[at].epoch == epoch => at,
            other => {
                let at = other.map_or(0, |at| at + 1);
                let txns = self.spare.pop().unwrap_or_default();
                self.batches.insert(at, Batch { epoch, txns });
                at
            }
        };
        self.batches[at].txns.push((start, submitted));
        self.outstanding += 1;
    }

    /// Removes the batches that are durable now, and counts their transactions.
    fn collect(&mut self, now: Instant) {
        let Some(oldest) = self.batches.front() else {
            return;
        };
        let durable = self.log.durable();
        if oldest.epoch > durable {
            return;
        }
        while self.batches.front().is_some_and(|b| b.epoch <= durable) {
            let mut batch = self.batches.pop_front().expect("it was looked at");
            self.outstanding -= batch.txns.len();
            for (start, submitted) in batch.txns.drain(..) {
                self.done(start, &submitted, now);
            }
            self.spare.push(batch.txns);
        }
        debug_assert_eq!(
            self.outstanding,
            self.batches.iter().map(|b| b.txns.len()).sum::<usize>(),
            "each that waits is in a batch"
        );
    }

    fn wait_for_oldest(&mut self) -> Result<()> {
        match self.batches.front() {
            Some(oldest) => self.log.wait(oldest.epoch),
            None => Ok(()),
        }
    }

    /// Counts a transaction if it became durable in the measured time.
    fn done(&mut self, start: Instant, submitted: &Submitted, now: Instant) {
        let is_after = self.times.end.is_some_and(|end| now > end);
        if now < self.times.measured_from || is_after {
            return;
        }
        let latency = now.saturating_duration_since(start);
        record(&mut self.outcome.latencies, micros(latency), 1);
        let counts = &mut self.outcome.kinds[submitted.kind];
        counts.txns += 1;
        counts.aborts += u64::from(submitted.aborted);
        if let Some(bytes) = submitted.log_bytes {
            counts.sized += 1;
            counts.log_bytes += bytes;
        }
    }

    /// Returns the number of transactions that were due before `end` and have not begun.
    fn missed(&self, end: Instant) -> u64 {
        match self.arrivals {
            Arrivals::Closed => 0,
            Arrivals::Open { next, every } => {
                let late = end.saturating_duration_since(next).as_nanos();
                let missed = late.div_ceil(every.as_nanos().max(1));
                u64::try_from(missed).unwrap_or(u64::MAX)
            }
        }
    }
}

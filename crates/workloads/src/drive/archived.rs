//! Measures the archive's lag while a database is driven.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::Result;
use perdura::Db;
use perdura_base::Epoch;
use serde::Serialize;

/// The time between two readings of the archive's state.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// The work of the archiver during a run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct ArchivedReport {
    /// The number of written runs.
    pub runs: u64,
    /// The number of records in the runs.
    pub records: u64,
    /// The size of the runs, bytes.
    pub bytes: u64,
    /// The longest time from when an epoch became durable until the archive had it, seconds.
    pub lag_seconds_max: f64,
}

/// The durable epochs missing in the archive, each with the time when the epoch was first seen as durable.
#[derive(Debug, Default)]
struct Lag {
    behind: VecDeque<(Epoch, Instant)>,
    longest: Duration,
}

impl Lag {
    fn look(&mut self, durable: Epoch, archived: Epoch, now: Instant) {
        if self.behind.back().is_none_or(|(last, _)| *last < durable) {
            self.behind.push_back((durable, now));
        }
        while self
            .behind
            .front()
            .is_some_and(|(epoch, _)| *epoch <= archived)
        {
            self.behind.pop_front();
        }
        if let Some((_, since)) = self.behind.front() {
            self.longest = self.longest.max(now.saturating_duration_since(*since));
        }
    }
}

/// Runs `f`, and observes the archive meanwhile. Returns the result of `f`, and the report about
/// the archive: `None` if the database has no archive.
///
/// # Errors
/// Errors of `f`.
pub fn watched<R>(db: &Db, f: impl FnOnce() -> Result<R>) -> Result<(R, Option<ArchivedReport>)> {
    let Some(before) = db.stats().archive else {
        return Ok((f()?, None));
    };
    let is_over = AtomicBool::new(false);
    let (done, longest) = std::thread::scope(|scope| {
        let watcher = scope.spawn(|| {
            let mut lag = Lag::default();
            while !is_over.load(Ordering::SeqCst) {
                let archive = db.stats().archive.unwrap_or_default();
                let archived = Epoch(archive.archived_epoch.unwrap_or(0));
                lag.look(db.durable(), archived, Instant::now());
                std::thread::sleep(LOOK_EVERY);
            }
            lag.longest
        });
        let done = f();
        is_over.store(true, Ordering::SeqCst);
        let longest = match watcher.join() {
            Ok(longest) => longest,
            Err(panic) => std::panic::resume_unwind(panic),
        };
        (done, longest)
    });
    let after = db.stats().archive.unwrap_or_default();
    let report = ArchivedReport {
        runs: after.runs - before.runs,
        records: after.records - before.records,
        bytes: after.bytes - before.bytes,
        lag_seconds_max: longest.as_secs_f64(),
    };
    Ok((done?, Some(report)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lag_is_the_age_of_the_oldest_epoch_that_is_not_archived() {
        let begin = Instant::now();
        let at = |seconds: u64| begin + Duration::from_secs(seconds);
        let mut lag = Lag::default();
        lag.look(Epoch(5), Epoch(5), at(0));
        assert_eq!(lag.longest, Duration::ZERO);
        lag.look(Epoch(6), Epoch(5), at(1));
        lag.look(Epoch(9), Epoch(5), at(3));
        assert_eq!(
            lag.longest,
            Duration::from_secs(2),
            "epoch 6 since second 1"
        );
        lag.look(Epoch(9), Epoch(6), at(4));
        lag.look(Epoch(9), Epoch(9), at(9));
        assert_eq!(
            lag.longest,
            Duration::from_secs(2),
            "epoch 9 since second 3"
        );
    }
}

//! Threads of a program that commit and wait for the disk, compared with bare durable writes.
//!
//! A *bare* write is a durable write of one block to a file, by the method that the log uses. Bare writes show what the
//! disk can do: one thread waits for one write at a time, or several threads do so at once, each with its own file.
//!
//! Each round has a turn for every number of threads, of bare writes and of commits. Every second round has the turns in
//! reverse order. So a disturbance affects all turns, and a disk whose speed changes is compared with itself.

use std::num::NonZeroUsize;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use hdrhistogram::Histogram;
use perdura::{Db, Durability, Options};
use perdura_device::{AlignedBuf, FileDisk};
use serde::Serialize;

use crate::latency::{LatencyUs, histogram, micros, record};
use crate::num::{f64_of, ratio};
use crate::turn::{Turn, fill};
use crate::written::{self, Written};

/// The number of rounds that are not measured. They come first.
const WARM_UP: u64 = 1;
/// The time between two turns.
const SETTLING: Duration = Duration::from_millis(20);
/// The size of a bare write, bytes. The log's shortest block has this size.
const BLOCK_BYTES: usize = 4096;

/// The settings of the measurement.
pub struct CommittingBench {
    /// The options of the database. The first directory of its log gets the files of the bare writes, too.
    pub options: Options,
    /// The numbers of threads that commit. Each gives a row.
    pub threads: Vec<NonZeroUsize>,
    /// The numbers of threads that make bare writes. Each gives a row.
    pub bare: Vec<NonZeroUsize>,
    /// The size of a value, bytes.
    pub value_bytes: usize,
    /// The duration of the measurement.
    pub duration: Duration,
}

/// The results of a number of threads.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct CommittingRow {
    /// The number of threads.
    pub threads: usize,
    /// The latencies, microseconds.
    pub latency_us: LatencyUs,
    /// The number of writes or commits a second, of all threads together.
    pub per_second: f64,
    /// The median latency, divided by that of a single thread's bare writes.
    pub p50_of_bare: f64,
    /// The rate, divided by that of a single thread's bare writes.
    pub rate_of_bare: f64,
}

/// The results of all rows.
#[derive(Debug, Serialize)]
pub struct CommittingReport {
    /// The method of the log's durable writes, and its measurement when the log was opened.
    pub log: Vec<String>,
    /// The bare writes.
    pub bare: Vec<CommittingRow>,
    /// The commits.
    pub commits: Vec<CommittingRow>,
}

/// One row's measurement so far.
struct RowSoFar {
    threads: usize,
    latencies: Histogram<u64>,
    seconds: f64,
}

impl RowSoFar {
    fn new(threads: NonZeroUsize) -> RowSoFar {
        RowSoFar {
            threads: threads.get(),
            latencies: histogram(),
            seconds: 0.0,
        }
    }

    /// Adds a turn of the threads' latencies.
    fn add(&mut self, begin: Instant, latencies: Vec<Histogram<u64>>) {
        assert_eq!(latencies.len(), self.threads, "each thread has latencies");
        self.seconds += begin.elapsed().as_secs_f64();
        for one in latencies {
            self.latencies.add(&one).expect("the same bounds");
        }
    }

    fn rate(&self) -> f64 {
        ratio(f64_of(self.latencies.len()), self.seconds)
    }

    /// Returns the row, in units of the bare writes of one thread.
    fn row(&self, unit: &RowSoFar) -> CommittingRow {
        let latency_us = LatencyUs::of(&self.latencies);
        let bare = LatencyUs::of(&unit.latencies);
        CommittingRow {
            threads: self.threads,
            latency_us,
            per_second: self.rate(),
            p50_of_bare: ratio(f64_of(latency_us.p50), f64_of(bare.p50.max(1))),
            rate_of_bare: ratio(self.rate(), unit.rate()),
        }
    }
}

impl CommittingBench {
    /// Measures every row. Leaves the database in its directory, and removes the files of the bare writes.
    ///
    /// # Errors
    /// Errors of the database and of the disk. No row of one thread's bare writes. Commits that changed nothing.
    pub fn run(&self) -> Result<CommittingReport> {
        let unit = self.bare.iter().position(|threads| threads.get() == 1);
        let unit = unit.context("bare writes of one thread are the unit")?;
        let db = Db::open(self.options.clone()).context("the database")?;
        let disk = self.disk_of(&db);
        let measured = self.rounds(&db, &disk);
        for number in 0..self.files() {
            written::clear(&disk, &path(number))?;
        }
        let (bare, committing) = measured?;
        let rows = |all: &[RowSoFar]| all.iter().map(|row| row.row(&bare[unit])).collect();
        let report = CommittingReport {
            log: db.log_ways().iter().map(ToString::to_string).collect(),
            bare: rows(&bare),
            commits: rows(&committing),
        };
        db.close()?;
        Ok(report)
    }

    /// Returns a second disk in the log's first directory. It writes by the method that the log has chosen.
    fn disk_of(&self, db: &Db) -> FileDisk {
        let log = self.options.log_dirs.first().unwrap_or(&self.options.data);
        let disk = FileDisk::at(log).with_log_io(self.options.log_io);
        match db.log_ways().into_iter().next() {
            Some(chosen) => disk.with_log_way(chosen),
            None => disk,
        }
    }

    /// Returns the number of files that bare writes need.
    fn files(&self) -> usize {
        self.bare
            .iter()
            .map(|threads| threads.get())
            .max()
            .unwrap_or(0)
    }

    /// Takes the turns of all rounds. Returns the rows of the bare writes and of the commits.
    fn rounds(&self, db: &Db, disk: &FileDisk) -> Result<(Vec<RowSoFar>, Vec<RowSoFar>)> {
        let files = (0..self.files()).map(|number| Written::new(disk, &path(number)));
        let mut files = files.collect::<Result<Vec<Written>>>()?;
        let threads = self.threads.iter().map(|threads| threads.get());
        fill(db, threads.max().unwrap_or(0), self.value_bytes)?;
        let mut bare: Vec<RowSoFar> = self.bare.iter().copied().map(RowSoFar::new).collect();
        let mut committing: Vec<RowSoFar> =
            self.threads.iter().copied().map(RowSoFar::new).collect();
        let begin = Instant::now();
        for round in 0.. {
            let measured = round >= WARM_UP;
            if round > WARM_UP && begin.elapsed() >= self.duration {
                break;
            }
            let mut turns: Vec<usize> = (0..bare.len() + committing.len()).collect();
            if round % 2 == 1 {
                turns.reverse();
            }
            for at in turns {
                let turn = Turn::begin();
                let (row, latencies) = match at.checked_sub(bare.len()) {
                    None => {
                        let row = &mut bare[at];
                        let latencies = write_bare(&mut files[..row.threads], turn)?;
                        (row, latencies)
                    }
                    Some(at) => {
                        let row = &mut committing[at];
                        let latencies =
                            turn.commit(db, Durability::Disk, row.threads, self.value_bytes)?;
                        (row, latencies)
                    }
                };
                if measured {
                    row.add(turn.begin, latencies);
                }
                // The rest of a turn's work must not slow the next turn.
                std::thread::sleep(SETTLING);
            }
        }
        Ok((bare, committing))
    }
}

/// Returns the path of a file for bare writes.
fn path(number: usize) -> String {
    format!("bench-{number}.tmp")
}

/// Lets a thread for each file write blocks for a turn. Returns each thread's latencies.
fn write_bare(files: &mut [Written], turn: Turn) -> Result<Vec<Histogram<u64>>> {
    let write = |file: &mut Written| -> Result<Histogram<u64>> {
        let mut latencies = histogram();
        let mut block = Some(AlignedBuf::zeroed(BLOCK_BYTES));
        while turn.lasts() {
            let since = Instant::now();
            file.write(&mut block)?;
            record(&mut latencies, micros(since.elapsed()), 1);
        }
        Ok(latencies)
    };
    std::thread::scope(|scope| {
        let writers: Vec<_> = files
            .iter_mut()
            .map(|file| scope.spawn(move || write(file)))
            .collect();
        let joined = writers.into_iter().map(|writer| writer.join());
        joined
            .map(|done| done.unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commits_and_bare_writes_are_counted_in_units_of_a_single_bare_write() {
        let dir = tempfile::tempdir().expect("a directory");
        let count = |counts: &[usize]| -> Vec<NonZeroUsize> {
            counts
                .iter()
                .filter_map(|n| NonZeroUsize::new(*n))
                .collect()
        };
        let mut bench = CommittingBench {
            options: Options::new(dir.path().join("db")),
            threads: count(&[1, 3]),
            bare: count(&[2]),
            value_bytes: 100,
            duration: Duration::from_millis(1),
        };
        let error = bench.run().expect_err("there is no unit");
        assert!(error.to_string().contains("one thread"), "{error}");
        bench.bare = count(&[1, 2]);
        let report = bench.run().expect("a report");
        let unit = &report.bare[0];
        assert!(
            (unit.p50_of_bare, unit.rate_of_bare) == (1.0, 1.0),
            "{unit:?}"
        );
        let threads: Vec<usize> = report.commits.iter().map(|row| row.threads).collect();
        assert_eq!(threads, [1, 3]);
        for row in report.commits {
            let ratio = row.per_second / unit.per_second;
            assert!((row.rate_of_bare - ratio).abs() < 1e-9, "{row:?}");
        }
        let left = std::fs::read_dir(dir.path().join("db")).expect("the folder");
        let left = left.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        assert!(left.filter(|name| name.starts_with("bench-")).count() == 0);
    }
}

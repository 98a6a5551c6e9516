//! Compares the commits of two databases. The first database mirrors the log on nodes. The second database waits for
//! the disk.
//!
//! Both databases are in this process and use one disk. Each round has turns of a fraction of a second. The databases
//! begin rounds alternately, so that a disturbance affects both databases. Every commit changes a value. Unless
//! `value_bytes` is set, the value fills a block of the log.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use hdrhistogram::Histogram;
use perdura::{Db, Durability, Options};
use serde::Serialize;

use crate::latency::{LatencyUs, histogram, record};
use crate::num::{f64_of, ratio};
use crate::process;
use crate::turn::Turn;

/// The number of warm-up turns of each database. They come first and are not measured.
const WARM_UP: u32 = 2;
/// The space in a block that the value cannot use, bytes. It is for the block's head and the frame's head.
const HEADS_BYTES: usize = 512;
/// The time between two readings of the exposure. The exposure is the age and the size of the log that is not yet on
/// disk.
const LOOK_EVERY: Duration = Duration::from_micros(500);
/// The mirror must be complete within this time.
const PATIENCE: Duration = Duration::from_secs(20);

/// The databases and the settings of the measurement.
pub struct CommitBench {
    /// The options of the database that does not mirror its log.
    pub disk: Options,
    /// The options of the database with the mirrored log.
    pub mirror: Options,
    /// The sizes of blocks, bytes. Each size gives one row for each number of threads.
    pub block_bytes: Vec<usize>,
    /// The size of a value, bytes. `None`: the value fills its block.
    pub value_bytes: Option<usize>,
    /// The numbers of committing threads to compare. Each number gives one row for each size of block.
    pub threads: Vec<usize>,
    /// The duration of each row's measurement.
    pub duration: Duration,
    /// The process ids of the nodes. The processor time of a commit includes the time that these processes use.
    pub node_pids: Vec<u32>,
}

/// The results of one of the two databases, for one row of the report.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct CommitSide {
    /// The latencies of the commits.
    pub latency_us: LatencyUs,
    /// The number of commits a second.
    pub per_second: f64,
    /// The processor time of a commit, including the nodes' time, microseconds. `None`: the kernel does not report it.
    pub cpu_us: Option<f64>,
}

/// The results for one size of block and one number of threads.
#[derive(Debug, Serialize)]
pub struct CommitRow {
    /// The size of a block with one commit, bytes.
    pub block_bytes: usize,
    /// The number of threads that commit.
    pub threads: usize,
    /// The results of commits that wait for the disk.
    pub disk: CommitSide,
    /// The results of commits that wait for the nodes.
    pub mirror: CommitSide,
    /// The mirror's median latency, divided by the disk's median latency.
    pub p50_of_disk: f64,
    /// The mirror's commits a second, divided by the disk's commits a second.
    pub rate_of_disk: f64,
    /// A commit's processor time with the mirror, divided by the time with the disk.
    pub cpu_of_disk: Option<f64>,
    /// The age of the oldest block that was not yet on disk. It is read only while the mirrored database has its turn.
    pub exposed_us: LatencyUs,
    /// The maximum number of bytes that were not yet on disk. The bytes are counted only while the mirrored database
    /// has its turn.
    pub exposed_bytes_max: u64,
}

/// The results of all rows.
#[derive(Debug, Serialize)]
pub struct CommitReport {
    /// The modes of the mirror's groups at the end.
    pub view: String,
    /// The rows.
    pub rows: Vec<CommitRow>,
}

impl CommitBench {
    /// Measures each row.
    ///
    /// # Errors
    /// Errors of the databases; nodes that make no mirror.
    pub fn run(&self) -> Result<CommitReport> {
        let disk = Db::open(self.disk.clone()).context("the database without nodes")?;
        let mirror = Db::open(self.mirror.clone()).context("the database with nodes")?;
        let begin = Instant::now();
        while !mirror.is_mirrored() {
            ensure!(
                begin.elapsed() < PATIENCE,
                "the nodes make no mirror: {}",
                view(&mirror)
            );
            std::thread::sleep(LOOK_EVERY);
        }
        let mut rows = Vec::new();
        for threads in &self.threads {
            for bytes in &self.block_bytes {
                rows.push(self.row(*bytes, *threads, &disk, &mirror)?);
            }
        }
        ensure!(
            mirror.is_mirrored(),
            "the mirror did not last: {}",
            view(&mirror)
        );
        let view = view(&mirror);
        mirror.close()?;
        disk.close()?;
        Ok(CommitReport { view, rows })
    }

    fn row(&self, bytes: usize, threads: usize, disk: &Db, mirror: &Db) -> Result<CommitRow> {
        let value_bytes = self.value_bytes.unwrap_or(bytes - HEADS_BYTES);
        let mut sides = [
            Side::new(disk, Durability::Disk),
            Side::new(mirror, Durability::Mirror),
        ];
        let begin = Instant::now();
        for turn in 0.. {
            let measured = turn >= WARM_UP;
            if measured && begin.elapsed() >= self.duration {
                break;
            }
            for number in 0..sides.len() {
                let side = &mut sides[(number + usize::from(turn % 2 == 1)) % 2];
                side.turn(threads, value_bytes, &self.node_pids, measured)?;
            }
        }
        let [disk, mirror] = sides;
        let exposed = LatencyUs::of(&mirror.exposed);
        let exposed_bytes_max = mirror.exposed_bytes_max;
        let (disk, mirror) = (disk.outcome(), mirror.outcome());
        let p50 = |side: &CommitSide| f64_of(side.latency_us.p50.max(1));
        Ok(CommitRow {
            block_bytes: bytes,
            threads,
            p50_of_disk: ratio(p50(&mirror), p50(&disk)),
            rate_of_disk: ratio(mirror.per_second, disk.per_second),
            cpu_of_disk: (mirror.cpu_us.zip(disk.cpu_us)).map(|(ours, theirs)| ratio(ours, theirs)),
            disk,
            mirror,
            exposed_us: exposed,
            exposed_bytes_max,
        })
    }
}

/// Returns a text with the mode of each group.
fn view(db: &Db) -> String {
    let status = db.mirror();
    let modes = status.iter().flat_map(|status| &status.groups);
    let modes: Vec<String> = modes.map(|group| group.mode.to_string()).collect();
    modes.join(", ")
}

/// The results of one database so far.
struct Side<'a> {
    db: &'a Db,
    durability: Durability,
    latencies: Histogram<u64>,
    seconds: f64,
    cpu_seconds: Option<f64>,
    exposed: Histogram<u64>,
    exposed_bytes_max: u64,
}

impl<'a> Side<'a> {
    fn new(db: &'a Db, durability: Durability) -> Side<'a> {
        Side {
            db,
            durability,
            latencies: histogram(),
            seconds: 0.0,
            cpu_seconds: Some(0.0),
            exposed: histogram(),
            exposed_bytes_max: 0,
        }
    }

    fn turn(
        &mut self,
        threads: usize,
        value_bytes: usize,
        nodes: &[u32],
        measured: bool,
    ) -> Result<()> {
        let cpu = || {
            let own = process::cpu_seconds(std::process::id())?;
            let nodes: Option<f64> = nodes.iter().map(|pid| process::cpu_seconds(*pid)).sum();
            Some(own + nodes?)
        };
        let (cpu_before, begin) = (cpu(), Instant::now());
        let ends = AtomicBool::new(false);
        let bytes_max = AtomicU64::new(0);
        let (db, durability) = (self.db, self.durability);
        let (outcome, ages) = std::thread::scope(|scope| {
            let watcher = scope.spawn(|| {
                let mut ages = histogram();
                while !ends.load(Ordering::Relaxed) {
                    let exposed = db.exposure();
                    record(&mut ages, exposed.age_us, 1);
                    bytes_max.fetch_max(exposed.bytes, Ordering::Relaxed);
                    std::thread::sleep(LOOK_EVERY);
                }
                ages
            });
            // The watcher must end even if a client panics.
            let turn = || Turn::begin().commit(db, durability, threads, value_bytes);
            let outcome = catch_unwind(AssertUnwindSafe(turn));
            ends.store(true, Ordering::Relaxed);
            (outcome, watcher.join())
        });
        let seconds = begin.elapsed().as_secs_f64();
        let spent = cpu().zip(cpu_before).map(|(after, before)| after - before);
        let latencies = outcome.unwrap_or_else(|panic| resume_unwind(panic))?;
        if measured {
            for latencies in latencies {
                self.latencies.add(&latencies).expect("the same bounds");
            }
            let ages = ages.unwrap_or_else(|panic| resume_unwind(panic));
            self.exposed.add(&ages).expect("the same bounds");
            self.exposed_bytes_max = self.exposed_bytes_max.max(bytes_max.into_inner());
            self.seconds += seconds;
            self.cpu_seconds = self.cpu_seconds.zip(spent).map(|(sum, spent)| sum + spent);
        }
        // The turn ends when this database's copy to disk is done, so that the copy does not disturb the other
        // database.
        let last = db.transact(&[db.partition_of(b"last")].into_iter().collect(), |tx| {
            tx.put(
                db.database(0),
                b"last",
                &begin.elapsed().as_nanos().to_le_bytes(),
                None,
            )
        });
        let ((), ticket) = last?;
        db.wait_at(Durability::Disk, ticket)?;
        Ok(())
    }

    fn outcome(&self) -> CommitSide {
        let count = f64_of(self.latencies.len());
        CommitSide {
            latency_us: LatencyUs::of(&self.latencies),
            per_second: ratio(count, self.seconds),
            cpu_us: self.cpu_seconds.map(|spent| ratio(spent * 1e6, count)),
        }
    }
}

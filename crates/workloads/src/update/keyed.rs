//! The load of updates on a tree. Each transaction changes some bytes of several rows, which it finds by key.
//!
//! Workers run transactions, and flushers make them durable. Another thread writes pages while too many are dirty,
//! and takes checkpoints.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use perdura_base::{Epoch, Error, TableId};
use perdura_device::{Disk, FileDisk, MemDisk, SystemClock};
use perdura_recovery::CheckpointProgress as Checkpoint;
use perdura_recovery::disks::{Demand, Disks, Locks, Opening, Paths};
use perdura_steal::{Flushers, Keyed, KeyedOptions, StealEnv, Write};
use perdura_tree::pool::{Counts, Progress};
use serde::Serialize;

use super::bench::zipf_of;
use super::{Draw, Rows};
use crate::drive::{
    DriveOptions, Load, Log, LogCounters, ModelledDisk, RunReport, Submitted, drive,
};
use crate::kv::{fill_value, key_of, random_bytes};
use crate::num::{f64_of, ratio};

/// The table of the rows.
const TABLE: TableId = TableId(1);
/// The only kind of transaction.
const KINDS: [&str; 1] = ["update"];
/// The sleep time of a thread that has nothing to do or waits for the log.
const NAP: Duration = Duration::from_micros(100);
/// The time between two writes of the anchor, which records how far the log is durable.
const VOUCH_EVERY: Duration = Duration::from_secs(1);

/// The settings of a run, and its database.
#[derive(Debug, Clone)]
pub struct KeyedBench {
    /// The options of the database: scheme, pages, pool.
    pub options: KeyedOptions,
    /// The directory of the database. `None`: the database is in memory.
    pub data: Option<PathBuf>,
    /// The directory of each log stream, or one directory for all. Empty: the data directory.
    pub log_dirs: Vec<PathBuf>,
    /// The number of log streams.
    pub streams: u8,
    /// The speed of the log's disks, if the database is in memory.
    pub disk: ModelledDisk,
    /// The rows of the database.
    pub rows: Rows,
    /// The number of rows that a transaction changes.
    pub updates_per_txn: usize,
    /// The number of transactions between the starts of two checkpoints. `None`: no checkpoint is taken.
    pub checkpoint_every: Option<u64>,
    /// The seed of all random values and choices.
    pub seed: u64,
    /// The driver's settings.
    pub drive: DriveOptions,
    /// True if the report is to contain the digest of the database after the run.
    pub digest: bool,
}

/// The records that the tree logged for a restart, and the reads and writes of its pages.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct TreeRun {
    /// The number of pages in memory.
    pub pool_pages: usize,
    /// The size of a page, bytes.
    pub page_bytes: usize,
    /// The number of rows that a transaction changes.
    pub updates_per_txn: usize,
    /// The size of the Δ records, bytes. These records name newly dirty pages and written pages.
    pub delta_bytes: u64,
    /// The size of the BW records, bytes. These records name written pages.
    pub writes_bytes: u64,
    /// The size of the records of structure changes, bytes.
    pub structure_bytes: u64,
    /// The bytes of Δ and BW records as a share of the bytes of all records.
    pub notes_share: f64,
    /// The number of pages that were read.
    pub pages_read: u64,
    /// The number of pages that were written.
    pub pages_written: u64,
    /// The number of checkpoints that have ended.
    pub checkpoints: u64,
}

/// An ended run and the database, which is still open.
pub struct KeyedRun {
    /// The results.
    pub report: RunReport,
    keyed: Keyed,
    _locks: Locks,
}

impl KeyedRun {
    /// Closes the database with a checkpoint.
    ///
    /// # Errors
    /// Errors of the disk.
    pub fn close(self) -> Result<()> {
        self.keyed.checkpoint_now().context("the last checkpoint")
    }
}

impl KeyedBench {
    /// Opens the database, or makes a database with all rows if none exists. Then changes the rows.
    ///
    /// # Errors
    /// Invalid rows or options; rows or options that do not match the database; errors of the disks.
    pub fn run(&self) -> Result<KeyedRun> {
        self.rows.check().map_err(Error::Usage)?;
        let usage = |why: &str| Err(Error::Usage(String::from(why)));
        if self.updates_per_txn == 0 || self.checkpoint_every == Some(0) {
            usage("a transaction changes rows, and between checkpoints are transactions")?;
        }
        let begin = Instant::now();
        let (keyed, is_new, locks) = self.open()?;
        let load_seconds = if is_new {
            begin.elapsed().as_secs_f64()
        } else {
            self.check_rows(&keyed)?;
            0.0
        };
        let mut report = RunReport {
            workload: "update",
            scheme: keyed.txns().scheme().name(),
            streams: keyed.wal().streams(),
            partitions: 1,
            seed: self.seed,
            load_seconds,
            ..RunReport::default()
        };
        self.measure(&keyed, &mut report)?;
        if self.digest {
            keyed.flush_all()?;
            report.digest = Some(keyed.txns().contents()?.hex());
        }
        Ok(KeyedRun {
            report,
            keyed,
            _locks: locks,
        })
    }

    fn open(&self) -> Result<(Keyed, bool, Locks)> {
        let (disks, exists, locks) = self.disks()?;
        let env = StealEnv {
            disks,
            clock: Arc::new(SystemClock::new()),
            seed: fastrand::u64(..),
        };
        if exists {
            let opened = Keyed::open(env, self.options.clone());
            let keyed = opened.context("opening the database")?;
            let keyed = keyed.context("the directory has no database")?;
            let scheme = keyed.txns().scheme();
            if scheme != self.options.scheme {
                bail!(Error::Usage(format!(
                    "the database was made with scheme {}, not {}",
                    scheme.name(),
                    self.options.scheme.name()
                )));
            }
            return Ok((keyed, false, locks));
        }
        let mut rows = (0..self.rows.count).map(|number| {
            let mut value = vec![0; self.rows.value_bytes()];
            fill_value(number, self.seed, &mut value);
            (key_of(number).to_vec(), value)
        });
        let keyed = Keyed::create(env, self.options.clone(), Some(&mut rows))?;
        // A bulk load is not logged, so it ends with a checkpoint.
        keyed.checkpoint_now()?;
        Ok((keyed, true, locks))
    }

    /// Returns the disks, a flag that is true if they contain a database, and the locks of their directories.
    fn disks(&self) -> Result<(Disks, bool, Locks)> {
        let Some(data) = &self.data else {
            let memory = || Arc::new(MemDisk::new()) as Arc<dyn Disk>;
            let disks = Disks {
                data: memory(),
                images: vec![memory()],
                logs: (0..self.streams)
                    .map(|_| self.disk.over(memory()))
                    .collect(),
            };
            return Ok((disks, false, Vec::new()));
        };
        let paths = Paths {
            data: data.clone(),
            images: Vec::new(),
            logs: self.log_dirs.clone(),
        };
        let opening = Opening::begin(&paths, &FileDisk::shared)?;
        let exists = opening.exists();
        let found = match exists {
            true => opening.anchor()?,
            false => None,
        };
        let streams = found.map_or(self.streams, |(anchor, _)| anchor.streams);
        let (disks, locks) = opening.finish(streams, paths.image_disks(), Demand::OfExisting)?;
        Ok((disks, exists, locks))
    }

    /// Fails if the count or the size of the database's rows differs from the settings.
    fn check_rows(&self, keyed: &Keyed) -> Result<()> {
        let count = self.rows.count;
        let bytes_of = |row: u64| -> Result<Option<usize>> {
            Ok(keyed
                .txns()
                .read(TABLE, &key_of(row))?
                .map(|value| value.len()))
        };
        let value = Some(self.rows.value_bytes());
        let found = (bytes_of(0)?, bytes_of(count - 1)?, bytes_of(count)?);
        if found == (value, value, None) {
            return Ok(());
        }
        bail!(Error::Usage(format!(
            "the database does not have {count} rows of {} bytes; give its own numbers",
            self.rows.slot_bytes
        )))
    }

    fn measure(&self, keyed: &Keyed, report: &mut RunReport) -> Result<()> {
        let zipf = zipf_of(&self.rows);
        let flushers = Flushers::start(keyed.wal());
        let log = KeyedLog { keyed, flushers };
        let (bytes, pages) = (keyed.txns().record_bytes(), keyed.tree().pool().counts());
        let ((driven, log_bytes), checkpoints) = self.beside(keyed, || {
            let before = log.counters().log_bytes;
            let driven = drive(&log, &self.drive, KINDS.len(), |worker| Updates {
                keyed,
                draw: Draw::new(&self.rows, zipf, self.seed_of(worker)),
                rng: fastrand::Rng::with_seed(!self.seed_of(worker)),
                changed_bytes: self.rows.changed_bytes,
                updates: self.updates_per_txn,
            })?;
            Ok((driven, log.counters().log_bytes - before))
        })?;
        report.measured(&self.drive, &driven, &KINDS);
        let (now, then) = (keyed.txns().record_bytes(), bytes);
        let (delta_bytes, writes_bytes) = (now.delta - then.delta, now.writes - then.writes);
        let read = keyed.tree().pool().counts();
        let fetched = |counts: &Counts| counts.data_fetches + counts.index_fetches;
        report.tree = Some(TreeRun {
            pool_pages: self.options.frames,
            page_bytes: keyed.tree().shape().page_bytes,
            updates_per_txn: self.updates_per_txn,
            delta_bytes,
            writes_bytes,
            structure_bytes: now.structure - then.structure,
            notes_share: ratio(f64_of(delta_bytes + writes_bytes), f64_of(log_bytes)),
            pages_read: fetched(&read) - fetched(&pages),
            pages_written: read.writes - pages.writes,
            checkpoints,
        });
        Ok(())
    }

    fn seed_of(&self, worker: usize) -> u64 {
        let worker = u64::try_from(worker).expect("a number of a thread");
        self.seed.wrapping_mul(1_000_003).wrapping_add(worker + 1)
    }

    /// Runs `f` while a second thread writes pages and takes checkpoints. Returns the result of `f` and the number of
    /// ended checkpoints.
    fn beside<R>(&self, keyed: &Keyed, f: impl FnOnce() -> Result<R>) -> Result<(R, u64)> {
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| Writer::new(keyed, self.checkpoint_every).run(&is_over));
            let done = f();
            is_over.store(true, Ordering::SeqCst);
            let written = match writer.join() {
                Ok(written) => written,
                Err(panic) => std::panic::resume_unwind(panic),
            };
            let checkpoints = written.context("writing pages beside the load")?;
            Ok((done?, checkpoints))
        })
    }
}

/// The state of the thread that writes pages and takes checkpoints.
struct Writer<'a> {
    keyed: &'a Keyed,
    checkpoint_every: Option<u64>,
    /// The number of committed transactions at which the next checkpoint begins.
    next: u64,
    vouched: Instant,
    checkpoints: u64,
}

impl<'a> Writer<'a> {
    fn new(keyed: &'a Keyed, checkpoint_every: Option<u64>) -> Writer<'a> {
        let begun = keyed.txns().stats().commits;
        Writer {
            keyed,
            checkpoint_every,
            next: begun.saturating_add(checkpoint_every.unwrap_or(u64::MAX)),
            vouched: Instant::now(),
            checkpoints: 0,
        }
    }

    fn run(mut self, is_over: &AtomicBool) -> Result<u64> {
        while !is_over.load(Ordering::SeqCst) {
            if self.vouched.elapsed() >= VOUCH_EVERY {
                self.keyed.vouch()?;
                self.vouched = Instant::now();
            }
            let worked = self.checkpoint_step()? | self.write_step()?;
            if !worked {
                std::thread::sleep(NAP);
            }
        }
        self.keyed.checkpoints().abandon();
        Ok(self.checkpoints)
    }

    fn checkpoint_step(&mut self) -> Result<bool> {
        let checkpoints = self.keyed.checkpoints();
        if !checkpoints.is_running() {
            let commits = self.keyed.txns().stats().commits;
            if let Some(every) = self.checkpoint_every.filter(|_| commits >= self.next) {
                self.next = commits + every;
                checkpoints.begin()?;
            }
            return Ok(false);
        }
        Ok(match checkpoints.step()? {
            Checkpoint::Working(_) => true,
            Checkpoint::Waiting | Checkpoint::Idle => false,
            Checkpoint::Done => {
                self.checkpoints += 1;
                true
            }
        })
    }

    fn write_step(&self) -> Result<bool> {
        Ok(self.keyed.is_dirty() && self.keyed.txns().write_step()? != Progress::Idle)
    }
}

/// The log of a [`Keyed`], in the form that the driver needs.
struct KeyedLog<'a> {
    keyed: &'a Keyed,
    flushers: Flushers,
}

impl Log for KeyedLog<'_> {
    fn durable(&self) -> Epoch {
        self.keyed.durable()
    }

    fn wait(&self, epoch: Epoch) -> Result<()> {
        Ok(self.flushers.wait(epoch)?)
    }

    /// Does nothing, because the flushers end epochs continuously.
    fn nudge(&self) {}

    fn counters(&self) -> LogCounters {
        let log = self.keyed.wal().stats();
        LogCounters {
            log_bytes: log.log_bytes,
            device_bytes: log.device_bytes,
            syncs: log.syncs,
        }
    }
}

/// A worker's transactions.
struct Updates<'a> {
    keyed: &'a Keyed,
    draw: Draw,
    rng: fastrand::Rng,
    changed_bytes: usize,
    updates: usize,
}

impl Updates<'_> {
    /// Repeats a call while the log is full, until the flushers have made room.
    fn insist<T>(&self, mut call: impl FnMut() -> perdura::Result<T>) -> Result<T> {
        loop {
            match call() {
                Err(Error::LogFull(_)) => {
                    self.keyed.wal().check()?;
                    std::thread::sleep(NAP);
                }
                done => return Ok(done?),
            }
        }
    }
}

impl Load for Updates<'_> {
    fn step(&mut self) -> Result<Submitted> {
        let keyed = self.keyed;
        let mut txn = keyed.txns().begin();
        let mut left = self.updates;
        while left > 0 {
            let key = key_of(self.draw.row());
            let row = self.insist(|| keyed.txns().read(TABLE, &key))?;
            let mut row = row.with_context(|| format!("row {} is gone", key.escape_ascii()))?;
            ensure!(self.changed_bytes <= row.len(), "a row has become shorter");
            let at = self.rng.usize(..=row.len() - self.changed_bytes);
            random_bytes(&mut self.rng, &mut row[at..at + self.changed_bytes]);
            let written = self.insist(|| keyed.txns().write(&mut txn, TABLE, &key, Some(&row)))?;
            // If another transaction uses the row, a further row is drawn instead.
            left -= usize::from(written != Write::Taken);
        }
        let committed = keyed.txns().commit(txn);
        Ok(Submitted {
            kind: 0,
            epoch: committed.epoch,
            aborted: false,
            log_bytes: None,
        })
    }
}

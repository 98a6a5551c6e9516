//! A history of uniform updates of a table, which ends with a crash shortly before a checkpoint (section 5.2 of the
//! paper).

use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use perdura_base::num::to_u64;
use perdura_base::{Error, TableId};
use perdura_device::{Access, Disk};
use perdura_recovery::tree::writer::TreeWriter;
use perdura_recovery::{CheckpointProgress, Disks};
use perdura_steal::{KeyTxn, Keyed, KeyedOptions, StealEnv, Write};
use perdura_wal::{Rung, Scheme};

use super::ground::Ground;
use super::scale::Size;
use super::unsynced::UnsyncedDisk;

const TABLE: TableId = TableId(1);
/// The size of a page, bytes.
pub(super) const PAGE_BYTES: usize = 8192;
/// The size of a row's value, bytes. An update changes all bytes of the value.
pub(super) const VALUE_BYTES: usize = 100;
/// The number of rows of a leaf that is nine tenths full.
const ROWS_PER_PAGE: u64 = 62;
/// The number of pages in memory while the table is made.
const FILLING_FRAMES: usize = 256;
/// The number of updates of a transaction.
const TXN_UPDATES: u64 = 10;
/// The number of checkpoints before the crash.
const CHECKPOINTS: u64 = 10;
/// The number of steps that a checkpoint takes for each update.
const STEPS: u64 = 2;
/// The size of a log segment, bytes.
const SEGMENT_BYTES: u64 = 4 << 20;
/// The number of threads that read ahead in a restart.
pub(super) const READERS: usize = 32;

/// Returns the settings of a database with `frames` pages in memory.
fn options(ground: &Ground, frames: usize) -> KeyedOptions {
    KeyedOptions {
        access: ground.access(),
        readers: READERS,
        segment_bytes: SEGMENT_BYTES,
        ..KeyedOptions::new(Scheme::Logical, frames)
    }
}

/// A filled table. Each history begins with this table.
pub(super) struct Table {
    pub disk: Arc<dyn Disk>,
    rows: u64,
    /// The number of pages of the table's file.
    pub pages: u64,
}

impl Table {
    /// Makes and fills a table.
    pub fn new(ground: &Ground, page_bytes: usize, size: Size, seed: u64) -> Result<Table> {
        let disk = ground.disk(&format!("table-{page_bytes}-{}", size.divisor))?;
        let count = size.pages() * ROWS_PER_PAGE;
        let mut rows = (0..count).map(|key| (key_of(key), value_of(key).to_vec()));
        let mut options = options(ground, FILLING_FRAMES);
        options.page_bytes = page_bytes;
        let full_speed = Arc::new(UnsyncedDisk::new(Arc::clone(&disk)));
        let env = env(ground, full_speed.clone(), seed);
        let keyed = Keyed::create(env, options, Some(&mut rows))?;
        keyed.flush_all()?;
        drop(keyed);
        full_speed.settle()?;
        let bytes = disk.open("tree/pages", Access::Buffered)?.len()?;
        Ok(Table {
            disk,
            rows: count,
            pages: bytes / to_u64(page_bytes),
        })
    }

    /// Returns `percent` percent of the table's pages, as a number of pages.
    pub fn part(&self, percent: u64) -> usize {
        let pages = self.pages * percent / 100;
        usize::try_from(pages).unwrap_or(usize::MAX)
    }
}

fn env(ground: &Ground, disk: Arc<dyn Disk>, seed: u64) -> StealEnv {
    StealEnv {
        disks: Disks::on_one(disk, 1),
        clock: Arc::clone(&ground.clock),
        seed,
    }
}

fn key_of(row: u64) -> Vec<u8> {
    row.to_be_bytes().to_vec()
}

/// Returns a value for `number`. All bytes of the value depend on the number.
fn value_of(number: u64) -> [u8; VALUE_BYTES] {
    let bytes = perdura_base::checksum::mix64(number).to_le_bytes();
    std::array::from_fn(|at| bytes[at % bytes.len()])
}

/// The settings of a history.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Plan {
    /// The size of the memory, percent of the table.
    pub cache: u64,
    /// The checkpoint interval as a multiple of the shortest interval.
    pub interval: u64,
    /// True if Δ records contain the sequence number of each update (appendix D.1).
    pub with_numbers: bool,
}

/// The disk and the counts that a history left.
pub(super) struct Crash {
    /// The disk as the history left it.
    pub disk: Arc<dyn Disk>,
    pub options: KeyedOptions,
    /// The number of updates.
    pub updates: u64,
    /// The number of updates after the last Δ record.
    pub tail: u64,
    /// The number of pages in memory that differed from their copies on disk.
    pub dirty: usize,
    /// The time of the history, seconds.
    pub seconds: f64,
    /// The size of the history's log, bytes.
    pub log_bytes: u64,
}

/// A running history.
struct History<'a> {
    keyed: &'a Keyed,
    rng: fastrand::Rng,
    rows: u64,
    updates: u64,
}

/// Runs a history over a table, and drops the database without closing it. The history ends when three conditions
/// hold. It has at least two updates for each page in memory, all checkpoints have been taken, and a whole interval
/// has passed since the last checkpoint began.
pub(super) fn run(
    ground: &Ground,
    table: &Table,
    (size, plan): (Size, Plan),
    seed: u64,
) -> Result<Crash> {
    let mut options = options(ground, table.part(plan.cache));
    options.with_numbers = plan.with_numbers;
    // After `notes` notes, a Δ record is written. The tail, which is the updates after the last Δ record, must have
    // fewer updates.
    let notes = to_u64(options.means().limits.notes);
    let tail = size.tail().min(notes - 1).max(1);
    let warm = 2 * to_u64(options.frames);
    crash(ground, (table, options), seed, |history| {
        history.until_the_end(warm, size.interval() * plan.interval)?;
        history.tail(tail)?;
        Ok(tail)
    })
}

/// Runs `updates` updates with `frames` pages in memory and without a checkpoint, and drops the database without
/// closing it.
pub(super) fn without_checkpoints(
    ground: &Ground,
    table: &Table,
    (frames, updates): (usize, u64),
    seed: u64,
) -> Result<Crash> {
    crash(ground, (table, options(ground, frames)), seed, |history| {
        while history.updates < updates {
            history.txn()?;
        }
        Ok(0)
    })
}

/// Opens a table on an overlay, so that the table's own disk stays unchanged. Runs `history`, which returns the number
/// of updates after the last Δ record. Drops the database without closing it.
fn crash(
    ground: &Ground,
    (table, options): (&Table, KeyedOptions),
    seed: u64,
    history: impl FnOnce(&mut History<'_>) -> Result<u64>,
) -> Result<Crash> {
    let disk = ground.over(&table.disk)?;
    let full_speed = Arc::new(UnsyncedDisk::new(Arc::clone(&disk)));
    let opened = Keyed::open(env(ground, full_speed.clone(), seed), options.clone())?;
    let keyed = opened.context("the table was made just now")?;
    let mut running = History {
        keyed: &keyed,
        rng: fastrand::Rng::with_seed(seed),
        rows: table.rows,
        updates: 0,
    };
    let begin = Instant::now();
    let tail = history(&mut running)?;
    let seconds = begin.elapsed().as_secs_f64();
    let updates = running.updates;
    let dirty = keyed.tree().pool().monitor().lock().dirty_count();
    let log_bytes = keyed.wal().stats().log_bytes;
    drop(keyed);
    full_speed.settle()?;
    Ok(Crash {
        disk,
        options,
        updates,
        tail,
        dirty,
        seconds,
        log_bytes,
    })
}

impl History<'_> {
    fn until_the_end(&mut self, warm: u64, interval: u64) -> Result<()> {
        let (mut checkpoints, mut since) = (0, 0);
        loop {
            self.txn()?;
            since += TXN_UPDATES;
            let is_over = since >= interval;
            checkpoints += self.go_on(if is_over {
                u64::MAX
            } else {
                STEPS * TXN_UPDATES
            })?;
            if !is_over {
                continue;
            }
            if checkpoints >= CHECKPOINTS && self.updates >= warm {
                return Ok(());
            }
            self.keyed.checkpoints().begin()?;
            since = 0;
        }
    }

    /// Runs a transaction and makes it durable. Then writes pages until the number of dirty pages is small enough.
    fn txn(&mut self) -> Result<()> {
        let mut txn = self.keyed.txns().begin();
        self.update(&mut txn, TXN_UPDATES)?;
        let _durable_below = self.keyed.txns().commit(txn);
        self.keyed.flush_all()?;
        while self.keyed.is_dirty() {
            let _one_io = self.keyed.txns().write_step()?;
        }
        Ok(())
    }

    /// Takes up to `steps` steps of the checkpoint under way. Returns 1 if the checkpoint has ended in these steps, and
    /// otherwise 0.
    fn go_on(&self, steps: u64) -> Result<u64> {
        for _ in 0..steps {
            match self.keyed.checkpoints().step()? {
                CheckpointProgress::Idle => return Ok(0),
                CheckpointProgress::Done => return Ok(1),
                CheckpointProgress::Working(_) => {}
                CheckpointProgress::Waiting => self.keyed.flush_all()?,
            }
        }
        Ok(0)
    }

    /// Writes a Δ record, and runs `updates` updates after it. The last transaction stays open. Each restart undoes
    /// this transaction, except a dry run.
    fn tail(&mut self, updates: u64) -> Result<()> {
        let writer = TreeWriter::new(Arc::clone(self.keyed.wal()));
        let eosl = self.keyed.wal().eosl(Rung::Disk);
        self.keyed.tree().cut_notes_now(eosl, &writer);
        let mut left = updates;
        while left > 0 {
            let mut txn = self.keyed.txns().begin();
            self.update(&mut txn, left.min(TXN_UPDATES))?;
            left = left.saturating_sub(TXN_UPDATES);
            if left > 0 {
                let _durable_below = self.keyed.txns().commit(txn);
            }
        }
        Ok(self.keyed.flush_all()?)
    }

    fn update(&mut self, txn: &mut KeyTxn, count: u64) -> Result<()> {
        for _ in 0..count {
            let key = key_of(self.rng.u64(..self.rows));
            self.updates += 1;
            let value = value_of(self.rows + self.updates);
            let written = loop {
                match self.keyed.txns().write(txn, TABLE, &key, Some(&value)) {
                    Err(Error::LogFull(_)) => self.keyed.flush_all()?,
                    written => break written?,
                }
            };
            ensure!(
                matches!(written, Write::Done(Some(_))),
                "a row of the table that nobody else has"
            );
        }
        Ok(())
    }
}

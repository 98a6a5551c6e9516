//! A run of updates. If the database is empty, the rows are inserted first. Then they are updated.

use std::time::Instant;

use anyhow::{Context, Result, bail};
use perdura::{Db, Error, Ticket};
use perdura_base::PartitionSet;

use super::zipf::Zipf;
use super::{Draw, Rows};
use crate::drive::archived::watched;
use crate::drive::{DriveOptions, Load, RunReport, Site, Submitted, drive};
use crate::kv::{fill_value, key_of, nth_key, random_bytes};

/// The only kind of transaction.
const KINDS: [&str; 1] = ["update"];
/// The number of inserted rows after which the population requests a flush of the log.
const NUDGE_EVERY: u64 = 1024;

/// The settings of a run, and its database.
#[derive(Debug, Clone)]
pub struct UpdateBench {
    /// The database. It must log the changed bytes.
    pub site: Site,
    /// The rows of the database.
    pub rows: Rows,
    /// The seed of all random values and choices.
    pub seed: u64,
    /// The driver's settings.
    pub drive: DriveOptions,
    /// True if the report is to contain the digest of the database after the run.
    pub digest: bool,
}

/// An ended run and the database, which is still open.
pub struct UpdateRun {
    /// The results.
    pub report: RunReport,
    /// The database.
    pub db: Db,
}

impl UpdateBench {
    /// Opens the database, inserts the rows if the database is empty, and updates them.
    ///
    /// # Errors
    /// Invalid rows; rows that do not match the database; errors of the engine.
    pub fn run(&self) -> Result<UpdateRun> {
        self.rows.check().map_err(Error::Usage)?;
        let db = self.site.open(|builder| builder)?;
        let begin = Instant::now();
        let populated = self.populate(&db)?;
        let load_seconds = match populated {
            true => begin.elapsed().as_secs_f64(),
            false => 0.0,
        };
        self.site.begin(&db)?;
        let mut report = RunReport {
            workload: "update",
            scheme: self.site.scheme.name(),
            streams: db.stats().log.streams,
            partitions: db.all_partitions().len(),
            seed: self.seed,
            load_seconds,
            ..RunReport::default()
        };
        self.measure(&db, &self.drive, &mut report)?;
        if self.digest {
            report.digest = Some(format!("{:016x}", db.digest()?));
        }
        Ok(UpdateRun { report, db })
    }

    /// Updates the rows of a populated database and enters the results in `report`.
    ///
    /// # Errors
    /// Errors of the engine.
    pub fn measure(&self, db: &Db, options: &DriveOptions, report: &mut RunReport) -> Result<()> {
        let zipf = zipf_of(&self.rows);
        let draw = |seed| Draw::new(&self.rows, zipf, seed);
        self.measure_drawn(db, options, report, draw)
    }

    /// Updates rows that `draw` draws, which makes a source of rows from a seed.
    ///
    /// # Errors
    /// Errors of the engine.
    pub fn measure_drawn(
        &self,
        db: &Db,
        options: &DriveOptions,
        report: &mut RunReport,
        draw: impl Fn(u64) -> Draw + Sync,
    ) -> Result<()> {
        let (driven, archive) = watched(db, || {
            self.site.with_snapshots(db, || {
                drive(db, options, KINDS.len(), |worker| {
                    self.updates(db, &draw, worker)
                })
            })
        })?;
        report.measured(options, &driven, &KINDS);
        report.archive = archive;
        Ok(())
    }

    /// Inserts the rows into an empty database. Returns whether it was empty.
    ///
    /// # Errors
    /// A database with other rows; errors of the engine.
    pub fn populate(&self, db: &Db) -> Result<bool> {
        if self.is_populated(db)? {
            return Ok(false);
        }
        let mut value = vec![0; self.rows.value_bytes()];
        let mut last = None;
        for nth in 0..self.rows.count {
            let row = nth_key(nth, self.rows.count);
            fill_value(row, self.seed, &mut value);
            let key = key_of(row);
            let parts = PartitionSet::from_iter([db.partition_of(&key)]);
            let ((), ticket) =
                db.transact(&parts, |tx| tx.put(db.database(0), &key, &value, None))?;
            last = Some(ticket);
            if nth % NUDGE_EVERY == 0 {
                db.nudge();
            }
        }
        last.map_or(Ok(()), |ticket: Ticket| db.wait(ticket))
            .context("populating")?;
        // The checkpoint shortens the log before the measurement.
        db.checkpoint()?;
        Ok(true)
    }

    /// Returns whether the database has rows.
    fn is_populated(&self, db: &Db) -> Result<bool> {
        let count = self.rows.count;
        let bytes_of = |row: u64| -> Result<Option<usize>> {
            let key = key_of(row);
            let parts = PartitionSet::from_iter([db.partition_of(&key)]);
            let (bytes, _) = db.transact(&parts, |tx| {
                let row = tx.get(db.database(0), &key)?;
                Ok::<_, Error>(row.map(|row| row.value_len()))
            })?;
            Ok(bytes)
        };
        let found = (bytes_of(0)?, bytes_of(count - 1)?, bytes_of(count)?);
        let value = self.rows.value_bytes();
        match found {
            (None, _, None) => Ok(false),
            (Some(a), Some(b), None) if (a, b) == (value, value) => Ok(true),
            _ => bail!(Error::Usage(format!(
                "the database does not have {count} rows of {} bytes; give its own numbers",
                self.rows.slot_bytes
            ))),
        }
    }

    fn updates<'a>(&self, db: &'a Db, draw: &impl Fn(u64) -> Draw, worker: usize) -> Updates<'a> {
        let worker = u64::try_from(worker).expect("a number of a thread");
        let seed = self.seed.wrapping_mul(1_000_003).wrapping_add(worker + 1);
        Updates {
            db,
            draw: draw(seed),
            rng: fastrand::Rng::with_seed(!seed),
            value_bytes: self.rows.value_bytes(),
            change: vec![0; self.rows.changed_bytes],
        }
    }
}

/// Returns Zipf's law for choosing rows at random. `None`: all rows are equally likely.
pub(super) fn zipf_of(rows: &Rows) -> Option<Zipf> {
    rows.zipf.map(|theta| Zipf::new(rows.count, theta))
}

/// A worker's updates.
struct Updates<'a> {
    db: &'a Db,
    draw: Draw,
    rng: fastrand::Rng,
    value_bytes: usize,
    change: Vec<u8>,
}

impl Load for Updates<'_> {
    fn step(&mut self) -> Result<Submitted> {
        let key = key_of(self.draw.row());
        random_bytes(&mut self.rng, &mut self.change);
        let at = self.rng.usize(..=self.value_bytes - self.change.len());
        let db = self.db;
        let parts = PartitionSet::from_iter([db.partition_of(&key)]);
        let (bytes, ticket) = db.transact(&parts, |tx| {
            tx.write_at(db.database(0), &key, at, &self.change)
        })?;
        anyhow::ensure!(bytes == self.value_bytes, "a row has become longer");
        Ok(Submitted {
            kind: 0,
            epoch: ticket.epoch,
            aborted: false,
            log_bytes: None,
        })
    }
}

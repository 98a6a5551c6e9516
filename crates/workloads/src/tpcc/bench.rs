//! A run of TPC-C: populates the database if it is empty, and drives and checks it.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use anyhow::{Context, Result, bail};
use perdura::{Abort, Builder, Db, Error, Pending};
use perdura_base::Epoch;

use super::check::{Condition, Tally};
use super::inputs::{Customer as Named, Input, Inputs, Kind, Mix, Scale};
use super::load::{Population, Row};
use super::procedures::{delivery, new_order, order_status, payment, stock_level};
use super::schema::{
    Customer, District, History, Item, NewOrder, Order, OrderLine, Stock, Warehouse,
};
use crate::drive::archived::watched;
use crate::drive::{Beside, DriveOptions, Load, Log, RunReport, Site, Submitted, drive};

/// The number of rows that a transaction of the population inserts.
const ROWS_PER_TXN: usize = 500;
/// The date of the population, and the first date of a run with `own_dates`. It is 2020-01-01, in seconds since 1970.
pub(crate) const FIRST_DATE: u32 = 1_577_836_800;
/// The interval, in transactions, at which the log bytes of a transaction are measured. The interval is prime, so that
/// the measurements do not follow the engine's periods.
const SIZED_EVERY: u64 = 61;

/// The settings of a run, and its database.
#[derive(Debug, Clone)]
pub struct TpccBench {
    /// The database.
    pub site: Site,
    /// The size of the database.
    pub scale: Scale,
    /// The mix of the terminals' inputs.
    pub mix: Mix,
    /// The seed of all random values.
    pub seed: u64,
    /// The driver's settings. `None`: the database is only populated.
    pub drive: Option<DriveOptions>,
    /// True if dates are computed from a transaction's number instead of the clock. A seed then always makes the same
    /// database.
    pub own_dates: bool,
    /// True if the report is to contain the digest of the database after the run.
    pub digest: bool,
}

/// An ended run and the database, which is still open.
pub struct TpccRun {
    /// The results.
    pub report: RunReport,
    /// The database.
    pub db: Db,
}

impl TpccBench {
    /// Opens the database, populates an empty database, and runs the load.
    ///
    /// # Errors
    /// An invalid scale; a scale other than the scale of the database; errors of the engine.
    pub fn run(&self) -> Result<TpccRun> {
        self.scale.check().map_err(Error::Usage)?;
        let db = self.open()?;
        let begin = Instant::now();
        let populated = self.populate(&db)?;
        let mut report = RunReport {
            workload: "tpcc",
            scheme: self.site.scheme.name(),
            streams: db.stats().log.streams,
            partitions: db.all_partitions().len(),
            seed: self.seed,
            load_seconds: if populated {
                begin.elapsed().as_secs_f64()
            } else {
                0.0
            },
            ..RunReport::default()
        };
        self.site.begin(&db)?;
        if let Some(options) = &self.drive {
            self.measure(&db, options, &mut report)?;
        }
        if self.digest {
            report.digest = Some(format!("{:016x}", db.digest()?));
        }
        Ok(TpccRun { report, db })
    }

    fn open(&self) -> Result<Db> {
        self.site.open(declare)
    }

    /// Drives a populated database and enters the results in `report`.
    ///
    /// # Errors
    /// Errors of the engine.
    pub(crate) fn measure(
        &self,
        db: &Db,
        options: &DriveOptions,
        report: &mut RunReport,
    ) -> Result<()> {
        let (driven, archive) = watched(db, || {
            self.site.with_snapshots(db, || {
                drive(db, options, Kind::ALL.len(), |worker| {
                    self.terminals(db, options.workers, worker)
                })
            })
        })?;
        report.measured(options, &driven, &Kind::NAMES);
        report.archive = archive;
        Ok(())
    }

    /// Drives the database again with the settings of `beside`. Enters the results in `report`, which already has the
    /// results of the previous run.
    ///
    /// # Errors
    /// Errors of [`Beside::run`].
    pub fn run_beside(&self, db: &Db, beside: Beside, report: &mut RunReport) -> Result<()> {
        let Some(options) = &self.drive else {
            return Ok(());
        };
        beside.run(db, self.site.log_dir(), options, report, |options| {
            drive(db, options, Kind::ALL.len(), |worker| {
                self.terminals(db, options.workers, worker)
            })
        })
    }

    /// Opens the database, which must be populated.
    ///
    /// # Errors
    /// The database does not exist, or is empty; errors of the engine.
    pub fn open_populated(&self) -> Result<Db> {
        let db = self.open()?;
        if !is_populated(&db)? {
            bail!(Error::Usage("the database has no warehouse".into()));
        }
        Ok(db)
    }

    /// Returns the terminals that the worker `worker` of `workers` serves.
    pub(crate) fn terminals<'a>(&self, db: &'a Db, workers: usize, worker: usize) -> Terminals<'a> {
        Terminals {
            db,
            inputs: Inputs::new(self.scale, self.mix.clone(), self.seed, worker, workers),
            date: self.own_dates.then_some(FIRST_DATE),
            sizes: workers == 1,
            steps: 0,
        }
    }

    /// Populates an empty database. Returns whether it was empty.
    pub(crate) fn populate(&self, db: &Db) -> Result<bool> {
        if is_populated(db)? {
            self.check_scale(db)?;
            return Ok(false);
        }
        let population = Population {
            scale: self.scale,
            seed: self.seed,
            date: u64::from(FIRST_DATE) * 1000,
        };
        let mut batch = Batch::new(db);
        population.items(|row| batch.take(row))?;
        batch.insert()?;
        let workers = self.drive.map_or(1, |drive| drive.workers);
        let next = AtomicUsize::new(1);
        std::thread::scope(|scope| {
            let work = || -> Result<()> {
                let mut batch = Batch::new(db);
                loop {
                    let w = next.fetch_add(1, Ordering::SeqCst);
                    let Some(w) = u16::try_from(w)
                        .ok()
                        .filter(|w| *w <= self.scale.warehouses)
                    else {
                        return batch.insert();
                    };
                    population.warehouse(w, |row| batch.take(row))?;
                }
            };
            let threads: Vec<_> = (0..workers).map(|_| scope.spawn(work)).collect();
            threads
                .into_iter()
                .try_for_each(|thread| match thread.join() {
                    Ok(done) => done,
                    Err(panic) => std::panic::resume_unwind(panic),
                })
        })
        .context("populating")?;
        // The checkpoint shortens the log before the measurement.
        db.checkpoint()?;
        Ok(true)
    }

    /// Refuses a scale other than the scale of the database.
    fn check_scale(&self, db: &Db) -> Result<()> {
        let scale = self.scale;
        let w = scale.warehouses;
        let fits = db.read(|tx| {
            Ok::<_, Error>(
                tx.get::<Warehouse>(w)?.is_some()
                    && (w == u16::MAX || tx.get::<Warehouse>(w + 1)?.is_none())
                    && tx.get::<Item>(scale.items)?.is_some()
                    && tx.get::<Item>(scale.items + 1)?.is_none()
                    && tx.get::<Customer>((1, 1, scale.customers))?.is_some()
                    && tx.get::<Customer>((1, 1, scale.customers + 1))?.is_none(),
            )
        })?;
        if !fits {
            bail!(Error::Usage(format!(
                "the database does not have {w} warehouses, {} items and {} customers in a district; give its \
                 own numbers",
                scale.items, scale.customers
            )));
        }
        Ok(())
    }
}

fn is_populated(db: &Db) -> Result<bool> {
    Ok(db.read(|tx| Ok::<_, Error>(tx.get::<Warehouse>(1)?.is_some()))?)
}

/// Adds the tables and procedures of TPC-C to a program's declarations.
pub fn declare(builder: Builder) -> Builder {
    builder
        .table::<Warehouse>()
        .table::<District>()
        .table::<Customer>()
        .table::<History>()
        .table::<Order>()
        .table::<NewOrder>()
        .table::<OrderLine>()
        .table::<Item>()
        .table::<Stock>()
        .procedure(new_order)
        .procedure(payment)
        .procedure(order_status)
        .procedure(delivery)
        .procedure(stock_level)
}

/// Checks the twelve conditions in a snapshot. Transactions may continue meanwhile.
///
/// # Errors
/// Errors of the engine.
pub fn check(db: &Db) -> Result<Vec<Condition>> {
    let mut tally = Tally::default();
    let snapshot = db.snapshot()?;
    snapshot.each::<Warehouse>(|row| tally.take(&Row::Warehouse(row)))?;
    snapshot.each::<District>(|row| tally.take(&Row::District(row)))?;
    snapshot.each::<Customer>(|row| tally.take(&Row::Customer(row)))?;
    snapshot.each::<History>(|row| tally.take(&Row::History(row)))?;
    snapshot.each::<Order>(|row| tally.take(&Row::Order(row)))?;
    snapshot.each::<NewOrder>(|row| tally.take(&Row::NewOrder(row)))?;
    snapshot.each::<OrderLine>(|row| tally.take(&Row::OrderLine(row)))?;
    Ok(tally.conditions())
}

/// Rows of the population that one transaction inserts.
struct Batch<'a> {
    db: &'a Db,
    rows: Vec<Row>,
}

impl<'a> Batch<'a> {
    fn new(db: &'a Db) -> Batch<'a> {
        let rows = Vec::with_capacity(ROWS_PER_TXN);
        Batch { db, rows }
    }

    fn take(&mut self, row: Row) -> Result<()> {
        self.rows.push(row);
        if self.rows.len() == ROWS_PER_TXN {
            self.insert()?;
        }
        Ok(())
    }

    fn insert(&mut self) -> Result<()> {
        self.db.write(|tx| {
            self.rows.iter().try_for_each(|row| match row {
                Row::Item(row) => tx.insert(row),
                Row::Warehouse(row) => tx.insert(row),
                Row::Stock(row) => tx.insert(row),
                Row::District(row) => tx.insert(row),
                Row::Customer(row) => tx.insert(row),
                Row::History(row) => tx.insert(row),
                Row::Order(row) => tx.insert(row),
                Row::OrderLine(row) => tx.insert(row),
                Row::NewOrder(row) => tx.insert(row),
            })
        })?;
        self.rows.clear();
        Ok(())
    }
}

/// The terminals of a worker's warehouses.
pub(crate) struct Terminals<'a> {
    db: &'a Db,
    inputs: Inputs,
    /// The date of the next transaction, seconds. `None`: each transaction uses the clock's time.
    date: Option<u32>,
    /// True if no other thread logs, so that the log bytes of a transaction can be measured.
    sizes: bool,
    steps: u64,
}

impl Load for Terminals<'_> {
    fn step(&mut self) -> Result<Submitted> {
        let input = self.inputs.next_input();
        let kind = input.kind().index();
        self.steps += 1;
        let before = (self.sizes && self.steps.is_multiple_of(SIZED_EVERY))
            .then(|| Log::counters(self.db).log_bytes);
        let done = self.submit(input)?;
        let log_bytes = before
            .filter(|_| done.is_some())
            .map(|before| Log::counters(self.db).log_bytes - before);
        Ok(Submitted {
            kind,
            // A rolled-back transaction has nothing that could become durable.
            epoch: done.unwrap_or(Epoch(0)),
            aborted: done.is_none(),
            log_bytes,
        })
    }
}

impl Terminals<'_> {
    /// Runs a transaction and returns its epoch. `None`: it was rolled back.
    fn submit(&mut self, input: Input) -> Result<Option<Epoch>> {
        let at = self.date.unwrap_or(0);
        self.date = self.date.map(|date| date + 1);
        let db = self.db;
        match input {
            Input::NewOrder { w, d, c, lines } => ended(db.submit(new_order, (w, d, c, lines, at))),
            Input::Payment {
                w,
                d,
                c_w,
                c_d,
                customer,
                amount,
            } => {
                let (c, last) = named(customer);
                ended(db.submit(payment, (w, d, c_w, c_d, c, last, amount, at)))
            }
            Input::OrderStatus { w, d, customer } => {
                let (c, last) = named(customer);
                ended(db.submit(order_status, (w, d, c, last)))
            }
            Input::Delivery { w, carrier } => ended(db.submit(delivery, (w, carrier, at))),
            Input::StockLevel { w, d, threshold } => {
                ended(db.submit(stock_level, (w, d, threshold)))
            }
        }
    }
}

/// Converts a customer to arguments: a number and no name, or 0 and a name.
fn named(customer: Named) -> (u32, String) {
    match customer {
        Named::Id(c) => (c, String::new()),
        Named::Last(last) => (0, last),
    }
}

/// Returns the epoch of a submitted transaction. `None`: it was rolled back.
pub(crate) fn ended<R>(done: Result<Pending<R>, Abort>) -> Result<Option<Epoch>> {
    match done {
        Ok(pending) => Ok(Some(pending.ticket().epoch)),
        Err(Abort::Refused(_)) => Ok(None),
        Err(Abort::Database(error)) => Err(error.into()),
    }
}

//! The database that a typed workload uses: its location, the contents of its log, and how it is opened and closed.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use perdura::yardstick::Yardstick;
use perdura::{Builder, Db, LogForm, Options, ValueForm, files};
use perdura_device::{Disk, FileDisk, MemDisk};
use perdura_recovery::disks::Disks;

use super::model::ModelledDisk;

/// The contents of a transaction's log record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogScheme {
    /// Nothing is logged, for measurements.
    None,
    /// The bytes that changed in pages.
    Differential,
    /// The rows that changed.
    Value(ValueForm),
    /// The procedure and its arguments.
    Command,
}

impl LogScheme {
    /// Returns the scheme's name, as users write it on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            LogScheme::None => "none",
            LogScheme::Differential => "differential",
            LogScheme::Value(_) => "value",
            LogScheme::Command => "command",
        }
    }

    fn apply(self, builder: Builder) -> Builder {
        match self {
            LogScheme::None => builder,
            LogScheme::Differential => builder.page_addressed(),
            LogScheme::Value(form) => builder.log(LogForm::Value).value_form(form),
            LogScheme::Command => builder.log(LogForm::Command),
        }
    }
}

/// The location of the database and the form of its log.
#[derive(Debug, Clone)]
pub struct Site {
    /// The engine's settings. The directories have no effect if the database is in memory.
    pub options: Options,
    /// True if the database is in memory, not in a directory.
    pub in_memory: bool,
    /// The form of the database's log.
    pub scheme: LogScheme,
    /// The time between two checkpoints. `None`: only the engine itself takes checkpoints.
    pub snapshot_every: Option<Duration>,
    /// The part of each commit that is written to the log and the archive. Without effect if the scheme logs nothing.
    pub yardstick: Yardstick,
    /// The speed of the log's disks, if the database is in memory.
    pub disk: ModelledDisk,
    /// True if the database is backed up into its archive before the measurement.
    pub back_up: bool,
}

impl Site {
    /// Returns a site that requests no checkpoints and no backup, on disks without a speed limit.
    #[must_use]
    pub fn new(options: Options, in_memory: bool, scheme: LogScheme) -> Site {
        Site {
            options,
            in_memory,
            scheme,
            snapshot_every: None,
            yardstick: Yardstick::Product,
            disk: ModelledDisk::default(),
            back_up: false,
        }
    }

    /// Opens the database with the tables and procedures that `declare` adds.
    ///
    /// # Errors
    /// Errors of the engine.
    pub fn open(&self, declare: impl FnOnce(Builder) -> Builder) -> Result<Db> {
        if !self.in_memory {
            ensure!(
                !matches!(self.yardstick, Yardstick::Cut(_)),
                "a log of cut effects cannot be replayed; it is for disks in memory"
            );
            let options = self.builder(declare).into_options();
            let (disks, locks) = files::open(&options)?;
            let archive = self.archive()?;
            let opened = Db::open_by(self.yardstick(), options, disks, locks, archive);
            return opened.context("opening the database");
        }
        self.open_on(self.memory(), self.archive()?, declare)
    }

    /// Returns the disk of the archive. `None`: the database has no archive.
    fn archive(&self) -> Result<Option<Arc<dyn Disk>>> {
        let dir = self.options.archive.as_ref();
        let disk = dir.map(|dir| FileDisk::new(dir).map(|disk| Arc::new(disk) as Arc<dyn Disk>));
        Ok(disk.transpose()?)
    }

    /// Returns the part of each commit that the log and the archive get.
    fn yardstick(&self) -> Yardstick {
        match self.scheme {
            LogScheme::None => Yardstick::Unlogged,
            LogScheme::Differential | LogScheme::Value(_) | LogScheme::Command => self.yardstick,
        }
    }

    /// Returns new disks in memory. The log disks have the speed of [`disk`](Self::disk).
    #[must_use]
    pub fn memory(&self) -> Disks {
        let memory = || Arc::new(MemDisk::new()) as Arc<dyn Disk>;
        let log = |_| self.disk.over(memory());
        Disks {
            data: memory(),
            images: vec![memory()],
            logs: (0..self.options.streams).map(log).collect(),
        }
    }

    /// Opens the database on the caller's disks. If `archive` is set, the database is archived onto it.
    ///
    /// # Errors
    /// Errors of the engine.
    pub fn open_on(
        &self,
        disks: Disks,
        archive: Option<Arc<dyn Disk>>,
        declare: impl FnOnce(Builder) -> Builder,
    ) -> Result<Db> {
        let options = self.builder(declare).into_options();
        let opened = Db::open_by(self.yardstick(), options, disks, Vec::new(), archive);
        opened.context("opening the database")
    }

    /// Makes the requested backup. The caller must have populated the database.
    ///
    /// # Errors
    /// Errors of the engine; a database without an archive.
    pub fn begin(&self, db: &Db) -> Result<()> {
        if self.back_up {
            db.back_up().context("backing the database up")?;
        }
        Ok(())
    }

    /// Returns the engine's settings with the form of the log, and with the tables and procedures that `declare` adds.
    pub fn builder(&self, declare: impl FnOnce(Builder) -> Builder) -> Builder {
        self.scheme
            .apply(declare(Builder::with(self.options.clone())))
    }

    /// Closes a database in a directory. Drops a database in memory without closing it.
    ///
    /// # Errors
    /// Errors of the engine.
    pub fn close(&self, db: Db) -> Result<()> {
        if self.in_memory {
            db.abandon();
            return Ok(());
        }
        db.close().context("closing the database")
    }

    /// Returns the directory of the first log stream. `None`: the database is in memory.
    #[must_use]
    pub fn log_dir(&self) -> Option<&Path> {
        let dir = self.options.log_dirs.first().unwrap_or(&self.options.data);
        (!self.in_memory).then_some(dir)
    }

    /// Runs `f`. Meanwhile takes checkpoints at the interval `snapshot_every`, if it is set.
    ///
    /// # Errors
    /// Errors of `f` and of a checkpoint.
    pub fn with_snapshots<R>(&self, db: &Db, f: impl FnOnce() -> Result<R>) -> Result<R> {
        let Some(every) = self.snapshot_every else {
            return f();
        };
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let taker = scope.spawn(|| -> Result<()> {
                let mut next = Instant::now() + every;
                while !is_over.load(Ordering::SeqCst) {
                    if Instant::now() < next {
                        std::thread::sleep(Duration::from_millis(20).min(every));
                        continue;
                    }
                    next += every;
                    db.checkpoint().context("a checkpoint under load")?;
                }
                Ok(())
            });
            let done = f();
            is_over.store(true, Ordering::SeqCst);
            let taken = match taker.join() {
                Ok(taken) => taken,
                Err(panic) => std::panic::resume_unwind(panic),
            };
            taken.and(done)
        })
    }
}

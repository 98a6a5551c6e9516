//! The database that a typed workload runs on: where it is, what its log says, how it ends.

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

/// What the log says of a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogScheme {
    /// Nothing: for measuring.
    None,
    /// The bytes that changed in pages.
    Differential,
    /// The rows that changed.
    Value(ValueForm),
    /// The procedure and its arguments.
    Command,
}

impl LogScheme {
    /// Its name on the command line.
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

/// Where the database is and what its log says.
#[derive(Debug, Clone)]
pub struct Site {
    /// The engine's settings; of a database in memory, its directories do not count.
    pub options: Options,
    /// In a directory, or in memory.
    pub in_memory: bool,
    /// What the log says.
    pub scheme: LogScheme,
    /// Take a checkpoint so often.
    pub snapshot_every: Option<Duration>,
    /// The share that the log and the archive of a scheme with a log get.
    pub yardstick: Yardstick,
    /// In memory: how fast the log's disks are.
    pub disk: ModelledDisk,
    /// Whether the database is backed up into its archive before it is measured.
    pub back_up: bool,
}

impl Site {
    /// A site without checkpoints of its own, without a backup, on disks without a limit.
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

    /// Opens it with the tables and procedures that `declare` adds.
    ///
    /// # Errors
    /// The engine's.
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

    /// The disk of its archive, if it has one.
    fn archive(&self) -> Result<Option<Arc<dyn Disk>>> {
        let dir = self.options.archive.as_ref();
        let disk = dir.map(|dir| FileDisk::new(dir).map(|disk| Arc::new(disk) as Arc<dyn Disk>));
        Ok(disk.transpose()?)
    }

    /// Returns the share of a commit that its log and its archive get.
    fn yardstick(&self) -> Yardstick {
        match self.scheme {
            LogScheme::None => Yardstick::Unlogged,
            LogScheme::Differential | LogScheme::Value(_) | LogScheme::Command => self.yardstick,
        }
    }

    /// New disks in memory, as slow as [`disk`](Self::disk) says.
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

    /// Opens it on disks that the caller supplies, archived onto `archive` if there is one.
    ///
    /// # Errors
    /// The engine's.
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

    /// Makes the backup that is asked for: called when the database is populated.
    ///
    /// # Errors
    /// The engine's; a database without an archive.
    pub fn begin(&self, db: &Db) -> Result<()> {
        if self.back_up {
            db.back_up().context("backing the database up")?;
        }
        Ok(())
    }

    /// The engine's settings, with what the log says and with the tables and procedures that `declare`
    /// adds.
    pub fn builder(&self, declare: impl FnOnce(Builder) -> Builder) -> Builder {
        self.scheme
            .apply(declare(Builder::with(self.options.clone())))
    }

    /// Closes it: cleanly, unless it is in memory.
    ///
    /// # Errors
    /// The engine's.
    pub fn close(&self, db: Db) -> Result<()> {
        if self.in_memory {
            db.abandon();
            return Ok(());
        }
        db.close().context("closing the database")
    }

    /// The directory of the first log stream, unless it is in memory.
    #[must_use]
    pub fn log_dir(&self) -> Option<&Path> {
        let dir = self.options.log_dirs.first().unwrap_or(&self.options.data);
        (!self.in_memory).then_some(dir)
    }

    /// Runs `f` while checkpoints are taken at the interval, if there is one.
    ///
    /// # Errors
    /// Those of `f`; what a checkpoint failed with.
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

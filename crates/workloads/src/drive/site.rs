//! The database that a typed workload runs on: where it is, what its log says, how it ends.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use perdura::{Builder, Db, LogForm, Options, Progress, ValueForm};
use perdura_device::{Disk, MemDisk};
use perdura_recovery::disks::Disks;

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
            LogScheme::None => builder.log(LogForm::None),
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
}

impl Site {
    /// Opens it with the tables and procedures that `declare` adds.
    ///
    /// # Errors
    /// The engine's.
    pub fn open(&self, declare: impl FnOnce(Builder) -> Builder) -> Result<Db> {
        if !self.in_memory {
            let opened = self.builder(declare).open();
            return opened.context("opening the database");
        }
        let memory = || Arc::new(MemDisk::new()) as Arc<dyn Disk>;
        let disks = Disks {
            data: memory(),
            images: vec![memory()],
            logs: (0..self.options.streams).map(|_| memory()).collect(),
        };
        self.open_on(disks, declare)
    }

    /// Opens it on disks that the caller supplies.
    ///
    /// # Errors
    /// The engine's.
    pub fn open_on(&self, disks: Disks, declare: impl FnOnce(Builder) -> Builder) -> Result<Db> {
        let options = self.builder(declare).into_options();
        Db::open_on(options, disks, Vec::new(), Arc::new(Progress::default()))
            .context("opening the database")
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

//! A crash of a database in memory, and its restarts.

use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use perdura::typed::CatalogRows;
use perdura::typed::replay::Replayer;
use perdura::{Options, Progress};
use perdura_heap::MemoryAccount;
use perdura_recovery::report::OrderedReport;
use perdura_recovery::restart::{RestartOptions, restart};
use perdura_recovery::{Level, Methods, Schedule};

use super::super::lab::{Plant, Speeds};
use super::stand::{Setting, Stand};

/// The disks that a crash left, and the digest of the database before it.
pub struct Crash {
    pub(super) setting: Setting,
    pub(super) seed: u64,
    pub(super) plant: Plant,
    pub(super) options: Options,
    pub(super) runs: u64,
    pub(super) digest: u64,
}

impl Crash {
    /// Restarts the database on `threads` threads, and checks that it has the state from before the crash. The disks
    /// stay unchanged, so that the crash can be restarted again.
    ///
    /// # Errors
    /// Errors of the restart; a state that differs from that before the crash.
    pub fn restart(&self, threads: usize, log_mbps: u64) -> Result<OrderedReport> {
        let speeds = Speeds {
            log: log_mbps,
            image: 0,
        };
        let env = self.plant.env(speeds, 0, self.seed);
        let options = &self.options;
        let replayer = Replayer::new(options.typed.clone(), options.value_bytes_max);
        let restarted = restart(&RestartOptions {
            life: perdura_base::LifeId(0),
            disks: env.disks,
            clock: env.clock,
            schedule: Schedule::new(Level::Four, threads),
            methods: Methods::default(),
            tree: perdura_recovery::tree::TreeMeans::default(),
            ordered: Some(Arc::new(replayer)),
            archived: None,
            mode: perdura_recovery::RestartMode::Dry,
            tail: Default::default(),
            memory: Arc::new(MemoryAccount::new(u64::MAX)),
            catalog: Arc::new(CatalogRows::default()),
            progress: Arc::new(Progress::default()),
        })?
        .context("the crash left a database")?;
        let digest = perdura::digest::digest(&restarted.data())?;
        ensure!(
            digest == self.digest,
            "a restart ended in {digest:016x}, and there was {:016x} before the crash",
            self.digest
        );
        restarted.report.ordered.context("the log has rows")
    }

    /// Opens the crashed database to run more transactions.
    ///
    /// # Errors
    /// Errors of the engine.
    pub fn reopen(self) -> Result<Stand> {
        Stand::on(self.setting, self.seed, self.plant, self.runs)
    }
}

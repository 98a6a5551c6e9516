//! The options of a database of transactions over keys.

use perdura_base::limits::STREAMS_MAX;
use perdura_base::{Error, Result, TableId};
use perdura_device::Access;
use perdura_recovery::tree::TreeMeans;
use perdura_recovery::{Level, Schedule};
use perdura_tree::monitor::Limits;
use perdura_wal::Scheme;

use crate::env::StealEnv;
use crate::options::{Route, check_log_sizes};

/// Settings. Scheme, size of pages and size of segments of an existing database come from its anchor.
#[derive(Debug, Clone)]
pub struct KeyedOptions {
    /// The logging scheme of a new database: logical or physiological.
    pub scheme: Scheme,
    /// Bytes of a page of a new database: a power of two from 512 to 32768.
    pub page_bytes: usize,
    /// Tables of a new database.
    pub tables: Vec<TableId>,
    /// Pages in memory.
    pub frames: usize,
    /// The part of them that may be dirty before the writer works, percent.
    pub dirty_percent: usize,
    /// The part of the pages in memory that a restart may leave dirty before it writes some,
    /// percent.
    pub restart_dirty_percent: usize,
    /// The access to the file of pages.
    pub access: Access,
    /// Threads that read ahead while the database restarts; 0: the restart itself, between two operations.
    pub readers: usize,
    /// The limits at which notes are cut. `None`: by the pool's size.
    pub limits: Option<Limits>,
    /// True if a Δ has the number of each update: a restart knows the dirty pages exactly, and the log is longer.
    pub with_numbers: bool,
    /// Size of a log segment of a new database, bytes.
    pub segment_bytes: u64,
    /// The longest log block, bytes.
    pub block_bytes_max: usize,
    /// Log bytes that may wait in a stream before changes are refused.
    pub queue_bytes_max: u64,
    /// The mirror of the log, if the caller has its blocks shipped ([`perdura_wal::Wal::ship_by`]). Commits are
    /// acknowledged when the mirror has them, and pages are written when the log's disk has them. `None`: the log has
    /// no mirror.
    pub mirror: Option<perdura_wal::TailOptions>,
    /// True to open without the part of the log that only other memories held.
    pub accept_loss: bool,
    /// The choice of a transaction's stream.
    pub route: Route,
    /// The schedule of a restart.
    pub schedule: Schedule,
    /// The restart method, or "auto".
    pub method: &'static str,
}

impl KeyedOptions {
    /// Returns the settings of a database of this scheme with one table, 1, and `frames` pages in
    /// memory.
    #[must_use]
    pub fn new(scheme: Scheme, frames: usize) -> KeyedOptions {
        KeyedOptions {
            scheme,
            page_bytes: 8192,
            tables: vec![TableId(1)],
            frames,
            dirty_percent: 25,
            restart_dirty_percent: 80,
            access: Access::Buffered,
            readers: 0,
            limits: None,
            with_numbers: false,
            segment_bytes: 64 << 20,
            block_bytes_max: 256 << 10,
            queue_bytes_max: 8 << 20,
            mirror: None,
            accept_loss: false,
            route: Route::Idlest,
            schedule: Schedule::new(Level::Two, 1),
            method: "auto",
        }
    }

    /// Returns the means of the tree's restart.
    #[must_use]
    pub fn means(&self) -> TreeMeans {
        let of_pool = TreeMeans::of_frames(self.frames);
        TreeMeans {
            limits: self.limits.unwrap_or(of_pool.limits),
            with_numbers: self.with_numbers,
            dirty_max: self.frames * self.restart_dirty_percent / 100,
            access: self.access,
            readers: self.readers,
            ..of_pool
        }
    }

    /// Returns the number of pages that may be dirty before the writer works.
    #[must_use]
    pub fn dirty_max(&self) -> usize {
        debug_assert!(self.dirty_percent <= 90, "checked when it was opened");
        (self.frames * self.dirty_percent / 100).max(1)
    }

    /// Checks the settings that an open uses.
    pub(super) fn check_open(&self) -> Result<()> {
        check_log_sizes(self.block_bytes_max)?;
        self.means().check()?;
        if !(1..=90).contains(&self.dirty_percent) {
            return Err(Error::Usage(format!(
                "1 to 90 percent of the pages in memory may be dirty, not {}",
                self.dirty_percent
            )));
        }
        Ok(())
    }

    /// Checks what a creation goes by.
    pub(super) fn check(&self, env: &StealEnv) -> Result<()> {
        self.check_open()?;
        if !self.scheme.has_tree() {
            return Err(Error::Usage(String::from(
                "transactions over keys need the scheme logical or physiological",
            )));
        }
        let logs = env.disks.logs.len();
        if !(1..=usize::from(STREAMS_MAX)).contains(&logs) {
            return Err(Error::Usage(format!(
                "1 to {STREAMS_MAX} log disks, not {logs}"
            )));
        }
        Ok(())
    }
}

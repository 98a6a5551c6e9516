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

/// Settings. For an existing database, the scheme and the sizes of pages and segments come from its anchor instead.
#[derive(Debug, Clone)]
pub struct KeyedOptions {
    /// The logging scheme of a new database: logical or physiological.
    pub scheme: Scheme,
    /// The page size of a new database, in bytes. It is a power of two from 512 to 32768.
    pub page_bytes: usize,
    /// The tables that a new database gets.
    pub tables: Vec<TableId>,
    /// The number of pages in memory.
    pub frames: usize,
    /// The percentage of the pages in memory that may be dirty. Beyond it, the writer writes pages.
    pub dirty_percent: usize,
    /// The percentage of the pages in memory that may be dirty during a restart. Beyond it, the restart writes pages.
    pub restart_dirty_percent: usize,
    /// The access mode of the file of pages.
    pub access: Access,
    /// The number of threads that read ahead during a restart. 0: the restart's own thread reads ahead, between two
    /// operations.
    pub readers: usize,
    /// The limits for notes of dirty and written pages. At a limit, the notes are put into a log record. `None`: limits
    /// that depend on the pool's size.
    pub limits: Option<Limits>,
    /// True if a Δ, a log record with the notes of dirty and written pages, also has the number of each update. The
    /// numbers tell a restart exactly which pages are dirty, but they make the log longer.
    pub with_numbers: bool,
    /// The size of the log segments of a new database, in bytes.
    pub segment_bytes: u64,
    /// The maximum size of a log block, in bytes.
    pub block_bytes_max: usize,
    /// The maximum number of log bytes that may wait in a stream. Beyond it, changes are refused.
    pub queue_bytes_max: u64,
    /// The options of the log's mirror, for a caller that ships the log's blocks ([`perdura_wal::Wal::ship_by`]). A
    /// commit may be acknowledged when the mirror has it. But a page may be written only when the log's disk has all
    /// changes of the page. `None`: the log has no mirror.
    pub mirror: Option<perdura_wal::TailOptions>,
    /// True to open the database even if part of the log is lost because only the mirror's memories held it.
    pub accept_loss: bool,
    /// The rule that chooses a transaction's stream.
    pub route: Route,
    /// The schedule of a restart.
    pub schedule: Schedule,
    /// The name of the restart method, or "auto".
    pub method: &'static str,
}

impl KeyedOptions {
    /// Returns settings for this scheme with one table, number 1, and `frames` pages in memory.
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

    /// Returns the settings that a restart of the tree uses.
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

    /// Returns how many pages may be dirty. Beyond this number, the writer writes pages.
    #[must_use]
    pub fn dirty_max(&self) -> usize {
        debug_assert!(self.dirty_percent <= 90, "checked when it was opened");
        (self.frames * self.dirty_percent / 100).max(1)
    }

    /// Checks the settings for opening a database.
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

    /// Checks the settings for creating a database.
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

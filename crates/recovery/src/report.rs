//! The progress of a running restart, and the report of a finished restart.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::time::Duration;

use perdura_base::moment::moment;
use serde::Serialize;

use crate::divergence::Divergences;

mod tree;

pub use tree::TreeReport;

/// The names of a restart's phases, in order.
pub const PHASES: [&str; 5] = ["start", "load", "index", "replay", "done"];

/// The progress of a restart, shared with the threads that answer clients during the restart.
#[derive(Debug, Default)]
pub struct Progress {
    phase: AtomicU8,
    done: AtomicU64,
    /// The bytes that jobs have found so far. A job adds its count of bytes as soon as the job knows the count.
    total: AtomicU64,
    /// The bytes to expect according to the anchor. They are the total until jobs have found more.
    expected: AtomicU64,
    /// The highest percentage that was returned.
    shown: AtomicU8,
}

impl Progress {
    pub(crate) fn enter(&self, phase: u8) {
        self.phase.store(phase, Ordering::Relaxed);
    }

    /// Sets the expected bytes to the processed bytes plus `bytes`. The caller computed `bytes` from the anchor.
    pub(crate) fn expect(&self, bytes: u64) {
        let done = self.loaded_bytes();
        self.expected
            .store(done.saturating_add(bytes), Ordering::Relaxed);
    }

    pub(crate) fn add_total(&self, bytes: u64) {
        self.total.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(crate) fn add_done(&self, bytes: u64) {
        self.done.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Returns the name of the current phase.
    #[must_use]
    pub fn phase(&self) -> &'static str {
        let phase = usize::from(self.phase.load(Ordering::Relaxed));
        PHASES.get(phase).copied().unwrap_or("start")
    }

    /// Returns how many bytes of image and log were processed.
    #[must_use]
    pub fn loaded_bytes(&self) -> u64 {
        self.done.load(Ordering::Relaxed)
    }

    /// Returns how many bytes image and log have: the bytes found so far or the bytes expected, whichever are more.
    #[must_use]
    pub fn total_bytes(&self) -> u64 {
        let found = self.total.load(Ordering::Relaxed);
        found.max(self.expected.load(Ordering::Relaxed))
    }

    /// Returns the percentage of the bytes that were processed, 0 to 100. The percentage never falls, even if jobs find
    /// more bytes than were expected.
    #[must_use]
    pub fn percent(&self) -> u8 {
        if self.phase() == "done" {
            return 100;
        }
        let total = self.total_bytes().max(1);
        let percent = (self.loaded_bytes().min(total) * 100) / total;
        let percent = u8::try_from(percent.min(99)).unwrap_or(99);
        self.shown
            .fetch_max(percent, Ordering::Relaxed)
            .max(percent)
    }

    /// Returns the estimated seconds left. Assumes that the rest is processed at the average rate of the `elapsed`
    /// time. `None`: nothing was processed yet.
    #[must_use]
    pub fn eta_seconds(&self, elapsed: Duration) -> Option<u64> {
        let done = self.loaded_bytes();
        let left = u128::from(self.total_bytes().saturating_sub(done));
        let ms = (elapsed.as_millis() * left).checked_div(u128::from(done))?;
        u64::try_from(ms.div_ceil(1000)).ok()
    }
}

/// The seconds that a restart spent, by kind of job. Depending on the level, jobs may overlap, so the sum may exceed
/// the total.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub struct Seconds {
    /// The whole restart.
    pub total: f64,
    /// Reading the image, on its busiest disk.
    pub backup_read: f64,
    /// Checking the image and putting it into memory, by the busiest thread.
    pub backup_play: f64,
    /// Finding the log's end and reading the log, on the busiest of the log's disks.
    pub log_read: f64,
    /// Checking and playing the log, by the busiest thread.
    pub log_play: f64,
    /// Time from the start of the image's first job to the end of the image's last job.
    pub backup_span: f64,
    /// Time from the start of the log's first job to the end of the log's last job, plus the time of the undo.
    pub log_span: f64,
    /// Building the indexes.
    pub index: f64,
    /// Undoing changes that the state must not have.
    pub undo: f64,
}

/// Counts of records by outcome.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Records {
    /// Records read.
    pub seen: u64,
    /// Records applied.
    pub applied: u64,
    /// Records skipped, by the reason for skipping.
    pub skipped: BTreeMap<&'static str, u64>,
    /// Records of unfinished transactions that a second pass undid.
    pub undone: u64,
}

/// Counts of bytes read, by source.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub struct Bytes {
    /// Bytes of the log.
    pub log: u64,
    /// Bytes of the image.
    pub backup: u64,
}

/// The report of the second pass, which plays ordered frames.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub struct OrderedReport {
    /// Frames read.
    pub frames: u64,
    /// Frames played.
    pub played: u64,
    /// Frames not played, because the image reflects them.
    pub reflected: u64,
    /// Bytes of the frames' payloads.
    pub bytes: u64,
    /// Duration of the whole pass.
    pub seconds: f64,
    /// Time spent reading, checking and queueing frames. Only one thread at a time does this.
    pub read_seconds: f64,
}

/// The amount of log that one owner of records has read since the log's end was decided.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct OwnerReads {
    /// The owner: `pages`, `ordered` or `tree`.
    pub owner: &'static str,
    /// Count of reads. Each read covers one unit, which is a piece of a stream.
    pub reads: u64,
    /// Bytes read, including the headers of blocks.
    pub bytes: u64,
}

/// The whole report of a restart.
#[derive(Debug, Clone, Default, Serialize)]
pub struct RestartReport {
    /// The name of the method, or the names of several methods with `+` between them.
    pub method: String,
    /// The scheme of the log.
    pub scheme: &'static str,
    /// The level of parallelism, 1 to 4.
    pub level: u8,
    /// Threads used.
    pub threads: usize,
    /// True if the database had been closed cleanly.
    pub clean: bool,
    /// True if this was the database's first start.
    pub created: bool,
    /// The slot of the loaded image, or `none`.
    pub image: String,
    /// The checkpoint epoch of the image.
    pub checkpoint: u64,
    /// The last epoch that the restart kept.
    pub durable_epoch: u64,
    /// The epoch that the anchor vouched for. A restart refuses a log that ends before this epoch. A log of one stream
    /// may end after this epoch. This end does not show whether newer blocks were lost or the last write was torn.
    pub vouched_epoch: u64,
    /// The time when the vouched epoch became durable, in microseconds since 1970.
    pub vouched_us: u64,
    /// The cut of each stream.
    pub cut: Vec<u64>,
    /// Blocks beyond the cut, which are void.
    pub void_blocks: u64,
    /// Transactions replayed.
    pub transactions: u64,
    /// The number of the new life of the database.
    pub incarnation: u32,
    /// Seconds by phase.
    pub seconds: Seconds,
    /// Counts of records by outcome.
    pub records: Records,
    /// Counts of bytes read, by source.
    pub bytes: Bytes,
    /// The amount of log that each owner has read. The owners are in the order in which they play.
    pub log_reads: Vec<OwnerReads>,
    /// Page faults of the process during the restart. In each page fault the system maps memory. 0 if page faults were
    /// not counted.
    pub page_faults: u64,
    /// Pages loaded from the image.
    pub pages_fetched: u64,
    /// Index pages loaded. Always 0, because the heap has no index pages on disk.
    pub index_pages_fetched: u64,
    /// Pages rebuilt from the older image.
    pub pages_rebuilt: u64,
    /// Rows found.
    pub rows: u64,
    /// Rows with an index entry from the image's sidecar.
    pub rows_from_sidecar: u64,
    /// The report on ordered frames, if the database may log any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ordered: Option<OrderedReport>,
    /// The report on the tree, if the database has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tree: Option<TreeReport>,
    /// Ordered frames whose results in the replay differ from the results before the crash. Empty unless the caller
    /// accepts differences.
    #[serde(skip_serializing_if = "Divergences::is_empty")]
    pub divergences: Divergences,
    /// The digest of all rows, if the caller requested it.
    pub digest: Option<String>,
    /// Notes for an operator.
    pub notes: Vec<String>,
}

impl RestartReport {
    /// Adds an undo that followed the redo to the report. `changes` is the count of undone changes. `ns` is the time of
    /// the undo, nanoseconds.
    pub fn took_back(&mut self, changes: u64, ns: u64) {
        let seconds = Duration::from_nanos(ns).as_secs_f64();
        self.records.undone += changes;
        self.seconds.undo += seconds;
        self.seconds.total += seconds;
    }
}

/// Returns the rate of reading `bytes` in `seconds`, as text. Empty if the reading took no time.
fn rate(bytes: u64, seconds: f64) -> String {
    let us = Duration::try_from_secs_f64(seconds)
        .unwrap_or_default()
        .as_micros();
    u128::from(bytes)
        .checked_div(us)
        .map_or_else(String::new, |rate| format!(" ({rate} MB/s)"))
}

impl fmt::Display for RestartReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write_restart(f)?;
        self.write_log(f)?;
        if let Some(ordered) = &self.ordered {
            write!(f, "{ordered}")?;
        }
        if let Some(tree) = &self.tree {
            write!(f, "{tree}")?;
        }
        for note in &self.notes {
            writeln!(f, "note      {note}")?;
        }
        Ok(())
    }
}

impl RestartReport {
    /// Writes the lines about the restart and its image.
    fn write_restart(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let s = &self.seconds;
        let way = if self.created {
            "new database"
        } else if self.clean {
            "after a clean shutdown"
        } else {
            "after a crash"
        };
        writeln!(
            f,
            "restart   {way}: {:.3} s, method {}, level {}, {} thread(s), incarnation {}, {} page faults",
            s.total, self.method, self.level, self.threads, self.incarnation, self.page_faults
        )?;
        writeln!(
            f,
            "image     {} (checkpoint {}): {} pages, {} bytes, read {:.3} s{}, played {:.3} s, {} \
             page(s) rebuilt",
            self.image,
            self.checkpoint,
            self.pages_fetched,
            self.bytes.backup,
            s.backup_read,
            rate(self.bytes.backup, s.backup_read),
            s.backup_play,
            self.pages_rebuilt
        )
    }

    /// Writes the lines about page records and indexes.
    fn write_log(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let s = &self.seconds;
        writeln!(
            f,
            "log       {} transactions, {} records in {} bytes, {} applied, read {:.3} s{}, \
             played {:.3} s",
            self.transactions,
            self.records.seen,
            self.bytes.log,
            self.records.applied,
            s.log_read,
            rate(self.bytes.log, s.log_read),
            s.log_play
        )?;
        writeln!(
            f,
            "          vouched up to epoch {}, {}; found up to epoch {}, {} void block(s) behind it; \
             {} record(s) undone, {:.3} s",
            self.vouched_epoch,
            moment(self.vouched_us),
            self.durable_epoch,
            self.void_blocks,
            self.records.undone,
            s.undo
        )?;
        if let [_, _, ..] = self.log_reads.as_slice() {
            let by = self.log_reads.iter();
            let by = by.map(|by| format!("{} {} of {} bytes", by.owner, by.reads, by.bytes));
            writeln!(f, "          reads: {}", by.collect::<Vec<_>>().join(", "))?;
        }
        for (reason, count) in &self.records.skipped {
            writeln!(f, "          {count} skipped: {reason}")?;
        }
        writeln!(
            f,
            "index     {} rows, {} from the sidecar, {:.3} s",
            self.rows, self.rows_from_sidecar, s.index
        )
    }
}

impl fmt::Display for OrderedReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "ordered   {} frames in {} bytes, {} played, {} in the image already, {:.3} s, {:.3} s of that read",
            self.frames, self.bytes, self.played, self.reflected, self.seconds, self.read_seconds
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_that_of_the_time_it_took() {
        assert_eq!(rate(3_000_000, 0.002), " (1500 MB/s)");
        assert_eq!(rate(3_000_000, 0.0), "");
        assert_eq!(rate(3_000_000, f64::NAN), "");
    }

    /// Regression test: a client once saw 99 % before the log's bytes were added to the total, and 2 % afterwards.
    #[test]
    fn the_percentage_never_falls_and_counts_the_log_from_the_start() {
        let progress = Progress::default();
        progress.expect(1000);
        progress.add_total(100);
        progress.add_done(100);
        assert_eq!(progress.percent(), 10, "the log is expected");
        progress.add_total(900);
        progress.add_done(500);
        assert_eq!(progress.percent(), 60);
        // The case of a damaged page: the restart makes a new plan and reads more of the log.
        progress.add_total(9000);
        assert_eq!(progress.percent(), 60);
        progress.expect(3000);
        progress.add_done(9000);
        assert!(progress.percent() >= 95);
        progress.enter(4);
        assert_eq!(progress.percent(), 100);
    }

    #[test]
    fn the_estimate_follows_the_rate_so_far() {
        let progress = Progress::default();
        let elapsed = Duration::from_millis(1100);
        assert_eq!(progress.eta_seconds(elapsed), None);
        progress.add_total(100);
        progress.add_done(25);
        assert_eq!(progress.percent(), 25);
        assert_eq!(progress.eta_seconds(elapsed), Some(4));
        progress.enter(4);
        assert_eq!(progress.percent(), 100);
    }
}

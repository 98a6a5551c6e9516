//! The report of a tree's restart.

use std::fmt;

use perdura_tree::dirty_pages::Skip;
use perdura_tree::redo::Redone;
use serde::Serialize;

/// The figures of a tree's restart.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub struct TreeReport {
    /// The redo start.
    pub redo_start: u64,
    /// Leaves read.
    pub data_pages_fetched: u64,
    /// Pages read that lead to others.
    pub index_pages_fetched: u64,
    /// Of all these, those that were read before redo wanted them.
    pub pages_read_ahead: u64,
    /// The reads that took.
    pub reads_ahead: u64,
    /// Times that redo waited for a leaf.
    pub data_stalls: u64,
    /// Times that it waited for another page.
    pub index_stalls: u64,
    /// Pages written to make room.
    pub pages_written: u64,
    /// Pages in memory.
    pub frames: usize,
    /// Pages of the table of dirty pages.
    pub dirty_pages: usize,
    /// Operations behind the redo start.
    pub operations: u64,
    /// Of these, those that were redone.
    pub applied: u64,
    /// Those whose page the table did not have.
    pub skipped_clean: u64,
    /// Those whose page became dirty later.
    pub skipped_early: u64,
    /// Those that their page had.
    pub had: u64,
    /// Those whose row has moved to another page with all that is older.
    pub moved: u64,
    /// Transactions that are to be undone.
    pub losers: u64,
    /// Making the log and the pages durable and whole.
    pub repair_seconds: f64,
    /// Analysis, and the redo of changes of structure.
    pub analysis_seconds: f64,
    /// The redo of operations.
    pub redo_seconds: f64,
    /// Of that, loading the pages that lead to others.
    pub index_seconds: f64,
}

impl TreeReport {
    /// Counts an operation.
    pub(crate) fn note(&mut self, redone: Redone) {
        self.operations += 1;
        let counter = match redone {
            Redone::Applied => &mut self.applied,
            Redone::Skipped(Skip::Clean) => &mut self.skipped_clean,
            Redone::Skipped(Skip::BeforeRLsn) => &mut self.skipped_early,
            Redone::Had => &mut self.had,
            Redone::Moved => &mut self.moved,
        };
        *counter += 1;
    }
}

impl fmt::Display for TreeReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "tree      redo start {}, {} operations, {} redone, {} + {} skipped, {} there, {} \
             moved, {} transaction(s) to undo",
            self.redo_start,
            self.operations,
            self.applied,
            self.skipped_clean,
            self.skipped_early,
            self.had,
            self.moved,
            self.losers
        )?;
        writeln!(
            f,
            "          {} leaves and {} other pages read, {} of them ahead, {} + {} waits, {} written, {} in the table, {} in memory; repair {:.3} s, analysis {:.3} s, redo {:.3} s",
            self.data_pages_fetched,
            self.index_pages_fetched,
            self.pages_read_ahead,
            self.data_stalls,
            self.index_stalls,
            self.pages_written,
            self.dirty_pages,
            self.frames,
            self.repair_seconds,
            self.analysis_seconds,
            self.redo_seconds
        )
    }
}

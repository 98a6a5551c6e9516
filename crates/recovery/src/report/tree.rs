//! The report of a tree's restart.

use std::fmt;

use perdura_tree::dirty_pages::Skip;
use perdura_tree::redo::Redone;
use serde::Serialize;

/// The counts and times of a tree's restart.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub struct TreeReport {
    /// The global sequence number of the redo start.
    pub redo_start: u64,
    /// Count of leaf pages that were read.
    pub data_pages_fetched: u64,
    /// Inner pages read.
    pub index_pages_fetched: u64,
    /// Leaves and inner pages that were read ahead of redo.
    pub pages_read_ahead: u64,
    /// Count of reads that read pages ahead. One read may cover several pages.
    pub reads_ahead: u64,
    /// Count of times that redo waited for a leaf.
    pub data_stalls: u64,
    /// Count of times that redo waited for an inner page.
    pub index_stalls: u64,
    /// Pages written to make room in memory.
    pub pages_written: u64,
    /// Pages that fit in memory.
    pub frames: usize,
    /// Pages in the table of dirty pages.
    pub dirty_pages: usize,
    /// Operations in the log after the redo start.
    pub operations: u64,
    /// Operations that were redone.
    pub applied: u64,
    /// Operations skipped because their page is not in the table of dirty pages.
    pub skipped_clean: u64,
    /// Operations skipped because the table of dirty pages shows that the page became dirty after the operation.
    pub skipped_early: u64,
    /// Operations skipped because the page already has the change.
    pub had: u64,
    /// Operations skipped because the row has moved to a new page that already has the change.
    pub moved: u64,
    /// Transactions to be undone.
    pub losers: u64,
    /// Time to make the log durable and to repair torn pages.
    pub repair_seconds: f64,
    /// Time of the analysis, which also redoes changes of structure.
    pub analysis_seconds: f64,
    /// Time of the redo of operations.
    pub redo_seconds: f64,
    /// The part of the redo time that was spent on loading inner pages.
    pub index_seconds: f64,
}

impl TreeReport {
    /// Counts an operation by its outcome.
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

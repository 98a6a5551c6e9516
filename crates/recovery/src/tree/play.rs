//! The redo of a tree's operations. First the analysis makes the table of dirty pages, if the method uses such a table.
//! Then redo finds the page of each operation.
//!
//! # Source
//! *Implementing Performance Competitive Logical Recovery* (002), section 5: Log0, Log1, Log2, SQL1, SQL2; ARIES is our
//! addition.

use perdura_base::{Gsn, Pid, Result};
use perdura_formats::operation::OperationFrame;
use perdura_formats::tree_record::{Delta, EndCheckpoint, Structure, TreeRecord, Writes};
use perdura_tree::analysis::{AriesAnalysis, Detail, LogicalAnalysis, SqlAnalysis};
use perdura_tree::contract::{Answer, Operation};
use perdura_tree::dirty_pages::DirtyPages;
use perdura_tree::redo::Redone;
use perdura_tree::tree::Tree;

use crate::player::Table;

/// The analysis that makes the table of dirty pages. The variants differ in the kind of records that the analysis uses.
/// `None` makes no table.
pub(super) enum Analysis {
    None,
    Deltas(LogicalAnalysis),
    Writes(SqlAnalysis),
    Checkpoint(AriesAnalysis),
}

impl Analysis {
    pub fn new(table: Table, rssp: Gsn) -> Analysis {
        match table {
            Table::None => Analysis::None,
            Table::Deltas => Analysis::Deltas(LogicalAnalysis::new(Detail::Standard, rssp)),
            Table::Writes => Analysis::Writes(SqlAnalysis::new()),
            Table::Checkpoint => Analysis::Checkpoint(AriesAnalysis::new()),
        }
    }

    /// Processes a record of the tree. The record's number `gsn` is above the redo start.
    pub fn record(&mut self, gsn: Gsn, record: &TreeRecord) {
        match record {
            TreeRecord::Structure(structure) => self.structure(gsn, structure),
            TreeRecord::Delta(delta) => self.delta(delta),
            TreeRecord::Writes(writes) => self.writes(writes),
            TreeRecord::EndCheckpoint(end) => self.checkpoint(end),
            TreeRecord::RedoStart => {}
        }
    }

    fn structure(&mut self, gsn: Gsn, structure: &Structure) {
        for (pid, _) in &structure.changes {
            self.update(*pid, gsn);
        }
    }

    fn delta(&mut self, delta: &Delta) {
        if let Analysis::Deltas(analysis) = self {
            analysis.delta(delta);
        }
    }

    fn writes(&mut self, writes: &Writes) {
        if let Analysis::Writes(analysis) = self {
            analysis.writes(writes);
        }
    }

    fn checkpoint(&mut self, end: &EndCheckpoint) {
        if let Analysis::Checkpoint(analysis) = self {
            analysis.checkpoint(end);
        }
    }

    /// Processes an update of page `pid`. The update is by the operation or record with the number `gsn`, which is
    /// above the redo start.
    fn update(&mut self, pid: Pid, gsn: Gsn) {
        match self {
            Analysis::None | Analysis::Deltas(_) => {}
            Analysis::Writes(analysis) => analysis.update(pid, gsn),
            Analysis::Checkpoint(analysis) => analysis.update(pid, gsn),
        }
    }

    /// Processes those operations of `frame` whose numbers are above `rssp`, the redo start.
    pub fn operations(&mut self, frame: &OperationFrame<'_>, rssp: Gsn) {
        for ((_, act), gsn) in frame.acts.iter().zip(frame.first.0..) {
            if let Some(row) = act.row()
                && Gsn(gsn) > rssp
            {
                self.update(row.pid, Gsn(gsn));
            }
        }
    }

    /// Ends the analysis. Returns the table of dirty pages, and redo's method of finding pages.
    pub fn into_redo(self) -> Redo {
        match self {
            Analysis::None => Redo::ByKey(None),
            Analysis::Deltas(analysis) => Redo::ByKey(Some(analysis.finish())),
            Analysis::Writes(analysis) => Redo::ByPage(analysis.finish()),
            Analysis::Checkpoint(analysis) => Redo::ByPage(analysis.finish()),
        }
    }
}

/// The two methods of finding an operation's page in redo, each with its table of dirty pages.
pub(super) enum Redo {
    ByKey(Option<DirtyPages>),
    ByPage(DirtyPages),
}

impl Redo {
    /// Returns the table of dirty pages, if there is one.
    pub fn table(&self) -> Option<&DirtyPages> {
        match self {
            Redo::ByKey(table) => table.as_ref(),
            Redo::ByPage(table) => Some(table),
        }
    }

    /// Returns whether redo needs page `pid` for the operation `gsn`. Without a table of dirty pages, redo needs every
    /// page.
    pub fn wants(&self, pid: Pid, gsn: Gsn) -> bool {
        self.table()
            .is_none_or(|table| table.skips(pid, gsn).is_none())
    }

    /// Redoes an operation.
    pub fn one(
        &mut self,
        tree: &Tree,
        gsn: Gsn,
        operation: &Operation<'_>,
    ) -> Result<Answer<Redone>> {
        match self {
            Redo::ByKey(table) => tree.redo_by_key(gsn, operation, table.as_mut()),
            Redo::ByPage(table) => tree.redo_by_page(gsn, operation, table),
        }
    }
}

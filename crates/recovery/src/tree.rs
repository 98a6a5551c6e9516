//! The restart of a tree: makes readable tables from the log and the pages on disk.
//!
//! ```text
//! log durable ─► pages repaired ─► analysis, changes of structure redone ─► operations redone ─► anchor ─► losers undone ─► work
//! ```
//! 1. The log is made durable, because the next steps write pages.
//! 2. Pages that a crash has torn are restored from the double-write file.
//! 3. *Analysis* reads the tree's records, beginning at the redo start. It redoes the changes of structure, and makes a
//!    table of the pages that were dirty. If the method needs operations to make this table, analysis reads them too.
//! 4. *Redo* reads the operations of all transactions in the order of their numbers. For most operations the table
//!    shows, without a read of the operation's page, that the page already has the change. Redo also notes the
//!    *losers*, the transactions that have not ended.
//! 5. The restart names the new life in the anchor. Losers are undone only after that, in the new life. An earlier undo
//!    would be wrong: after a crash before the anchor's update, the next restart would log the losers' compensations a
//!    second time.
//!
//! | module | one idea |
//! |---|---|
//! | `log` | the numbered frames of all streams, in the order of their numbers |
//! | [`play`] | the tables of dirty pages, in which the methods differ |
//! | [`losers`] | the transactions that are open at the log's end |
//! | `ahead` | reading pages before redo needs them |
//! | [`live`] | a tree in an open database, and its work in a checkpoint |
//! | [`writing`] | making a transaction's changes, in pages and log |
//! | `settle` | the undo of losers |
//! | [`contents`](mod@contents) | a digest of all rows |
//! | [`writer`] | the tree's records in the log |
//!
//! # Source
//! *Implementing Performance Competitive Logical Recovery* (002), sections 4 and 5.
//!
//! # Deviations
//! * One pass of analysis reads any number of streams, and merges their frames by number.
//! * In the paper two components recover in order: the DC restores its structure, and then the TC sends operations.
//!   Here this module performs both steps.

mod ahead;
pub mod contents;
pub mod live;
mod log;
pub mod losers;
pub mod play;
pub(crate) mod settle;
pub mod writer;
pub mod writing;

use std::sync::Arc;

use perdura_base::num::to_u64;
use perdura_base::{Error, Gsn, Result};
use perdura_device::{Access, Clock};
use perdura_formats::operation::{self, Malformed, OperationFrame};
use perdura_formats::tree_record::TreeRecord;
use perdura_tree::contract::{Answer, Operation, insist};
use perdura_tree::dirty_pages::DirtyPages;
use perdura_tree::file::{DOUBLE, PAGES, PageFile, Shape};
use perdura_tree::monitor::{Monitor, Tells};
use perdura_tree::read_ahead::ReadAhead;
use perdura_tree::rebuilt::Rebuilt;
use perdura_tree::redo::Redone;
use perdura_tree::tree::Tree;
use perdura_wal::anchor::ANCHOR_PATH;
use perdura_wal::{FrameKind, Origin, Scheme};

use crate::anchor::Anchor;
use crate::found::is_missing;
use crate::options::RestartOptions;
use crate::player::{Ahead, TreePlay};
use crate::report::TreeReport;
use crate::route::{WRITERS_BUG, refuse};
use crate::sections::tree::{TREE_DIR, TreeAnchor};
use crate::streams::Decided;

use ahead::Operations;
use log::{Numbered, NumberedLog, Wanted};
use losers::{Loser, OpenTxns};
use play::{Analysis, Redo};

pub use crate::tree_means::TreeMeans;

/// The number of bits by which a life's number is shifted left to give the life's first note number. So no note number
/// is used twice, and a restart need not search for the highest note number.
const NOTE_SHIFT: u32 = 40;

/// A restarted tree.
pub struct RestartedTree {
    /// The tree. Its pages have the state of the log's end, including the changes of losers.
    pub tree: Arc<Tree>,
    /// The open transactions at the log's end, which must be undone.
    pub losers: Vec<Loser>,
}

/// The inputs for restarting a tree.
pub(crate) struct Part<'a> {
    pub options: &'a RestartOptions,
    pub anchor: &'a Anchor,
    pub tree: TreeAnchor,
    pub log: &'a Decided,
    pub play: TreePlay,
}

/// Opens the files of the tree that the anchor names.
pub(crate) fn open_pages(
    options: &RestartOptions,
    anchor: &Anchor,
    tree: &TreeAnchor,
    access: Access,
) -> Result<(PageFile, Shape)> {
    let shape = shape(anchor, tree);
    let file = PageFile::open(options.disks.data.as_ref(), TREE_DIR, shape, access);
    match file {
        Err(error) if is_missing(&error) => Err(Error::corrupt(
            format!("{TREE_DIR}/{PAGES}"),
            0,
            "the tree's pages and their double-write file, which the anchor names",
            "no such file",
            "No other file contains the rows of the tree. Nothing was changed. Restore the files \
             from a backup.",
        )),
        file => Ok((file?, shape)),
    }
}

/// Returns the shape of a tree's pages.
pub(crate) fn shape(anchor: &Anchor, tree: &TreeAnchor) -> Shape {
    let database = anchor.uuid.0.first_chunk();
    Shape {
        page_bytes: tree.page_bytes,
        database: *database.expect("a uuid has 16 bytes"),
    }
}

impl Part<'_> {
    /// Restarts the tree. Must be called after the log was made durable.
    pub fn run(&self) -> Result<(RestartedTree, TreeReport)> {
        let clock = self.options.clock.as_ref();
        let begin = clock.mono_ns();
        self.check_redo_start()?;
        let access = self.means().access;
        let (file, shape) = open_pages(self.options, self.anchor, &self.tree, access)?;
        self.check_reach(file.reach()?)?;
        self.check_age(&file)?;
        file.repair()?;
        // The age is checked again, because the repair may have replaced the meta page itself.
        self.check_age(&file)?;
        let mut report = TreeReport {
            redo_start: self.tree.rssp.0,
            frames: self.means().frames,
            repair_seconds: since(clock, begin),
            ..TreeReport::default()
        };
        let begin = clock.mono_ns();
        let tells = match self.tree.scheme {
            Scheme::Physiological => Tells::Writes,
            _ if self.means().with_numbers => Tells::DeltasWithNumbers,
            _ => Tells::Deltas,
        };
        let first_note = u64::from(self.anchor.incarnation.0 + 1) << NOTE_SHIFT;
        let monitor = Monitor::new(self.means().limits, first_note, tells);
        let tree = Tree::new(file, shape, self.means().frames, monitor);
        let redo = self.analyse(&tree)?;
        report.dirty_pages = redo.table().map_or(0, DirtyPages::len);
        self.insist(&tree, || tree.find_tables())?;
        report.analysis_seconds = since(clock, begin);
        let begin = clock.mono_ns();
        if self.play.ahead.loads_index(self.play.table) {
            ahead::preload(&tree, self.means().readers);
            report.index_seconds = since(clock, begin);
        }
        let open = self.redo(&tree, redo, &mut report)?;
        report.redo_seconds = since(clock, begin);
        let losers = open.into_losers();
        report.losers = to_u64(losers.len());
        let counts = tree.pool().counts();
        report.data_pages_fetched = counts.data_fetches;
        report.index_pages_fetched = counts.index_fetches;
        report.pages_read_ahead = counts.ahead_pages;
        report.reads_ahead = counts.ahead_reads;
        report.data_stalls = counts.data_stalls;
        report.index_stalls = counts.index_stalls;
        report.pages_written = counts.writes;
        let judged = report.applied
            + report.had
            + report.moved
            + report.skipped_clean
            + report.skipped_early;
        assert_eq!(
            judged, report.operations,
            "each operation is redone or not, for one reason"
        );
        tree.pool().monitor().lock().end_restart();
        let tree = Arc::new(tree);
        Ok((RestartedTree { tree, losers }, report))
    }

    fn means(&self) -> &TreeMeans {
        &self.options.tree
    }

    /// Returns the end of the stable log, which is the cut: all of the log up to the cut is durable.
    fn eosl(&self) -> Gsn {
        self.log.cut.gsn_max
    }

    /// Repeats `call` while it finds no free frame of memory for a page. Between two attempts, writes dirty pages,
    /// which can free a frame.
    fn insist<T>(&self, tree: &Tree, call: impl FnMut() -> Result<Answer<T>>) -> Result<T> {
        insist(call, || tree.pool().write_step(self.eosl()))?.ok_or_else(|| {
            Error::Usage(format!(
                "{} pages of memory are too few for this tree. Give more pages",
                self.means().frames
            ))
        })
    }

    /// Fails if the pages have changes beyond the end of the log. A log that has lost its newest blocks may look like a
    /// log with a torn tail. Without this check, pages would then have changes that no record describes.
    fn check_reach(&self, newest: Gsn) -> Result<()> {
        let last = log::last_number(&self.log.scans)?.max(self.tree.rssp);
        if newest <= last {
            return Ok(());
        }
        Err(Error::corrupt(
            format!("{TREE_DIR}/{DOUBLE}"),
            20,
            format!("pages of a log whose last number is {last}"),
            format!("a page with number {newest}, which the log must contain"),
            "The newest blocks of the log are missing or damaged, or pages and log are from \
             different times. Nothing was changed. Restore the log's files from a backup.",
        ))
    }

    /// Fails if the pages are older than the anchor's redo start. Every complete checkpoint writes its redo start into
    /// the meta page. So if the meta page's last change is before the anchor's redo start, the file is an old copy.
    fn check_age(&self, file: &PageFile) -> Result<()> {
        let Some(newest) = file.newest_structure()? else {
            return Ok(());
        };
        let rssp = self.tree.rssp;
        if newest >= rssp {
            return Ok(());
        }
        Err(Error::corrupt(
            format!("{TREE_DIR}/{PAGES}"),
            0,
            format!(
                "the pages of checkpoint {}, with its redo start {rssp} in the meta page",
                self.tree.k
            ),
            format!("a meta page whose last change is {newest}"),
            "This file is an older copy. No row was changed. Put the newest file back, or \
             restore all files of the database from one backup.",
        ))
    }

    /// Writes some dirty pages if many pages are dirty. If all pages in memory became dirty, redo would have to wait
    /// longer for a free frame.
    fn tend(&self, tree: &Tree) -> Result<()> {
        let dirty = tree.pool().monitor().lock().dirty_count();
        if dirty > self.means().dirty_max {
            tree.pool().write_step(self.eosl())?;
        }
        Ok(())
    }

    /// Fails if the redo start lies beyond the end of the log.
    fn check_redo_start(&self) -> Result<()> {
        let (rssp, last) = (self.tree.rssp, self.log.cut.gsn_max);
        if rssp <= last {
            return Ok(());
        }
        Err(Error::corrupt(
            ANCHOR_PATH,
            0,
            format!("the redo start of a log whose last number is {last}"),
            format!("redo start {rssp}"),
            "Anchor and log are from different times. Nothing was changed. Restore both from one \
             backup.",
        ))
    }

    /// Redoes the changes of structure, and makes the table of dirty pages.
    fn analyse(&self, tree: &Tree) -> Result<Redo> {
        let rssp = self.tree.rssp;
        let table = self.play.table;
        let wanted = match table.reads_operations() {
            true => Wanted::All,
            false => Wanted::Records,
        };
        assert!(rssp <= self.eosl(), "the redo start was checked");
        let mut analysis = Analysis::new(table, rssp);
        let mut rebuilt = Rebuilt::default();
        let mut log = NumberedLog::new(&self.log.scans, wanted, rssp);
        while let Some(frame) = log.next()? {
            if frame.head.kind == FrameKind::Operations {
                analysis.operations(&operations_of(&frame)?, rssp);
                continue;
            }
            let (gsn, record) = record_of(&frame)?;
            if gsn <= rssp {
                continue;
            }
            analysis.record(gsn, &record);
            rebuilt.judge(gsn, &record)?;
            if let TreeRecord::Structure(structure) = &record {
                self.insist(tree, || tree.redo_structure(gsn, structure, &mut rebuilt))?;
            }
        }
        Ok(analysis.into_redo())
    }

    /// Redoes operations. Returns the open transactions at the log's end.
    fn redo(&self, tree: &Tree, redo: Redo, report: &mut TreeReport) -> Result<OpenTxns> {
        let list = match self.play.ahead {
            Ahead::List => redo.table().map(DirtyPages::read_ahead),
            Ahead::Table => redo.table().map(DirtyPages::by_r_lsn),
            Ahead::Nothing | Ahead::Index | Ahead::Log => None,
        };
        let reading = ReadAhead::new(tree.pool(), list.unwrap_or_default());
        let readers = match self.play.ahead.reads_data() {
            true => self.means().readers,
            false => 0,
        };
        ahead::read_beside(&reading, readers, || {
            let log = NumberedLog::new(&self.log.scans, Wanted::All, self.tree.rssp);
            let ahead = self.play.ahead;
            let operations = Operations::new(tree, log, ahead, &reading, readers == 0);
            self.redo_all(tree, redo, operations, report)
        })
    }

    fn redo_all(
        &self,
        tree: &Tree,
        mut redo: Redo,
        mut log: Operations<'_, '_>,
        report: &mut TreeReport,
    ) -> Result<OpenTxns> {
        let mut open = OpenTxns::default();
        while let Some(frame) = log.next(&redo)? {
            let operations = operations_of(&frame)?;
            for (act, gsn) in operations.acts.iter().zip(operations.first.0..) {
                let gsn = Gsn(gsn);
                open.note(act.0, &act.1, gsn, &frame.head.origin);
                let Some(row) = act.1.row().filter(|_| gsn > self.tree.rssp) else {
                    continue;
                };
                let operation = Operation {
                    table: row.table,
                    key: row.key,
                    before: row.before,
                    after: row.after,
                    pid: row.pid,
                };
                let redone = self.insist(tree, || redo.one(tree, gsn, &operation))?;
                report.note(redone);
                if redone == Redone::Applied {
                    self.tend(tree)?;
                }
            }
        }
        Ok(open)
    }
}

fn record_of(frame: &Numbered) -> Result<(Gsn, TreeRecord)> {
    TreeRecord::decode(frame.payload())
        .map_err(|why| malformed("a record of the tree", why, &frame.head.origin))
}

fn operations_of(frame: &Numbered) -> Result<OperationFrame<'_>> {
    operation::decode(frame.payload())
        .map_err(|why| malformed("operations", why, &frame.head.origin))
}

/// Returns the error for a frame with an unreadable payload.
fn malformed(what: &str, why: Malformed, origin: &Origin) -> Error {
    refuse(
        origin,
        format!("{what}: {}", why.expected),
        format!("something else at byte {} of the frame", why.at),
        WRITERS_BUG,
    )
}

fn since(clock: &dyn Clock, begin_ns: u64) -> f64 {
    let ns = clock.mono_ns().saturating_sub(begin_ns);
    std::time::Duration::from_nanos(ns).as_secs_f64()
}

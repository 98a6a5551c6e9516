//! A tree in an open database. The tree has its pages in memory and its records in the log. It knows the open
//! transactions that changed its rows, and does its share of a checkpoint.
//!
//! # Checkpoint
//! The pages that were dirty at the checkpoint's begin become durable before the checkpoint ends.
//! ```text
//! begin marks of all streams ─► redo start (RSSP) ─► pages written ─► end (eCkpt) ─► end marks durable ─► anchor
//! ```
//! The checkpoint appends the begin marks first, and only then assigns the number of the redo start. So every operation
//! with a number above the redo start is after the begin mark of the operation's stream. A restart that reads the log
//! from the begin marks finds every operation to redo.
//!
//! # Source
//! *Implementing Performance Competitive Logical Recovery* (002), section 3.2: the penultimate scheme.

use std::sync::Arc;

use perdura_base::flaw::{Flaw, armed};
use perdura_base::{CkptEpoch, Gsn, Pos, Result, TableId};
use perdura_tree::contract::{Answer, insist};
use perdura_tree::pool::Progress;
use perdura_tree::tree::Tree;
use perdura_wal::{Rung, Scheme, Wal};

use super::RestartedTree;
use super::contents::{Contents, contents, pages_wait};
use super::losers::Loser;
use super::writer::{RecordBytes, TreeWriter};
use crate::active::ActiveTxns;
use crate::anchor::Anchor;
use crate::sections::tree::TreeAnchor;

/// A tree that transactions can read and change. It has no threads: callers of [`write_step`](Self::write_step) write
/// its pages.
pub struct LiveTree {
    pub(super) tree: Arc<Tree>,
    pub(super) wal: Arc<Wal>,
    pub(super) writer: TreeWriter,
    pub(super) active: ActiveTxns,
    scheme: Scheme,
}

/// The result of a step of a checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// More steps follow.
    Worked,
    /// No page can be written before more of the log is durable.
    Waits,
    /// The record of the checkpoint's end is in the log. The value is the checkpoint's redo start.
    Ended(Gsn),
}

impl LiveTree {
    /// Makes a tree that logs its records to `wal`, in the scheme of `named`, the anchor's entry for the tree.
    #[must_use]
    fn new(tree: Arc<Tree>, wal: Arc<Wal>, named: &TreeAnchor) -> LiveTree {
        assert_eq!(
            tree.shape().page_bytes,
            named.page_bytes,
            "the tree is the one that the anchor names"
        );
        LiveTree {
            writer: TreeWriter::new(Arc::clone(&wal)),
            active: ActiveTxns::new(wal.streams()),
            scheme: named.scheme,
            tree,
            wal,
        }
    }

    /// Makes the live trees of a restarted database. Returns the trees and the open transactions of each tree.
    ///
    /// # Panics
    /// If the anchor names a tree and `back` is `None`, or the reverse.
    pub(crate) fn all(
        back: Option<RestartedTree>,
        anchor: &Anchor,
        wal: &Arc<Wal>,
    ) -> (Vec<Arc<LiveTree>>, Vec<Loser>) {
        assert_eq!(back.is_some(), anchor.tree.is_some());
        let each = back.into_iter().zip(&anchor.tree).map(|(back, named)| {
            let live = LiveTree::new(back.tree, Arc::clone(wal), named);
            (Arc::new(live), back.losers)
        });
        let (trees, losers): (_, Vec<_>) = each.unzip();
        (trees, losers.concat())
    }

    /// Returns the tree's pages in memory.
    #[must_use]
    pub fn tree(&self) -> &Arc<Tree> {
        &self.tree
    }

    /// Returns the scheme of the tree's log records.
    #[must_use]
    pub fn scheme(&self) -> Scheme {
        self.scheme
    }

    /// Reads a row. It takes no lock, so it sees the writes of open transactions.
    ///
    /// # Errors
    /// [`Usage`](perdura_base::Error::Usage) for an unknown table; [`LogFull`](perdura_base::Error::LogFull) while the
    /// pages in memory wait for the log; errors of the disk.
    pub fn read(&self, table: TableId, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.insist(|| self.tree.read(table, key))
    }

    /// Calls `row` with each row of one leaf: the leaf that the key `from` belongs to. Skips rows with keys below
    /// `from`. Returns the lowest key of the next leaf, if there is one. Sees the writes of open transactions, as
    /// [`read`](Self::read) does. `row` may have been called for some rows before an error.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn scan(
        &self,
        table: TableId,
        from: &[u8],
        mut row: impl FnMut(&[u8], &[u8]),
    ) -> Result<Option<Vec<u8>>> {
        self.insist(|| self.tree.scan(table, from, &mut row))
    }

    /// Reads all rows, and returns their number and digest.
    ///
    /// # Errors
    /// As [`contents()`].
    pub fn contents(&self) -> Result<Contents> {
        contents(&self.tree, self.wal.eosl(Rung::Disk))
    }

    /// Returns how many bytes of records the tree has logged since it was opened. Records of checkpoints do not count.
    #[must_use]
    pub fn record_bytes(&self) -> RecordBytes {
        self.writer.bytes()
    }

    /// Repeats `call` while it finds no free frame for a page. Between two attempts it takes a
    /// [`write_step`](Self::write_step), which can free a frame.
    ///
    /// # Errors
    /// The errors of `call`; [`LogFull`](perdura_base::Error::LogFull) if the pages in memory wait for the log.
    pub fn insist<T>(&self, call: impl FnMut() -> Result<Answer<T>>) -> Result<T> {
        if let Some(value) = insist(call, || self.write_step())? {
            return Ok(value);
        }
        self.wal.check()?;
        Err(pages_wait())
    }

    /// Logs the collected notes about pages as Δ or BW records, if a record is due.
    pub(super) fn cut_notes(&self) {
        // The end of the durable log is read before the monitor's mutex is taken: see the monitor's module.
        let eosl = self.wal.eosl(Rung::Disk);
        self.tree.cut_notes(eosl, &self.writer);
    }

    /// Takes one step of writing dirty pages to disk.
    ///
    /// # Errors
    /// Errors of the disk. After an error no more pages are written.
    pub fn write_step(&self) -> Result<Progress> {
        let eosl = self.wal.eosl(match armed(Flaw::PageOnMirror) {
            true => Rung::Mirror,
            false => Rung::Disk,
        });
        let written = self.tree.pool().write_step(eosl)?;
        self.cut_notes();
        Ok(written)
    }

    /// Takes a step of a checkpoint, with at most one I/O. The first step begins the tree's checkpoint. The caller must
    /// append the begin marks before the first step.
    ///
    /// # Errors
    /// As [`Tree::begin_checkpoint`] and [`perdura_tree::pool::Pool::write_step`].
    pub(crate) fn checkpoint_step(&self) -> Result<Step> {
        let is_begun = self.tree.pool().monitor().lock().is_in_checkpoint();
        if !is_begun && let Answer::Done(_) = self.tree.begin_checkpoint(&self.writer)? {
            return Ok(Step::Worked);
        }
        if let Some((gsn, end)) = self.tree.end_checkpoint(&self.writer) {
            assert!(end.rssp < gsn, "a checkpoint ends behind its redo start");
            return Ok(Step::Ended(end.rssp));
        }
        let progress = self.tree.pool().write_step(self.wal.eosl(Rung::Disk))?;
        Ok(match progress {
            Progress::Wrote | Progress::Cleaned => Step::Worked,
            Progress::Idle => Step::Waits,
        })
    }

    /// Gives up the running checkpoint.
    pub(crate) fn cancel_checkpoint(&self) {
        self.tree.cancel_checkpoint();
    }

    /// Returns the anchor's new entry for the tree. The caller writes it to the anchor once the checkpoint's end is
    /// durable.
    pub(crate) fn named(&self, rssp: Gsn, k: CkptEpoch) -> TreeAnchor {
        assert!(
            rssp > Gsn(0) && k > CkptEpoch(0),
            "a checkpoint that has ended"
        );
        TreeAnchor {
            scheme: self.scheme,
            page_bytes: self.tree.shape().page_bytes,
            rssp,
            k,
        }
    }

    /// Returns, for each stream, the first position that a restart would need for the undo of the open transactions. A
    /// checkpoint calls this before it appends its end marks. So if a transaction ended before this call, its end is in
    /// the log before these marks.
    pub(crate) fn needs(&self) -> Vec<Option<Pos>> {
        if armed(Flaw::CoverWithoutOpen) {
            return Vec::new();
        }
        self.active.oldest()
    }
}

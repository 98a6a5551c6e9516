//! The tree's share of a checkpoint: the pages that were dirty at its begin become durable before it ends.
//!
//! ```text
//! begin marks of all streams ─► redo start (RSSP) ─► pages written ─► end (eCkpt) ─► end marks durable ─► anchor
//! ```
//! The begin marks come before the redo start takes its number: so no operation with a higher number lies ahead of its stream's
//! begin mark, and a restart that reads from the marks meets all that it has to redo.
//!
//! # Source
//! *Implementing Performance Competitive Logical Recovery* (002), section 3.2: the penultimate scheme.

use std::sync::Arc;

use perdura_base::{CkptEpoch, Gsn, Result};
use perdura_tree::contract::Answer;
use perdura_tree::pool::Progress;
use perdura_tree::tree::Tree;
use perdura_wal::{Rung, Wal};

use super::writer::TreeWriter;
use crate::sections::tree::TreeAnchor;

/// What a checkpoint does with a tree.
#[derive(Debug, Clone)]
pub struct TreeCheckpoint {
    tree: Arc<Tree>,
    writer: TreeWriter,
}

/// What a step came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// More steps follow.
    Worked,
    /// The log must become durable before a page can be written.
    Waits,
    /// The checkpoint's end is in the log: its redo start.
    Ended(Gsn),
}

impl TreeCheckpoint {
    /// Checkpoints of this tree, whose records go to that log.
    #[must_use]
    pub fn new(tree: Arc<Tree>, wal: Arc<Wal>) -> TreeCheckpoint {
        TreeCheckpoint {
            tree,
            writer: TreeWriter::new(wal),
        }
    }

    /// Takes a step of one I/O. The first one begins: the begin marks are in the log.
    ///
    /// # Errors
    /// As [`Tree::begin_checkpoint`] and [`perdura_tree::pool::Pool::write_step`].
    pub(crate) fn step(&self, wal: &Wal) -> Result<Step> {
        let is_begun = self.tree.pool().monitor().lock().is_in_checkpoint();
        if !is_begun && let Answer::Done(_) = self.tree.begin_checkpoint(&self.writer)? {
            return Ok(Step::Worked);
        }
        if let Some((gsn, end)) = self.tree.end_checkpoint(&self.writer) {
            assert!(end.rssp < gsn, "a checkpoint ends behind its redo start");
            return Ok(Step::Ended(end.rssp));
        }
        let progress = self.tree.pool().write_step(wal.eosl(Rung::Disk))?;
        Ok(match progress {
            Progress::Wrote | Progress::Cleaned => Step::Worked,
            Progress::Idle => Step::Waits,
        })
    }

    /// Gives it up.
    pub(crate) fn cancel(&self) {
        self.tree.cancel_checkpoint();
    }

    /// What the anchor says once the checkpoint's end is durable.
    pub(crate) fn named(&self, rssp: Gsn, k: CkptEpoch) -> TreeAnchor {
        assert!(
            rssp > Gsn(0) && k > CkptEpoch(0),
            "a checkpoint that has ended"
        );
        TreeAnchor {
            page_bytes: self.tree.shape().page_bytes,
            rssp,
            k,
        }
    }
}

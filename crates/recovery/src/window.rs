//! The work of the transaction layer at the begin and the end of a checkpoint's window.
//!
//! The *window* of checkpoint k reaches from its begin marks to its end marks. In executor mode a transaction holds its
//! partitions' latches from begin to end, so the window needs nothing more. If transactions interleave, a rollback that
//! is not logged must lie wholly before or wholly after a window. Its changes have no tag that shows whether they came
//! before or after a page's visit. Also, the end mark of a stream then lists the transactions that are active in the
//! stream at that instant.
//!
//! *Premise of redo from the begin marks.* A restart by physical records redoes the records behind the begin mark of
//! each stream, in the order of their global numbers. So all begin marks together must be one instant in that order:
//! every record before its stream's mark has a smaller number than every record behind its stream's mark. Suppose that
//! numbers were given out while the marks are set one by one. Then a record behind the mark of stream 1 could change a
//! slot, and a later record before the mark of stream 2 could change the same slot again. Redo would play the first
//! record and skip the second, and so overwrite the newer bytes in the image. XOR records do not need this premise:
//! their tags decide.
//!
//! # Source
//! *Differential Logging* (000), algorithm 2, steps 1 and 3.
//!
//! # Deviations
//! Capturing the list of active transactions and appending the end mark with the list are one step. It holds the lock
//! that every begin, commit and abort of the stream takes. Otherwise a restart would undo a transaction that commits
//! between the capture and the append. The paper has neither this step nor the rule for rollbacks, and does not say
//! that the begin marks are one instant.

use std::sync::Arc;

use perdura_base::flaw::{Flaw, armed};
use perdura_base::{CkptEpoch, ImageSlot, Pos};
use perdura_heap::{Cut, Heap, Reader};
use perdura_wal::Wal;

use crate::cover::Cover;

/// The checkpoint whose window begins.
#[derive(Clone, Copy)]
pub struct Beginning<'a> {
    /// The pages in memory.
    pub heap: &'a Arc<Heap>,
    /// The image that is about to be written.
    pub slot: ImageSlot,
    /// The checkpoint's epoch.
    pub k: CkptEpoch,
}

/// A window that has begun.
pub struct Begun {
    /// The begin mark in each stream.
    pub marks: Vec<Pos>,
    /// The instant that the image is to hold. `None`: the sweep is fuzzy.
    pub cut: Option<Cut>,
}

/// The begin and the end of a window, as the transaction layer implements them.
pub trait Window: Send + Sync {
    /// Begins a window: calls `mark` once. `mark` appends the begin marks, then publishes the checkpoint epoch, and
    /// returns the marks. Meanwhile no record that redo orders by its global number may be numbered or appended in any
    /// stream, so that the marks are one instant. If the image must be consistent, all of this happens under the
    /// latches of a cut.
    fn begin(&self, at: Beginning<'_>, mark: &mut dyn FnMut() -> Vec<Pos>) -> Begun;

    /// Ends the window: appends the end marks of checkpoint `k`. Returns the cover of the window; `marks` are its begin
    /// marks.
    fn end(&self, wal: &Wal, k: CkptEpoch, marks: &[Pos]) -> Cover;

    /// Ends the window without end marks, because the checkpoint was cancelled.
    fn cancel(&self);
}

/// The window of executor mode. It only appends the marks, and makes a cut once there is a key-addressed table.
#[derive(Debug, Clone, Copy, Default)]
pub struct ExecutorWindow {
    /// True if every checkpoint is to be a cut.
    pub cuts: bool,
}

impl Window for ExecutorWindow {
    fn begin(&self, at: Beginning<'_>, mark: &mut dyn FnMut() -> Vec<Pos>) -> Begun {
        let Beginning { heap, slot, k } = at;
        let is_cut = self.cuts || heap.has_typed();
        match Some(heap).filter(|_| is_cut && !armed(Flaw::FuzzyUnderOrdered)) {
            Some(heap) => {
                let (cut, marks) = heap.cut(Reader::Checkpoint { k, slot }, mark);
                assert_eq!(
                    heap.ckpt_epoch(),
                    k,
                    "changes behind the cut are tagged with {k}"
                );
                let parts = usize::from(heap.geometry().partitions);
                assert_eq!(cut.pseq().len(), parts, "a number of each partition");
                let cut = Some(cut);
                Begun { marks, cut }
            }
            None => Begun {
                marks: mark(),
                cut: None,
            },
        }
    }

    fn end(&self, wal: &Wal, k: CkptEpoch, marks: &[Pos]) -> Cover {
        let (ends, epoch) = wal.end_checkpoint(k);
        Cover::of_window(marks, ends, epoch)
    }

    fn cancel(&self) {}
}

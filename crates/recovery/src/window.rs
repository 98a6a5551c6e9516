//! The work of the transaction layer around a checkpoint's window.
//!
//! The *window* of checkpoint k reaches from its begin marks to its end marks. In executor mode a partition's latch
//! covers whole transactions, so that nothing else is needed. If transactions interleave, a rollback that is not logged
//! must lie wholly before or wholly behind a window. Its changes have no tag that could show on which side of a page's
//! visit they fell. Also, the end mark of a stream lists the transactions that are active in it at that instant.
//!
//! *Premise of redo from the begin marks.* A restart by physical records redoes, in the order of their global numbers,
//! what lies behind the begin mark of each stream. So all begin marks together are one instant in that order: every
//! record ahead of its stream's mark has a smaller number than every record behind its stream's mark. Suppose the marks
//! were set one by one while numbers are given out. Then a record behind one stream's mark could change a slot, and
//! after it a record ahead of another stream's mark. Redo would play the first, skip the second, and overwrite the
//! newer bytes of the image. XOR records need none of this: their tags decide.
//!
//! # Source
//! *Differential Logging* (000), algorithm 2, steps 1 and 3.
//!
//! # Deviations
//! The list of active transactions is captured and its frame appended in one step, under the lock that every begin,
//! commit and abort of the stream takes. Otherwise a restart would undo a transaction that commits between the two. The
//! paper has neither this nor the gate for rollbacks, and does not say that begin marks are one instant.

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
    /// The checkpoint's number.
    pub k: CkptEpoch,
}

/// A window that has begun.
pub struct Begun {
    /// The begin mark in each stream.
    pub marks: Vec<Pos>,
    /// The instant that the image is to hold. `None`: the sweep is fuzzy.
    pub cut: Option<Cut>,
}

/// The two ends of a window, as the transactions see them.
pub trait Window: Send + Sync {
    /// Begins a window: calls `mark` once, which appends the begin marks and then publishes the
    /// checkpoint epoch, and returns the marks. During this, no record that redo orders by its
    /// global number is numbered or appended, in any stream: the marks are one instant. If the
    /// image must be consistent, all of it happens under the latches of a cut.
    fn begin(&self, at: Beginning<'_>, mark: &mut dyn FnMut() -> Vec<Pos>) -> Begun;

    /// Ends the window: appends the end marks of checkpoint `k`. Returns the cover of the window; `marks` are its begin
    /// marks.
    fn end(&self, wal: &Wal, k: CkptEpoch, marks: &[Pos]) -> Cover;

    /// Ends the window without marks: the checkpoint was cancelled.
    fn cancel(&self);
}

/// The window of executor mode: only the marks, and a cut once there is a key-addressed table.
#[derive(Debug, Clone, Copy, Default)]
pub struct ExecutorWindow {
    /// Every checkpoint is a cut.
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

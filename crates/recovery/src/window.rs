//! The work of the transaction layer at the begin and the end of a checkpoint's window.
//!
//! The *window* of checkpoint k reaches from the begin marks to the end marks. In executor mode a transaction holds its
//! partitions' latches from begin to end, so a window needs only the marks. If transactions interleave, a rollback that
//! is not logged must lie wholly before or wholly after a window. The rollback's changes have no tag that shows whether
//! they came before or after the checkpoint visited the page. In this mode a stream's end mark also lists the stream's
//! active transactions.
//!
//! *Premise of redo from the begin marks.* A restart by physical records redoes each stream's records after the begin
//! mark, in the order of the global numbers. So all begin marks together must be one instant in that order: records
//! before the marks have smaller numbers than records after the marks. Suppose that numbers were assigned between the
//! appends of two marks. Stream 1 has its mark already, and then gets a record that changes a slot. Stream 2 then gets
//! a newer record that changes the same slot, and gets its mark after that record. Redo would play the older record and
//! skip the newer one, and so overwrite the newer bytes in the image. XOR records do not need this premise: their tags
//! decide.
//!
//! # Source
//! *Differential Logging* (000), algorithm 2, steps 1 and 3.
//!
//! # Deviations
//! One step captures the list of active transactions and appends the end mark with the list. It holds the lock that
//! every begin, commit and abort in the stream takes. Otherwise a restart would undo a transaction that commits between
//! the capture and the append. The paper lacks this step and the rule for rollbacks. It does not say that the begin
//! marks are one instant.

use std::sync::Arc;

use perdura_base::flaw::{Flaw, armed};
use perdura_base::{CkptEpoch, ImageSlot, Pos};
use perdura_heap::{Cut, Heap, Reader};
use perdura_wal::Wal;

use crate::cover::Cover;

/// The checkpoint of the window.
#[derive(Clone, Copy)]
pub struct Beginning<'a> {
    /// The pages in memory.
    pub heap: &'a Arc<Heap>,
    /// The image that the checkpoint will write.
    pub slot: ImageSlot,
    /// The checkpoint's epoch.
    pub k: CkptEpoch,
    /// True if the log may hold ordered frames. The image must then be of one instant.
    pub ordered: bool,
}

impl<'a> Beginning<'a> {
    /// Returns the checkpoint `k` into `slot`. `ordered` says whether the log may hold ordered frames.
    #[must_use]
    pub fn new(heap: &'a Arc<Heap>, slot: ImageSlot, k: CkptEpoch, ordered: bool) -> Self {
        Beginning {
            heap,
            slot,
            k,
            ordered,
        }
    }
}

/// A window that has begun.
pub struct Begun {
    /// The position of the begin mark in each stream.
    pub marks: Vec<Pos>,
    /// The cut whose state the image is to hold. `None`: the checkpoint is fuzzy.
    pub cut: Option<Cut>,
}

/// The begin and the end of a window, as the transaction layer implements them.
pub trait Window: Send + Sync {
    /// Begins a window: calls `mark` once. `mark` appends the begin marks, then publishes the checkpoint epoch, and
    /// returns the positions of the marks. Redo plays some records in the order of their global numbers. During the
    /// call no stream may append such a record or assign a number to it. So all marks lie at one instant in that order.
    /// If the image must be consistent, the latches of a cut are held while `mark` runs.
    fn begin(&self, at: Beginning<'_>, mark: &mut dyn FnMut() -> Vec<Pos>) -> Begun;

    /// Ends the window with the begin marks `marks`: appends the end marks of checkpoint `k`. Returns the window's
    /// cover.
    fn end(&self, wal: &Wal, k: CkptEpoch, marks: &[Pos]) -> Cover;

    /// Ends the window without end marks, because the checkpoint was cancelled.
    fn cancel(&self);
}

/// The window of executor mode. It appends the marks, and makes a cut if there is a key-addressed table.
#[derive(Debug, Clone, Copy, Default)]
pub struct ExecutorWindow {
    /// True if every checkpoint makes a cut, even without a key-addressed table.
    pub cuts: bool,
}

impl Window for ExecutorWindow {
    fn begin(&self, at: Beginning<'_>, mark: &mut dyn FnMut() -> Vec<Pos>) -> Begun {
        let Beginning {
            heap,
            slot,
            k,
            ordered,
        } = at;
        let is_cut = self.cuts || heap.has_keyed() || ordered;
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

//! Buffers that a thread keeps between transactions, and the mark that the thread is running a transaction.

use std::cell::RefCell;

use perdura_base::num::to_u64;
use perdura_base::{Error, Result};
use perdura_heap::{GroupBuilder, Heap, Undo};

use crate::typed::Typed;

/// The maximum size, in bytes, of each buffer that a thread keeps between transactions.
const SCRATCH_BYTES_MAX: u64 = 1 << 20;

/// The buffers that a thread keeps between its transactions.
pub(super) struct Scratch {
    /// The before-images of a transaction's changes.
    pub undo: Undo,
    /// The page records of a transaction.
    pub group: GroupBuilder,
    /// The notes about a transaction's typed tables.
    pub typed: Typed,
    /// The payload of an ordered frame.
    pub frame: Vec<u8>,
}

impl Default for Scratch {
    fn default() -> Self {
        Scratch {
            undo: Undo::new(),
            group: GroupBuilder::new(),
            typed: Typed::new(),
            frame: Vec::new(),
        }
    }
}

impl Scratch {
    fn is_small(&self) -> bool {
        let typed = to_u64(self.typed.bytes_held() + self.frame.capacity());
        let each = [self.undo.bytes(), self.group.bytes(), typed];
        each.into_iter().all(|bytes| bytes <= SCRATCH_BYTES_MAX)
    }
}

/// The transactions of a thread.
struct PerThread {
    /// One heap address for each running transaction of this thread. The innermost transaction is last.
    running: Vec<usize>,
    /// Buffers that no running transaction uses.
    scratch: Option<Box<Scratch>>,
}

std::thread_local! {
    static PER_THREAD: RefCell<PerThread> = const {
        RefCell::new(PerThread {
            running: Vec::new(),
            scratch: None,
        })
    };
}

/// Marks this thread as running a transaction, until the value is dropped.
pub(super) struct Running {
    heap: usize,
    scratch: Option<Box<Scratch>>,
}

impl Running {
    /// Marks this thread as running a transaction, and takes the thread's buffers.
    ///
    /// # Errors
    /// [`Error::Usage`] if this thread is already running a transaction on this heap, even if its innermost transaction
    /// is on another heap. Without this error, the new transaction could wait for latches that this thread holds.
    pub fn begin(heap: &Heap) -> Result<Running> {
        let id = std::ptr::from_ref(heap).addr();
        PER_THREAD.with_borrow_mut(|thread| {
            if thread.running.contains(&id) {
                let why = "a transaction was begun inside a transaction of the same database and \
                           thread; use the one that is running";
                return Err(Error::Usage(why.into()));
            }
            thread.running.push(id);
            Ok(Running {
                heap: id,
                scratch: thread.scratch.take(),
            })
        })
    }

    /// Returns the buffers for the transaction's attempts.
    pub fn scratch(&mut self) -> &mut Scratch {
        self.scratch.get_or_insert_default()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let scratch = self.scratch.take().filter(|scratch| scratch.is_small());
        PER_THREAD.with_borrow_mut(|thread| {
            // Transactions end in the reverse order of their begins, because closures nest.
            let ended = thread.running.pop();
            debug_assert_eq!(ended, Some(self.heap), "the innermost ends first");
            thread.scratch = scratch;
        });
    }
}

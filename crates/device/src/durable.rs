//! Durable writes that complete later.
//!
//! A [`DurableQueue`] takes writes and says later, in any order, which of them are durable. The caller
//! that submits a write gives its buffers away and gets them back with the completion, so no buffer can
//! change while a device reads it.
//!
//! | queue | a write becomes durable |
//! |---|---|
//! | [`WaitQueue`] | in the thread that waits for it |
//! | the ring of [`FileDisk`](crate::FileDisk) | by itself: nobody waits (`ring`) |
//! | that of [`SimDisk`](crate::SimDisk) | when its seed says so, late, out of order, or with an error |
//!
//! # Contract
//! * A completion with `Ok` says that the whole range of *its* write is durable, whatever became of
//!   others: earlier writes of the same file may still be in flight or fail.
//! * A write that failed may have changed any part of its range, at any time until its completion. One
//!   that was completed changes nothing afterwards.
//! * A queue that is dropped waits for what is in flight first.

use std::collections::VecDeque;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use parking_lot::Mutex;
use perdura_base::Result;
use perdura_base::limits::SECTOR_BYTES;

use crate::{AlignedBuf, File, Through};

/// A part of a write: the first `len` bytes of a buffer.
#[derive(Debug)]
pub struct Part {
    /// The buffer.
    pub buf: AlignedBuf,
    /// How many of its bytes are written: a multiple of [`SECTOR_BYTES`].
    pub len: usize,
}

impl Part {
    /// The bytes to write.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        debug_assert!(
            self.len > 0 && self.len.is_multiple_of(SECTOR_BYTES),
            "a part has whole sectors"
        );
        &self.buf[..self.len]
    }
}

/// A durable write to be made: its parts, one behind the other, from `offset` on.
pub struct DurableWrite {
    /// Names the write in its completion.
    pub token: u64,
    /// The file.
    pub file: Arc<dyn File>,
    /// Where the first part goes, bytes.
    pub offset: u64,
    /// What is written, at most [`PARTS_MAX`] parts.
    pub parts: Vec<Part>,
}

/// The most parts that a write has.
pub const PARTS_MAX: usize = 64;

impl DurableWrite {
    /// Bytes to write.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.parts.iter().map(|part| part.len).sum()
    }
}

/// A durable write that has ended.
#[derive(Debug)]
pub struct Completed {
    /// The token of the write.
    pub token: u64,
    /// Its parts.
    pub parts: Vec<Part>,
    /// Whether it is durable.
    pub result: Result<()>,
}

/// Takes durable writes and says when they are.
pub trait DurableQueue: Send + Sync {
    /// How many writes may be in flight. A caller submits no more.
    fn depth(&self) -> usize;

    /// Begins a write. Every failure is reported by the completion.
    fn submit(&self, write: DurableWrite);

    /// Appends to `done` what has completed, in any order. Never waits.
    fn collect(&self, done: &mut Vec<Completed>);

    /// Returns when there is something to collect, or nothing is in flight. At most one thread calls
    /// this at a time, and meanwhile no other collects.
    fn wait(&self);

    /// A descriptor that is readable while there is something to collect. `None`: writes complete only
    /// while a thread waits.
    fn ready(&self) -> Option<BorrowedFd<'_>>;
}

/// A queue whose writes are made by the thread that waits for them, one after the other.
pub struct WaitQueue {
    through: Through,
    pending: Mutex<VecDeque<DurableWrite>>,
    done: Mutex<Vec<Completed>>,
}

impl WaitQueue {
    /// A queue whose writes become durable in this way.
    #[must_use]
    pub fn new(through: Through) -> WaitQueue {
        WaitQueue {
            through,
            pending: Mutex::default(),
            done: Mutex::default(),
        }
    }
}

impl DurableQueue for WaitQueue {
    fn depth(&self) -> usize {
        1
    }

    fn submit(&self, write: DurableWrite) {
        assert!(
            (1..=PARTS_MAX).contains(&write.parts.len()),
            "a write has {} parts",
            write.parts.len()
        );
        let mut pending = self.pending.lock();
        assert!(pending.is_empty(), "one write may be in flight");
        pending.push_back(write);
    }

    fn collect(&self, done: &mut Vec<Completed>) {
        done.append(&mut self.done.lock());
    }

    fn wait(&self) {
        if !self.done.lock().is_empty() {
            return;
        }
        let Some(write) = self.pending.lock().pop_front() else {
            return;
        };
        let parts: Vec<&[u8]> = write.parts.iter().map(Part::bytes).collect();
        let result = write.file.write_durable(write.offset, &parts, self.through);
        self.done.lock().push(Completed {
            token: write.token,
            parts: write.parts,
            result,
        });
    }

    fn ready(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

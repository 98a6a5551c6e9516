//! Durable writes in two steps: a call begins a write, and a later call collects the completion.
//!
//! A [`DurableQueue`] takes writes. Later it reports their completions, in any order. The caller gives the buffers of a
//! write to the queue and gets them back with the completion. So no buffer can change while the device reads it.
//!
//! | queue | its writes are made durable |
//! |---|---|
//! | [`WaitQueue`] | by a thread that waits for them |
//! | the ring of [`FileDisk`](crate::FileDisk) | by the kernel, while no thread waits: see module `ring` |
//! | the queue of [`SimDisk`](crate::SimDisk) | when the seed decides: late, out of order, or with an error |
//!
//! # Contract
//! * A completion with `Ok` means that the whole range of *its* write is durable. Earlier writes of the file may still
//!   be in flight, or fail.
//! * A failed write may change any part of its range until the completion. After its completion, no write changes
//!   anything.
//! * Dropping a queue waits for the writes in flight.

use std::collections::VecDeque;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use parking_lot::Mutex;
use perdura_base::Result;
use perdura_base::limits::SECTOR_BYTES;

use crate::path::bytes_u64;
use crate::{AlignedBuf, File, Through};

/// Writes `parts` one behind the other from `offset` on, each by one call of `write`.
///
/// # Errors
/// The first error of `write`.
pub(crate) fn in_sequence(
    offset: u64,
    parts: &[&[u8]],
    write: impl Fn(u64, &[u8]) -> Result<()>,
) -> Result<()> {
    let mut at = offset;
    for part in parts {
        write(at, part)?;
        at += bytes_u64(part.len());
    }
    Ok(())
}

/// A part of a write: the first `len` bytes of a buffer.
#[derive(Debug)]
pub struct Part {
    /// The buffer.
    pub buf: AlignedBuf,
    /// Count of the bytes to write. It is a multiple of [`SECTOR_BYTES`].
    pub len: usize,
}

impl Part {
    /// Returns the bytes to write.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        debug_assert!(
            self.len > 0 && self.len.is_multiple_of(SECTOR_BYTES),
            "a part has whole sectors"
        );
        &self.buf[..self.len]
    }
}

/// A durable write. The parts are written to the file in sequence, from `offset` on.
pub struct DurableWrite {
    /// A number that the caller chooses. The completion repeats the number.
    pub token: u64,
    /// The file.
    pub file: Arc<dyn File>,
    /// The offset of the first part in the file, in bytes.
    pub offset: u64,
    /// The bytes to write, in at most [`PARTS_MAX`] parts.
    pub parts: Vec<Part>,
}

/// The maximum number of parts in a write.
pub const PARTS_MAX: usize = 64;

impl DurableWrite {
    /// Returns the number of bytes to write.
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
    /// The parts of the write, with their buffers.
    pub parts: Vec<Part>,
    /// `Ok` if the write is durable.
    pub result: Result<()>,
}

/// A queue that takes durable writes and reports their completion.
pub trait DurableQueue: Send + Sync {
    /// Returns the maximum number of writes in flight. The caller must not submit more.
    fn depth(&self) -> usize;

    /// Begins a write. If it fails, its completion has the error.
    fn submit(&self, write: DurableWrite);

    /// Appends the completed writes to `done`, in any order. Never waits.
    fn collect(&self, done: &mut Vec<Completed>);

    /// Waits until a write has completed or no write is in flight. At most one thread calls this at a time, and no
    /// other thread calls [`collect`](Self::collect) during the call.
    fn wait(&self);

    /// Returns a descriptor that is readable while a completed write has not been collected. `None`: writes complete
    /// only while a thread waits.
    fn ready(&self) -> Option<BorrowedFd<'_>>;
}

/// A queue that writes in the waiting thread, one write at a time.
pub struct WaitQueue {
    through: Through,
    pending: Mutex<VecDeque<DurableWrite>>,
    done: Mutex<Vec<Completed>>,
}

impl WaitQueue {
    /// Returns a queue. `through` makes its writes durable.
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

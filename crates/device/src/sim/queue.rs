//! The queue of durable writes of the simulated disk. Writes complete late and in any order, and each may fail
//! separately.
//!
//! The bytes of a write in flight are not yet in the file. Its completion makes its range durable, and no other
//! range. A power cut turns the writes in flight into changes that are not durable, of which any part may survive. If
//! a process is killed, its writes in flight end all the same. If [`Disk::keep_locked`](crate::Disk::keep_locked) was
//! called with locks, the writes end before the next life gets them. Otherwise they end at any time in that life.

use std::os::fd::BorrowedFd;
use std::sync::Arc;

use parking_lot::Mutex;
use perdura_base::Result;

use super::names::Ino;
use super::state::State;
use crate::File;
use crate::durable::{Completed, DurableQueue, DurableWrite};

/// The most writes in flight, as on a ring.
const DEPTH: usize = 4;

/// A write in flight.
#[derive(Clone)]
pub(super) struct Flying {
    pub(super) ino: Ino,
    pub(super) offset: u64,
    pub(super) data: Arc<[u8]>,
    /// The number of the write. It identifies the write when it ends.
    pub(super) number: u64,
}

/// The queue of one life of the machine.
pub(super) struct SimQueue {
    pub(super) state: Arc<Mutex<State>>,
    pub(super) life: u64,
    pub(super) own: Mutex<Own>,
}

/// The writes of one queue.
#[derive(Default)]
pub(super) struct Own {
    /// The writes in flight, each with the number that the machine gave it.
    flying: Vec<(u64, DurableWrite)>,
    /// The writes that have ended and were not collected.
    done: Vec<Completed>,
    /// The files of the ended writes. Dropping the last handle of a file locks the machine, so it is done without
    /// that lock.
    files: Vec<Arc<dyn File>>,
}

impl Own {
    fn end(&mut self, write: DurableWrite, result: Result<()>) {
        self.files.push(write.file);
        self.done.push(Completed {
            token: write.token,
            parts: write.parts,
            result,
        });
    }

    /// Ends one of the writes in flight, which the seed chooses.
    fn land_one(&mut self, state: &mut State, life: u64) {
        // If a process has slept through a crash, all its writes in flight have failed.
        let is_known = state.life != life || state.storage.flying.len() >= self.flying.len();
        assert!(
            self.flying.len() <= DEPTH && is_known,
            "the machine knows what is in flight"
        );
        let at = state.storage.rng.usize(0..self.flying.len());
        let (number, write) = self.flying.swap_remove(at);
        let result = state.complete(number, write.file.path(), life);
        self.end(write, result);
    }
}

impl SimQueue {
    /// Calls `work` with both the machine and the queue locked.
    fn with<T>(&self, work: impl FnOnce(&mut Own, &mut State) -> T) -> T {
        let (result, files) = {
            let (mut state, mut own) = (self.state.lock(), self.own.lock());
            let result = work(&mut own, &mut state);
            (result, std::mem::take(&mut own.files))
        };
        drop(files);
        result
    }
}

impl DurableQueue for SimQueue {
    fn depth(&self) -> usize {
        DEPTH
    }

    fn submit(&self, write: DurableWrite) {
        let mut data = Vec::with_capacity(write.bytes());
        for part in &write.parts {
            data.extend_from_slice(part.bytes());
        }
        self.with(|own, state| {
            assert!(
                own.flying.len() < DEPTH,
                "more writes are in flight than the depth allows"
            );
            match state.begin_durable(write.file.path(), self.life, write.offset, &data) {
                Ok(number) => own.flying.push((number, write)),
                Err(error) => own.end(write, Err(error)),
            }
        });
    }

    fn collect(&self, done: &mut Vec<Completed>) {
        self.with(|own, state| {
            while !own.flying.is_empty() && state.storage.rng.bool() {
                own.land_one(state, self.life);
            }
            done.append(&mut own.done);
        });
    }

    fn wait(&self) {
        self.with(|own, state| {
            if own.done.is_empty() && !own.flying.is_empty() {
                own.land_one(state, self.life);
            }
        });
    }

    fn ready(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

impl Drop for SimQueue {
    /// Waits for the writes in flight, unless the machine has crashed since the queue was made.
    fn drop(&mut self) {
        self.with(|own, state| {
            while state.life == self.life && !own.flying.is_empty() {
                own.land_one(state, self.life);
            }
        });
        // If the machine has crashed, it has already decided about the writes that are left.
        let mut own = self.own.lock();
        let (flying, done) = (
            std::mem::take(&mut own.flying),
            std::mem::take(&mut own.done),
        );
        drop(own);
        drop((flying, done));
    }
}

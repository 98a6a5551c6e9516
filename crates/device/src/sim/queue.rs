//! The queue of durable writes of the simulated disk. Writes complete late and in any order, and each may fail
//! separately.
//!
//! The bytes of a write in flight are not yet in the file. When the write completes, exactly the written range becomes
//! durable. A power cut turns the writes in flight into pending changes, and any part of these may survive. When a
//! process is killed, its writes in flight still reach the file. If [`Disk::keep_locked`](crate::Disk::keep_locked) was
//! called with locks, they reach it before the next process gets these locks. Otherwise they may reach it at any time
//! in the next life.

use std::os::fd::BorrowedFd;
use std::sync::Arc;

use parking_lot::Mutex;
use perdura_base::Result;

use super::names::Ino;
use super::state::State;
use crate::File;
use crate::durable::{Completed, DurableQueue, DurableWrite};

/// The maximum number of writes in flight. The ring of `FileDisk` has a maximum, too.
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
    /// Ended writes, not collected yet.
    done: Vec<Completed>,
    /// The files of the ended writes. They are dropped only while the machine's mutex is free, because dropping the
    /// last handle of a file locks this mutex.
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

    /// Ends a write in flight that the seed chooses.
    fn land_one(&mut self, state: &mut State, life: u64) {
        // If the machine has crashed since the queue was made, all writes that the queue has in flight have failed.
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
    /// Locks the machine and the queue, and calls `work`.
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
        // If the machine has crashed, the crash has already decided about the writes that are left.
        let mut own = self.own.lock();
        let (flying, done) = (
            std::mem::take(&mut own.flying),
            std::mem::take(&mut own.done),
        );
        drop(own);
        drop((flying, done));
    }
}

//! Durable writes of the simulated disk: they complete late, in any order, and may fail while others do
//! not.
//!
//! What is in flight is not in the file yet. A completion makes its range durable, and no other. A power
//! cut turns what is in flight into changes that are not durable, any part of which may survive. When a
//! process is killed, what it had in flight lands all the same: before the next life gets the lock, if
//! [`Disk::keep_locked`](crate::Disk::keep_locked) has said which, and else at any time in that life.

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
    /// What ends it: its number among all writes in flight.
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
    /// Those in flight, each with its number.
    flying: Vec<(u64, DurableWrite)>,
    /// Those that have ended.
    done: Vec<Completed>,
    /// Their files. The last handle of a file takes the machine's lock when it is dropped.
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

    /// Ends one write that the seed chooses.
    fn land_one(&mut self, state: &mut State, life: u64) {
        // A process that outlives a crash, asleep, finds that all it had in flight has failed.
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
    /// Works on the queue while the machine stands still.
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
    /// A queue that is dropped in its life waits for what is in flight.
    fn drop(&mut self) {
        self.with(|own, state| {
            while state.life == self.life && !own.flying.is_empty() {
                own.land_one(state, self.life);
            }
        });
        // After a crash the machine has decided about the rest.
        let mut own = self.own.lock();
        let (flying, done) = (
            std::mem::take(&mut own.flying),
            std::mem::take(&mut own.done),
        );
        drop(own);
        drop((flying, done));
    }
}

//! The gate, the active lists of the streams, and a checkpoint's window, which uses the gate and the lists.
//!
//! * The *gate* is a lock. An unlogged rollback holds its read lock from the first undo to the abort record. A
//!   checkpoint holds its write lock while the window begins. So an unlogged rollback lies wholly outside windows.
//! * The *active list* of a stream has the transactions with a begin record and no commit or abort record. Begin,
//!   commit and abort records are appended under the list's lock, so list and log always agree. The end mark of a
//!   checkpoint has a copy of the list and is appended under the list's lock.
//! * Physical records are numbered under the list's lock too. So each stream holds physical records in the order of
//!   their numbers, and a merge of the streams needs no sorting. The begin marks of a window are appended while the
//!   locks of all lists are held. So each number is assigned before all begin marks or after all begin marks.

use parking_lot::{Mutex, RwLock, RwLockReadGuard};
use perdura_base::{CkptEpoch, Epoch, Pos, StreamId};
use perdura_recovery::active::{Active, ActiveTxns};
use perdura_recovery::{Beginning, Begun, Cover, Window};
use perdura_wal::{Appended, Wal, encode_active};

use crate::txn::Routed;

#[cfg(feature = "flaws")]
mod seeded;

/// The gate, and the active lists of all streams of a database.
pub(crate) struct Streams {
    /// True while a window is open.
    gate: RwLock<bool>,
    active: ActiveTxns,
    #[cfg(feature = "flaws")]
    early: seeded::EarlyLists,
}

impl Streams {
    pub fn new(streams: u8) -> Streams {
        Streams {
            gate: RwLock::new(false),
            active: ActiveTxns::new(streams),
            #[cfg(feature = "flaws")]
            early: seeded::EarlyLists::default(),
        }
    }

    /// Returns the active list of a stream.
    pub fn active(&self, stream: StreamId) -> &Mutex<Active> {
        self.active.of(stream)
    }

    /// Ends a transaction: appends its last record, and removes it from the active list of its stream. Holds the list's
    /// lock during both steps.
    pub fn end(&self, txn: &Routed, append: impl FnOnce() -> Appended) -> Appended {
        self.active.end(txn.stream, txn.id, append)
    }

    /// Takes the gate's read lock. The guard's value is true if a window is open. No window can begin while the guard
    /// is held.
    pub fn gate(&self) -> RwLockReadGuard<'_, bool> {
        self.gate.read()
    }
}

impl Window for Streams {
    fn begin(&self, _: Beginning<'_>, mark: &mut dyn FnMut() -> Vec<Pos>) -> Begun {
        let mut open = self.gate.write();
        let numbering: Vec<_> = self.active.iter().map(|active| active.lock()).collect();
        let marks = mark();
        assert_eq!(
            marks.len(),
            numbering.len(),
            "a window begins at one mark in each stream"
        );
        drop(numbering);
        #[cfg(feature = "flaws")]
        self.list_early();
        *open = true;
        Begun { marks, cut: None }
    }

    fn end(&self, wal: &Wal, k: CkptEpoch, marks: &[Pos]) -> Cover {
        let (mut ends, mut undo_low) = (Vec::new(), Vec::new());
        let mut newest = Epoch(0);
        for (stream, active) in (0u8..).zip(self.active.iter()) {
            let active = active.lock();
            let listed = &*active;
            #[cfg(feature = "flaws")]
            let listed = &self
                .listed_early(StreamId(stream))
                .unwrap_or_else(|| listed.clone());
            let mut extra = Vec::new();
            encode_active(listed, &mut extra);
            let (end, epoch) = wal.mark_end(StreamId(stream), k, &extra);
            let first = listed.iter().map(|entry| entry.first).min();
            assert!(
                first.is_none_or(|first| first <= end),
                "an active transaction's first record lies before the window's end mark"
            );
            undo_low.push(first.map_or(end, |first| first.min(end)));
            ends.push(end);
            newest = newest.max(epoch);
        }
        *self.gate.write() = false;
        Cover::of_window(marks, ends, newest).reaching(&undo_low)
    }

    fn cancel(&self) {
        *self.gate.write() = false;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use perdura_base::{CkptEpoch, ImageSlot};
    use perdura_heap::{Geometry, Heap, MemoryAccount};

    use super::*;

    /// Found in review: the begin marks were appended stream by stream, and physical records could be numbered between
    /// two of these marks.
    #[test]
    fn no_record_can_be_numbered_while_the_begin_marks_are_appended() {
        let streams = Streams::new(3);
        let mut calls = 0;
        let geometry = Geometry {
            partitions: 1,
            chunk_pages: 2,
            hash_seed: 0,
        };
        let memory = Arc::new(MemoryAccount::new(u64::MAX));
        let at = Beginning {
            ordered: false,
            heap: &Arc::new(Heap::new(geometry, memory)),
            slot: ImageSlot::A,
            k: CkptEpoch(1),
        };
        let begun = streams.begin(at, &mut || {
            calls += 1;
            assert!(streams.gate.try_read().is_none());
            assert!(streams.active.iter().all(|active| active.is_locked()));
            vec![Pos(1), Pos(2), Pos(3)]
        });
        assert_eq!((calls, begun.marks), (1, vec![Pos(1), Pos(2), Pos(3)]));
        assert!(
            begun.cut.is_none(),
            "rollbacks that are not logged rule cuts out"
        );
        assert!(*streams.gate());
        assert!(streams.active.iter().all(|active| !active.is_locked()));
    }
}

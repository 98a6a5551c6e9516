//! The gate, the streams' active lists, and with both a checkpoint's window.
//!
//! * The *gate* is held shared by a rollback that is not logged, from its first undo to its abort
//!   record, and exclusively while a window begins: such a rollback lies wholly outside of windows.
//! * A stream's *active list* has the transactions with a record and no end. Its lock is held
//!   around the append of each begin, commit and abort, so that list and log agree at every instant;
//!   the end mark of a checkpoint captures the list and is appended under the same lock.
//! * Physical records are numbered under that lock too, so that a stream holds them in the order
//!   of their numbers and a merge of the streams needs no sorting. A window's begin marks are
//!   appended under all of these locks: a number is given out before all marks or behind all.

use crossbeam_utils::CachePadded;
use parking_lot::{Mutex, RwLock, RwLockReadGuard};
use perdura_base::{CkptEpoch, Epoch, Pos, StreamId, TxnId};
use perdura_recovery::{Cover, Window};
use perdura_wal::{ActiveTxn, Wal, encode_active};

#[cfg(feature = "flaws")]
mod seeded;

/// The transactions of one stream that have a record and no end.
pub(crate) type Active = Vec<ActiveTxn>;

/// Gate and active lists of a database.
pub(crate) struct Streams {
    /// Whether a window is open.
    gate: RwLock<bool>,
    active: Vec<CachePadded<Mutex<Active>>>,
    #[cfg(feature = "flaws")]
    early: seeded::EarlyLists,
}

impl Streams {
    pub fn new(streams: u8) -> Streams {
        Streams {
            gate: RwLock::new(false),
            active: (0..streams).map(|_| CachePadded::default()).collect(),
            #[cfg(feature = "flaws")]
            early: seeded::EarlyLists::default(),
        }
    }

    /// The active list of a stream.
    pub fn active(&self, stream: StreamId) -> &Mutex<Active> {
        &self.active[usize::from(stream.0)]
    }

    /// Shares the gate: says whether a window is open, and lets none begin while it is held.
    pub fn gate(&self) -> RwLockReadGuard<'_, bool> {
        self.gate.read()
    }
}

/// Takes a transaction off the list of its stream.
pub(crate) fn remove_active(active: &mut Active, txn: TxnId) {
    if let Some(at) = active.iter().position(|entry| entry.txn == txn) {
        active.swap_remove(at);
    }
}

impl Window for Streams {
    fn begin(&self, mark: &mut dyn FnMut() -> Vec<Pos>) -> Vec<Pos> {
        let mut open = self.gate.write();
        let numbering: Vec<_> = self.active.iter().map(|active| active.lock()).collect();
        let begin = mark();
        drop(numbering);
        #[cfg(feature = "flaws")]
        self.list_early();
        *open = true;
        begin
    }

    fn end(&self, wal: &Wal, k: CkptEpoch, marks: &[Pos]) -> Cover {
        let (mut ends, mut undo_low) = (Vec::new(), Vec::new());
        let mut newest = Epoch(0);
        for (stream, active) in (0u8..).zip(&self.active) {
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
    use super::*;

    /// Found in review: marks were appended stream by stream while physical records were numbered.
    #[test]
    fn no_record_can_be_numbered_while_the_begin_marks_are_appended() {
        let streams = Streams::new(3);
        let mut calls = 0;
        let begin = streams.begin(&mut || {
            calls += 1;
            assert!(streams.gate.try_read().is_none());
            assert!(streams.active.iter().all(|active| active.is_locked()));
            vec![Pos(1), Pos(2), Pos(3)]
        });
        assert_eq!((calls, begin), (1, vec![Pos(1), Pos(2), Pos(3)]));
        assert!(*streams.gate());
        assert!(streams.active.iter().all(|active| !active.is_locked()));
    }
}

//! The list of open transactions of each stream. A transaction is open from its first log record to its last log
//! record. The lists are needed if the records of several transactions interleave in a stream.
//!
//! A checkpoint keeps the log from the first record of each open transaction: a restart from the checkpoint's image may
//! have to undo the transaction.
//!
//! # Invariants
//! * One step appends a transaction's first record and adds the transaction to the list. One step appends its last
//!   record and removes the transaction from the list. A reader of a list therefore finds every transaction that is
//!   open at that moment. A checkpoint reads the lists before it appends its end marks.

use crossbeam_utils::CachePadded;
use parking_lot::Mutex;
use perdura_base::{Pos, StreamId, TxnId};
use perdura_wal::{ActiveTxn, Appended};

/// The list of one stream.
pub type Active = Vec<ActiveTxn>;

/// The lists of all streams.
#[derive(Debug)]
pub struct ActiveTxns(Vec<CachePadded<Mutex<Active>>>);

impl ActiveTxns {
    /// Makes empty lists.
    #[must_use]
    pub fn new(streams: u8) -> ActiveTxns {
        ActiveTxns((0..streams).map(|_| CachePadded::default()).collect())
    }

    /// Returns the list of a stream.
    #[must_use]
    pub fn of(&self, stream: StreamId) -> &Mutex<Active> {
        &self.0[usize::from(stream.0)]
    }

    /// Returns the lists in the order of their streams.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &Mutex<Active>> {
        self.0.iter().map(|list| &**list)
    }

    /// Appends the first record of a transaction and lists the transaction, as one step.
    pub fn begin<T>(
        &self,
        stream: StreamId,
        txn: TxnId,
        append: impl FnOnce() -> (Appended, T),
    ) -> T {
        let mut active = self.of(stream).lock();
        let (appended, value) = append();
        debug_assert!(active.iter().all(|entry| entry.txn != txn));
        active.push(ActiveTxn {
            txn,
            first: appended.pos,
        });
        value
    }

    /// Appends the last record of a transaction and removes the transaction from its stream's list,
    /// as one step.
    ///
    /// # Panics
    /// If the transaction is not listed.
    pub fn end(&self, stream: StreamId, txn: TxnId, append: impl FnOnce() -> Appended) -> Appended {
        let mut active = self.of(stream).lock();
        let appended = append();
        let at = active.iter().position(|entry| entry.txn == txn);
        let first = at.map(|at| active.swap_remove(at).first);
        assert!(
            first.is_some_and(|first| first <= appended.pos),
            "a transaction is on its stream's list from its first record to its last"
        );
        appended
    }

    /// Returns, for each stream, the position of the first record of its oldest listed transaction; `None` if the
    /// stream's list is empty.
    #[must_use]
    pub fn oldest(&self) -> Vec<Option<Pos>> {
        let first = |list: &Mutex<Active>| list.lock().iter().map(|entry| entry.first).min();
        self.iter().map(first).collect()
    }
}

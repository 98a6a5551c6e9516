//! A transaction's operations in the log.

use std::cell::Cell;

use perdura_base::{CkptEpoch, Gsn, PartitionSet, StreamId, TxnId};
use perdura_formats::operation::{self, Act, RowChange};
use perdura_formats::tree_record::TreeRecord;
use perdura_recovery::tree::writer::TreeWriter;
use perdura_tree::contract::{Log, Operation, Records};
use perdura_wal::{ActiveTxn, Appended, FrameKind, Wal};

use crate::running::Running;
use crate::streams::Streams;
use crate::txn::Routed;

/// What a transaction's next operation is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    /// A change.
    Change,
    /// It takes a change back; the one before that is next.
    Compensation { undo_next: Gsn },
}

/// Appends an operation of a transaction, and the tree's records that come with it.
pub(super) struct TxnLog<'a> {
    pub wal: &'a Wal,
    pub streams: &'a Streams,
    pub writer: &'a TreeWriter,
    pub txn: TxnId,
    pub stream: StreamId,
    pub purpose: Purpose,
    /// It has a record in the log.
    pub is_listed: Cell<bool>,
    /// The number of the operation, once it is appended.
    pub number: Cell<Option<Gsn>>,
}

impl Records for TxnLog<'_> {
    fn record(&self, record: &TreeRecord) -> Gsn {
        self.writer.record(record)
    }
}

impl Log for TxnLog<'_> {
    fn operation(&self, operation: &Operation<'_>) -> Gsn {
        let row = |before| RowChange {
            table: operation.table,
            pid: operation.pid,
            key: operation.key,
            before,
            after: operation.after,
        };
        let act = match self.purpose {
            Purpose::Change => Act::Change(row(operation.before)),
            Purpose::Compensation { undo_next } => Act::Compensation {
                undo_next,
                row: row(None),
            },
        };
        let gsn = if self.is_listed.get() {
            append(self.wal, self.stream, (self.txn, act)).1
        } else {
            // On the list with its first record, as one.
            let mut active = self.streams.active(self.stream).lock();
            let (appended, gsn) = append(self.wal, self.stream, (self.txn, act));
            debug_assert!(active.iter().all(|entry| entry.txn != self.txn));
            active.push(ActiveTxn {
                txn: self.txn,
                first: appended.pos,
            });
            self.is_listed.set(true);
            gsn
        };
        let before = self.number.replace(Some(gsn));
        assert_eq!(before, None, "a write is one operation");
        gsn
    }
}

/// Appends an operation of a transaction.
fn append(wal: &Wal, stream: StreamId, act: (TxnId, Act<'_>)) -> (Appended, Gsn) {
    let none = PartitionSet::empty();
    let kind = (FrameKind::Operations, 1);
    wal.append_numbered(stream, kind, (&none, CkptEpoch(0)), |gsn| {
        let mut payload = Vec::new();
        operation::encode(&mut payload, gsn, &[act]);
        payload
    })
}

/// Appends a transaction's end and takes it off its stream's list, as one.
pub(super) fn append_end(running: &Running, txn: &Routed, act: Act<'_>) -> Appended {
    let last = || append(&running.wal, txn.stream, (txn.id, act)).0;
    running.streams.end(txn, last)
}

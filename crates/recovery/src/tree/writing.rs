//! Changes rows for transactions: in the pages of a tree and in the log.

use std::cell::Cell;

use perdura_base::{CkptEpoch, Error, Gsn, PartitionSet, Pos, Result, StreamId, TableId, TxnId};
use perdura_formats::operation::{self, Act, RowChange};
use perdura_formats::tree_record::TreeRecord;
use perdura_tree::contract::{Log, Operation, Records};
use perdura_wal::{ActiveTxn, Appended, FrameKind, Wal};

use super::live::LiveTree;
use super::losers::ToUndo;
use super::writer::TREE_STREAM;

/// A transaction as the log knows it.
#[derive(Debug)]
pub struct LoggedTxn {
    /// The transaction's id.
    pub id: TxnId,
    /// The stream that its records go to.
    pub stream: StreamId,
    /// True if the transaction has a record in the log, and so is on the list of open transactions.
    pub(super) is_listed: bool,
}

impl LoggedTxn {
    /// Makes a transaction without a record.
    #[must_use]
    pub fn new(id: TxnId, stream: StreamId) -> LoggedTxn {
        LoggedTxn {
            id,
            stream,
            is_listed: false,
        }
    }

    /// Returns whether the transaction has a record in the log.
    #[must_use]
    pub fn is_listed(&self) -> bool {
        self.is_listed
    }
}

/// The purpose of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// A change.
    Change,
    /// The undo of a change.
    Compensation {
        /// The number of the change that is to be undone next.
        undo_next: Gsn,
    },
}

/// The result of changing a row.
#[derive(Debug)]
pub struct Changed {
    /// The row before the change. `None`: there was no row.
    pub before: Option<Vec<u8>>,
    /// The operation's number. `None`: the row already was as requested, so nothing was changed or logged.
    pub gsn: Option<Gsn>,
}

/// The implementation of [`Log`] for one operation of a transaction. It appends the operation, and the tree's records
/// that the operation causes.
struct TxnLog<'a> {
    live: &'a LiveTree,
    txn: &'a LoggedTxn,
    purpose: Purpose,
    is_listed: Cell<bool>,
    /// The number of the operation, once it is appended.
    number: Cell<Option<Gsn>>,
}

impl Records for TxnLog<'_> {
    fn record(&self, record: &TreeRecord) -> Gsn {
        self.live.writer.record(record)
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
        let LoggedTxn { id, stream, .. } = *self.txn;
        let append = || append(&self.live.wal, stream, id, act);
        let gsn = match self.is_listed.replace(true) {
            true => append().1,
            false => self.live.active.begin(stream, id, append),
        };
        let before = self.number.replace(Some(gsn));
        assert_eq!(before, None, "a write is one operation");
        gsn
    }
}

/// Appends an operation of a transaction.
fn append(wal: &Wal, stream: StreamId, txn: TxnId, act: Act<'_>) -> (Appended, Gsn) {
    let none = PartitionSet::empty();
    let kind = (FrameKind::Operations, 1);
    wal.append_numbered(stream, kind, (&none, CkptEpoch(0)), |gsn| {
        let mut payload = Vec::new();
        operation::encode(&mut payload, gsn, &[(txn, act)]);
        payload
    })
}

impl LiveTree {
    /// Checks that the log has room for a write of `bytes` bytes, and for a change of the tree's structure.
    ///
    /// # Errors
    /// [`Error::LogFull`] if the log has no room; [`Error::Stopped`].
    pub fn admit(&self, stream: StreamId, bytes: usize) -> Result<()> {
        let page_bytes = self.tree.shape().page_bytes;
        // The record of the write also has the old row and its key, which together fit in a page. The record of a
        // change of structure has the contents of the pages that the change makes.
        self.wal.admit(stream, bytes + page_bytes)?;
        self.wal.admit(TREE_STREAM, 6 * page_bytes)
    }

    /// Changes a row for a transaction. The caller makes sure that no other transaction may change the row.
    ///
    /// # Errors
    /// [`Error::Usage`] if the table is unknown, or if the key or the value is too long. [`Error::LogFull`] while the
    /// pages in memory wait for the log: the caller tries again later. Errors of the disk. After an error nothing was
    /// changed.
    pub fn change(
        &self,
        txn: &mut LoggedTxn,
        table: TableId,
        key: &[u8],
        value: Option<&[u8]>,
        purpose: Purpose,
    ) -> Result<Changed> {
        let log = TxnLog {
            live: self,
            txn,
            purpose,
            is_listed: Cell::new(txn.is_listed),
            number: Cell::new(None),
        };
        let applied = self.insist(|| self.tree.apply(table, key, value, &log))?;
        let (is_listed, gsn) = (log.is_listed.get(), log.number.get());
        txn.is_listed = is_listed;
        assert!(
            is_listed || gsn.is_none(),
            "an operation puts its transaction on a list"
        );
        self.cut_notes();
        if applied.is_sparse {
            // If the pool has no free frame for the merge, a later write to the page tries again.
            let _merged_or_later = self.insist(|| self.tree.merge(table, key, &self.writer));
        }
        Ok(Changed {
            before: applied.before,
            gsn,
        })
    }

    /// Undoes the newest change of a transaction and removes that change from `changes`. Returns false if `changes` is
    /// empty.
    ///
    /// # Errors
    /// As [`admit`](Self::admit) and [`change`](Self::change). After an error nothing was undone.
    pub fn undo_one(&self, txn: &mut LoggedTxn, changes: &mut Vec<ToUndo>) -> Result<bool> {
        self.admit(txn.stream, 0)?;
        undo_newest(changes, |last, purpose| {
            let before = last.before.as_deref();
            let changed = self.change(txn, last.table, &last.key, before, purpose)?;
            Ok(changed.gsn)
        })
    }

    /// Adds a transaction to this life's list of open transactions. The previous life left the transaction open. The
    /// transaction's records begin at `first`.
    pub(super) fn adopt(&self, txn: &mut LoggedTxn, first: Pos) {
        let listed = ActiveTxn { txn: txn.id, first };
        self.active.of(txn.stream).lock().push(listed);
        txn.is_listed = true;
    }

    /// Ends a transaction that has records in the log. `act` is the transaction's commit, or the end of its rollback.
    pub fn end(&self, txn: &LoggedTxn, act: Act<'_>) -> Appended {
        debug_assert!(act.row().is_none(), "an end changes no row");
        let last = || append(&self.wal, txn.stream, txn.id, act).0;
        self.active.end(txn.stream, txn.id, last)
    }
}

/// Undoes the newest of `changes` by calling `change`, which restores the row and returns the number of the undoing
/// operation. Returns false if `changes` is empty.
///
/// # Errors
/// The errors of `change`. After an error nothing was undone.
pub(super) fn undo_newest(
    changes: &mut Vec<ToUndo>,
    change: impl FnOnce(&ToUndo, Purpose) -> Result<Option<Gsn>, Error>,
) -> Result<bool> {
    let Some((last, older)) = changes.split_last() else {
        return Ok(false);
    };
    let undo_next = older.last().map(|before| before.gsn).unwrap_or_default();
    let gsn = change(last, Purpose::Compensation { undo_next })?;
    assert!(gsn > Some(last.gsn), "what is undone had changed something");
    changes.pop();
    Ok(true)
}

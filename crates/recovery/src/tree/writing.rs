//! The way of a transaction's changes into a tree and its log.

use std::cell::Cell;

use perdura_base::{CkptEpoch, Error, Gsn, PartitionSet, Pos, Result, StreamId, TableId, TxnId};
use perdura_formats::operation::{self, Act, RowChange};
use perdura_formats::tree_record::TreeRecord;
use perdura_tree::contract::{Log, Operation, Records};
use perdura_wal::{ActiveTxn, Appended, FrameKind, Wal};

use super::live::LiveTree;
use super::losers::ToUndo;
use super::writer::TREE_STREAM;

/// A transaction, as the log knows it.
#[derive(Debug)]
pub struct LoggedTxn {
    /// Its number.
    pub id: TxnId,
    /// The stream that its records go to.
    pub stream: StreamId,
    /// True if it has a record in the log.
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

    /// Returns whether it has a record in the log.
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
        /// The change that is to be undone next.
        undo_next: Gsn,
    },
}

/// A change that was made.
#[derive(Debug)]
pub struct Changed {
    /// The row before, if there was one.
    pub before: Option<Vec<u8>>,
    /// The operation's number. `None`: the row stays unchanged, and nothing was logged.
    pub gsn: Option<Gsn>,
}

/// Appends an operation of a transaction, and the tree's records that come with it.
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
    /// Checks that the log takes the record of a write of `bytes` bytes, and a change of structure.
    ///
    /// # Errors
    /// [`Error::LogFull`] if it has no room; [`Error::Stopped`].
    pub fn admit(&self, stream: StreamId, bytes: usize) -> Result<()> {
        let page_bytes = self.tree.shape().page_bytes;
        // The row before, and its key, are in a page. A change of structure has the images of the pages that it makes.
        self.wal.admit(stream, bytes + page_bytes)?;
        self.wal.admit(TREE_STREAM, 6 * page_bytes)
    }

    /// Changes a row of a transaction that alone may do so.
    ///
    /// # Errors
    /// [`Error::Usage`] if there is no such table, or key or value is too long; [`Error::LogFull`] if the pages have no
    /// room: try again later; the disk's. Nothing has happened then.
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
            // If memory has no room for a merge, a later write meets the page again.
            let _merged_or_later = self.insist(|| self.tree.merge(table, key, &self.writer));
        }
        Ok(Changed {
            before: applied.before,
            gsn,
        })
    }

    /// Undoes the newest of a transaction's changes, if there is one. Returns whether there was.
    ///
    /// # Errors
    /// As [`admit`](Self::admit) and [`change`](Self::change): nothing was undone then.
    pub fn undo_one(&self, txn: &mut LoggedTxn, changes: &mut Vec<ToUndo>) -> Result<bool> {
        self.admit(txn.stream, 0)?;
        undo_newest(changes, |last, purpose| {
            let before = last.before.as_deref();
            let changed = self.change(txn, last.table, &last.key, before, purpose)?;
            Ok(changed.gsn)
        })
    }

    /// Lists a transaction of the last life, whose records begin at `first`, to end it in this one.
    pub(super) fn adopt(&self, txn: &mut LoggedTxn, first: Pos) {
        let listed = ActiveTxn { txn: txn.id, first };
        self.active.of(txn.stream).lock().push(listed);
        txn.is_listed = true;
    }

    /// Ends a transaction that has records, by its commit or the end of its rollback.
    pub fn end(&self, txn: &LoggedTxn, act: Act<'_>) -> Appended {
        debug_assert!(act.row().is_none(), "an end changes no row");
        let last = || append(&self.wal, txn.stream, txn.id, act).0;
        self.active.end(txn.stream, txn.id, last)
    }
}

/// Undoes the newest change, if there is one: `change` restores its row, and returns the number of that operation.
/// Returns whether there was a change.
///
/// # Errors
/// Those of `change`: after an error nothing was undone.
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

//! The losers: transactions that changed rows of a tree and were open when the log ended. Their changes must be undone.
//!
//! # Source
//! C. Mohan et al., "ARIES": a compensation is the logged undo of a change. It names the change to undo next, so a
//! rollback continues where it stopped, even after several crashes.

use std::collections::BTreeMap;

use perdura_base::flaw::{Flaw, armed};
use perdura_base::{Gsn, Pos, StreamId, TableId, TxnId};
use perdura_formats::operation::Act;
use perdura_wal::Origin;

/// A change that must be undone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToUndo {
    /// The number of the operation that made the change.
    pub gsn: Gsn,
    /// The table.
    pub table: TableId,
    /// The row's key.
    pub key: Vec<u8>,
    /// The row before the change. `None`: there was no row.
    pub before: Option<Vec<u8>>,
}

/// A transaction without a commit and without a complete rollback.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Loser {
    /// The transaction.
    pub txn: TxnId,
    /// The stream that its records are in.
    pub stream: StreamId,
    /// The position of the transaction's first record in that stream.
    pub first: Pos,
    /// The transaction's changes that no compensation has undone, oldest first.
    pub changes: Vec<ToUndo>,
}

/// The transactions that are open after the operations read so far.
#[derive(Debug, Default)]
pub(super) struct OpenTxns {
    open: BTreeMap<TxnId, Loser>,
}

impl OpenTxns {
    /// Updates the list of open transactions by an operation. The caller must pass a transaction's operations in the
    /// order of their numbers.
    pub fn note(&mut self, txn: TxnId, act: &Act<'_>, gsn: Gsn, origin: &Origin) {
        let row = match act {
            Act::Commit | Act::Abort => {
                self.open.remove(&txn);
                return;
            }
            Act::Change(row) | Act::Compensation { row, .. } => row,
        };
        let open = self.open.entry(txn).or_insert_with(|| Loser {
            txn,
            stream: origin.stream,
            first: origin.pos,
            changes: Vec::new(),
        });
        if let Act::Compensation { undo_next, .. } = act
            && !armed(Flaw::CompensationUndone)
        {
            let left = open
                .changes
                .partition_point(|change| change.gsn <= *undo_next);
            open.changes.truncate(left);
            return;
        }
        assert!(
            open.changes.last().is_none_or(|last| last.gsn < gsn),
            "a transaction's changes come in the order of their numbers"
        );
        open.changes.push(ToUndo {
            gsn,
            table: row.table,
            key: row.key.to_vec(),
            before: row.before.map(<[u8]>::to_vec),
        });
    }

    /// Returns the open transactions at the end of the log.
    pub fn into_losers(self) -> Vec<Loser> {
        let losers: Vec<Loser> = self.open.into_values().collect();
        assert!(
            losers.windows(2).all(|pair| pair[0].txn < pair[1].txn),
            "a transaction is open once"
        );
        losers
    }
}

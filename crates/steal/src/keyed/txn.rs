//! Reads, writes, commits and rollbacks.

use std::cell::Cell;
use std::ops::Deref;
use std::sync::atomic::Ordering;

use perdura_base::{Error, Gsn, Result, StreamId, TableId};
use perdura_formats::operation::Act;
use perdura_recovery::tree::losers::{Loser, ToUndo};
use perdura_recovery::tree::writer::TREE_STREAM;

use super::engine::Keyed;
use super::locks::RowKey;
use super::log::{Purpose, TxnLog, append_end};
use crate::txn::{Committed, Routed};

/// What a write came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Write {
    /// It is done; the row before, if there was one.
    Done(Option<Vec<u8>>),
    /// Another transaction has the row: nothing has happened.
    Taken,
}

/// An open transaction. It ends with [`Keyed::commit`] or [`Keyed::abort`]; one that is dropped keeps its rows until the
/// database is closed, and a restart takes its changes back.
#[derive(Debug)]
pub struct KeyTxn {
    routed: Routed,
    /// It has a record in the log.
    is_listed: bool,
    is_aborting: bool,
    /// Its changes that are not taken back, in their order.
    changes: Vec<ToUndo>,
    rows: Vec<RowKey>,
}

impl KeyTxn {
    /// Whether a rollback was begun.
    #[must_use]
    pub fn is_aborting(&self) -> bool {
        self.is_aborting
    }

    /// A transaction that the last life left open: it has its rows, and can only be rolled back.
    pub(super) fn of_loser(loser: Loser) -> KeyTxn {
        let mut rows: Vec<RowKey> = Vec::new();
        for change in &loser.changes {
            let row = (change.table, change.key.clone());
            if !rows.contains(&row) {
                rows.push(row);
            }
        }
        KeyTxn {
            routed: Routed {
                id: loser.txn,
                stream: loser.stream,
            },
            is_listed: true,
            is_aborting: true,
            changes: loser.changes,
            rows,
        }
    }

    /// Takes the newest change back that is not taken back yet, if there is one: `change` makes the row what it was, and returns the
    /// number of that operation.
    pub(super) fn take_back(
        &mut self,
        change: impl FnOnce(&mut KeyTxn, &RowKey, Option<&[u8]>, Purpose) -> Result<Option<Gsn>>,
    ) -> Result<bool> {
        let Some(last) = self.changes.last().cloned() else {
            return Ok(false);
        };
        let before = self.changes.len().checked_sub(2);
        let undo_next = before.map(|at| self.changes[at].gsn).unwrap_or_default();
        let row = (last.table, last.key);
        let purpose = Purpose::Compensation { undo_next };
        let gsn = change(self, &row, last.before.as_deref(), purpose)?;
        assert!(
            gsn > Some(last.gsn),
            "what is taken back had changed something"
        );
        self.changes.pop();
        Ok(true)
    }

    pub(super) fn rows(&self) -> &[RowKey] {
        &self.rows
    }
}

impl Deref for KeyTxn {
    type Target = Routed;

    fn deref(&self) -> &Routed {
        &self.routed
    }
}

impl Keyed {
    /// Opens a transaction and routes it to a stream.
    pub fn begin(&self) -> KeyTxn {
        KeyTxn {
            routed: self.route(self.options.route),
            is_listed: false,
            is_aborting: false,
            changes: Vec::new(),
            rows: Vec::new(),
        }
    }

    /// Reads a row. It takes no lock: what an open transaction wrote is seen.
    ///
    /// # Errors
    /// [`Error::Usage`] if there is no such table; [`Error::LogFull`] if the pages in memory wait for the log; the disk's.
    pub fn read(&self, table: TableId, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.insist(|| self.tree.read(table, key))
    }

    /// Hands out the rows of the leaf that holds `from`, from there on. Where the next leaf begins, if there is one. As with
    /// [`read`](Self::read), what open transactions wrote is seen. After an error rows may have been handed out.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn scan(
        &self,
        table: TableId,
        from: &[u8],
        mut row: impl FnMut(&[u8], &[u8]),
    ) -> Result<Option<Vec<u8>>> {
        self.insist(|| self.tree.scan(table, from, &mut row))
    }

    /// Puts a row, or removes it. Nothing is logged if it stays as it is.
    ///
    /// # Errors
    /// [`Error::Usage`] if there is no such table, or key or value is too long; [`Error::LogFull`] if log or pages have no room: try
    /// again later; [`Error::Stopped`]; the disk's. Nothing has happened then.
    pub fn write(
        &self,
        txn: &mut KeyTxn,
        table: TableId,
        key: &[u8],
        value: Option<&[u8]>,
    ) -> Result<Write> {
        if txn.is_aborting {
            return Err(Error::Usage("the transaction is being rolled back".into()));
        }
        self.admit(txn.stream, key.len() + value.map_or(0, <[u8]>::len))?;
        let row = (table, key.to_vec());
        let Some(is_new) = self.locks.take(&row, txn.id) else {
            return Ok(Write::Taken);
        };
        let written = self.change(txn, &row, value, Purpose::Change);
        let (before, gsn) = match written {
            Err(error) => {
                if is_new {
                    self.locks.release(&row, txn.id);
                }
                return Err(error);
            }
            Ok(written) => written,
        };
        if is_new {
            txn.rows.push(row);
        }
        if let Some(gsn) = gsn {
            assert!(txn.changes.last().is_none_or(|last| last.gsn < gsn));
            txn.changes.push(ToUndo {
                gsn,
                table,
                key: key.to_vec(),
                before: before.clone(),
            });
            self.counters.updates.fetch_add(1, Ordering::Relaxed);
        }
        Ok(Write::Done(before))
    }

    /// Whether the log takes the record of a write of so many bytes, and a change of structure.
    fn admit(&self, stream: StreamId, bytes: usize) -> Result<()> {
        let page_bytes = self.tree.shape().page_bytes;
        // The row before, and its key, are in a page. A change of structure has the images of the pages that it makes.
        self.wal.admit(stream, bytes + page_bytes)?;
        self.wal.admit(TREE_STREAM, 6 * page_bytes)
    }

    /// Changes a row of the transaction. The row before, and the operation's number if something changed.
    fn change(
        &self,
        txn: &mut KeyTxn,
        (table, key): &RowKey,
        value: Option<&[u8]>,
        purpose: Purpose,
    ) -> Result<(Option<Vec<u8>>, Option<Gsn>)> {
        let log = TxnLog {
            wal: &self.wal,
            streams: &self.streams,
            writer: &self.writer,
            txn: txn.id,
            stream: txn.stream,
            purpose,
            is_listed: Cell::new(txn.is_listed),
            number: Cell::new(None),
        };
        let applied = self.insist(|| self.tree.apply(*table, key, value, &log))?;
        txn.is_listed = log.is_listed.get();
        assert!(
            txn.is_listed || log.number.get().is_none(),
            "an operation puts its transaction on a list"
        );
        self.cut_notes();
        if applied.is_sparse {
            // Where pages have no room for a merge, a later write meets the page again.
            let _merged_or_later = self.insist(|| self.tree.merge(*table, key, &self.writer));
        }
        Ok((applied.before, log.number.get()))
    }

    /// Commits: the transaction is visible to others from here on, and acknowledged once [`is_acked`](Self::is_acked).
    ///
    /// # Panics
    /// If its rollback was begun.
    pub fn commit(&self, mut txn: KeyTxn) -> Committed {
        assert!(!txn.is_aborting, "a transaction rolls back or commits");
        let mut committed = Committed::empty(&txn);
        if txn.is_listed {
            // The commit epoch is read while all rows are held: a transaction that gets one of them later has this epoch or a
            // greater one.
            let appended = append_end(self, &txn, Act::Commit);
            committed.epoch = appended.epoch;
            committed.pos = appended.pos;
        } else if !txn.rows.is_empty() {
            // It wrote what was there: what it saw may not be durable yet.
            committed.epoch = self.wal.last_appended();
        }
        assert!(
            txn.is_listed || txn.changes.is_empty(),
            "a change is in the log before it is committed"
        );
        self.release(&mut txn);
        self.counters.commits.fetch_add(1, Ordering::Relaxed);
        committed
    }

    /// Begins a rollback.
    pub fn abort_begin(&self, txn: &mut KeyTxn) {
        txn.is_aborting = true;
    }

    /// Takes one change back, or ends the rollback. Whether it has ended; the transaction is to be dropped then.
    ///
    /// # Errors
    /// [`Error::LogFull`] if the pages in memory wait for the log: try again later; the disk's.
    pub fn abort_step(&self, txn: &mut KeyTxn) -> Result<bool> {
        self.abort_begin(txn);
        self.admit(txn.stream, 0)?;
        let took = txn.take_back(|txn, row, before, purpose| {
            let (_, gsn) = self.change(txn, row, before, purpose)?;
            Ok(gsn)
        })?;
        if took {
            self.counters.compensations.fetch_add(1, Ordering::Relaxed);
            return Ok(false);
        }
        if txn.is_listed {
            append_end(self, txn, Act::Abort);
        }
        self.release(txn);
        self.counters.aborts.fetch_add(1, Ordering::Relaxed);
        Ok(true)
    }

    /// Rolls a transaction back, to the end.
    ///
    /// # Errors
    /// As [`abort_step`](Self::abort_step): what is left of it is taken back by a restart.
    pub fn abort(&self, mut txn: KeyTxn) -> Result<()> {
        while !self.abort_step(&mut txn)? {}
        Ok(())
    }

    fn release(&self, txn: &mut KeyTxn) {
        for row in txn.rows.drain(..) {
            self.locks.release(&row, txn.routed.id);
        }
        assert!(txn.changes.is_empty() || !txn.is_aborting);
    }
}

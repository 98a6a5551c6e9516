//! Transactions over keys: writes, commits and rollbacks.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crossbeam_utils::CachePadded;
use perdura_base::{Error, Result, StreamId, TableId, TxnId};
use perdura_formats::operation::Act;
use perdura_recovery::Life;
use perdura_recovery::tree::live::LiveTree;
use perdura_recovery::tree::losers::ToUndo;
use perdura_recovery::tree::writing::{LoggedTxn, Purpose};
use perdura_wal::Wal;

use super::locks::{Locks, RowKey};
use crate::numbers::Numbers;
use crate::options::Route;
use crate::txn::Committed;

/// The result of a write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Write {
    /// The write is done. The value is the row from before the write, if the row existed.
    Done(Option<Vec<u8>>),
    /// Another transaction has locked the row, and nothing has changed.
    Taken,
}

/// Statistics since the database was opened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct KeyedStats {
    /// Transactions committed.
    pub commits: u64,
    /// Transactions rolled back, by callers and by the restart.
    pub aborts: u64,
    /// Changes made, not counting compensations.
    pub updates: u64,
    /// Changes undone, including changes that the restart undid.
    pub compensations: u64,
}

#[derive(Default)]
struct Counters {
    commits: AtomicU64,
    aborts: AtomicU64,
    updates: AtomicU64,
    compensations: AtomicU64,
}

/// An open transaction. It ends with [`KeyTxns::commit`] or [`KeyTxns::abort`]. A dropped transaction keeps its locks
/// until the database is closed. The next restart undoes the transaction's changes.
#[derive(Debug)]
pub struct KeyTxn {
    logged: LoggedTxn,
    is_aborting: bool,
    /// The transaction's changes that are still to be undone, oldest first.
    changes: Vec<ToUndo>,
    rows: Vec<RowKey>,
}

impl KeyTxn {
    /// Returns the transaction's number.
    #[must_use]
    pub fn id(&self) -> TxnId {
        self.logged.id
    }

    /// Returns the stream that the transaction's records are appended to.
    #[must_use]
    pub fn stream(&self) -> StreamId {
        self.logged.stream
    }

    /// Returns whether the transaction's rollback has begun.
    #[must_use]
    pub fn is_aborting(&self) -> bool {
        self.is_aborting
    }
}

/// The object that runs transactions over the keys of an open database's tree.
pub struct KeyTxns {
    live: Arc<LiveTree>,
    wal: Arc<Wal>,
    locks: Locks,
    numbers: Numbers,
    route: Route,
    counters: CachePadded<Counters>,
}

impl Deref for KeyTxns {
    type Target = LiveTree;

    fn deref(&self) -> &LiveTree {
        &self.live
    }
}

impl KeyTxns {
    /// Returns an object that runs transactions over the tree of a database. `None`: the database has no tree.
    #[must_use]
    pub fn over(life: &Life, route: Route) -> Option<KeyTxns> {
        let live = life.trees.first()?;
        let report = life.report();
        let counters = Counters {
            aborts: AtomicU64::new(report.tree.as_ref().map_or(0, |tree| tree.losers)),
            compensations: AtomicU64::new(report.records.undone),
            ..Counters::default()
        };
        Some(KeyTxns {
            live: Arc::clone(live),
            wal: Arc::clone(life.wal()),
            locks: Locks::new(),
            numbers: Numbers::of(life.anchor().get().incarnation),
            route,
            counters: CachePadded::new(counters),
        })
    }

    /// Returns the tree.
    #[must_use]
    pub fn live(&self) -> &LiveTree {
        &self.live
    }

    /// Returns statistics since the database was opened.
    #[must_use]
    pub fn stats(&self) -> KeyedStats {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        KeyedStats {
            commits: load(&self.counters.commits),
            aborts: load(&self.counters.aborts),
            updates: load(&self.counters.updates),
            compensations: load(&self.counters.compensations),
        }
    }

    /// Opens a transaction and routes it to a stream.
    pub fn begin(&self) -> KeyTxn {
        let routed = self.numbers.route(self.route, &self.wal);
        KeyTxn {
            logged: LoggedTxn::new(routed.id, routed.stream),
            is_aborting: false,
            changes: Vec::new(),
            rows: Vec::new(),
        }
    }

    /// Puts a row, or removes it if `value` is `None`. Logs nothing if the row stays unchanged.
    ///
    /// # Errors
    /// [`Error::Usage`] for an unknown table, or a key or value above the limit; [`Error::LogFull`] while log or pages
    /// have no room; [`Error::Stopped`]; errors of the disk. After an error nothing has changed.
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
        let bytes = key.len() + value.map_or(0, <[u8]>::len);
        self.live.admit(txn.logged.stream, bytes)?;
        let row = (table, key.to_vec());
        let Some(is_new) = self.locks.take(&row, txn.logged.id) else {
            return Ok(Write::Taken);
        };
        debug_assert!(
            is_new || txn.rows.contains(&row),
            "a row that a transaction has is on its list"
        );
        let logged = &mut txn.logged;
        let changed = self.live.change(logged, table, key, value, Purpose::Change);
        let changed = changed.inspect_err(|_| {
            if is_new {
                self.locks.release(&row, txn.logged.id);
            }
        })?;
        if is_new {
            txn.rows.push(row);
        }
        if let Some(gsn) = changed.gsn {
            assert!(txn.changes.last().is_none_or(|last| last.gsn < gsn));
            txn.changes.push(ToUndo {
                gsn,
                table,
                key: key.to_vec(),
                before: changed.before.clone(),
            });
            self.counters.updates.fetch_add(1, Ordering::Relaxed);
        }
        Ok(Write::Done(changed.before))
    }

    /// Commits a transaction. From now on, other transactions see its changes. The commit may be acknowledged once its
    /// epoch is durable.
    ///
    /// # Panics
    /// If the transaction's rollback has begun.
    pub fn commit(&self, mut txn: KeyTxn) -> Committed {
        assert!(!txn.is_aborting, "a transaction rolls back or commits");
        let mut committed = Committed::empty(txn.logged.id, txn.logged.stream);
        if txn.logged.is_listed() {
            // The commit epoch is read while the transaction still locks all its rows. A transaction that locks one
            // of these rows later gets this epoch or a greater one.
            let appended = self.live.end(&txn.logged, Act::Commit);
            committed.epoch = appended.epoch;
            committed.pos = appended.pos;
        } else if !txn.rows.is_empty() {
            // The transaction wrote only values that the rows already had. The earlier commits that wrote these values
            // may not be durable yet.
            committed.epoch = self.wal.last_appended();
        }
        assert!(
            txn.logged.is_listed() || txn.changes.is_empty(),
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

    /// Undoes one change, or ends the rollback if no change is left. Returns whether the rollback has ended. The
    /// caller then drops the transaction.
    ///
    /// # Errors
    /// [`Error::LogFull`] if memory is full of dirty pages, and their log records are not flushed. The caller should
    /// flush the log and try again. Errors of the disk.
    pub fn abort_step(&self, txn: &mut KeyTxn) -> Result<bool> {
        self.abort_begin(txn);
        assert!(
            txn.logged.is_listed() || txn.changes.is_empty(),
            "a change is in the log before it is undone"
        );
        if self.live.undo_one(&mut txn.logged, &mut txn.changes)? {
            self.counters.compensations.fetch_add(1, Ordering::Relaxed);
            return Ok(false);
        }
        if txn.logged.is_listed() {
            self.live.end(&txn.logged, Act::Abort);
        }
        self.release(txn);
        self.counters.aborts.fetch_add(1, Ordering::Relaxed);
        Ok(true)
    }

    /// Rolls a transaction back completely.
    ///
    /// # Errors
    /// As [`abort_step`](Self::abort_step). After an error, the next restart undoes the remaining changes.
    pub fn abort(&self, mut txn: KeyTxn) -> Result<()> {
        while !self.abort_step(&mut txn)? {}
        Ok(())
    }

    fn release(&self, txn: &mut KeyTxn) {
        for row in txn.rows.drain(..) {
            self.locks.release(&row, txn.logged.id);
        }
        assert!(txn.changes.is_empty() || !txn.is_aborting);
    }
}

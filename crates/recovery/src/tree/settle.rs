//! Undoes changes of a tree's rows, after the anchor names the new life. The changes are by transactions that were open
//! when the previous life ended.
//!
//! A restart that changes nothing on the disks undoes these transactions in memory, without logging. It writes pages
//! only to a scratch file ([`OverlayDisk`](perdura_device::OverlayDisk)).
//!
//! # Source
//! C. Mohan et al., "ARIES": each undo is logged as a compensation, and no restart undoes a compensation.

use std::sync::atomic::{AtomicU64, Ordering};

use perdura_base::flaw::{Flaw, armed};
use perdura_base::num::to_u64;
use perdura_base::{Error, Gsn, Result};
use perdura_formats::operation::Act;
use perdura_formats::tree_record::TreeRecord;
use perdura_tree::contract::{Log, Operation, Records, insist};
use perdura_tree::tree::Tree;

use super::contents::{ALL_STABLE, pages_wait};
use super::live::LiveTree;
use super::losers::Loser;
use super::writing::{LoggedTxn, undo_newest};
use crate::flush::flush_all;

/// Undoes the changes of open transactions, and ends each transaction. Returns how many changes were undone.
///
/// # Errors
/// Errors of the log and of the disks. The next start undoes the changes that are left.
pub(crate) fn settle(live: &LiveTree, losers: Vec<Loser>) -> Result<u64> {
    if armed(Flaw::LosersForgotten) {
        return Ok(0);
    }
    let mut undone = 0;
    for loser in losers {
        let mut txn = LoggedTxn::new(loser.txn, loser.stream);
        live.adopt(&mut txn, loser.first);
        let mut changes = loser.changes;
        // An undo that is refused again after a flush of the log means that the disk has no space. The next start
        // continues the undo.
        let mut was_refused = false;
        loop {
            match live.undo_one(&mut txn, &mut changes) {
                Ok(true) => {
                    was_refused = false;
                    undone += 1;
                }
                Ok(false) => break,
                Err(Error::LogFull(_)) if !was_refused => {
                    was_refused = true;
                    flush_all(&live.wal)?;
                }
                Err(error) => return Err(error),
            }
        }
        live.end(&txn, Act::Abort);
    }
    assert!(
        live.needs().iter().all(Option::is_none),
        "nothing is open when work begins"
    );
    Ok(undone)
}

/// A log that assigns numbers to records but does not store the records.
struct NoLog {
    last: AtomicU64,
}

impl NoLog {
    fn next(&self) -> Gsn {
        Gsn(self.last.fetch_add(1, Ordering::Relaxed) + 1)
    }
}

impl Records for NoLog {
    fn record(&self, _: &TreeRecord) -> Gsn {
        self.next()
    }
}

impl Log for NoLog {
    fn operation(&self, _: &Operation<'_>) -> Gsn {
        self.next()
    }
}

/// Undoes the changes of open transactions after a restart that changes nothing on the disks. The undoing operations
/// get numbers above `last`, the last number in the log. Returns how many changes were undone.
///
/// # Errors
/// Errors of the disks.
pub(crate) fn settle_in_memory(tree: &Tree, losers: Vec<Loser>, last: Gsn) -> Result<u64> {
    let log = NoLog {
        last: AtomicU64::new(last.0),
    };
    let mut undone = 0;
    for loser in losers {
        let mut changes = loser.changes;
        undone += to_u64(changes.len());
        while undo_newest(&mut changes, |last, _| {
            let (table, key, before) = (last.table, &last.key, last.before.as_deref());
            let call = || tree.apply(table, key, before, &log);
            let applied = insist(call, || tree.pool().write_step(ALL_STABLE))?;
            let _undone = applied.ok_or_else(pages_wait)?;
            Ok(Some(Gsn(log.last.load(Ordering::Relaxed))))
        })? {}
    }
    Ok(undone)
}

//! A restart that leaves everything as it is: over disks that keep in a scratch file what it writes to pages
//! ([`OverlayDisk`](perdura_device::OverlayDisk)). What the last life left open is taken back like any rollback, but nothing of that is
//! logged, and the database ends with the process.

use std::sync::atomic::{AtomicU64, Ordering};

use perdura_base::num::to_u64;
use perdura_base::{Gsn, Result};
use perdura_formats::tree_record::TreeRecord;
use perdura_recovery::restart::{RestartOptions, Restarted, restart_with_tree};
use perdura_recovery::tree::losers::Loser;
use perdura_tree::contract::{Log, Operation, Records, insist};
use perdura_tree::tree::Tree;

use super::engine::pages_wait;
use super::options::KeyedOptions;
use super::txn::KeyTxn;

/// The end of a log that nothing is waited for in: each page may be written.
pub const ALL_STABLE: Gsn = Gsn(u64::MAX);

/// Gives out numbers, and keeps nothing.
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

/// Restarts a database with a tree in memory and on disks that are an overlay, and takes back what was open. `Ok(None)` if there is none.
///
/// # Errors
/// As [`Keyed::open`](super::Keyed::open).
///
/// # Panics
/// If the restart is not a dry one.
pub fn restart_dry(
    restart: &RestartOptions<'_>,
    options: &KeyedOptions,
) -> Result<Option<Restarted>> {
    assert!(!restart.mode.changes_disks(), "the log is left as it is");
    options.check_open()?;
    let Some(mut restarted) = restart_with_tree(restart, Some(&options.means()))? else {
        return Ok(None);
    };
    let Some(found) = &mut restarted.tree else {
        return Ok(Some(restarted));
    };
    let begin = restart.clock.mono_ns();
    let losers = std::mem::take(&mut found.losers);
    let undone = take_back(&found.tree, losers, restarted.wal_start.gsn)?;
    let ns = restart.clock.mono_ns().saturating_sub(begin);
    restarted.report.took_back(undone, ns);
    Ok(Some(restarted))
}

/// Takes transactions back, with numbers above the last one of the log. How many changes they were.
fn take_back(tree: &Tree, losers: Vec<Loser>, last: Gsn) -> Result<u64> {
    let log = NoLog {
        last: AtomicU64::new(last.0),
    };
    let mut undone = 0;
    for loser in losers {
        let changes = to_u64(loser.changes.len());
        let mut txn = KeyTxn::of_loser(loser);
        while txn.take_back(|_, (table, key), before, _| {
            let call = || tree.apply(*table, key, before, &log);
            let applied = insist(call, || tree.pool().write_step(ALL_STABLE))?;
            let _taken_back = applied.ok_or_else(pages_wait)?;
            Ok(Some(Gsn(log.last.load(Ordering::Relaxed))))
        })? {}
        undone += changes;
    }
    Ok(undone)
}

//! One tree with a disk and a log. A [`Run`] changes the tree and crashes it.

use super::log::{Entry, TestLog};
use super::restart::{Method, Report, insist, restart};
use fastrand::Rng;
use perdura_base::num::to_u64;
use perdura_base::{Error, Gsn, TableId};
use perdura_device::{CrashProfile, FaultPlan, SimDisk, SyncFailure};
use perdura_tree::analysis::Detail;
use perdura_tree::check::check;
use perdura_tree::contract::Answer;
use perdura_tree::file::Shape;
use perdura_tree::tree::Tree;
use std::collections::BTreeMap;
use std::sync::Arc;

pub type Rows = BTreeMap<(TableId, Vec<u8>), Vec<u8>>;

const METHODS: [Method; 8] = [
    Method::Log0,
    Method::Log1(Detail::Standard),
    Method::Log1(Detail::Numbers),
    Method::Log1(Detail::Reduced),
    Method::Log2(Detail::Standard),
    Method::Sql1,
    Method::Sql2,
    Method::Aries,
];

pub const TABLES: [TableId; 2] = [TableId(1), TableId(7)];

fn draw_key(rng: &mut Rng, page_bytes: usize) -> Vec<u8> {
    let len = rng.usize(..=page_bytes / 16);
    let mut key: Vec<u8> = (0..len.min(2)).map(|_| rng.u8(b'a'..b'i')).collect();
    key.resize(len, b'x');
    key
}

/// Returns all rows of a tree.
pub fn rows_of(tree: &Tree, eosl: Gsn, tables: &[TableId]) -> Result<Rows, Error> {
    let mut rows = Rows::new();
    for table in tables {
        let mut from = Vec::new();
        loop {
            let mut leaf = Vec::new();
            let next = insist(tree, eosl, || {
                leaf.clear();
                tree.scan(*table, &from, |key, value| {
                    leaf.push(((*table, key.to_vec()), value.to_vec()));
                })
            })?;
            rows.extend(leaf);
            match next {
                Some(next) => from = next,
                None => break,
            }
        }
    }
    Ok(rows)
}

/// Changes a row in the tree and in the map `rows`.
pub fn change(
    tree: &Tree,
    log: &TestLog,
    rng: &mut Rng,
    rows: &mut Rows,
    eosl: Gsn,
) -> Result<(), Error> {
    let table = TABLES[rng.usize(..TABLES.len())];
    let size = tree.shape().page_bytes;
    let key = draw_key(rng, size);
    let most = size / 4 - key.len() - 4;
    // Phases with mostly puts alternate with phases with mostly removals.
    let puts = if (rows.len() / 60).is_multiple_of(2) {
        6
    } else {
        4
    };
    let value = (rng.u8(..10) < puts).then(|| vec![rng.u8(..); rng.usize(..most)]);
    let applied = insist(tree, eosl, || {
        tree.apply(table, &key, value.as_deref(), log)
    })?;
    let row = (table, key);
    let was = match value {
        Some(value) => rows.insert(row.clone(), value),
        None => rows.remove(&row),
    };
    assert_eq!(applied.before, was);
    let read = insist(tree, eosl, || tree.read(table, &row.1))?;
    assert_eq!(read.as_ref(), rows.get(&row));
    if applied.is_sparse {
        insist(tree, eosl, || tree.merge(table, &row.1, log))?;
    }
    Ok(())
}

/// Counts of events, summed over all runs.
#[derive(Debug, Default)]
pub struct Met {
    pub crashes: u64,
    pub interrupted: u64,
    pub applied: u64,
    pub skipped: u64,
    pub moved: u64,
    pub structures: u64,
}

pub struct Run {
    pub rng: Rng,
    pub disk: Arc<SimDisk>,
    pub shape: Shape,
    pub frames: usize,
    pub log: TestLog,
}

impl Run {
    /// Changes rows until a fault strikes or a random number of steps is done.
    pub fn live(&mut self, tree: &Tree) {
        let mut rows = self.told();
        self.disk.set_plan(FaultPlan {
            cut_after_ops: (self.rng.u8(..4) > 0).then(|| self.rng.u64(1..200)),
            fail_sync_at: (self.rng.u8(..4) == 0)
                .then(|| (self.rng.u64(1..20), SyncFailure::KeepsNew)),
            ..FaultPlan::default()
        });
        let mut eosl = self.log.eosl();
        for _ in 0..self.rng.usize(1..400) {
            if self.step(tree, &mut rows, &mut eosl).is_err() {
                break;
            }
        }
    }

    fn step(&mut self, tree: &Tree, rows: &mut Rows, eosl: &mut Gsn) -> Result<(), Error> {
        let (rng, log) = (&mut self.rng, &self.log);
        match rng.u8(..10) {
            0 => log.flush(rng.usize(..=log.unstable())),
            1 => *eosl = log.eosl(),
            2 | 3 => {
                tree.pool().write_step(*eosl)?;
            }
            4 => tree.cut_notes(*eosl, log),
            5 if rng.u8(..3) == 0 => {
                let is_under_way = tree.pool().monitor().lock().is_in_checkpoint();
                if is_under_way {
                    tree.end_checkpoint(log);
                } else {
                    if tree.begin_checkpoint(log)? == Answer::NoFrame {
                        tree.pool().write_step(*eosl)?;
                    }
                }
            }
            _ => {
                // Perhaps all pages in the pool are dirty, and none of them may be written until more of the log is
                // stable.
                log.flush(log.unstable() / 2);
                let late = log.eosl();
                let stable = if rng.bool() { *eosl } else { late };
                let flushed = || {
                    log.flush(log.unstable());
                    log.eosl()
                };
                let dirty = tree.pool().monitor().lock().dirty_count();
                let stable = if dirty + 6 > self.frames {
                    flushed()
                } else {
                    stable
                };
                *eosl = (*eosl).max(stable);
                change(tree, log, rng, rows, *eosl)?;
            }
        }
        Ok(())
    }

    /// Returns the rows that the log describes.
    fn told(&self) -> Rows {
        let mut rows = Rows::new();
        for (_, entry) in self.log.entries() {
            if let Entry::Operation {
                table, key, after, ..
            } = entry
            {
                match after {
                    Some(after) => rows.insert((table, key), after),
                    None => rows.remove(&(table, key)),
                };
            }
        }
        rows
    }

    pub fn crash(&mut self, met: &mut Met) {
        let profile = CrashProfile::ALL[self.rng.usize(..CrashProfile::ALL.len())];
        self.disk.crash(profile, self.rng.u64(..));
        self.disk.set_plan(FaultPlan::default());
        self.log.flush(self.rng.usize(..=self.log.unstable()));
        self.log.crash();
        met.crashes += 1;
    }

    /// Restarts by every method, and restores the disk after each. Then restarts by one method, perhaps after restarts
    /// that a power cut interrupted.
    pub fn restart(&mut self, met: &mut Met) -> Result<Tree, String> {
        let told = self.told();
        for method in METHODS {
            let before = self.disk.snapshot();
            let (tree, report) = self
                .with(method, None)
                .map_err(|e| format!("{method:?}: {e}"))?;
            self.check(&tree, method, &told)?;
            met.applied += report.applied;
            met.skipped += report.skipped;
            met.moved += report.moved;
            drop(tree);
            self.disk.restore(&before);
        }
        loop {
            let method = METHODS[self.rng.usize(..METHODS.len())];
            if self.rng.u8(..3) == 0 {
                let stop = self.rng.u64(1..30);
                let before = self.log.entries().len();
                if self.with(method, Some(stop)).is_err() {
                    met.interrupted += 1;
                }
                assert_eq!(self.log.entries().len(), before, "redo logs nothing");
                self.crash(met);
                continue;
            }
            let (tree, _) = self
                .with(method, None)
                .map_err(|e| format!("{method:?}: {e}"))?;
            self.check(&tree, method, &told)?;
            return Ok(tree);
        }
    }

    /// Runs a restart that writes pages from time to time. If `cut` is given, cuts the power after that many operations
    /// of the disk.
    fn with(&mut self, method: Method, cut: Option<u64>) -> Result<(Tree, Report), Error> {
        self.disk.set_plan(FaultPlan {
            cut_after_ops: cut,
            ..FaultPlan::default()
        });
        let disk = self.disk.life();
        let mut rng = self.rng.fork();
        let eosl = self.log.eosl();
        restart(
            &*disk,
            (self.shape, self.frames),
            &self.log,
            method,
            |tree| {
                if rng.u8(..4) == 0 {
                    tree.pool().write_step(eosl)?;
                }
                Ok(())
            },
        )
    }

    fn check(&self, tree: &Tree, method: Method, told: &Rows) -> Result<(), String> {
        let rows =
            rows_of(tree, self.log.eosl(), &TABLES).map_err(|e| format!("{method:?}: {e}"))?;
        if rows == *told {
            // Right rows are not enough: the tree's links must be right too.
            let checked = check(tree, self.log.eosl()).map_err(|e| format!("{method:?}: {e}"))?;
            return match checked.faults.first() {
                Some(fault) => Err(format!("{method:?}: {fault:?}")),
                None if checked.rows == to_u64(rows.len()) => Ok(()),
                None => Err(format!("{method:?}: {} rows are reached", checked.rows)),
            };
        }
        let wrong = told
            .iter()
            .find(|(row, value)| rows.get(*row) != Some(value));
        let beyond = rows.keys().find(|row| !told.contains_key(*row));
        Err(format!("{method:?}: {wrong:?} is told, {beyond:?} is not"))
    }
}

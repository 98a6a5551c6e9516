//! A restart over the test's log. It redoes changes of structure, and then redoes operations by one of the methods.

use super::log::{Entry, TestLog};
use perdura_base::{Error, Gsn};
use perdura_device::{Access, Disk};
use perdura_formats::tree_record::{Delta, EndCheckpoint, TreeRecord, Writes};
use perdura_tree::analysis::{AriesAnalysis, Detail, LogicalAnalysis, SqlAnalysis};
use perdura_tree::contract::{Answer, Operation};
use perdura_tree::dirty_pages::DirtyPages;
use perdura_tree::file::{PageFile, Shape};
use perdura_tree::monitor::{Limits, Monitor, Tells};
use perdura_tree::read_ahead::{ReadAhead, Step};
use perdura_tree::rebuilt::Rebuilt;
use perdura_tree::redo::Redone;
use perdura_tree::tree::Tree;

/// A method of redo.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    Log0,
    Log1(Detail),
    /// `Log1` with read-ahead. All inner pages are read first, and then the pages that redo needs. The analysis lists
    /// these pages in PF-list.
    Log2(Detail),
    Sql1,
    /// `Sql1` with read-ahead of the pages that the operations in the log name.
    Sql2,
    Aries,
}

/// The figures of a restart.
#[derive(Debug, Default, Clone, Copy)]
pub struct Report {
    pub applied: u64,
    pub skipped: u64,
    pub had: u64,
    pub moved: u64,
    pub data_fetches: u64,
    pub data_stalls: u64,
    pub index_stalls: u64,
    /// Count of pages in the table of dirty pages.
    pub dirty_pages: usize,
}

/// Repeats a call until the pool has a frame for each page that the call needs. After each failure, takes a step of the
/// pool's writer.
pub fn insist<T>(
    tree: &Tree,
    eosl: Gsn,
    mut call: impl FnMut() -> Result<Answer<T>, Error>,
) -> Result<T, Error> {
    loop {
        match call()? {
            Answer::Done(value) => return Ok(value),
            Answer::NoFrame => {
                tree.pool().write_step(eosl)?;
            }
        }
    }
}

/// The parts of the log that a restart uses.
struct Scan {
    /// The entries after the redo start of the newest completed checkpoint.
    entries: Vec<(Gsn, Entry)>,
    rssp: Gsn,
}

impl Scan {
    fn of(log: &TestLog) -> Scan {
        let entries = log.entries();
        let ends = entries.iter().rev().filter_map(|(_, entry)| match entry {
            Entry::Record(bytes) => match decode(bytes).1 {
                TreeRecord::EndCheckpoint(end) => Some(end),
                _ => None,
            },
            Entry::Operation { .. } => None,
        });
        let rssp = ends.into_iter().next().unwrap_or_default().rssp;
        let entries = entries.into_iter().filter(|(gsn, _)| *gsn > rssp).collect();
        Scan { entries, rssp }
    }

    fn records(&self) -> impl Iterator<Item = (Gsn, TreeRecord)> {
        self.entries.iter().filter_map(|(_, entry)| match entry {
            Entry::Record(bytes) => Some(decode(bytes)),
            Entry::Operation { .. } => None,
        })
    }

    fn deltas(&self) -> impl Iterator<Item = Delta> {
        self.records().filter_map(|(_, record)| match record {
            TreeRecord::Delta(delta) => Some(delta),
            _ => None,
        })
    }

    fn table(&self, method: Method) -> Option<DirtyPages> {
        match method {
            Method::Log0 => None,
            Method::Log1(detail) | Method::Log2(detail) => {
                let mut analysis = LogicalAnalysis::new(detail, self.rssp);
                self.deltas().for_each(|delta| analysis.delta(&delta));
                Some(analysis.finish())
            }
            Method::Sql1 | Method::Sql2 => {
                let mut analysis = SqlAnalysis::new();
                self.meet(|met| match met {
                    Met::Update(pid, gsn) => analysis.update(pid, gsn),
                    Met::Writes(writes) => analysis.writes(&writes),
                    Met::Checkpoint(_) => {}
                });
                Some(analysis.finish())
            }
            Method::Aries => {
                let mut analysis = AriesAnalysis::new();
                self.meet(|met| match met {
                    Met::Update(pid, gsn) => analysis.update(pid, gsn),
                    Met::Checkpoint(end) => analysis.checkpoint(&end),
                    Met::Writes(_) => {}
                });
                Some(analysis.finish())
            }
        }
    }

    fn meet(&self, mut meet: impl FnMut(Met)) {
        for (gsn, entry) in &self.entries {
            match entry {
                Entry::Operation { pid, .. } => meet(Met::Update(*pid, *gsn)),
                Entry::Record(bytes) => match decode(bytes).1 {
                    TreeRecord::Structure(structure) => {
                        for (pid, _) in structure.changes {
                            meet(Met::Update(pid, *gsn));
                        }
                    }
                    TreeRecord::Writes(writes) => meet(Met::Writes(writes)),
                    TreeRecord::EndCheckpoint(end) => meet(Met::Checkpoint(end)),
                    TreeRecord::Delta(_) | TreeRecord::RedoStart => {}
                },
            }
        }
    }
}

enum Met {
    Update(perdura_base::Pid, Gsn),
    Writes(Writes),
    Checkpoint(EndCheckpoint),
}

fn decode(bytes: &[u8]) -> (Gsn, TreeRecord) {
    TreeRecord::decode(bytes).expect("a record")
}

/// Restarts the tree of a disk. Calls `between` before each operation. `between` may take steps of the pool's writer.
pub fn restart(
    disk: &dyn Disk,
    (shape, frames): (Shape, usize),
    log: &TestLog,
    method: Method,
    mut between: impl FnMut(&Tree) -> Result<(), Error>,
) -> Result<(Tree, Report), Error> {
    let scan = Scan::of(log);
    let eosl = log.eosl();
    let file = PageFile::open(disk, "tree", shape, Access::Buffered)?;
    file.repair()?;
    let notes =
        |delta: Delta| delta.first_note + u64::try_from(delta.dirty.len()).expect("a count");
    let first_note = scan.deltas().map(notes).max().unwrap_or(0);
    let monitor = Monitor::new(LIMITS, first_note, Tells::DeltasWithNumbers);
    let tree = Tree::new(file, shape, frames, monitor);
    let mut rebuilt = Rebuilt::default();
    for (gsn, record) in scan.records() {
        between(&tree)?;
        rebuilt.judge(gsn, &record)?;
        if let TreeRecord::Structure(structure) = record {
            insist(&tree, eosl, || {
                tree.redo_structure(gsn, &structure, &mut rebuilt)
            })?;
        }
    }
    insist(&tree, eosl, || tree.find_tables())?;
    let mut table = scan.table(method);
    let mut report = Report {
        dirty_pages: table.as_ref().map_or(0, DirtyPages::len),
        ..Report::default()
    };
    let preload = tree.preload_index();
    let list = match (&table, method) {
        (Some(table), Method::Log2(_)) => {
            while preload.step() != Step::Done {}
            table.read_ahead()
        }
        _ => Vec::new(),
    };
    let ahead = ReadAhead::new(tree.pool(), list);
    let mut from_log = scan.entries.iter().peekable();
    for (gsn, entry) in &scan.entries {
        if let (Some(table), Method::Sql2) = (&table, method) {
            while let Some((gsn, entry)) = from_log.peek() {
                let pid = match entry {
                    Entry::Operation { pid, .. } => Some(*pid),
                    Entry::Record(_) => None,
                };
                let wanted = pid.filter(|pid| table.skips(*pid, *gsn).is_none());
                if !wanted.is_none_or(|pid| ahead.offer(pid)) {
                    break;
                }
                from_log.next();
            }
        }
        while ahead.step() == Step::Read {}
        let Entry::Operation {
            table: id,
            key,
            after,
            pid,
        } = entry
        else {
            continue;
        };
        between(&tree)?;
        let operation = Operation {
            table: *id,
            key,
            before: None,
            after: after.as_deref(),
            pid: *pid,
        };
        let redone = insist(&tree, eosl, || match (&mut table, method) {
            (Some(table), Method::Sql1 | Method::Sql2 | Method::Aries) => {
                tree.redo_by_page(*gsn, &operation, table)
            }
            (table, _) => tree.redo_by_key(*gsn, &operation, table.as_mut()),
        })?;
        match redone {
            Redone::Applied => report.applied += 1,
            Redone::Skipped(_) => report.skipped += 1,
            Redone::Had => report.had += 1,
            Redone::Moved => report.moved += 1,
        }
    }
    let counts = tree.pool().counts();
    report.data_fetches = counts.data_fetches;
    report.data_stalls = counts.data_stalls;
    report.index_stalls = counts.index_stalls;
    tree.pool().monitor().lock().end_restart();
    Ok((tree, report))
}

pub const LIMITS: Limits = Limits {
    notes: 24,
    written: 8,
};

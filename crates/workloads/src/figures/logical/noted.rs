//! Reads the tree's records in the log of a crash, beginning at the redo start. These are the records that the
//! analysis of a restart reads.

use anyhow::{Context, Result};
use perdura_base::{Gsn, Pid, StreamId};
use perdura_formats::tree_record::{Delta, TreeRecord, Writes};
use perdura_recovery::read_anchor;
use perdura_recovery::verify::log_begin;
use perdura_tree::analysis::{Detail, LogicalAnalysis, SqlAnalysis};
use perdura_tree::dirty_pages::DirtyPages;
use perdura_wal::{Check, Direction, FrameKind, scan_stream};

use super::history::Crash;

/// The tree's records after the redo start.
pub(super) struct Noted {
    rssp: Gsn,
    pub deltas: Vec<Delta>,
    pub writes: Vec<Writes>,
    /// The size of the payloads of the tree's records and operations after the redo start, bytes.
    pub log_bytes: u64,
    /// The part of `log_bytes` that is Δ records, bytes.
    pub delta_bytes: u64,
    /// The part of `log_bytes` that is BW records, bytes.
    pub writes_bytes: u64,
    /// The size that the Δ records would have without the sequence numbers of the updates, bytes.
    pub plain_delta_bytes: u64,
    /// The page and the sequence number of each operation.
    operations: Vec<(Pid, Gsn)>,
    /// The analysis by page. It reads BW records and operations in the order of their sequence numbers.
    by_page: SqlAnalysis,
    /// The analysis by page that leaves out the operations after the last Δ record.
    before_tail: SqlAnalysis,
    /// The page and the sequence number of each operation that was read after the latest Δ record.
    since_delta: Vec<(Pid, Gsn)>,
}

impl Noted {
    /// Reads the records.
    pub fn read(crash: &Crash) -> Result<Noted> {
        let anchor = read_anchor(&*crash.disk)?.context("the crash left a database")?;
        let rssp = anchor.tree.context("a database with a tree")?.rssp;
        let from = log_begin(&anchor)[0];
        let scan = scan_stream(&*crash.disk, &anchor.lives(), StreamId(0), from, Check::All)?;
        let mut noted = Noted {
            rssp,
            deltas: Vec::new(),
            writes: Vec::new(),
            log_bytes: 0,
            delta_bytes: 0,
            writes_bytes: 0,
            plain_delta_bytes: 0,
            operations: Vec::new(),
            by_page: SqlAnalysis::new(),
            before_tail: SqlAnalysis::new(),
            since_delta: Vec::new(),
        };
        for unit in scan.units(1 << 20) {
            scan.read_unit(unit, Direction::Forward, |frame, _| {
                match frame.kind {
                    FrameKind::Tree => noted.record(frame.payload),
                    FrameKind::Operations => noted.operations(frame.payload),
                    _ => {}
                }
                Ok(())
            })?;
        }
        Ok(noted)
    }

    fn record(&mut self, payload: &[u8]) {
        let (gsn, record) = TreeRecord::decode(payload).expect("a restart has read it");
        if gsn <= self.rssp {
            return;
        }
        let bytes = bytes_of(payload.len());
        self.log_bytes += bytes;
        match record {
            TreeRecord::Delta(delta) => {
                self.delta_bytes += bytes;
                let plain = TreeRecord::Delta(Delta {
                    lsns: None,
                    ..delta.clone()
                });
                let mut out = Vec::new();
                plain.encode(&mut out, gsn);
                self.plain_delta_bytes += bytes_of(out.len());
                self.deltas.push(delta);
                for (pid, gsn) in self.since_delta.drain(..) {
                    self.before_tail.update(pid, gsn);
                }
            }
            TreeRecord::Writes(writes) => {
                self.writes_bytes += bytes;
                self.by_page.writes(&writes);
                self.before_tail.writes(&writes);
                self.writes.push(writes);
            }
            TreeRecord::Structure(_) | TreeRecord::RedoStart | TreeRecord::EndCheckpoint(_) => {}
        }
    }

    fn operations(&mut self, payload: &[u8]) {
        let frame = perdura_formats::operation::decode(payload).expect("a restart has read it");
        for ((_, act), gsn) in frame.acts.iter().zip(frame.first.0..) {
            if Gsn(gsn) > self.rssp {
                self.log_bytes += bytes_of(payload.len()) / bytes_of(frame.acts.len());
                if let Some(row) = act.row() {
                    self.operations.push((row.pid, Gsn(gsn)));
                    self.by_page.update(row.pid, Gsn(gsn));
                    self.since_delta.push((row.pid, Gsn(gsn)));
                }
            }
        }
    }

    /// Returns the table of dirty pages that the analysis makes if Δ records have the contents `detail`.
    pub fn table(&self, detail: Detail) -> DirtyPages {
        let mut analysis = LogicalAnalysis::new(detail, self.rssp);
        self.deltas.iter().for_each(|delta| analysis.delta(delta));
        analysis.finish()
    }

    /// Returns the table of dirty pages that Algorithm 3 of the paper makes from BW records.
    pub fn table_by_writes(&self) -> DirtyPages {
        self.by_page.clone().finish()
    }

    /// Returns the table that Algorithm 3 makes without the tail. The tail is the operations after the last Δ record.
    /// So no Δ record lists their pages.
    pub fn table_before_tail(&self) -> DirtyPages {
        self.before_tail.clone().finish()
    }

    /// Returns the number of operations that redo cannot skip if it uses `table`. Redo must read their pages.
    pub fn left_by(&self, table: &DirtyPages) -> usize {
        let operations = self.operations.iter();
        operations
            .filter(|(pid, gsn)| table.skips(*pid, *gsn).is_none())
            .count()
    }
}

fn bytes_of(len: usize) -> u64 {
    perdura_base::num::to_u64(len)
}

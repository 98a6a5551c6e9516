//! The analysis of the log, which makes the dirty page table of a restart. There are three kinds:
//! * [`LogicalAnalysis`] uses only the Δ records, which list dirtied and written pages (Algorithm 4).
//! * [`SqlAnalysis`] uses BW records, which list written pages, and the pages named in operations (Algorithm 3).
//! * [`AriesAnalysis`] uses the checkpoint's end record and the pages named in operations.
//!
//! Each analysis takes the records after the redo start in the order of the log.
//!
//! # Deviations
//! The algorithms as printed lose updates:
//! * Algorithm 4 begins with the first Δ that has a TC-LSN above the redo start. TC-LSN is the *stable* end of the log,
//!   but a Δ also covers operations that were only *appended*. So a Δ with a TC-LSN below the redo start may cover an
//!   operation after the redo start. Here the analysis begins with the first Δ after the redo start.
//! * Algorithms 3 and 4 set lastLSN when they make an entry, and Algorithm 4 never changes lastLSN after that. So a
//!   page that is dirtied, written and dirtied again between two Δ records would be pruned although it is dirty. Here
//!   every note of a dirtied page refreshes lastLSN.
//! * Algorithm 4 prunes by the numbers of updates, but a Δ gives only bounds of these numbers. Here the notes of
//!   dirtied pages are numbered. A written page is pruned if its last note precedes the first write in the Δ.

use crate::dirty_pages::{DirtyPages, Entry};
use perdura_base::flaw::{Flaw, armed};
use perdura_base::num::to_u64;
use perdura_base::{Gsn, Pid};
use perdura_formats::tree_record::{Delta, EndCheckpoint, Writes};

/// The fields of a Δ that the analysis uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Detail {
    /// TC-LSN, FW-LSN and FirstDirty, as in section 4.2.
    Standard,
    /// The fields of `Standard`, and the number of each update if the Δ has these numbers (appendix D.1).
    Numbers,
    /// Neither FW-LSN nor FirstDirty (appendix D.2).
    Reduced,
}

/// Algorithm 4: the analysis by Δ records alone.
#[derive(Debug)]
pub struct LogicalAnalysis {
    detail: Detail,
    rssp: Gsn,
    /// The highest TC-LSN of the Δ records up to now. Before the first Δ, this is the redo start.
    previous: Gsn,
    table: DirtyPages,
}

impl LogicalAnalysis {
    /// Returns an analysis with an empty table. `rssp` is the redo start.
    #[must_use]
    pub fn new(detail: Detail, rssp: Gsn) -> Self {
        let table = DirtyPages {
            knows: rssp,
            ..DirtyPages::default()
        };
        LogicalAnalysis {
            detail,
            rssp,
            previous: rssp,
            table,
        }
    }

    /// Takes the next Δ after the redo start.
    pub fn delta(&mut self, delta: &Delta) {
        if armed(Flaw::DeltasByStableEnd) && delta.tc_lsn <= self.rssp {
            return;
        }
        for (at, pid) in delta.dirty.iter().enumerate() {
            let bound = self.bound(delta, at);
            let note = delta.first_note + to_u64(at);
            self.add(*pid, bound, note);
        }
        for pid in &delta.written {
            self.prune(*pid, delta);
        }
        self.previous = self.previous.max(delta.tc_lsn);
        self.table.knows = self.table.knows.max(delta.tc_lsn);
    }

    /// Returns a lower bound of an update's number. `at` is the index of the update's page in the Δ's list of dirtied
    /// pages.
    fn bound(&self, delta: &Delta, at: usize) -> Gsn {
        match (self.detail, &delta.lsns) {
            (Detail::Numbers, Some(lsns)) => lsns[at],
            (Detail::Numbers | Detail::Standard, _) if at >= delta.first_dirty => delta.fw_lsn,
            (Detail::Numbers | Detail::Standard | Detail::Reduced, _) => self.previous,
        }
    }

    fn add(&mut self, pid: Pid, bound: Gsn, note: u64) {
        let table = &mut self.table;
        let prefetch = &mut table.prefetch;
        let entry = table.entries.entry(pid).or_insert_with(|| {
            prefetch.push(pid);
            Entry {
                r_lsn: bound,
                last: bound,
                last_note: note,
            }
        });
        // A restart notes changes of structure first and older operations later. So the numbers of the noted updates do
        // not always ascend.
        entry.r_lsn = entry.r_lsn.min(bound);
        if !armed(Flaw::LastNotRefreshed) {
            entry.last = entry.last.max(bound);
            entry.last_note = entry.last_note.max(note);
        }
    }

    fn prune(&mut self, pid: Pid, delta: &Delta) {
        let entries = &mut self.table.entries;
        let Some(entry) = entries.get_mut(&pid) else {
            return;
        };
        let before_write = match self.detail {
            Detail::Standard | Detail::Numbers => delta.first_note + to_u64(delta.first_dirty),
            Detail::Reduced => delta.first_note,
        };
        if entry.last_note < before_write {
            entries.remove(&pid);
        } else if self.detail != Detail::Reduced {
            entry.r_lsn = entry.r_lsn.max(delta.fw_lsn);
        }
    }

    /// Returns the finished table.
    #[must_use]
    pub fn finish(self) -> DirtyPages {
        self.table
    }
}

/// Algorithm 3: the analysis by BW records and the pages named in operations.
#[derive(Debug, Clone)]
pub struct SqlAnalysis {
    table: DirtyPages,
}

impl SqlAnalysis {
    /// Returns an analysis with an empty table.
    #[must_use]
    pub fn new() -> Self {
        SqlAnalysis {
            table: knows_all(&[]),
        }
    }

    /// Takes the next update after the redo start. A change of structure counts as one update of each page that it
    /// changes.
    pub fn update(&mut self, pid: Pid, gsn: Gsn) {
        update(&mut self.table, pid, gsn);
        debug_assert!(
            self.table.entries[&pid].r_lsn <= gsn,
            "updates come in the log's order"
        );
    }

    /// Takes the next BW record after the redo start.
    pub fn writes(&mut self, writes: &Writes) {
        let entries = &mut self.table.entries;
        for pid in &writes.written {
            let Some(entry) = entries.get_mut(pid) else {
                continue;
            };
            if entry.last <= writes.fw_lsn {
                entries.remove(pid);
            } else {
                entry.r_lsn = entry.r_lsn.max(writes.fw_lsn);
            }
        }
    }

    /// Returns the finished table.
    #[must_use]
    pub fn finish(self) -> DirtyPages {
        self.table
    }
}

impl Default for SqlAnalysis {
    fn default() -> Self {
        SqlAnalysis::new()
    }
}

/// The analysis of ARIES. Its table has the pages named in the checkpoint's end record, and every page updated later.
#[derive(Debug)]
pub struct AriesAnalysis {
    table: DirtyPages,
}

impl AriesAnalysis {
    /// Returns an analysis with an empty table.
    #[must_use]
    pub fn new() -> Self {
        AriesAnalysis {
            table: knows_all(&[]),
        }
    }

    /// Makes the table from a checkpoint's end record, which lists exactly the pages that were dirty at that time.
    pub fn checkpoint(&mut self, end: &EndCheckpoint) {
        self.table = knows_all(&end.dirty);
    }

    /// Takes the next update after the redo start.
    pub fn update(&mut self, pid: Pid, gsn: Gsn) {
        update(&mut self.table, pid, gsn);
    }

    /// Returns the finished table.
    #[must_use]
    pub fn finish(self) -> DirtyPages {
        self.table
    }
}

impl Default for AriesAnalysis {
    fn default() -> Self {
        AriesAnalysis::new()
    }
}

/// Returns a table of these pages. The table covers every operation, so no operation is in the tail.
fn knows_all(pages: &[(Pid, Gsn)]) -> DirtyPages {
    let entry = |(pid, r_lsn): &(Pid, Gsn)| {
        let entry = Entry {
            r_lsn: *r_lsn,
            last: *r_lsn,
            last_note: 0,
        };
        (*pid, entry)
    };
    DirtyPages {
        entries: pages.iter().map(entry).collect(),
        knows: Gsn(u64::MAX),
        prefetch: Vec::new(),
    }
}

fn update(table: &mut DirtyPages, pid: Pid, gsn: Gsn) {
    let entry = table.entries.entry(pid).or_insert(Entry {
        r_lsn: gsn,
        last: gsn,
        last_note: 0,
    });
    entry.last = entry.last.max(gsn);
}

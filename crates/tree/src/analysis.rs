//! The analysis, which makes the dirty page table of a restart. [`LogicalAnalysis`] uses the Δ records alone
//! (Algorithm 4). [`SqlAnalysis`] uses BW records and the operations' own pages (Algorithm 3). [`AriesAnalysis`] uses
//! the checkpoint's end and the operations' pages. Each analysis takes the records behind the redo start in the order
//! of the log.
//!
//! # Deviations
//! The algorithms as printed lose updates:
//! * Algorithm 4 begins with the first Δ whose TC-LSN is above that of the redo start. DirtySet notes operations that
//!   were *appended*, but TC-LSN is the *stable* end of the log. So a Δ may note an operation behind the redo start
//!   although its TC-LSN is below the redo start. Here the analysis begins with the first Δ behind the redo start.
//! * Both algorithms set lastLSN when they make an entry, and Algorithm 4 never changes it after that. So a page
//!   would be pruned although it is dirtied, written and dirtied again within one interval. Here every note refreshes
//!   lastLSN.
//! * Algorithm 4 prunes by update numbers, of which only bounds are known. Here notes are numbered, and a written
//!   page is pruned if its last note is older than the interval's first write.

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
    /// As `Standard`, and also the number of each update if the Δ has them (appendix D.1).
    Numbers,
    /// Neither FW-LSN nor FirstDirty (appendix D.2).
    Reduced,
}

/// Algorithm 4.
#[derive(Debug)]
pub struct LogicalAnalysis {
    detail: Detail,
    rssp: Gsn,
    /// TC-LSN of the last Δ that was taken, or the redo start.
    previous: Gsn,
    table: DirtyPages,
}

impl LogicalAnalysis {
    /// Begins at the redo start.
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

    /// Takes the next Δ behind the redo start.
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

    /// Returns a number that is not above the number of the noted update.
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
        // A restart first notes changes of structure and then older operations, so numbers of notes do not always
        // ascend.
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

/// Algorithm 3.
#[derive(Debug, Clone)]
pub struct SqlAnalysis {
    table: DirtyPages,
}

impl SqlAnalysis {
    /// Begins at a redo start.
    #[must_use]
    pub fn new() -> Self {
        SqlAnalysis {
            table: knows_all(&[]),
        }
    }

    /// Takes the next update behind the redo start. A change of structure counts as one update of each page that it
    /// changes.
    pub fn update(&mut self, pid: Pid, gsn: Gsn) {
        update(&mut self.table, pid, gsn);
        debug_assert!(
            self.table.entries[&pid].r_lsn <= gsn,
            "updates come in the log's order"
        );
    }

    /// Takes the next BW record behind the redo start.
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

/// The analysis of ARIES: the pages that the checkpoint's end names, and every page that was updated after it.
#[derive(Debug)]
pub struct AriesAnalysis {
    table: DirtyPages,
}

impl AriesAnalysis {
    /// Begins at a redo start.
    #[must_use]
    pub fn new() -> Self {
        AriesAnalysis {
            table: knows_all(&[]),
        }
    }

    /// Takes the end record of a checkpoint: exactly the pages that it names are dirty.
    pub fn checkpoint(&mut self, end: &EndCheckpoint) {
        self.table = knows_all(&end.dirty);
    }

    /// Takes the next update behind the redo start.
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

/// Returns a table of these pages. It decides on every operation, so no tail is left.
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

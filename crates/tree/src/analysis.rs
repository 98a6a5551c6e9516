//! The analysis, by which a restart makes its dirty page table. [`LogicalAnalysis`] uses the Δ records alone (Algorithm
//! 4). [`SqlAnalysis`] uses BW records and the operations' own pages (Algorithm 3). [`AriesAnalysis`] uses the
//! checkpoint's end and the operations' pages. Each is fed the records behind the redo start in the order of the log.
//!
//! # Deviations
//! The algorithms as printed lose updates:
//! * Algorithm 4 begins with the first Δ whose TC-LSN is above that of the redo start. DirtySet has operations that
//!   were *appended*, but TC-LSN is the *stable* end. So a Δ that notes an operation behind the redo start may have a
//!   TC-LSN below it. Here the analysis begins with the first Δ behind the redo start.
//! * Both algorithms set an entry's lastLSN when the entry is made, and Algorithm 4 never again. A page that is
//!   dirtied, written and dirtied again within an interval would be pruned. Here every note refreshes lastLSN.
//! * Algorithm 4 prunes by numbers of which only bounds are known. Here notes are numbered, and a written page is
//!   pruned if its last note is older than the interval's first write.

use crate::dirty_pages::{DirtyPages, Entry};
use perdura_base::flaw::{Flaw, armed};
use perdura_base::num::to_u64;
use perdura_base::{Gsn, Pid};
use perdura_formats::tree_record::{Delta, EndCheckpoint, Writes};

/// The fields of a Δ that are used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Detail {
    /// TC-LSN, FW-LSN and FirstDirty, as in section 4.2.
    Standard,
    /// The number of each update too, if it is there (appendix D.1).
    Numbers,
    /// Neither FW-LSN nor FirstDirty (appendix D.2).
    Reduced,
}

/// Algorithm 4.
#[derive(Debug)]
pub struct LogicalAnalysis {
    detail: Detail,
    rssp: Gsn,
    /// TC-LSN of the Δ before, or the redo start.
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

    /// Returns a number that the update of a note is not below.
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
        // A restart notes changes of structure first, and then older operations.
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

    /// Returns the table.
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

    /// Takes the next update behind the redo start. A change of structure is one update of each of
    /// its pages.
    pub fn update(&mut self, pid: Pid, gsn: Gsn) {
        update(&mut self.table, pid, gsn);
        debug_assert!(
            self.table.entries[&pid].r_lsn <= gsn,
            "updates come in the log's order"
        );
    }

    /// Takes the next BW behind the redo start.
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

    /// Returns the table.
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

    /// Takes a checkpoint's end: these pages are dirty, and no others.
    pub fn checkpoint(&mut self, end: &EndCheckpoint) {
        self.table = knows_all(&end.dirty);
    }

    /// Takes the next update behind the redo start.
    pub fn update(&mut self, pid: Pid, gsn: Gsn) {
        update(&mut self.table, pid, gsn);
    }

    /// Returns the table.
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

/// Returns a table of these pages that leaves no tail.
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

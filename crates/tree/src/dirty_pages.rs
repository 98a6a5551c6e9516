//! The dirty page table of a restart: the pages that may lack operations on disk, and the number from which on they
//! may.

use crate::monitor::PidMap;
use perdura_base::{Gsn, Pid};

/// The facts about a page that may have been dirty.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Entry {
    /// No operation below it is missing on disk.
    pub(crate) r_lsn: Gsn,
    /// The newest update as far as the analysis knows it: a number, and for Δ records the number of its note.
    pub(crate) last: Gsn,
    pub(crate) last_note: u64,
}

/// The reason why an operation need not be redone, known before its page is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Skip {
    /// Its page was not dirty.
    Clean,
    /// Its page became dirty later.
    BeforeRLsn,
}

/// The table.
#[derive(Debug, Clone, Default)]
pub struct DirtyPages {
    pub(crate) entries: PidMap<Entry>,
    /// The last operation that the table knows. The tail behind it is judged by its pages.
    pub(crate) knows: Gsn,
    pub(crate) prefetch: Vec<Pid>,
}

impl DirtyPages {
    /// Makes the redo test that needs no page: returns the reason why an operation need not be redone (Algorithm 5,
    /// lines 5 to 8; Algorithm 1). `None`: the table does not know of one.
    #[must_use]
    pub fn skips(&self, pid: Pid, gsn: Gsn) -> Option<Skip> {
        if gsn > self.knows {
            return None;
        }
        match self.entries.get(&pid) {
            None => Some(Skip::Clean),
            Some(entry) if gsn < entry.r_lsn => Some(Skip::BeforeRLsn),
            Some(_) => None,
        }
    }

    /// Returns the number of its pages.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns whether it has no pages.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Returns the last operation that is judged by the table.
    #[must_use]
    pub fn knows(&self) -> Gsn {
        self.knows
    }

    /// Returns the pages in about the order in which a redo needs them (PF-list, appendix A.2). The list may have a
    /// page that is no longer in the table, or have it more than once.
    #[must_use]
    pub fn prefetch(&self) -> &[Pid] {
        &self.prefetch
    }

    /// Returns the pages of the table in the order of their rLSNs.
    #[must_use]
    pub fn by_r_lsn(&self) -> Vec<Pid> {
        let entries = self.entries.iter();
        let mut pages: Vec<(Gsn, Pid)> = entries.map(|(pid, entry)| (entry.r_lsn, *pid)).collect();
        pages.sort_unstable();
        pages.into_iter().map(|(_, pid)| pid).collect()
    }

    /// Notes that a page that was read has this number: nothing up to it is missing.
    pub fn raise(&mut self, pid: Pid, plsn: Gsn) {
        if let Some(entry) = self.entries.get_mut(&pid) {
            entry.r_lsn = entry.r_lsn.max(Gsn(plsn.0 + 1));
        }
    }
}

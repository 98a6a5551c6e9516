//! The dirty page table of a restart: the pages that may lack operations on disk, each with the first number that it
//! may lack.

use crate::monitor::PidMap;
use perdura_base::{Gsn, Pid};

/// The entry of a page that may have been dirty at the crash.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Entry {
    /// All operations on the page below this number are on disk.
    pub(crate) r_lsn: Gsn,
    /// The newest update of the page that the analysis knows: its number, or for Δ records the number of its note.
    pub(crate) last: Gsn,
    pub(crate) last_note: u64,
}

/// The reason why an operation need not be redone, found without reading its page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Skip {
    /// The operation's page was not dirty.
    Clean,
    /// The operation's page became dirty after this operation.
    BeforeRLsn,
}

/// The dirty page table.
#[derive(Debug, Clone, Default)]
pub struct DirtyPages {
    pub(crate) entries: PidMap<Entry>,
    /// The last operation that the table decides on. Later operations form the tail, for which the pages themselves
    /// decide.
    pub(crate) knows: Gsn,
    pub(crate) prefetch: Vec<Pid>,
}

impl DirtyPages {
    /// The redo test that reads no page (Algorithm 5, lines 5 to 8; Algorithm 1). Returns the reason why an operation
    /// need not be redone. `None`: the table shows no reason.
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

    /// Returns the number of pages in the table.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns whether the table has no pages.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Returns the last operation that the table decides on.
    #[must_use]
    pub fn knows(&self) -> Gsn {
        self.knows
    }

    /// Returns pages in about the order in which a redo needs them (PF-list, appendix A.2). The list may have pages
    /// that are no longer in the table, and may repeat pages.
    #[must_use]
    pub fn prefetch(&self) -> &[Pid] {
        &self.prefetch
    }

    /// Returns the pages of the table in ascending order of their rLSNs.
    #[must_use]
    pub fn by_r_lsn(&self) -> Vec<Pid> {
        let entries = self.entries.iter();
        let mut pages: Vec<(Gsn, Pid)> = entries.map(|(pid, entry)| (entry.r_lsn, *pid)).collect();
        pages.sort_unstable();
        pages.into_iter().map(|(_, pid)| pid).collect()
    }

    /// Notes the number of a page that was read: no operation up to this number is missing.
    pub fn raise(&mut self, pid: Pid, plsn: Gsn) {
        if let Some(entry) = self.entries.get_mut(&pid) {
            entry.r_lsn = entry.r_lsn.max(Gsn(plsn.0 + 1));
        }
    }
}

//! The dirty page table of a restart. It lists each page that may lack operations on disk, with the number of the first
//! missing operation.

use crate::monitor::PidMap;
use perdura_base::{Gsn, Pid};

/// The entry of a page that may have been dirty at the crash.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Entry {
    /// On disk, the page has all operations with numbers below this one.
    pub(crate) r_lsn: Gsn,
    /// The number of the newest update that the analysis found for the page. In an analysis by Δ records, it may be
    /// only a lower bound.
    pub(crate) last: Gsn,
    /// The number of the last note of the page in the Δ records. Other analyses set it to 0.
    pub(crate) last_note: u64,
}

/// A reason to skip the redo of an operation. The dirty page table shows the reason, so the page need not be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Skip {
    /// The operation's page was not dirty.
    Clean,
    /// The page on disk already contains the operation's change. A later operation made the page dirty.
    BeforeRLsn,
}

/// The dirty page table.
#[derive(Debug, Clone, Default)]
pub struct DirtyPages {
    pub(crate) entries: PidMap<Entry>,
    /// The highest operation number that the table covers. Later operations form the tail. To decide whether an
    /// operation of the tail is missing from its page, redo must read the page.
    pub(crate) knows: Gsn,
    pub(crate) prefetch: Vec<Pid>,
}

impl DirtyPages {
    /// Looks for a reason to skip the redo of an operation (Algorithm 5, lines 5 to 8; Algorithm 1). Uses only the
    /// table, and does not read the page. Returns `None` if the table shows no reason.
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

    /// Returns the highest operation number that the table covers.
    #[must_use]
    pub fn knows(&self) -> Gsn {
        self.knows
    }

    /// Returns pages in about the order in which redo needs them (PF-list, appendix A.2). The list may have pages that
    /// are no longer in the table, and may repeat pages.
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

    /// Notes that a page was read and has all operations up to the number `plsn`.
    pub fn raise(&mut self, pid: Pid, plsn: Gsn) {
        if let Some(entry) = self.entries.get_mut(&pid) {
            entry.r_lsn = entry.r_lsn.max(Gsn(plsn.0 + 1));
        }
    }
}

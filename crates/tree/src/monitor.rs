//! The notes that the tree makes while its pages become dirty and are written. A restart learns from them which pages
//! it need not read (section 4.1 of the paper: the Δ-log record; section 3.3: the BW-log record).
//!
//! One mutex guards a monitor together with the counter of numbers. Its callers keep these rules:
//! 1. An operation takes its number, is appended to the log and is noted without leaving the mutex, under its leaf's
//!    latch. Then the order of the notes is that of the numbers, and every stable operation is noted.
//! 2. A page is copied for a write under its latch if [`may_write`](Monitor::may_write) allows it,
//!    and is reported to [`note_written`](Monitor::note_written) when it is durable.
//! 3. EOSL is read before the mutex is taken, or while it is held. Read later, it would cover operations that the cut
//!    record does not note.
//! 4. A Δ and its BW are appended to the log without leaving the mutex in which they were cut, Δ first.
//!
//! # Deviations
//! The paper notes a written page when its I/O completes, and relies on the page being latched until then. Here pages
//! are copied and written without a latch, so a page that has changed since it was copied is not noted as written.
//!
//! ARIES takes the dirty pages of a checkpoint at its begin, so its redo begins before that. Here they are taken at the
//! end, when each page that was dirty at the begin has been written. No page then lacks an update from below the redo
//! start, and no method reads the log before it.

use hashbrown::HashMap;
use hashbrown::hash_map::Entry;
use perdura_base::checksum::mix64;
use perdura_base::flaw::{Flaw, armed};
use perdura_base::num::to_u64;
use perdura_base::{Gsn, Pid};
use perdura_formats::tree_record::{Delta, EndCheckpoint, Writes};
use std::collections::BTreeSet;
use std::hash::{BuildHasherDefault, Hasher};

/// Hashes the number of a page.
#[derive(Debug, Default, Clone, Copy)]
pub struct PidHasher(u64);

impl Hasher for PidHasher {
    fn finish(&self) -> u64 {
        mix64(self.0)
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = self.0 << 8 | u64::from(*byte);
        }
    }

    fn write_u32(&mut self, pid: u32) {
        self.0 = u64::from(pid);
    }
}

/// A map by page.
pub type PidMap<V> = HashMap<Pid, V, BuildHasherDefault<PidHasher>>;

/// A page that differs from its copy on disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Dirty {
    /// No update below it is missing on disk.
    pub r_lsn: Gsn,
    /// The highest number of its updates.
    pub last: Gsn,
    /// The number of its last note, which shows whether it has changed since it was copied. Numbers of updates do not
    /// show that in a restart, which redoes changes of structure first and then older operations.
    note: u64,
    /// The redo start at which it was dirty, if the checkpoint that began there is under way and has to write it. It is
    /// a number because a copy that was made for a cancelled checkpoint does not count for another one. `None`: no
    /// checkpoint has to write it.
    owed: Option<Gsn>,
}

/// The records that a monitor's notes are for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tells {
    /// Δ records, and BW records beside them.
    Deltas,
    /// Δ records that have the number of each update (appendix D.1 of the paper), and BW records
    /// beside them.
    DeltasWithNumbers,
    /// BW records alone: restarts find pages by the operations' hints.
    Writes,
}

/// The numbers of notes at which a Δ is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Notes of dirtied pages.
    pub notes: usize,
    /// Written pages.
    pub written: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            notes: 1000,
            written: 256,
        }
    }
}

/// The state when the first write of an interval was noted.
#[derive(Debug, Clone, Copy)]
struct FirstWrite {
    fw_lsn: Gsn,
    first_dirty: usize,
}

/// The notes since the last Δ, and the pages that are dirty.
#[derive(Debug)]
pub struct Monitor {
    limits: Limits,
    pages: PidMap<Dirty>,
    /// The dirty pages by age, the page that has been dirty for longest first.
    by_age: BTreeSet<(Gsn, Pid)>,
    /// Pages that the checkpoint under way still has to write.
    owed: usize,
    /// The redo start of the checkpoint under way.
    rssp: Option<Gsn>,
    first_note: u64,
    dirty: Vec<Pid>,
    tells: Tells,
    /// The numbers of the notes, if they are logged.
    lsns: Option<Vec<Gsn>>,
    written: Vec<Pid>,
    first_write: Option<FirstWrite>,
    /// The highest EOSL that a caller has read.
    eosl: Gsn,
    /// A restart is redoing operations.
    restarting: bool,
}

impl Monitor {
    /// Makes a monitor for a restart. The restart begins with pages that are all clean, and the next note has the
    /// number `first_note`.
    #[must_use]
    pub fn new(limits: Limits, first_note: u64, tells: Tells) -> Self {
        Monitor {
            limits,
            pages: PidMap::default(),
            by_age: BTreeSet::new(),
            owed: 0,
            rssp: None,
            first_note,
            dirty: Vec::new(),
            tells,
            lsns: (tells == Tells::DeltasWithNumbers).then(Vec::new),
            written: Vec::new(),
            first_write: None,
            eosl: Gsn(0),
            restarting: true,
        }
    }

    /// Ends the restart: all operations of earlier lives are redone, and the log continues.
    pub fn end_restart(&mut self) {
        assert!(self.restarting, "a restart ends once");
        self.restarting = false;
    }

    /// Returns the records that its notes are for.
    #[must_use]
    pub fn tells(&self) -> Tells {
        self.tells
    }

    /// Returns the page, if it is dirty.
    #[must_use]
    pub fn dirty(&self, pid: Pid) -> Option<Dirty> {
        self.pages.get(&pid).copied()
    }

    /// Returns all dirty pages, in no order.
    pub fn dirty_pages(&self) -> impl Iterator<Item = (Pid, Dirty)> {
        self.pages.iter().map(|(pid, dirty)| (*pid, *dirty))
    }

    /// Notes that an update of a page has this number. A restart also notes the operations that it redoes. If such an
    /// operation lies behind the last Δ of the life before, the next restart finds the page in no other Δ.
    pub fn note(&mut self, pid: Pid, gsn: Gsn) {
        assert!(gsn > Gsn(0), "an update of page {pid} has a number");
        if let Some(lsns) = &mut self.lsns {
            lsns.push(gsn);
        }
        let note = self.first_note + to_u64(self.dirty.len());
        self.dirty.push(pid);
        match self.pages.entry(pid) {
            Entry::Vacant(entry) => {
                entry.insert(Dirty {
                    r_lsn: gsn,
                    last: gsn,
                    note,
                    owed: None,
                });
                self.by_age.insert((gsn, pid));
            }
            Entry::Occupied(mut entry) => {
                let dirty = entry.get_mut();
                let ascends = self.restarting || dirty.last <= gsn;
                debug_assert!(ascends, "page {pid}: {gsn} behind {}", dirty.last);
                if gsn < dirty.r_lsn {
                    self.by_age.remove(&(dirty.r_lsn, pid));
                    dirty.r_lsn = gsn;
                    self.by_age.insert((gsn, pid));
                }
                dirty.last = dirty.last.max(gsn);
                dirty.note = note;
            }
        }
    }

    /// Returns the number of dirty pages.
    #[must_use]
    pub fn dirty_count(&self) -> usize {
        self.pages.len()
    }

    /// Returns the dirty pages that may be written, those first that have been dirty for longest.
    pub fn writable(&self, eosl: Gsn) -> impl Iterator<Item = Pid> {
        let pages = self.by_age.iter().map(|(_, pid)| *pid);
        pages.filter(move |pid| self.may_write(*pid, eosl))
    }

    /// Returns whether a page may be written in its present state: all operations that changed it
    /// are stable.
    #[must_use]
    pub fn may_write(&self, pid: Pid, eosl: Gsn) -> bool {
        let stable = |dirty: &Dirty| dirty.last <= eosl || armed(Flaw::PageBeyondStableLog);
        self.pages.get(&pid).is_some_and(stable)
    }

    /// Notes that a page is durable as it was copied. `copied` is the result of
    /// [`dirty`](Self::dirty) at that moment.
    ///
    /// A restart writes pages that it has not finished with: operations follow whose numbers are below EOSL. So it does
    /// not record that it has written them, and the next restart reads some of them for nothing.
    pub fn note_written(&mut self, pid: Pid, copied: Dirty, eosl: Gsn) {
        let found = self.pages.get_mut(&pid);
        let dirty = found.unwrap_or_else(|| panic!("page {pid} was written twice at a time"));
        assert!(dirty.note >= copied.note && dirty.r_lsn <= dirty.last);
        let has_changed = dirty.note > copied.note;
        if let Some(rssp) = dirty.owed
            && (copied.owed == dirty.owed || !has_changed)
        {
            // It was copied behind the redo start, or has not changed since: no older update is missing.
            dirty.owed = None;
            self.owed -= 1;
            self.by_age.remove(&(dirty.r_lsn, pid));
            dirty.r_lsn = dirty.r_lsn.max(Gsn(rssp.0 + 1));
            self.by_age.insert((dirty.r_lsn, pid));
        }
        if !has_changed {
            self.by_age.remove(&(dirty.r_lsn, pid));
            self.pages.remove(&pid);
            debug_assert_eq!(self.by_age.len(), self.pages.len());
        }
        let tells = !has_changed || armed(Flaw::DirtiedSinceWritten);
        if !tells || self.restarting && !armed(Flaw::RestartTellsWrites) {
            return;
        }
        self.eosl = self.eosl.max(eosl);
        self.first_write.get_or_insert(FirstWrite {
            fw_lsn: self.eosl,
            first_dirty: self.dirty.len(),
        });
        self.written.push(pid);
    }

    /// Returns whether a Δ should be cut now.
    #[must_use]
    pub fn is_due(&self) -> bool {
        let is_full =
            self.dirty.len() >= self.limits.notes || self.written.len() >= self.limits.written;
        is_full && !self.restarting
    }

    /// Cuts the notes: a Δ, and a BW if pages were written. `None`: there are no notes.
    #[must_use = "what it tells is noted nowhere else"]
    pub fn cut(&mut self, eosl: Gsn) -> Option<(Delta, Option<Writes>)> {
        assert!(!self.restarting, "a restart is not through with its pages");
        if self.dirty.is_empty() && self.written.is_empty() {
            return None;
        }
        // Another caller may have read a later one.
        self.eosl = self.eosl.max(eosl);
        let eosl = self.eosl;
        let none = FirstWrite {
            fw_lsn: eosl,
            first_dirty: self.dirty.len(),
        };
        let first = self.first_write.take().unwrap_or(none);
        assert!(first.fw_lsn <= eosl, "EOSL never falls");
        let delta = Delta {
            first_note: self.first_note,
            tc_lsn: eosl,
            fw_lsn: first.fw_lsn,
            first_dirty: first.first_dirty,
            dirty: std::mem::take(&mut self.dirty),
            written: std::mem::take(&mut self.written),
            lsns: self.lsns.as_mut().map(std::mem::take),
        };
        self.first_note += to_u64(delta.dirty.len());
        let writes = (!delta.written.is_empty()).then(|| Writes {
            fw_lsn: first.fw_lsn,
            written: delta.written.clone(),
        });
        Some((delta, writes))
    }

    /// Begins a checkpoint: `mark` appends the redo start and returns its number. The caller does not leave the mutex,
    /// so the checkpoint has to write the page of each operation below that number.
    pub fn begin_checkpoint(&mut self, mark: impl FnOnce() -> Gsn) -> Gsn {
        assert!(self.rssp.is_none() && !self.restarting && self.owed == 0);
        let rssp = mark();
        self.rssp = Some(rssp);
        self.owed = self.pages.len();
        for dirty in self.pages.values_mut() {
            assert!(dirty.last < rssp, "an update behind the redo start");
            dirty.owed = Some(rssp);
        }
        rssp
    }

    /// Makes the checkpoint write a page that the redo start itself changes. The caller has not left the mutex since.
    pub fn owe(&mut self, pid: Pid) {
        let rssp = self.rssp.expect("a checkpoint has begun");
        self.note(pid, rssp);
        let dirty = self.pages.get_mut(&pid).expect("it was noted");
        assert!(dirty.last == rssp, "nothing is newer than the redo start");
        if dirty.owed.replace(rssp).is_none() {
            self.owed += 1;
        }
    }

    /// Gives up the checkpoint under way: its redo start stays without an end.
    pub fn cancel_checkpoint(&mut self) {
        self.rssp = None;
        self.owed = 0;
        for dirty in self.pages.values_mut() {
            dirty.owed = None;
        }
    }

    /// Returns whether a checkpoint is under way.
    #[must_use]
    pub fn is_in_checkpoint(&self) -> bool {
        self.rssp.is_some()
    }

    /// Returns the pages that the checkpoint still has to write, in no order.
    pub fn owed(&self) -> impl Iterator<Item = Pid> {
        let owed = self.pages.iter().filter(|(_, dirty)| dirty.owed.is_some());
        owed.map(|(pid, _)| *pid)
    }

    /// Ends the checkpoint and returns its end record. `None`: changes from below its redo start are not yet durable.
    pub fn end_checkpoint(&mut self) -> Option<EndCheckpoint> {
        let rssp = self.rssp.filter(|_| self.owed == 0)?;
        self.rssp = None;
        debug_assert_eq!(self.owed().count(), 0);
        let pages = self.pages.iter();
        let mut dirty: Vec<(Pid, Gsn)> = pages.map(|(pid, dirty)| (*pid, dirty.r_lsn)).collect();
        dirty.sort_unstable();
        assert!(
            dirty.iter().all(|(_, r_lsn)| *r_lsn > rssp),
            "what was changed below the redo start is durable"
        );
        Some(EndCheckpoint { rssp, dirty })
    }
}

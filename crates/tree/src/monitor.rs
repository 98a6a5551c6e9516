//! The notes that the tree makes when pages become dirty and when they are written. They are logged as Δ records
//! (section 4.1 of the paper) and BW records (section 3.3). From these records a restart finds the pages that it need
//! not read. *Cutting* a record means to put the notes since the last record into a new one.
//!
//! One mutex guards a monitor together with the counter of numbers. Callers of the monitor must keep these rules:
//! 1. The mutex and the latch of an operation's leaf are held while the operation gets its number, is appended to the
//!    log and is noted. So notes have the order of the numbers, and every stable operation is noted.
//! 2. Before a write, the page is copied under its latch, and only if [`may_write`](Monitor::may_write) returns true.
//!    When the copy is durable, the caller calls [`note_written`](Monitor::note_written).
//! 3. EOSL, the end of the stable log, is read before the mutex is taken, or while it is held. If EOSL were read
//!    later, it could cover operations that the cut record does not note.
//! 4. The mutex is held while a Δ and its BW are cut and appended to the log. The Δ is appended first.
//!
//! # Deviations
//! The paper notes a written page when its I/O completes, and relies on the page being latched until then. Here pages
//! are copied and written without a latch. A page changed after the copy is therefore not noted as written.
//!
//! ARIES takes the list of dirty pages when a checkpoint begins, so its redo begins before the checkpoint. Here the
//! list is taken when the checkpoint ends. At its end, the checkpoint has written each page that was dirty at the
//! start. So no page lacks an update with a number below the redo start, and no method reads the log before the redo
//! start.

use hashbrown::HashMap;
use hashbrown::hash_map::Entry;
use perdura_base::checksum::mix64;
use perdura_base::flaw::{Flaw, armed};
use perdura_base::num::to_u64;
use perdura_base::{Gsn, Pid};
use perdura_formats::tree_record::{Delta, EndCheckpoint, Writes};
use std::collections::BTreeSet;
use std::hash::{BuildHasherDefault, Hasher};

/// A hash function for page numbers.
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

/// The state of a dirty page, which differs from its copy on disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Dirty {
    /// The lowest number of an update that the page on disk may lack. It has all updates with lower numbers.
    pub r_lsn: Gsn,
    /// The highest number of an update of the page.
    pub last: Gsn,
    /// The number of the page's last note. It shows whether the page has changed since it was copied. The numbers of
    /// updates would not show this during a restart, which first redoes changes of structure and then older
    /// operations.
    note: u64,
    /// The redo start of the running checkpoint, if this checkpoint must write the page. `None`: no checkpoint must
    /// write the page. The redo start tells checkpoints apart: a copy made for a cancelled checkpoint does not count
    /// for the next one.
    owed: Option<Gsn>,
}

/// The kinds of records that a monitor makes from its notes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tells {
    /// Δ records and BW records.
    Deltas,
    /// Δ records with the number of each update (appendix D.1 of the paper), and BW records.
    DeltasWithNumbers,
    /// Only BW records. Restarts find pages by the hints in operations.
    Writes,
}

/// The limits on the notes since the last Δ. The next Δ is due when one of these limits is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// The number of notes about dirtied pages.
    pub notes: usize,
    /// The number of notes about written pages.
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

/// The monitor's state when it noted the first write after the last Δ.
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
    /// The dirty pages by age. The page with the oldest unwritten change comes first.
    by_age: BTreeSet<(Gsn, Pid)>,
    /// The number of pages that the running checkpoint must still write.
    owed: usize,
    /// The redo start of the running checkpoint. `None`: no checkpoint is running.
    rssp: Option<Gsn>,
    first_note: u64,
    dirty: Vec<Pid>,
    tells: Tells,
    /// The numbers of the noted updates, one for each note. `None`: Δ records do not have these numbers.
    lsns: Option<Vec<Gsn>>,
    written: Vec<Pid>,
    first_write: Option<FirstWrite>,
    /// The highest EOSL that a caller has passed.
    eosl: Gsn,
    /// True while a restart redoes operations.
    restarting: bool,
}

impl Monitor {
    /// Makes a monitor for a restart. All pages are clean at first. The first note gets the number `first_note`.
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

    /// Ends the restart. The caller has redone all operations in the log. New operations may follow.
    pub fn end_restart(&mut self) {
        assert!(self.restarting, "a restart ends once");
        self.restarting = false;
    }

    /// Returns the kinds of records that the monitor makes.
    #[must_use]
    pub fn tells(&self) -> Tells {
        self.tells
    }

    /// Returns the state of a page. `None`: the page is clean.
    #[must_use]
    pub fn dirty(&self, pid: Pid) -> Option<Dirty> {
        self.pages.get(&pid).copied()
    }

    /// Returns all dirty pages in an arbitrary order.
    pub fn dirty_pages(&self) -> impl Iterator<Item = (Pid, Dirty)> {
        self.pages.iter().map(|(pid, dirty)| (*pid, *dirty))
    }

    /// Notes an update of a page, with the update's number. A restart must also note the operations that it redoes.
    /// Some of these operations come after the last Δ in the log. Without these notes, no Δ would name their pages, and
    /// the next restart would take the pages for clean.
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

    /// Returns the dirty pages that may be written. The page with the oldest unwritten change comes first.
    pub fn writable(&self, eosl: Gsn) -> impl Iterator<Item = Pid> {
        let pages = self.by_age.iter().map(|(_, pid)| *pid);
        pages.filter(move |pid| self.may_write(*pid, eosl))
    }

    /// Returns whether a page may be written now: all operations on the page are stable.
    #[must_use]
    pub fn may_write(&self, pid: Pid, eosl: Gsn) -> bool {
        let stable = |dirty: &Dirty| dirty.last <= eosl || armed(Flaw::PageBeyondStableLog);
        self.pages.get(&pid).is_some_and(stable)
    }

    /// Notes that a copy of a page is durable. `copied` is the state that [`dirty`](Self::dirty) returned when the copy
    /// was made.
    ///
    /// During a restart, the write is not noted for Δ and BW records. The page may still lack operations with numbers
    /// below EOSL, which the restart redoes later. Without the note, the next restart may read the page needlessly.
    pub fn note_written(&mut self, pid: Pid, copied: Dirty, eosl: Gsn) {
        let found = self.pages.get_mut(&pid);
        let dirty = found.unwrap_or_else(|| panic!("page {pid} was written twice at a time"));
        assert!(dirty.note >= copied.note && dirty.r_lsn <= dirty.last);
        let has_changed = dirty.note > copied.note;
        if let Some(rssp) = dirty.owed
            && (copied.owed == dirty.owed || !has_changed)
        {
            // The copy was made after the checkpoint began, or the page has not changed since it was copied. So the
            // disk has all updates of the page from below the redo start.
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

    /// Makes records from the notes since the last Δ, and drops these notes. Returns a Δ, and a BW if pages were
    /// written. `None`: there are no notes.
    #[must_use = "what it tells is noted nowhere else"]
    pub fn cut(&mut self, eosl: Gsn) -> Option<(Delta, Option<Writes>)> {
        assert!(!self.restarting, "a restart is not through with its pages");
        if self.dirty.is_empty() && self.written.is_empty() {
            return None;
        }
        // Another caller may already have passed a later EOSL.
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

    /// Begins a checkpoint. `mark` appends the redo start to the log and returns its number. The caller holds the mutex
    /// throughout. If a page on disk lacks an operation with a number below the redo start, the page is dirty now. The
    /// checkpoint must write all pages that are dirty now.
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

    /// Adds a page that the running checkpoint must write: the redo start itself changes this page. The caller has held
    /// the mutex since the checkpoint began.
    pub fn owe(&mut self, pid: Pid) {
        let rssp = self.rssp.expect("a checkpoint has begun");
        self.note(pid, rssp);
        let dirty = self.pages.get_mut(&pid).expect("it was noted");
        assert!(dirty.last == rssp, "nothing is newer than the redo start");
        if dirty.owed.replace(rssp).is_none() {
            self.owed += 1;
        }
    }

    /// Cancels the running checkpoint. Its redo start in the log stays without an end record.
    pub fn cancel_checkpoint(&mut self) {
        self.rssp = None;
        self.owed = 0;
        for dirty in self.pages.values_mut() {
            dirty.owed = None;
        }
    }

    /// Returns whether a checkpoint is running.
    #[must_use]
    pub fn is_in_checkpoint(&self) -> bool {
        self.rssp.is_some()
    }

    /// Returns the pages that the running checkpoint must still write, in an arbitrary order.
    pub fn owed(&self) -> impl Iterator<Item = Pid> {
        let owed = self.pages.iter().filter(|(_, dirty)| dirty.owed.is_some());
        owed.map(|(pid, _)| *pid)
    }

    /// Ends the checkpoint and returns its end record. `None`: the checkpoint must still write a page, or no checkpoint
    /// is running.
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

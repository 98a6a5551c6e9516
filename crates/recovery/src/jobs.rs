//! The progress of a restart's schedule: how much of each image disk and log stream is read and played, and which jobs
//! may follow.
//!
//! A *part* is a piece of the image on one disk, and a *unit* is a piece of one stream. A *job* is one step of work for
//! a thread, for example reading a part or playing a unit.

use std::collections::VecDeque;
use std::sync::Arc;

use perdura_base::Error;

/// The progress of one disk of the image.
pub(crate) struct DiskState<P> {
    pub parts: usize,
    pub next: usize,
    /// Count of parts that are being read.
    pub reading: usize,
    /// Count of parts that are being read, or were read and are not yet played.
    pub open: usize,
    pub ready: VecDeque<P>,
    /// The time during which at least one part was being read. It does not include the time since `busy_since_ns`.
    pub busy_ns: u64,
    /// The begin of the current busy period, in which at least one part is always being read. The value counts only
    /// while a part is being read.
    pub busy_since_ns: u64,
}

/// The progress of one stream.
pub(crate) struct StreamState<U> {
    pub scan: Scan,
    pub units: usize,
    pub next: usize,
    pub reading: bool,
    pub open: usize,
    /// Count of read bytes that are not yet played.
    pub piled: u64,
    pub ready: VecDeque<Arc<U>>,
    /// True while a unit is being prepared.
    pub preparing: bool,
    /// Ordered streams only: how many units each worker has taken.
    pub taken: Vec<usize>,
    /// Ordered streams only: how many units were removed from `ready`. The first unit in `ready` has this index.
    pub dropped: usize,
    pub busy_ns: u64,
}

impl<P> DiskState<P> {
    /// Notes that a thread begins to read a part.
    pub fn begin_read(&mut self, now_ns: u64) {
        if self.reading == 0 {
            self.busy_since_ns = now_ns;
        }
        self.reading += 1;
        self.open += 1;
        self.next += 1;
        self.check();
    }

    /// Notes that a thread has read `part`.
    pub fn end_read(&mut self, part: P, now_ns: u64) {
        assert!(self.reading > 0, "a part was read that no job reads");
        self.reading -= 1;
        if self.reading == 0 {
            self.busy_ns += now_ns.saturating_sub(self.busy_since_ns);
        }
        self.ready.push_back(part);
        self.check();
    }

    /// Asserts that the counts of the disk agree. Called after each change of a count.
    pub fn check(&self) {
        assert!(
            self.next <= self.parts && self.open <= self.next,
            "{} parts are open, {} of {} were taken",
            self.open,
            self.next,
            self.parts
        );
        assert!(
            self.ready.len() + self.reading <= self.open,
            "{} parts are ready and {} are open",
            self.ready.len(),
            self.open
        );
    }
}

impl<U> StreamState<U> {
    /// Asserts that the counts of the stream agree. Called after each change of a count.
    pub fn check(&self) {
        assert!(
            self.next <= self.units && self.open <= self.next,
            "{} units are open, {} of {} were taken",
            self.open,
            self.next,
            self.units
        );
        assert!(
            self.ready.len() + usize::from(self.reading) <= self.open,
            "{} units are ready and {} are open",
            self.ready.len(),
            self.open
        );
        assert!(
            self.taken.iter().all(|taken| *taken <= self.next),
            "a worker has taken a unit that no job read"
        );
        assert!(
            self.units == 0 || self.scan == Scan::Done,
            "units are known of a stream that was not scanned"
        );
    }
}

#[derive(PartialEq, Eq, Clone, Copy)]
pub(crate) enum Scan {
    Due,
    Running,
    Done,
}

pub(crate) struct ScheduleState<P, U> {
    pub disks: Vec<DiskState<P>>,
    pub streams: Vec<StreamState<U>>,
    /// Count of parts not yet played.
    pub parts_left: usize,
    pub decided: Decided,
    /// Order-free streams only: count of units not yet played.
    pub units_left: usize,
    pub mergers_next: usize,
    pub mergers_left: usize,
    pub log_end: Ending,
    pub sidecars: Sidecars,
    pub indexes: Indexes,
    /// The begin of the image's first job, and the end of the image's last job.
    pub backup_span: Option<(u64, u64)>,
    /// The begin of the log's first job, and the end of the log's last job.
    pub log_span: Option<(u64, u64)>,
    /// The begin of the first index job, and the end of the last index job.
    pub index_span: Option<(u64, u64)>,
    pub error: Option<Error>,
}

impl<P, U> ScheduleState<P, U> {
    /// Takes the job of playing a part from a disk. `None`: no part is ready.
    pub fn take_part(&mut self, disk: usize) -> Option<Job<P, U>> {
        let part = self.disks[disk].ready.pop_front()?;
        Some(Job::PlayPart(disk, part))
    }

    /// Takes the job of reading the next sidecar. `None`: no sidecar is left, or the building of the indexes has begun.
    /// In the second case, the job that builds a partition's indexes reads the partition's sidecar if necessary.
    pub fn take_sidecar(&mut self) -> Option<Job<P, U>> {
        let sidecars = &mut self.sidecars;
        if sidecars.next == sidecars.count || self.indexes != Indexes::Due {
            return None;
        }
        sidecars.next += 1;
        sidecars.reading += 1;
        Some(Job::ReadSidecar(sidecars.next - 1))
    }

    /// Notes that a part of the image was played.
    pub fn end_part(&mut self, disk: usize) {
        self.disks[disk].open -= 1;
        self.disks[disk].check();
        self.parts_left -= 1;
        let unread: usize = self.disks.iter().map(|d| d.parts - d.next).sum();
        assert!(
            unread <= self.parts_left,
            "{unread} parts are unread and {} unplayed",
            self.parts_left
        );
    }

    /// Takes the next job of building the indexes. Takes the first index job only if `may_begin` is true.
    pub fn take_index(&mut self, may_begin: bool) -> Option<Job<P, U>> {
        match self.indexes {
            Indexes::Due => {
                let may_begin = may_begin && self.sidecars.reading == 0;
                may_begin.then(|| {
                    self.indexes = Indexes::Beginning;
                    Job::BeginIndexes
                })
            }
            Indexes::Building { left: 0, .. } => {
                self.indexes = Indexes::Ending;
                Some(Job::EndIndexes)
            }
            Indexes::Building { count, next, left } if next < count => {
                let next = next + 1;
                self.indexes = Indexes::Building { count, next, left };
                Some(Job::BuildIndex(next - 1))
            }
            Indexes::Building { .. } | Indexes::Beginning | Indexes::Ending | Indexes::Done => None,
        }
    }

    /// Notes that the log's end was found. `units` is the count of units in each stream.
    pub fn decide(&mut self, units: Vec<usize>) {
        assert_eq!(units.len(), self.streams.len(), "units of every stream");
        self.units_left = units.iter().sum();
        for (s, units) in self.streams.iter_mut().zip(units) {
            s.units = units;
            s.check();
        }
        self.decided = Decided::Yes;
    }

    /// Notes that all players have reached the end of the log.
    pub fn end_log(&mut self) {
        assert!(
            self.streams.iter().all(|s| s.next == s.units),
            "the log ends after its last unit"
        );
        self.log_end = Ending::Yes;
    }

    /// Notes that the indexes of a partition were built.
    pub fn end_index(&mut self) {
        let Indexes::Building { count, next, left } = &mut self.indexes else {
            unreachable!("indexes end after the last is built");
        };
        *left -= 1;
        assert!(
            *next <= *count && *count - *next <= *left,
            "{next} of {count} indexes were begun and {left} are left"
        );
    }
}

#[derive(PartialEq, Eq, Clone, Copy)]
pub(crate) enum Decided {
    No,
    Running,
    Yes,
}

/// The state of the step that ends the players after the last unit of the log.
#[derive(PartialEq, Eq, Clone, Copy)]
pub(crate) enum Ending {
    No,
    Running,
    Yes,
}

/// The progress of reading the sidecars. `next` is the index of the first sidecar that no job has taken. `reading`
/// counts the sidecars that are being read.
pub(crate) struct Sidecars {
    pub count: usize,
    pub next: usize,
    pub reading: usize,
}

/// The progress of the indexes.
#[derive(PartialEq, Eq, Clone, Copy)]
pub(crate) enum Indexes {
    /// The first job of the indexes has not been taken.
    Due,
    Beginning,
    /// Jobs build the indexes of `count` partitions. `next` is the first partition that no job has taken, and `left`
    /// counts the partitions not yet built.
    Building {
        count: usize,
        next: usize,
        left: usize,
    },
    Ending,
    Done,
}

pub(crate) enum Job<P, U> {
    ReadPart(usize, usize),
    PlayPart(usize, P),
    Scan(usize),
    Decide,
    ReadUnit(usize, usize),
    PlayUnit(usize, Arc<U>),
    Merge(usize),
    EndLog,
    ReadSidecar(usize),
    BeginIndexes,
    BuildIndex(usize),
    EndIndexes,
}

/// The kinds of work for which the report has separate times.
#[derive(PartialEq, Eq, Clone, Copy)]
pub(crate) enum Counts {
    Image,
    Log,
    Index,
    /// The job undoes transactions in a second pass, which measures its time itself.
    Undo,
    /// The job reads a sidecar. A thread does this only when it has nothing else to do.
    Nothing,
}

impl<P, U> Job<P, U> {
    pub fn counts(&self) -> Counts {
        match self {
            Job::ReadPart(..) | Job::PlayPart(..) => Counts::Image,
            Job::Scan(_) | Job::Decide | Job::ReadUnit(..) | Job::PlayUnit(..) | Job::Merge(_) => {
                Counts::Log
            }
            Job::EndLog => Counts::Undo,
            Job::ReadSidecar(_) => Counts::Nothing,
            Job::BeginIndexes | Job::BuildIndex(_) | Job::EndIndexes => Counts::Index,
        }
    }
}

/// The thread that asks for a job.
#[derive(Clone, Copy)]
pub(crate) enum Asker {
    Disk(usize),
    Stream(usize),
    Player,
    /// The only thread, which does all reading and playing. If several jobs are possible, the number decides which job
    /// the thread gets.
    Everyone(u64),
}
